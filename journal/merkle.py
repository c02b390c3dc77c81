"""The Merkle tree of RFC 6962: hashes, roots, inclusion and consistency proofs, and their verification. Pure.

Rules

1. A leaf is SHA-256(0x00 || content), an inner node SHA-256(0x01 || left || right), the root of nothing SHA-256("").
2. A tree grows by its *peaks*: the roots of its perfect subtrees, largest first, one for each bit of its size.
   Appending needs nothing else, and costs one node on average.
3. A proof is a list of subtree roots. Which subtrees, is computed without a hash (`inclusion_ranges`,
   `consistency_ranges`): whoever has the leaves hashes those ranges, in one pass.
4. A verification takes nothing for granted: a wrong length, a wrong size or an unused hash is a proof that fails.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import islice

HASH_BYTES = 32
EMPTY_ROOT = sha256(b"").digest()

Range = tuple[int, int]  # the leaves from an index up to, and without, another


def leaf_hash(content: bytes) -> bytes:
    """Return the hash of a leaf with this content, 32 bytes."""
    return sha256(b"\x00" + content).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node, 32 bytes."""
    return sha256(b"\x01" + left + right).digest()


class MerkleTree:
    """A tree that grows: its size, and its peaks."""

    def __init__(self, size: int = 0, peaks: Sequence[bytes] = ()) -> None:
        """Continue a tree of `size` leaves. Raises ValueError where `peaks` are not as many as its size has bits."""
        if size < 0 or len(peaks) != size.bit_count() or any(len(peak) != HASH_BYTES for peak in peaks):
            raise ValueError(f"{len(peaks)} peaks cannot be those of {size} leaves")
        self.size = size
        self.peaks = list(peaks)

    def append(self, leaf: bytes) -> None:
        """Add the hash of one more leaf."""
        size, peaks = self.size, self.peaks
        self.size = size + 1
        while size & 1:
            leaf = sha256(b"\x01" + peaks.pop() + leaf).digest()
            size >>= 1
        peaks.append(leaf)

    def append_subtree(self, root: bytes, leaves: int) -> None:
        """Add the root of a perfect subtree of so many leaves. Raises ValueError where none can begin."""
        if leaves < 1 or leaves & (leaves - 1) or self.size % leaves:
            raise ValueError(f"no perfect subtree of {leaves} leaves begins behind {self.size} leaves")
        size = self.size
        self.size += leaves
        while size & leaves:
            root = node_hash(self.peaks.pop(), root)
            leaves <<= 1
        self.peaks.append(root)

    def extend(self, leaves: Sequence[bytes]) -> None:
        """Add the hashes of leaves, in order; perfect subtrees at once, which costs half of what `append` does."""
        done, count = 0, len(leaves)
        while done < count:
            width = 1 << ((count - done).bit_length() - 1)
            if self.size:
                width = min(width, self.size & -self.size)
            self.append_subtree(perfect_root(leaves[done : done + width]), width)
            done += width

    def root(self) -> bytes:
        """Return the root of all leaves so far."""
        if not self.peaks:
            return EMPTY_ROOT
        root = self.peaks[-1]
        for peak in reversed(self.peaks[:-1]):
            root = node_hash(peak, root)
        return root


def gap_ranges(start: int, end: int) -> list[Range]:
    """Return the largest perfect subtrees that together have the leaves from `start` up to, and without, `end`."""
    ranges: list[Range] = []
    while start < end:
        leaves = start & -start if start else 1 << (end - start).bit_length() - 1
        while leaves > end - start:
            leaves >>= 1
        ranges.append((start, start + leaves))
        start += leaves
    return ranges


def perfect_root(leaves: Sequence[bytes]) -> bytes:
    """Return the root of a tree with these leaf hashes, which are a power of two: `root_of`, level by level."""
    nodes = leaves
    while len(nodes) > 1:
        pairs = iter(nodes)
        nodes = [sha256(b"\x01" + left + right).digest() for left, right in zip(pairs, pairs, strict=True)]
    return nodes[0]


def root_of(leaves: Iterable[bytes]) -> bytes:
    """Return the root of a tree with these leaf hashes."""
    tree, rest = MerkleTree(), iter(leaves)
    while part := list(islice(rest, 1_024)):
        tree.extend(part)
    return tree.root()


def inclusion_ranges(index: int, size: int) -> list[Range]:
    """Return the ranges whose roots prove that leaf `index` is in the tree of `size` leaves: PATH(m, D[n]) of RFC 6962.
    Raises ValueError for an index outside of the tree."""
    if not 0 <= index < size:
        raise ValueError(f"a tree of {size} leaves has no leaf {index}")
    ranges: list[Range] = []
    start, end = 0, size
    while end - start > 1:
        middle = start + _split(end - start)
        if index < middle:
            ranges.append((middle, end))
            end = middle
        else:
            ranges.append((start, middle))
            start = middle
    return ranges[::-1]


def consistency_ranges(first: int, second: int) -> list[Range]:
    """Return the ranges whose roots prove that the tree of `second` leaves continues that of `first`: PROOF(m, D[n]) of
    RFC 6962; none for an empty or an equal tree. Raises ValueError where `second` is less than `first`."""
    if not 0 <= first <= second:
        raise ValueError(f"a tree of {second} leaves cannot continue one of {first}")
    if first in (0, second):
        return []
    ranges: list[Range] = []
    start, end = 0, second
    while end != first:
        middle = start + _split(end - start)
        if first <= middle:
            ranges.append((middle, end))
            end = middle
        else:
            ranges.append((start, middle))
            start = middle
    if start:
        ranges.append((start, end))
    return ranges[::-1]


def includes(root: bytes, size: int, index: int, leaf: bytes, proof: Sequence[bytes]) -> bool:
    """Return whether `proof` shows that `leaf` (its hash) is leaf `index` of the tree with this root and size."""
    if not 0 <= index < size or not _are_hashes((root, leaf, *proof)):
        return False
    position, last, current = index, size - 1, leaf
    for sibling in proof:
        if not last:
            return False
        if position & 1 or position == last:
            current = node_hash(sibling, current)
            while not position & 1 and position:
                position >>= 1
                last >>= 1
        else:
            current = node_hash(current, sibling)
        position >>= 1
        last >>= 1
    return not last and current == root


def continues(first: int, first_root: bytes, second: int, second_root: bytes, proof: Sequence[bytes]) -> bool:
    """Return whether `proof` shows that the tree of `second` leaves begins with all `first` leaves of the other."""
    if not 0 <= first <= second or not _are_hashes((first_root, second_root, *proof)):
        return False
    if first == second:
        return not proof and first_root == second_root
    if first == 0:
        return not proof and first_root == EMPTY_ROOT
    hashes = list(proof)
    if not first & (first - 1):  # the first tree is a perfect subtree: its root is known
        hashes.insert(0, first_root)
    if not hashes:
        return False
    position, last = first - 1, second - 1
    while position & 1:
        position >>= 1
        last >>= 1
    old = new = hashes[0]
    for sibling in hashes[1:]:
        if not last:
            return False
        if position & 1 or position == last:
            old, new = node_hash(sibling, old), node_hash(sibling, new)
            while not position & 1 and position:
                position >>= 1
                last >>= 1
        else:
            new = node_hash(new, sibling)
        position >>= 1
        last >>= 1
    return not last and old == first_root and new == second_root


def _split(count: int) -> int:
    """Return the largest power of two below `count`, which is at least 2."""
    return 1 << ((count - 1).bit_length() - 1)


def _are_hashes(values: Iterable[bytes]) -> bool:
    return all(len(value) == HASH_BYTES for value in values)
