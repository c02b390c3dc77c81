"""The tests of every run, and those that only a run with `--all` adds.

A run with `--all` leaves nothing out. Without it, tests marked `full` are deselected, and property tests try fewer
examples.
"""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations, product
from typing import Any

import pytest
from _pytest.mark import ParameterSet

VARIABLE = "OMAC_TESTS"  # "all" in a run with --all; processes that the tests start inherit it
EXAMPLES_USUALLY_MIN = 10


def everything() -> bool:
    """Return whether this run leaves nothing out."""
    return os.environ.get(VARIABLE) == "all"


def examples(count: int) -> int:
    """Return how many examples of `count` a property test tries: without `--all` a tenth, but no fewer than ten."""
    return count if everything() else max(EXAMPLES_USUALLY_MIN, count // 10)


def some(values: Iterable[Any], of: int) -> list[ParameterSet]:
    """Return `values` as parameters; a run without `--all` has one of each `of` that follow each other."""
    rows = [value if isinstance(value, tuple) else (value,) for value in values]
    return [pytest.param(*row, marks=pytest.mark.full if at % of else ()) for at, row in enumerate(rows)]


def spread(*axes: Mapping[str, Any] | Iterable[Any]) -> list[ParameterSet]:
    """Return the product of `axes` as parameters; those that no run without `--all` needs are marked `full`.

    Of two axes every value is needed once, of more every pair of values (pairwise testing).
    """
    values = [list(axis) for axis in axes]
    needed = covering(values)
    return [
        pytest.param(*row, id="-".join(map(str, row)), marks=() if row in needed else pytest.mark.full)
        for row in product(*values)
    ]


def covering(axes: Sequence[Collection[Any]]) -> set[tuple[Any, ...]]:
    """Return rows of the product of `axes` that have each value (two axes) or each pair of values (more) at least once.

    Greedy: the row with most new parts comes next, of equals the one whose values were used least. Always the same.
    """
    strength = 1 if len(axes) < 3 else 2
    index_sets = list(combinations(range(len(axes)), strength))

    def parts(row: tuple[Any, ...]) -> set[tuple[Any, ...]]:
        return {(indexes, tuple(row[index] for index in indexes)) for indexes in index_sets}

    rows = list(product(*axes))
    missing = set[tuple[Any, ...]]().union(*map(parts, rows))
    uses = {(index, value): 0 for index, axis in enumerate(axes) for value in axis}
    chosen: set[tuple[Any, ...]] = set()
    while missing:
        row = max(rows, key=lambda row: (len(parts(row) & missing), -sum(uses[cell] for cell in enumerate(row))))
        chosen.add(row)
        missing -= parts(row)
        for cell in enumerate(row):
            uses[cell] += 1
    return chosen
