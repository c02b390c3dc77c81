"""Tables of many small cases as one test that names every row that fails."""

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest


def failing(check: Callable[..., None], rows: Iterable[tuple[Any, ...]]) -> list[str]:
    """Return a line for each row that `check(*row)` raises for: the row, and the error. The table must have rows."""
    lines, table = [], list(rows)
    assert table, "a table without rows shows nothing"
    for row in table:
        try:
            check(*row)
        except (Exception, pytest.fail.Exception) as error:
            lines.append(f"{row!r}: {type(error).__name__}: {error}")
    return lines


def deviations(
    evolve: Callable[[Any, Any], Any], table: Mapping[Any, str], states: Mapping[Any, Any], events: Iterable[Any]
) -> list[str]:
    """Return a line for each state, by its status, and event with which `evolve` deviates from a transition table: an
    event leads to the status that the table has for it, and raises KeyError where it has none."""

    def check(status: str, event: object) -> None:
        if (status, type(event)) in table:
            assert evolve(states[status], event).status == table[status, type(event)]
        else:
            with pytest.raises(KeyError):
                evolve(states[status], event)

    return failing(check, itertools.product(states, events))
