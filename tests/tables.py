"""Tables of many small cases as one test that names every row that fails."""

from collections.abc import Callable, Iterable
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
