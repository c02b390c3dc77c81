"""journal/merkle.py: some leaves, and the roots of all between them, have the root of the whole tree."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omac.journal.merkle import MerkleTree, gap_ranges, leaf_hash, perfect_root, root_of


@given(size=st.integers(0, 130), data=st.data())
def test_the_root_of_the_whole_tree(size: int, data: st.DataObject) -> None:
    """Any known leaves and the roots of the gaps between them give the root of the whole tree."""
    leaves = [leaf_hash(bytes([number])) for number in range(size)]
    indexes = sorted(data.draw(st.sets(st.integers(0, size - 1)))) if size else []
    tree = MerkleTree()
    for index in (*indexes, size):
        for start, end in gap_ranges(tree.size, index):
            tree.append_subtree(perfect_root(leaves[start:end]), end - start)
        if index < size:
            tree.append(leaves[index])
    assert (tree.size, tree.root()) == (size, root_of(leaves))


@given(start=st.integers(0, 5_000), length=st.integers(0, 5_000))
def test_gaps_are_few_perfect_subtrees(start: int, length: int) -> None:
    """A gap consists of aligned, perfect subtrees, one behind the other, at most two of each size."""
    ranges = gap_ranges(start, start + length)
    assert [first for first, _ in ranges] + [start + length] == [start] + [last for _, last in ranges]
    sizes = [last - first for first, last in ranges]
    assert all(size & (size - 1) == 0 and first % size == 0 for (first, _), size in zip(ranges, sizes, strict=True))
    assert all(sizes.count(size) <= 2 for size in sizes)


@pytest.mark.parametrize(("before", "leaves"), [(1, 2), (2, 4), (0, 3), (0, 0), (0, -2), (6, 4)])
def test_no_subtree_begins_there(before: int, leaves: int) -> None:
    """A subtree that would make another tree of the same hashes is refused."""
    tree = MerkleTree()
    for number in range(before):
        tree.append(leaf_hash(bytes([number])))
    with pytest.raises(ValueError, match="no perfect subtree"):
        tree.append_subtree(b"r" * 32, leaves)
