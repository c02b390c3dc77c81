"""The Merkle tree: RFC 6962's published vectors, a naive tree, and proofs that somebody changed."""

import random
from functools import partial
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omac.domain.evidence import merkle_tree as merkle
from omac.domain.evidence.merkle_tree import MerkleTree, leaf_hash

# The inputs and roots of Certificate Transparency's reference tests.
INPUTS = [bytes.fromhex(one) for one in (
    "", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f",
)]  # fmt: skip
ROOTS = (
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
)
INCLUSION = {  # index, size: the path
    (0, 8): (
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ),
    (5, 8): (
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ),
    (2, 3): ("fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",),
}
CONSISTENCY = {  # old, size: the path
    (1, 1): (),
    (1, 8): (
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ),
    (6, 8): (
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ),
}
SIZES = st.integers(1, 70)


def leaves_of(contents: list[bytes]) -> list[bytes]:
    """Their hashes."""
    return [leaf_hash(one) for one in contents]


def grown(leaves: list[bytes]) -> MerkleTree:
    """The tree of these leaves."""
    tree = MerkleTree()
    for leaf in leaves:
        tree.append(leaf)
    return tree


def naive(leaves: list[bytes]) -> bytes:
    """MTH, as the RFC defines it."""
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    k = 1
    while k * 2 < len(leaves):
        k *= 2
    return sha256(b"\1" + naive(leaves[:k]) + naive(leaves[k:])).digest()


def subtree(leaves: list[bytes]) -> merkle.Subtree:
    """The roots over parts of the leaves."""
    return partial(merkle.root_over, leaves.__getitem__)


def numbered(size: int) -> list[bytes]:
    """That many leaves, all different."""
    return leaves_of([str(number).encode() for number in range(size)])


def test_published_roots() -> None:
    assert [grown(leaves_of(INPUTS[:size])).root.hex() for size in range(1, 9)] == list(ROOTS)
    assert MerkleTree().root.hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.mark.parametrize(("index", "size"), INCLUSION)
def test_published_inclusion_proofs(index: int, size: int) -> None:
    leaves = leaves_of(INPUTS[:size])
    path = merkle.inclusion_proof(subtree(leaves), index, size)
    assert tuple(one.hex() for one in path) == INCLUSION[index, size]
    assert merkle.is_included(leaves[index], index, size, path, bytes.fromhex(ROOTS[size - 1]))


@pytest.mark.parametrize(("old", "size"), CONSISTENCY)
def test_published_consistency_proofs(old: int, size: int) -> None:
    path = merkle.consistency_proof(subtree(leaves_of(INPUTS[:size])), old, size)
    assert tuple(one.hex() for one in path) == CONSISTENCY[old, size]
    assert merkle.is_consistent(old, bytes.fromhex(ROOTS[old - 1]), size, bytes.fromhex(ROOTS[size - 1]), path)


@given(st.lists(st.binary(max_size=8), max_size=70), st.integers(0, 70))
def test_a_tree_goes_on_from_its_peaks(contents: list[bytes], at: int) -> None:
    leaves = leaves_of(contents)
    begun = grown(leaves[:at])
    tree = MerkleTree(begun.size, begun.peaks)
    for leaf in leaves[at:]:
        tree.append(leaf)
    assert tree.root == naive(leaves)
    assert tree.size == len(leaves)


@pytest.mark.parametrize(("size", "peaks"), [(1, b""), (-1, b""), (3, b"x" * 32), (0, b"x" * 32), (1, b"x" * 31)])
def test_peaks_of_another_size_are_refused(size: int, peaks: bytes) -> None:
    with pytest.raises(ValueError, match="are not the peaks"):
        MerkleTree(size, peaks)


@pytest.mark.parametrize("size", range(1, 34))
def test_every_leaf_and_every_beginning_is_proven(size: int) -> None:
    leaves = numbered(size)
    root = naive(leaves)
    for number in range(size):
        path = merkle.inclusion_proof(subtree(leaves), number, size)
        assert merkle.is_included(leaves[number], number, size, path, root)
        old = number + 1
        path = merkle.consistency_proof(subtree(leaves), old, size)
        assert merkle.is_consistent(old, naive(leaves[:old]), size, root, path)


def changed(path: list[bytes], chance: random.Random) -> list[bytes]:
    """A path that is not this one."""
    which = chance.randrange(4) if path else 0
    at = chance.randrange(len(path)) if path else 0
    if which == 0:
        return [*path, sha256(b"more").digest()]
    if which == 1:
        return path[:at] + path[at + 1 :]
    if which == 2 and len(set(path)) > 1:
        return path[::-1] if path != path[::-1] else path[1:]
    flipped = bytes([path[at][0] ^ 1]) + path[at][1:]
    return [*path[:at], flipped, *path[at + 1 :]]


@given(SIZES, st.randoms(use_true_random=False))
def test_a_changed_proof_of_inclusion_proves_nothing(size: int, chance: random.Random) -> None:
    leaves, root = numbered(size), naive(numbered(size))
    index = chance.randrange(size)
    path = merkle.inclusion_proof(subtree(leaves), index, size)
    assert not merkle.is_included(leaves[index], index, size, changed(path, chance), root)
    assert not merkle.is_included(leaf_hash(b"another"), index, size, path, root)
    assert not merkle.is_included(leaves[index], index, size, path, sha256(b"another").digest())
    for other in {index - 1, index + 1, size, -1} - {index}:
        assert not merkle.is_included(leaves[index], other, size, path, root)


@given(SIZES, st.randoms(use_true_random=False))
def test_a_changed_proof_of_consistency_proves_nothing(size: int, chance: random.Random) -> None:
    leaves, root = numbered(size), naive(numbered(size))
    old = chance.randint(1, size)
    path, before = merkle.consistency_proof(subtree(leaves), old, size), naive(leaves[:old])
    assert not merkle.is_consistent(old, before, size, root, changed(path, chance))
    assert not merkle.is_consistent(old, sha256(b"another").digest(), size, root, path)
    assert not merkle.is_consistent(old, before, size, sha256(b"another").digest(), path)
    assert not merkle.is_consistent(size + 1, before, size, root, path)
    assert not merkle.is_consistent(0, before, size, root, path)


def test_what_is_not_in_a_tree_has_no_proof() -> None:
    leaves = subtree(numbered(4))
    for index, size in ((4, 4), (-1, 4), (0, 0)):
        with pytest.raises(ValueError, match="is not in a tree"):
            merkle.inclusion_proof(leaves, index, size)
    for old, size in ((0, 4), (5, 4)):
        with pytest.raises(ValueError, match="grew from"):
            merkle.consistency_proof(leaves, old, size)
