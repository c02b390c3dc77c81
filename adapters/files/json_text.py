"""A JSON text that is changed in one place and stays as it was everywhere else, to the byte (RFC 8259).

Comments, trailing commas and a byte order mark are read as well: people write them, and some agents accept them.
Changes are insertions alone, so that a text that nobody changed meanwhile can be restored.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from json.decoder import scanstring  # type: ignore[attr-defined]  # public, if without types
from typing import Any

WHITESPACE = " \t\r\n"
UNIT = "  "  # of indentation, in a text that shows none
MARK = "\ufeff"  # a byte order mark

Insertion = tuple[int, str]  # where in the text before, and what
Cut = tuple[int, int]  # from here to before there

_SCALAR = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")
_BLANK = re.compile(r"[ \t\r\n]*")


class JsonNode:
    """A value in the text from `start` to before `end`. `children` are its members or items, `keys` those of members.

    A child's place includes its key: `begins` gives where that is.
    """

    __slots__ = ("begins", "children", "end", "keys", "scalar", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        self.children: list[JsonNode] = []
        self.begins: list[int] = []
        self.keys: list[str] = []
        self.scalar: Any = None


class JsonText:
    """A JSON text and the values in it. Raises ValueError (JSONDecodeError has line and column), RecursionError.

    `additions` names what it has that RFC 8259 does not: "comments", "trailing commas".
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.newline = "\r\n" if "\r\n" in text else "\n"
        self.additions: set[str] = set()
        self._comments: set[int] = set()  # where they begin
        self._line_comments: set[int] = set()  # where lines end that end with a comment
        self.root = self._node(self._skip(len(MARK) if text.startswith(MARK) else 0))
        if (rest := self._skip(self.root.end)) != len(text):
            raise self._wrong("Extra data", rest)
        self.unit = self._unit()

    def value(self, node: JsonNode) -> Any:
        """Return the value of a node, decoded."""
        match self.text[node.start]:
            case "{":
                return dict(zip(node.keys, map(self.value, node.children), strict=True))
            case "[":
                return [self.value(child) for child in node.children]
            case _:
                return node.scalar

    def member(self, node: JsonNode, key: str) -> JsonNode | None:
        """The value under a key. Raises ValueError where the key is there twice."""
        members = [child for name, child in zip(node.keys, node.children, strict=True) if name == key]
        if len(members) > 1:
            raise ValueError(f"it says {key!r} twice in one object")
        return members[0] if members else None

    def has_comment(self, node: JsonNode) -> bool:
        """Return whether there is a comment in a value."""
        return any(node.start < at < node.end for at in self._comments)

    def new_members(self, node: JsonNode, members: Mapping[str, object]) -> list[Insertion]:
        """Return what to insert for members at the end of an object that does not have them."""
        return self._new(node, [(f"{json.dumps(key)}: ", value) for key, value in members.items()]) if members else []

    def new_item(self, node: JsonNode, value: object) -> list[Insertion]:
        """Return what to insert for an item at the end of an array."""
        return self._new(node, [("", value)])

    def cuts(self, node: JsonNode, index: int) -> list[Cut]:
        """Return what to cut for one member or item to go, with its comma and the space before it."""
        begin, end, text = node.begins[index], node.children[index].end, self.text
        after = self._skip(end)
        is_followed = text[after] == ","
        if index:
            before = self._skip(node.children[index - 1].end)
            behind = after + 1 if is_followed and not text[end:after].strip(WHITESPACE) else end
            child = (max(before + 1, self._blank_before(begin, behind)), end)
            return [child, (after, after + 1)] if is_followed else [(before, before + 1), child]
        if is_followed:
            following = self._skip(after + 1)
            if not text[end:after].strip(WHITESPACE) and not text[after + 1 : following].strip(WHITESPACE):
                has_lead = len(node.children) > 1 or text[node.start + 1 : begin].strip(WHITESPACE)
                return [(begin if has_lead else node.start + 1, following)]
            return [(begin, end), (after, after + 1)]
        if text[node.start + 1 : begin].strip(WHITESPACE) or text[end : node.end - 1].strip(WHITESPACE):
            return [(self._blank_before(begin, end), end)]  # a comment stays
        return [(node.start + 1, node.end - 1)]

    def _blank_before(self, begin: int, end: int) -> int:
        """Return where the space before a value begins; a comment that ends with its line keeps the end of the line."""
        at = len(self.text[:begin].rstrip(WHITESPACE))
        line_end = self.text.find("\n", at, begin)
        if line_end not in self._line_comments:
            return at
        following = _BLANK.match(self.text, end)
        assert following is not None
        return self._without_return(line_end) if "\n" in following.group() else line_end + 1

    def _without_return(self, line_end: int) -> int:
        return line_end - 1 if self.text[line_end - 1] == "\r" else line_end

    def _new(self, node: JsonNode, entries: Sequence[tuple[str, object]]) -> list[Insertion]:
        if not node.children:
            return [(node.start + 1, self._first(node, entries))]
        text, last = self.text, node.children[-1].end
        comma = self._skip(last)
        is_trailing = text[comma] == ","
        after = comma + 1 if is_trailing else last
        at = self._end_of_comment(after)
        ends_line = at > after and text[at : at + 2].lstrip("\r").startswith("\n")
        if ends_line or "\n" in text[node.start + 1 : node.begins[0]]:
            line = text[text.rfind("\n", 0, node.begins[0]) + 1 : node.begins[0]]
            added = self._lines(entries, line[: len(line) - len(line.lstrip(" \t"))])
        else:
            added = " " + self._line(entries)
        if is_trailing:
            return [(at, added + ",")]
        return [(last, ","), (at, added)] if at > last else [(last, "," + added)]

    def _first(self, node: JsonNode, entries: Sequence[tuple[str, object]]) -> str:
        text = self.text
        if self.root.children and "\n" not in text[self.root.start : self.root.end]:  # all in one line
            return self._line(entries)
        line = text[text.rfind("\n", 0, node.start) + 1 : node.start].removeprefix(MARK)
        outer = line[: len(line) - len(line.lstrip(" \t"))]
        added = self._lines(entries, outer + self.unit)
        return added if "\n" in text[node.start : node.end] else added + self.newline + outer

    def _line(self, entries: Sequence[tuple[str, object]]) -> str:
        return ", ".join(prefix + json.dumps(value, ensure_ascii=False) for prefix, value in entries)

    def _lines(self, entries: Sequence[tuple[str, object]], indent: str) -> str:
        return ",".join(self.newline + indent + prefix + self._shown(value, indent) for prefix, value in entries)

    def _end_of_comment(self, at: int) -> int:
        """Return where the comments end that follow in the same line; `at` if none does."""
        end = at
        while True:
            blank = _BLANK.match(self.text, end)
            assert blank is not None
            if "\n" in blank.group() or self.text[blank.end() : blank.end() + 2] not in ("//", "/*"):
                return end
            end = self._comment_end(blank.end())
            if self.text[blank.end() + 1] == "/":
                return self._without_return(end)

    def _comment_end(self, at: int) -> int:
        """Return where the comment ends that begins at `at`. Raises ValueError."""
        self.additions.add("comments")
        self._comments.add(at)
        if self.text[at + 1] == "/":
            end = self.text.find("\n", at)
            if end < 0:
                return len(self.text)
            self._line_comments.add(end)
            return end
        end = self.text.find("*/", at + 2)
        if end < 0:
            raise self._wrong("Unterminated comment", at)
        return end + 2

    def _shown(self, value: object, indent: str) -> str:
        lines = json.dumps(value, indent=self.unit, ensure_ascii=False).split("\n")
        return (self.newline + indent).join(lines)

    def _unit(self) -> str:
        """Return the indentation of the first member; UNIT if it shows none."""
        if not self.root.children:
            return UNIT
        _, newline, indent = self.text[self.root.start + 1 : self.root.begins[0]].rpartition("\n")
        return indent if newline and indent and not indent.strip(" \t") else UNIT

    def _node(self, start: int) -> JsonNode:
        node = JsonNode(start)
        opening = self.text[start : start + 1]
        if opening == '"':
            node.scalar, node.end = scanstring(self.text, start + 1)
        elif opening and opening in "{[":
            self._fill(node, "}" if opening == "{" else "]")
        elif scalar := _SCALAR.match(self.text, start):
            node.scalar, node.end = json.loads(scalar.group()), scalar.end()
        else:
            raise self._wrong("Expecting value", start)
        return node

    def _fill(self, node: JsonNode, closing: str) -> None:
        text, at = self.text, self._skip(node.start + 1)
        while text[at : at + 1] != closing:
            node.begins.append(at)
            if closing == "}":
                if text[at : at + 1] != '"':
                    raise self._wrong("Expecting property name enclosed in double quotes", at)
                key, at = scanstring(text, at + 1)
                at = self._skip(at)
                if text[at : at + 1] != ":":
                    raise self._wrong("Expecting ':' delimiter", at)
                node.keys.append(key)
                at = self._skip(at + 1)
            child = self._node(at)
            node.children.append(child)
            at = self._skip(child.end)
            if text[at : at + 1] == ",":
                at = self._skip(at + 1)
                if text[at : at + 1] == closing:
                    self.additions.add("trailing commas")
            elif text[at : at + 1] != closing:
                raise self._wrong("Expecting ',' delimiter", at)
        node.end = at + 1

    def _skip(self, at: int) -> int:
        """Return where the space and the comments end that begin at `at`. Raises ValueError."""
        while True:
            blank = _BLANK.match(self.text, at)
            assert blank is not None
            at = blank.end()
            if self.text[at : at + 2] not in ("//", "/*"):
                return at
            at = self._comment_end(at)

    def _wrong(self, message: str, at: int) -> json.JSONDecodeError:
        return json.JSONDecodeError(message, self.text, at)


def inserted(text: str, insertions: Iterable[Insertion]) -> str:
    """Return the text with these insertions."""
    parts, done = [], 0
    for at, added in insertions:
        parts += [text[done:at], added]
        done = at
    return "".join((*parts, text[done:]))


def restored(text: str, insertions: Iterable[Insertion]) -> str | None:
    """Return the text as it was before these insertions; None where it does not have them."""
    parts, done, shift = [], 0, 0
    for at, added in insertions:
        if text[at + shift : at + shift + len(added)] != added or at + shift < done:
            return None
        parts.append(text[done : at + shift])
        shift += len(added)
        done = at + shift
    return "".join((*parts, text[done:]))


def without(text: str, cuts: Iterable[Cut]) -> str:
    """Return the text without these parts, which are in order."""
    parts, done = [], 0
    for begin, end in cuts:
        parts.append(text[done:begin])
        done = end
    return "".join((*parts, text[done:]))
