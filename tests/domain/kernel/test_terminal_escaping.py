"""Texts that anybody may have written, as a terminal gets them."""

import json
import os
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omac.domain.kernel.terminal_escaping import named, printable, printable_json


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("plain text, and ünïcödé", "plain text, and ünïcödé"),
        ("a\x1b[2J\r\n\tb", "a\\x1b[2J\\r\\n\\tb"),
        ("\u202egnp.exe", "\\u202egnp.exe"),  # would be shown backwards
        ("\U000e0041", "\\U000e0041"),
        ("timeout,\u3164", "timeout,\\u3164"),  # a letter, and so a variable's name
        ("a\u2800b\ufe0f\u034f\U000e0100", "a\\u2800b\\ufe0f\\u034f\\U000e0100"),
        ("a\U00016fe4b\U0001d159\U00013441", "a\\U00016fe4b\\U0001d159\\U00013441"),
        (os.fsdecode(b"caf\xe9"), "caf\\udce9"),
        ("back\\slash 'quoted'", "back\\slash 'quoted'"),
    ],
)
def test_nothing_of_it_is_obeyed(text: str, shown: str) -> None:
    """Control characters, directions and broken bytes become escapes; visible characters stay as they are."""
    assert printable(text) == shown
    assert shown.isprintable()
    shown.encode()


@pytest.mark.full
@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_means_the_same(value: object) -> None:
    """A reader of JSON gets every character back, while a terminal obeys none of the text."""
    escaped = printable_json(json.dumps(value, ensure_ascii=False))
    assert escaped.isprintable()
    assert json.loads(escaped) == value


def test_json_escapes() -> None:
    """C1 controls, DEL, directions and separators are escaped, and so are, beyond the first plane, tags, variation
    selectors, private and unassigned characters; visible characters stay."""
    assert printable_json('"\u009b\x7f\u202e\u2028\U000e0041é🦊"') == r'"\u009b\u007f\u202e\u2028\udb40\udc41é🦊"'
    assert printable_json('"\U000e0100\U000f0000\U0003ffff🐧"') == r'"\udb40\udd00\udb80\udc00\ud8bf\udfff🐧"'


@given(st.text())
def test_a_name_is_one_word(name: str) -> None:
    """A shell reads a name as one word, so that no name continues as if it were omac's words."""
    assert shlex.split(f"in {named(name)} by person") == ["in", name, "by", "person"]


def test_plain_names_are_as_they_are() -> None:
    """Plain names stay as they are, also those in other letters; a name with blanks is quoted."""
    for name in ("/home/ada/shop", "feature/x-1", "a@b:1", "é", "~/x"):
        assert named(name) == name
    assert named("a by person: approved") == "'a by person: approved'"
