"""What a terminal is given of texts that anybody may have written."""

import os

import pytest

from omac.domain.printable import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("plain text, and ünïcödé", "plain text, and ünïcödé"),
        ("a\x1b[2J\r\n\tb", "a\\x1b[2J\\r\\n\\tb"),
        ("\u202egnp.exe", "\\u202egnp.exe"),  # would be shown backwards
        ("\U000e0041", "\\U000e0041"),
        (os.fsdecode(b"caf\xe9"), "caf\\udce9"),
        ("back\\slash 'quoted'", "back\\slash 'quoted'"),
    ],
)
def test_nothing_of_it_is_obeyed(text: str, shown: str) -> None:
    """Control characters, directions and broken bytes become escapes; what can be seen stays as it is."""
    assert printable(text) == shown
    assert shown.isprintable()
    shown.encode()
