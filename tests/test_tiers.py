"""tests/tiers.py: a run without `--all` leaves out no value of two axes, and no pair of values of more."""

from itertools import combinations, product

import pytest
from tiers import covering, spread

AXES: list[list[object]] = [["a", "b", "c", "d"], [1, 2, 3], [True, False], ["x", "y", "z"]]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_every_value_or_pair_is_covered(count: int) -> None:
    """Fewer rows than the product has cover every value or pair; they are the same each time."""
    axes = AXES[:count]
    rows = covering(axes)
    assert rows == covering(axes)
    assert rows <= set(product(*axes))
    assert count == 1 or len(rows) < len(list(product(*axes)))
    for index, axis in enumerate(axes):
        assert {row[index] for row in rows} == set(axis)
    if count > 2:
        for first, second in combinations(range(count), 2):
            assert {(row[first], row[second]) for row in rows} == set(product(axes[first], axes[second]))


def test_of_two_axes_the_longer_one_counts() -> None:
    """Each value of the longer axis comes once, those of the other equally often."""
    rows = covering([range(22), range(5)])
    assert sorted(first for first, _ in rows) == list(range(22))
    assert {sum(second == number for _, second in rows) for number in range(5)} == {4, 5}


def test_the_whole_product_is_there() -> None:
    """Parameters that no run without `--all` needs are marked `full`, and none is lost."""
    parameters = spread({"a": 0, "b": 0}, [1, 2, 3])
    assert [tuple(parameter.values) for parameter in parameters] == list(product("ab", [1, 2, 3]))
    assert [parameter.id for parameter in parameters][:2] == ["a-1", "a-2"]
    assert sum(any(mark.name == "full" for mark in parameter.marks) for parameter in parameters) == 3
