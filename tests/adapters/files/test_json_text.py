"""adapters/files/json_text.py: one part of a text changes, and all others stay to the byte."""

import json
import re
from typing import Any

import pytest
from adapters.files.commented_json import BLANKS, VALUES, commented
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from omac.adapters.files.json_text import JsonNode, JsonText, inserted, restored, without

INDENTS = st.sampled_from([None, 0, 1, 2, 4, "\t"])


def nodes(node: JsonNode) -> list[JsonNode]:
    """Return a node and all below it."""
    return [node, *(each for child in node.children for each in nodes(child))]


@pytest.mark.full
@settings(max_examples=examples(300))
@given(VALUES, INDENTS, VALUES, st.integers(0), st.booleans())
def test_to_add_and_to_take_away(document: Any, indent: Any, added: Any, pick: int, windows: bool) -> None:
    """A value that is added can be read, and removing it restores the text; no other part moves."""
    text = json.dumps(document, indent=indent, ensure_ascii=False) + "\n"
    text = text.replace("\n", "\r\n") if windows else text
    whole = JsonText(text)
    containers = [node for node in nodes(whole.root) if isinstance(whole.value(node), dict | list)]
    if not containers:
        return
    node = containers[pick % len(containers)]
    value = whole.value(node)
    expected: dict[str, Any] | list[Any]
    if isinstance(value, dict):
        key = "\x00new"
        insertions = whole.new_members(node, {key: added})
        expected = {**value, key: added}
    else:
        insertions = whole.new_item(node, added)
        expected = [*value, added]
    after = inserted(text, insertions)
    assert restored(after, insertions) == text
    again = JsonText(after)
    same = next(each for each in nodes(again.root) if each.start == node.start)
    assert again.value(same) == expected
    assert after[: node.start] == text[: node.start]
    assert after.endswith(text[node.end :])
    rest = without(after, again.cuts(same, len(same.children) - 1))
    assert json.loads(rest) == document
    if value:
        assert rest == text


@settings(max_examples=examples(100))
@given(VALUES, INDENTS, st.integers(0))
def test_to_take_one_away(document: Any, indent: Any, pick: int) -> None:
    """Each member and each item can be removed."""
    whole = JsonText(json.dumps(document, indent=indent))
    full = [node for node in nodes(whole.root) if node.children]
    if not full:
        return
    node = full[pick % len(full)]
    index = pick % len(node.children)
    after = JsonText(without(whole.text, whole.cuts(node, index)))
    same = next(each for each in nodes(after.root) if each.start == node.start)
    expected = whole.value(node)
    if node.keys:
        del expected[node.keys[index]]
    else:
        del expected[index]
    assert after.value(same) == expected


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ('{"a": 1}', '{"a": 1, "n": [1]}'),
        ('{ "a" : 1.10 }', '{ "a" : 1.10, "n": [1] }'),
        ("{}", '{\n  "n": [\n    1\n  ]\n}'),
        ('{\n\t"a": 1e400\n}\n', '{\n\t"a": 1e400,\n\t"n": [\n\t\t1\n\t]\n}\n'),
        ('{\n    "a": "\\u00e9é"\n}', '{\n    "a": "\\u00e9é",\n    "n": [\n        1\n    ]\n}'),
        ('{\n  "a": 1, // why\n}\n', '{\n  "a": 1, // why\n  "n": [\n    1\n  ],\n}\n'),
        ('{\n  "a": 1 // why\n}\n', '{\n  "a": 1, // why\n  "n": [\n    1\n  ]\n}\n'),
        ('{\r\n  "a": 1 // why\r\n}', '{\r\n  "a": 1, // why\r\n  "n": [\r\n    1\r\n  ]\r\n}'),
        ('{"a": 1 /* why */}', '{"a": 1, /* why */ "n": [1]}'),
        ('{"a": 1 // why\n}', '{"a": 1, // why\n"n": [\n  1\n]\n}'),
        ("{ // nothing\n}", '{\n  "n": [\n    1\n  ] // nothing\n}'),
        ("\ufeff{}", '\ufeff{\n  "n": [\n    1\n  ]\n}'),
        ('{\r\n  "a": {}\r\n}\r\n', '{\r\n  "a": {},\r\n  "n": [\r\n    1\r\n  ]\r\n}\r\n'),
    ],
)
def test_form(text: str, after: str) -> None:
    """New parts adopt the form of the text: indentation, line ends, all in one line."""
    whole = JsonText(text)
    assert inserted(text, whole.new_members(whole.root, {"n": [1]})) == after


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("", 1, 1),
        ("{", 1, 2),
        ("{'a': 1}", 1, 2),
        ('{\n  "a": 1,,\n}', 2, 10),
        ("{} {}", 1, 4),
        ('{"a": NaN}', 1, 7),
        ('{"a" 1}', 1, 6),
        ("[1 2]", 1, 4),
        ('{"a": 01}', 1, 8),
        ('{"a": "\n"}', 1, 8),
        ("[,]", 1, 2),
        ("{} /* never ends", 1, 4),
        ("// nothing else", 1, 16),
    ],
)
def test_what_is_no_json(text: str, line: int, column: int) -> None:
    """Texts that are no JSON are refused with line and column."""
    with pytest.raises(json.JSONDecodeError) as caught:
        JsonText(text)
    assert (caught.value.lineno, caught.value.colno) == (line, column)


COMMENTED = """\ufeff// mine
{ // first
  /* a */ "a" /* b */ : /* c */ [ 1, /* two */ 2, ], // d
  "b": {"//": "/* no comment */",},
} // end"""


def test_what_people_add_to_json() -> None:
    """Comments, trailing commas and a byte order mark are read; comments and commas are named."""
    whole = JsonText(COMMENTED)
    assert whole.value(whole.root) == {"a": [1, 2], "b": {"//": "/* no comment */"}}
    assert whole.additions == {"comments", "trailing commas"}
    assert JsonText('\ufeff{"a": "//"}').additions == set()


COMMENT = re.compile(r"// c|/\* c \*/|/\* , \] \*/")


@pytest.mark.full
@settings(max_examples=examples(500))
@given(commented(), BLANKS, BLANKS, st.integers(0), VALUES)
def test_among_comments(text: str, before: str, after_it: str, pick: int, added: Any) -> None:
    """A value added among comments changes no other part, and is removed without a trace, by insertion or position."""
    text = before + text + after_it
    whole = JsonText(text)
    containers = [node for node in nodes(whole.root) if text[node.start] in "{["]
    if not containers:
        return
    node = containers[pick % len(containers)]
    if text[node.start] == "{":
        insertions = whole.new_members(node, {"new": added, "newer": 1})
    else:
        insertions = whole.new_item(node, added)
    after = inserted(text, insertions)
    assert restored(after, insertions) == text
    again = JsonText(after)
    assert again.additions == whole.additions
    same = next(each for each in nodes(again.root) if each.start == node.start and each.children)
    value, was = again.value(same), whole.value(node)
    assert value == ({**was, "new": added, "newer": 1} if isinstance(was, dict) else [*was, added])
    for _ in range(len(same.children) - len(node.children)):
        after = without(after, again.cuts(same, len(same.children) - 1))
        again = JsonText(after)
        same = next(each for each in nodes(again.root) if each.start == node.start)
    assert again.value(again.root) == whole.value(whole.root)
    if node.children:
        assert after == text


@settings(max_examples=examples(300))
@given(commented(), st.integers(0), st.integers(0))
def test_any_can_go(text: str, pick: int, other: int) -> None:
    """A member or an item is removed with its comma, and all comments stay."""
    whole = JsonText(text)
    full = [node for node in nodes(whole.root) if node.children]
    if not full:
        return
    node = full[pick % len(full)]
    index = other % len(node.children)
    rest = without(text, whole.cuts(node, index))
    after = JsonText(rest)
    same = next(each for each in nodes(after.root) if each.start == node.start)
    expected = whole.value(node)
    del expected[node.keys[index] if node.keys else index]
    assert after.value(same) == expected
    whole_comments = COMMENT.findall(text[: node.begins[index]] + " " + text[node.children[index].end :])
    assert sorted(COMMENT.findall(rest)) == sorted(whole_comments)


def test_restored_is_exact() -> None:
    """A text is restored only if each insertion is where it was made."""
    assert restored("axb", [(1, "x")]) == "ab"
    assert restored("ayb", [(1, "x")]) is None
    assert restored("ab", [(5, "x")]) is None


def test_a_key_twice() -> None:
    """A key that occurs twice is refused, because it does not determine a member."""
    whole = JsonText('{"a": 1, "b": 2, "a": 3}')
    with pytest.raises(ValueError, match="'a' twice"):
        whole.member(whole.root, "a")
    assert whole.member(whole.root, "b") is not None
    assert whole.member(whole.root, "c") is None
