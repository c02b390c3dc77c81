"""Comma-separated values (RFC 4180) that neither a terminal nor a spreadsheet obeys: names in them can be hostile."""

from collections.abc import Sequence

from omac.domain.kernel.terminal_escaping import printable
from omac.tools.terminal.invocation import current

FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # noqa: RUF001  # some spreadsheets take the wide ones too


def print_csv(cells: Sequence[str | int | float | None]) -> None:
    """Print a line of cells."""
    current().stdout.write(csv_line(cells))


def csv_line(cells: Sequence[str | int | float | None]) -> str:
    """Return a line of cells, with its end. None is an empty cell."""
    return ",".join(map(_cell, cells)) + "\r\n"


def _cell(value: str | int | float | None) -> str:
    """Return a cell; a text that a spreadsheet would run as a formula begins with an apostrophe."""
    if value is None:
        return ""
    if not isinstance(value, str):
        return str(value)
    text = printable(value)
    if text.lstrip().startswith(FORMULA):
        text = f"'{text}"
    if any(char in text for char in ',"') or text != text.strip():
        doubled = text.replace('"', '""')
        return f'"{doubled}"'
    return text
