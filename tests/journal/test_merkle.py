"""The Merkle tree: RFC 6962's vectors, a naive tree beside it, and no proof that holds after a change."""

import hashlib
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omac.journal.merkle import (
    EMPTY_ROOT,
    MerkleTree,
    consistency_ranges,
    continues,
    includes,
    inclusion_ranges,
    leaf_hash,
    root_of,
)

# The vectors of RFC 6962's reference implementation: contents, and the roots of the first one, two, ... leaves.
CONTENTS = [
    bytes.fromhex(text)
    for text in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f")
]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
PATHS = {  # index and size: the published audit path
    (0, 1): "",
    (0, 8): """
        96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7
        5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e
        6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4
    """,
    (5, 8): """
        bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b
        ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0
        d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7
    """,
    (2, 3): "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    (1, 5): """
        6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d
        5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e
        bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b
    """,
}
CONSISTENCY = {  # sizes: the published proof
    (1, 1): "",
    (1, 8): """
        96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7
        5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e
        6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4
    """,
    (6, 8): """
        0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a
        ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0
        d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7
    """,
    (2, 5): """
        5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e
        bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b
    """,
}
LEAVES = [leaf_hash(content) for content in CONTENTS]
SIZES = st.integers(1, 200)


def naive(leaves: Sequence[bytes]) -> bytes:
    """Return the root as RFC 6962 defines it."""
    if len(leaves) < 2:
        return leaves[0] if leaves else hashlib.sha256().digest()
    middle = 1
    while middle * 2 < len(leaves):
        middle *= 2
    return hashlib.sha256(b"\x01" + naive(leaves[:middle]) + naive(leaves[middle:])).digest()


def numbered(count: int) -> list[bytes]:
    """Return so many leaves, all different."""
    return [leaf_hash(str(number).encode()) for number in range(count)]


def path(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """Return the inclusion proof of a leaf."""
    return [root_of(leaves[start:end]) for start, end in inclusion_ranges(index, len(leaves))]


def consistency(leaves: Sequence[bytes], first: int) -> list[bytes]:
    """Return the proof that the tree of all leaves continues that of the first ones."""
    return [root_of(leaves[start:end]) for start, end in consistency_ranges(first, len(leaves))]


def hexes(text: str) -> list[bytes]:
    """Return hashes from their published form."""
    return [bytes.fromhex(word) for word in text.split()]


def test_published_roots() -> None:
    """A tree has, after each leaf, the root that was published."""
    tree = MerkleTree()
    assert tree.root() == EMPTY_ROOT == hashlib.sha256(b"").digest()
    for leaf, root in zip(LEAVES, ROOTS, strict=True):
        tree.append(leaf)
        assert tree.root().hex() == root


@pytest.mark.parametrize(("index", "size"), PATHS)
def test_published_inclusion_proofs(index: int, size: int) -> None:
    """Inclusion proofs are those that were published, and hold."""
    proof = path(LEAVES[:size], index)
    assert proof == hexes(PATHS[index, size])
    assert includes(bytes.fromhex(ROOTS[size - 1]), size, index, LEAVES[index], proof)


@pytest.mark.parametrize(("first", "second"), CONSISTENCY)
def test_published_consistency_proofs(first: int, second: int) -> None:
    """Consistency proofs are those that were published, and hold."""
    proof = consistency(LEAVES[:second], first)
    assert proof == hexes(CONSISTENCY[first, second])
    roots = [bytes.fromhex(ROOTS[size - 1]) for size in (first, second)]
    assert continues(first, roots[0], second, roots[1], proof)


@given(SIZES, st.integers(0, 200))
def test_a_tree_continues_from_its_peaks(size: int, at: int) -> None:
    """A tree that is continued from a stored size and peaks has the root of a naive tree."""
    leaves = numbered(size)
    begun = MerkleTree()
    begun.extend(leaves[:at])
    tree = MerkleTree(begun.size, begun.peaks)
    tree.extend(leaves[at:])
    assert tree.size == size
    assert tree.root() == naive(leaves)


@given(st.data(), SIZES)
def test_inclusion(data: st.DataObject, size: int) -> None:
    """Every leaf can be proven, at its place and at no other, in its tree and in no other."""
    leaves = numbered(size)
    index = data.draw(st.integers(0, size - 1))
    root, proof = naive(leaves), path(leaves, index)
    assert includes(root, size, index, leaves[index], proof)
    wrong = data.draw(st.integers(-1, size).filter(lambda at: at != index))
    assert not includes(root, size, wrong, leaves[index], proof)
    assert not includes(root, size, index, leaf_hash(b"another"), proof)
    assert not includes(naive(numbered(size + 1)), size + 1, index, leaves[index], proof)


@given(st.data(), SIZES)
def test_consistency(data: st.DataObject, size: int) -> None:
    """A tree continues each of its beginnings, but none in which a leaf is changed."""
    leaves = numbered(size)
    first = data.draw(st.integers(0, size))
    proof = consistency(leaves, first)
    assert continues(first, naive(leaves[:first]), size, naive(leaves), proof)
    if first:
        edited = leaves[:first]
        edited[data.draw(st.integers(0, first - 1))] = leaf_hash(b"another")
        assert not continues(first, naive(edited), size, naive(leaves), proof)
    if first < size:
        assert not continues(size, naive(leaves), first, naive(leaves[:first]), proof)


@given(st.data(), st.integers(2, 200))
def test_no_tampered_proof_holds(data: st.DataObject, size: int) -> None:
    """A proof with a hash changed, cut, missing, doubled or added fails, be it of inclusion or of consistency."""
    leaves = numbered(size)
    index, first = data.draw(st.integers(0, size - 1)), data.draw(st.integers(1, size - 1))
    root, first_root = naive(leaves), naive(leaves[:first])
    checked: list[tuple[list[bytes], Callable[[Sequence[bytes]], bool]]] = [
        (path(leaves, index), lambda proof: includes(root, size, index, leaves[index], proof)),
        (consistency(leaves, first), lambda proof: continues(first, first_root, size, root, proof)),
    ]
    for proof, holds in checked:
        assert holds(proof)
        at, bit = data.draw(st.integers(0, len(proof) - 1)), data.draw(st.integers(0, 255))
        flipped = bytearray(proof[at])
        flipped[bit // 8] ^= 1 << bit % 8
        for tampered in (
            [*proof[:at], bytes(flipped), *proof[at + 1 :]],
            [*proof[:at], proof[at][:-1], *proof[at + 1 :]],
            [*proof[:at], *proof[at + 1 :]],
            [*proof[: at + 1], *proof[at:]],
            [*proof, root],
            [],
        ):
            assert not holds(tampered)


@pytest.mark.parametrize(("size", "peaks"), [(3, 1), (-1, 0), (0, 1), (4, 2)])
def test_peaks_that_cannot_be(size: int, peaks: int) -> None:
    """A tree is not continued from peaks of another size."""
    with pytest.raises(ValueError, match="peaks"):
        MerkleTree(size, [EMPTY_ROOT] * peaks)


def test_proofs_that_cannot_be() -> None:
    """Proofs about a leaf that does not exist, or about a tree that shrinks, are refused."""
    with pytest.raises(ValueError, match="no leaf"):
        inclusion_ranges(3, 3)
    with pytest.raises(ValueError, match="cannot continue"):
        consistency_ranges(4, 3)
    assert not continues(-1, EMPTY_ROOT, 0, EMPTY_ROOT, [])
    assert not continues(0, EMPTY_ROOT, 1, EMPTY_ROOT, [EMPTY_ROOT])
