"""tools/terminal/columns.py: lines that fit a terminal."""

import pytest

from omac.tools.terminal.columns import elided, elided_middle, folded


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [("abc", 3, "abc"), ("abcdef", 5, "ab..."), ("abcdef", 6, "abcdef"), ("abcd", 2, "...")],
)
def test_an_end_is_left_out(text: str, width: int, expected: str) -> None:
    """Only where the text is longer."""
    assert elided(text, width) == expected


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [("/home/me/shop", 20, "/home/me/shop"), ("/home/me/projects/shop", 12, "/ho...s/shop")],
)
def test_a_middle_is_left_out(text: str, width: int, expected: str) -> None:
    """The end of a path tells more than its beginning."""
    assert elided_middle(text, width) == expected
    assert len(expected) <= width


def test_a_line_is_folded_between_words() -> None:
    """What goes on is indented; a word that is longer than the terminal stays whole; the beginning keeps its blanks."""
    assert folded("short", 80, 4) == ["short"]
    assert folded("  one two three", 10, 4) == ["  one two", "    three"]
    assert folded("in /a/path/that/is/long ok", 12, 2) == ["in", "  /a/path/that/is/long", "  ok"]
