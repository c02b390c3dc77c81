"""A JSON text that is changed in one place and stays as it was everywhere else, to the byte (RFC 8259)."""

import json
from json.decoder import scanstring  # type: ignore[attr-defined]  # public, if without types
from typing import Any

WHITESPACE = " \t\r\n"
UNIT = "  "  # of indentation, in a text that shows none


class JsonNode:
    """A value in the text from `start` to before `end`. `children` are its members or items, `keys` those of members.

    A child's place includes its key: `begins` gives where that is.
    """

    __slots__ = ("begins", "children", "end", "keys", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        self.children: list[JsonNode] = []
        self.begins: list[int] = []
        self.keys: list[str] = []


class JsonText:
    """A JSON text and the values in it. Raises ValueError (JSONDecodeError has line and column), RecursionError."""

    def __init__(self, text: str) -> None:
        json.loads(text, parse_constant=_refuse_constant)
        self.text = text
        self.newline = "\r\n" if "\r\n" in text else "\n"
        self.root = self._node(_skip(text, 0))
        self.unit = self._unit()

    def value(self, node: JsonNode) -> Any:
        return json.loads(self.text[node.start : node.end])

    def member(self, node: JsonNode, key: str) -> JsonNode | None:
        """The value under a key. Raises ValueError where the key is there twice."""
        members = [child for name, child in zip(node.keys, node.children, strict=True) if name == key]
        if len(members) > 1:
            raise ValueError(f"it says {key!r} twice in one object")
        return members[0] if members else None

    def with_member(self, node: JsonNode, key: str, value: object) -> str:
        """The text with a member at the end of an object that does not have it."""
        return self._with(node, f"{json.dumps(key)}: ", value)

    def with_item(self, node: JsonNode, value: object) -> str:
        """The text with an item at the end of an array."""
        return self._with(node, "", value)

    def without(self, node: JsonNode, index: int) -> str:
        """The text without one member or item."""
        if len(node.children) == 1:
            begin, end = node.start + 1, node.end - 1
        elif index + 1 < len(node.children):
            begin, end = node.begins[index], node.begins[index + 1]
        else:
            begin, end = node.children[index - 1].end, node.children[index].end
        return self.text[:begin] + self.text[end:]

    def _with(self, node: JsonNode, prefix: str, value: object) -> str:
        text = self.text
        if node.children:
            lead = text[node.start + 1 : node.begins[0]]
            if "\n" in lead:
                indent = lead.rpartition("\n")[2]
                added = "," + self.newline + indent + prefix + self._shown(value, indent)
            else:
                added = ", " + prefix + json.dumps(value, ensure_ascii=False)
            at = node.children[-1].end
            return text[:at] + added + text[at:]
        if self.root.children and "\n" not in text[self.root.start : self.root.end]:  # all in one line
            added = prefix + json.dumps(value, ensure_ascii=False)
        else:
            line = text[text.rfind("\n", 0, node.start) + 1 : node.start]
            outer = line[: len(line) - len(line.lstrip(" \t"))]
            indent = outer + self.unit
            added = self.newline + indent + prefix + self._shown(value, indent) + self.newline + outer
        return text[: node.start + 1] + added + text[node.end - 1 :]

    def _shown(self, value: object, indent: str) -> str:
        lines = json.dumps(value, indent=self.unit, ensure_ascii=False).split("\n")
        return (self.newline + indent).join(lines)

    def _unit(self) -> str:
        """What the first member is indented by."""
        if not self.root.children:
            return UNIT
        _, newline, indent = self.text[self.root.start + 1 : self.root.begins[0]].rpartition("\n")
        return indent if newline and indent else UNIT

    def _node(self, start: int) -> JsonNode:
        """The value that begins there, in a text that is known to be valid."""
        node = JsonNode(start)
        text = self.text
        opening = text[start]
        if opening not in "{[":
            _, node.end = json.JSONDecoder().raw_decode(text, start)
            return node
        at = _skip(text, start + 1)
        while text[at] not in "}]":
            node.begins.append(at)
            if opening == "{":
                key, at = scanstring(text, at + 1)
                node.keys.append(key)
                at = _skip(text, _skip(text, at) + 1)
            child = self._node(at)
            node.children.append(child)
            at = _skip(text, child.end)
            if text[at] == ",":
                at = _skip(text, at + 1)
        node.end = at + 1
        return node


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in WHITESPACE:
        at += 1
    return at


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
