"""tools/terminal/columns.py: lines that fit a terminal."""

import pytest

from omac.tools.terminal.columns import columns, cut, elided, elided_middle, folded, padded


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("abc", 3, "abc"),
        ("abcdef", 5, "ab..."),
        ("abcdef", 6, "abcdef"),
        ("abcd", 2, "..."),
        ("\uff21\uff22\uff23", 6, "\uff21\uff22\uff23"),
        ("\uff21\uff22\uff23", 5, "\uff21..."),
        ("a\U0001f600b", 3, "..."),
    ],
)
def test_an_end_is_left_out(text: str, width: int, expected: str) -> None:
    """The end of a text is left out only if the text is too long."""
    assert elided(text, width) == expected


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("/home/me/shop", 20, "/home/me/shop"),
        ("/home/me/projects/shop", 12, "/ho...s/shop"),
        ("/home/\uff21\uff22/shop", 12, "/ho.../shop"),
    ],
)
def test_a_middle_is_left_out(text: str, width: int, expected: str) -> None:
    """A path loses its middle, because its end matters more than its beginning."""
    assert elided_middle(text, width) == expected
    assert columns(expected) <= width


def test_a_line_is_folded_between_words() -> None:
    """Further lines are indented. A word longer than the terminal stays whole, and the beginning keeps its blanks."""
    assert folded("short", 80, 4) == ["short"]
    assert folded("  one two three", 10, 4) == ["  one two", "    | three"]
    assert folded("in /a/path/that/is/long ok", 12, 2) == ["in", "  | /a/path/that/is/long", "  | ok"]
    assert folded("\uff21\uff22\uff23  used", 9, 2) == ["\uff21\uff22\uff23", "  | used"]


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("", 8, [""]),
        ("+ abcdef", 8, ["+ abcdef"]),
        ("+ abcdefomac: ok", 8, ["+ abcdef", "+| omac:", "+|  ok"]),
        ("+      omac: ok", 7, ["+      ", "+| omac", "+| : ok"]),
        ("+日本語", 5, ["+日本", "+| 語"]),
        ("+abcdef", 1, ["+abcd", "+| ef"]),
    ],
)
def test_a_line_of_a_file_is_cut(text: str, width: int, expected: list[str]) -> None:
    """A line is shown whole, and only its own beginning at the left edge, also where little room is."""
    assert cut(text, width, "+| ") == expected


def test_a_cell_is_padded_by_what_it_takes() -> None:
    """A cell is padded by the columns that it takes, so that the next one stands below its head."""
    assert padded("ab", 4) == "ab  "
    assert padded("\uff21b", 4) == "\uff21b "
