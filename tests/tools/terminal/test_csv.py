"""tools/terminal/csv.py: cells that are data, for a reader of RFC 4180, a terminal and a spreadsheet."""

import csv
from io import StringIO

import pytest

from omac.tools.terminal.csv import print_csv
from omac.tools.terminal.invocation import Invocation, working_for


def printed(*cells: str | int | float | None) -> str:
    """Return the output for one line of cells."""
    out = StringIO()
    with working_for(Invocation({}, None, out, StringIO())):
        print_csv(cells)
    return out.getvalue()


def test_a_line() -> None:
    """Numbers are printed as they are, None as nothing, and quotes are doubled."""
    assert printed("a", None, -1, 0.5, 'say "x, y"', "") == 'a,,-1,0.5,"say ""x, y""",\r\n'


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", " =1", '=HYPERLINK("http://x","y")', "\uff1d1"])
def test_no_cell_is_a_formula(text: str) -> None:
    """An apostrophe before a formula makes it text."""
    ((cell,),) = csv.reader([printed(text)])
    assert cell == f"'{text}"


@pytest.mark.parametrize("text", ["\t=1", "\r=1", "a\nb", "\x1b[31m", "a\u202eb"])
def test_nothing_is_obeyed(text: str) -> None:
    """Control characters are escaped, so a record is a line."""
    line = printed(text)
    assert line.removesuffix("\r\n").isprintable()
    assert not line.startswith("=")
