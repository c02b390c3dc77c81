"""tests/tables.py: a row that fails is named, and hides no other."""

import pytest
from tables import failing


def test_each_row_that_fails_is_named() -> None:
    """A row fails by an assertion that does not hold, by an error, or by an expected error that did not come."""

    def check(number: int, text: str) -> None:
        assert number != 1
        if number == 2:
            raise KeyError(text)
        if number == 3:
            with pytest.raises(ValueError, match="x"):
                pass

    lines = failing(check, [(0, "a"), (1, "b"), (2, "c"), (3, "d"), (4, "e")])
    assert [line.partition(":")[0] for line in lines] == ["(1, 'b')", "(2, 'c')", "(3, 'd')"]
    assert failing(check, [(0, "a")]) == []


def test_an_empty_table_is_an_error() -> None:
    """An empty table is refused: it would check nothing."""
    with pytest.raises(AssertionError, match="without rows"):
        failing(print, [])
