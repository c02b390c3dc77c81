"""adapters/files/json_text.py: one place changes, everything else stays to the byte."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from omac.adapters.files.json_text import JsonNode, JsonText

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)
INDENTS = st.sampled_from([None, 0, 1, 2, 4, "\t"])


def nodes(node: JsonNode) -> list[JsonNode]:
    """A node and all below it."""
    return [node, *(each for child in node.children for each in nodes(child))]


@settings(max_examples=examples(300), deadline=None)
@given(VALUES, INDENTS, VALUES, st.integers(0), st.booleans())
def test_to_add_and_to_take_away(document: Any, indent: Any, added: Any, pick: int, windows: bool) -> None:
    """What was added is there, and taking it away gives the same text again; nothing else has moved."""
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
        after = whole.with_member(node, key, added)
        expected = {**value, key: added}
    else:
        after = whole.with_item(node, added)
        expected = [*value, added]
    again = JsonText(after)
    same = next(each for each in nodes(again.root) if each.start == node.start)
    assert again.value(same) == expected
    assert after[: node.start] == text[: node.start]
    assert after.endswith(text[node.end :])
    without = again.without(same, len(same.children) - 1)
    assert json.loads(without) == document
    if value:
        assert without == text


@settings(max_examples=examples(100), deadline=None)
@given(VALUES, INDENTS, st.integers(0))
def test_to_take_one_away(document: Any, indent: Any, pick: int) -> None:
    """Any member or item can go."""
    whole = JsonText(json.dumps(document, indent=indent))
    full = [node for node in nodes(whole.root) if node.children]
    if not full:
        return
    node = full[pick % len(full)]
    index = pick % len(node.children)
    after = JsonText(whole.without(node, index))
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
        ('{\r\n  "a": {}\r\n}\r\n', '{\r\n  "a": {},\r\n  "n": [\r\n    1\r\n  ]\r\n}\r\n'),
    ],
)
def test_form(text: str, after: str) -> None:
    """New parts look like what is there: indentation, line ends, all in one line."""
    whole = JsonText(text)
    assert whole.with_member(whole.root, "n", [1]) == after


@pytest.mark.parametrize("text", ["", "{", "{'a': 1}", '{"a": 1,}', "{} {}", "// x\n{}", '{"a": NaN}', "\ufeff{}"])
def test_what_is_no_json(text: str) -> None:
    """It is refused."""
    with pytest.raises(ValueError, match=r"\w"):
        JsonText(text)


def test_a_key_twice() -> None:
    """Which one counts is anybody's guess."""
    whole = JsonText('{"a": 1, "b": 2, "a": 3}')
    with pytest.raises(ValueError, match="'a' twice"):
        whole.member(whole.root, "a")
    assert whole.member(whole.root, "b") is not None
    assert whole.member(whole.root, "c") is None
