"""The Merkle tree of RFC 6962, section 2.1: its root, and proofs that a leaf is in it or that it only grew.

A tree is known by its size and its peaks: the roots of the largest complete subtrees, left to right, one for each bit
that is set in the size. That is all that is needed to append a leaf or to know the root. Hashes are SHA-256, 32 bytes;
`index` counts leaves from 0.
"""

from collections.abc import Callable, Sequence
from hashlib import sha256

HASH_BYTES = 32
EMPTY_ROOT = sha256(b"").digest()

LeafAt = Callable[[int], bytes]  # the hash of the leaf with an index
Subtree = Callable[[int, int], bytes]  # the root over the leaves from one index up to, without, another


def leaf_hash(content: bytes) -> bytes:
    """Return the hash of a leaf with `content`."""
    return sha256(b"\0" + content).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of the node above two others."""
    return sha256(b"\1" + left + right).digest()


class MerkleTree:
    """A tree that leaves are appended to."""

    def __init__(self, size: int = 0, peaks: bytes = b"") -> None:
        """Go on with a tree of `size` leaves, whose `peaks` are one after the other. Raises ValueError if they cannot
        be those of that size."""
        if size < 0 or len(peaks) != HASH_BYTES * size.bit_count():
            raise ValueError(f"{len(peaks)} bytes are not the peaks of a tree of {size} leaves")
        self.size = size
        self._peaks = [peaks[at : at + HASH_BYTES] for at in range(0, len(peaks), HASH_BYTES)]

    @property
    def peaks(self) -> bytes:
        """The peaks, left to right."""
        return b"".join(self._peaks)

    @property
    def root(self) -> bytes:
        """The root of the whole tree."""
        if not self._peaks:
            return EMPTY_ROOT
        *lefts, root = self._peaks
        for peak in reversed(lefts):
            root = node_hash(peak, root)
        return root

    def append(self, leaf: bytes) -> None:
        """Append a leaf by its hash."""
        peaks, complete = self._peaks, self.size
        while complete & 1:
            leaf = node_hash(peaks.pop(), leaf)
            complete >>= 1
        peaks.append(leaf)
        self.size += 1


def root_over(leaf_at: LeafAt, begin: int, end: int) -> bytes:
    """Return the root over the leaves from index `begin` up to, without, `end`."""
    tree = MerkleTree()
    for index in range(begin, end):
        tree.append(leaf_at(index))
    return tree.root


def inclusion_proof(subtree: Subtree, index: int, size: int) -> list[bytes]:
    """Return the hashes that lead from the leaf at `index` to the root of a tree of `size`, lowest first: PATH of the
    RFC. Raises ValueError for a leaf that is not in it."""
    if not 0 <= index < size:
        raise ValueError(f"leaf {index} is not in a tree of {size}")
    path, begin, end = [], 0, size
    while end - begin > 1:
        middle = begin + _split(end - begin)
        if index < middle:
            path.append(subtree(middle, end))
            end = middle
        else:
            path.append(subtree(begin, middle))
            begin = middle
    return path[::-1]


def consistency_proof(subtree: Subtree, old: int, size: int) -> list[bytes]:
    """Return the hashes that prove that the tree of `size` begins with that of `old` leaves: PROOF of the RFC. Raises
    ValueError unless 0 < old <= size."""
    if not 0 < old <= size:
        raise ValueError(f"no tree of {size} leaves grew from one of {old}")
    path, begin, end, is_whole = [], 0, size, True
    while old - begin != end - begin:
        middle = begin + _split(end - begin)
        if old <= middle:
            path.append(subtree(middle, end))
            end = middle
        else:
            path.append(subtree(begin, middle))
            begin, is_whole = middle, False
    return [*([] if is_whole else [subtree(begin, end)]), *path[::-1]]


def is_included(leaf: bytes, index: int, size: int, path: Sequence[bytes], root: bytes) -> bool:
    """Whether `path` proves that the leaf with this hash is at `index` of the tree of `size` with `root`; RFC 9162,
    section 2.1.3.2."""
    if not 0 <= index < size or any(len(one) != HASH_BYTES for one in path):
        return False
    node, last = index, size - 1
    for sibling in path:
        if last == 0:
            return False
        if node & 1 or node == last:
            leaf = node_hash(sibling, leaf)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            leaf = node_hash(leaf, sibling)
        node, last = node >> 1, last >> 1
    return last == 0 and leaf == root


def is_consistent(old: int, old_root: bytes, size: int, root: bytes, path: Sequence[bytes]) -> bool:
    """Whether `path` proves that the tree of `size` begins with the tree of `old` leaves, each by its root; RFC
    9162, section 2.1.4.2."""
    if not 0 < old <= size or any(len(one) != HASH_BYTES for one in path):
        return False
    if old == size:
        return not path and old_root == root
    hashes = [old_root, *path] if old & (old - 1) == 0 else list(path)
    if not hashes:
        return False
    node, last = old - 1, size - 1
    while node & 1:
        node, last = node >> 1, last >> 1
    before = after = hashes[0]
    for sibling in hashes[1:]:
        if last == 0:
            return False
        if node & 1 or node == last:
            before, after = node_hash(sibling, before), node_hash(sibling, after)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            after = node_hash(after, sibling)
        node, last = node >> 1, last >> 1
    return last == 0 and before == old_root and after == root


def _split(size: int) -> int:
    """The largest power of two below `size`, which is above 1."""
    return 1 << (size - 1).bit_length() - 1
