"""Git configuration files, read as git reads them and written so that git reads them back (git-config(1), "Syntax").

No file is opened here and no include is followed. Where versions of git differ (white space inside a value that is not
quoted, since 2.45 kept as it is) the newer one is meant.
"""

from __future__ import annotations

from omac.domain.git.place import SHA1_BYTES, SHA256_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_NAME = _LETTERS | frozenset("0123456789-")
_SPACE = " \t\r"
_HEADS_MAX = 64  # of one line, which git lets have any number: reading them takes time quadratic in it
_ESCAPES = {"t": "\t", "b": "\b", "n": "\n", "\\": "\\", '"': '"'}
_ESCAPED = str.maketrans({"\t": "\\t", "\b": "\\b", "\n": "\\n", "\\": "\\\\", '"': '\\"'})


def parse(text: str) -> list[tuple[str, str]]:
    """The settings in order: `("section.Sub.key", value)`, in lower case but for the subsection; no value is "true".

    `text` is decoded with "surrogateescape". Raises ValueError that names the line git would not accept.
    """
    if "\0" in text:
        raise ValueError(f"line {text.count(chr(10), 0, text.index(chr(0))) + 1}: a NUL character")
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    pairs: list[tuple[str, str]] = []
    section = ""
    number = 0  # of the line that comes next, from 0
    while number < len(lines):
        rest = lines[number].lstrip(_SPACE)
        number += 1
        heads = 0
        while rest.startswith("["):
            heads += 1
            if heads > _HEADS_MAX:
                raise ValueError(f"line {number}: more than {_HEADS_MAX} sections begin here")
            section, rest = _section(rest, number)
            rest = rest.lstrip(_SPACE)
        if not rest or rest[0] in "#;":
            continue
        name, rest = _name(rest, number)
        if not rest:
            pairs.append((section + name, "true"))
        else:
            value, number = _value(lines, number, rest[1:])
            pairs.append((section + name, value))
    return pairs


def render(pairs: Iterable[tuple[str, str]]) -> str:
    """A configuration file of which `parse` and git read these settings. Raises ValueError for what none can say."""
    lines: list[str] = []
    last = ""
    for key, value in pairs:
        head, dot, name = key.rpartition(".")
        section, sub, label = head.partition(".")
        if not (name and name[0] in _LETTERS and _NAME.issuperset(name) and _NAME.issuperset(section)):
            raise ValueError(f"{key!r} cannot be the name of a setting")
        if "\0" in value or "\0" in label or "\n" in label or not (dot or not last):
            raise ValueError(f"{key!r} cannot be written to a file")
        if dot and head + dot != last:
            quoted = label.replace("\\", "\\\\").replace('"', '\\"')
            lines.append(f'[{section} "{quoted}"]' if sub else f"[{section}]")
            last = head + dot
        lines.append(f'\t{name} = "{value.translate(_ESCAPED)}"')
    return "".join(line + "\n" for line in lines)


def _section(line: str, number: int) -> tuple[str, str]:
    """`"section.Sub."` of a line that begins with "[", and what follows the "]". Raises ValueError."""
    at = 1
    while at < len(line) and (line[at] in _NAME or line[at] == "."):
        at += 1
    name = line[1:at].lower() + "."
    if at > 1 and line[at : at + 1] == "]":
        return name, line[at + 1 :]
    label = line[at:].lstrip(_SPACE)
    if at < len(line) and line[at] in _SPACE and label.startswith('"'):
        written: list[str] = []
        characters = iter(enumerate(label[1:], 2))
        for end, character in characters:
            if character == '"':
                if label[end : end + 1] == "]":
                    return f"{name}{''.join(written)}.", label[end + 1 :]
                break
            written.append(next(characters, (0, ""))[1] if character == "\\" else character)
    raise ValueError(f"line {number}: not the name of a section")


def _name(line: str, number: int) -> tuple[str, str]:
    """The name of a setting in lower case, and the rest: nothing, or from the "=" on. Raises ValueError."""
    at = 0
    while at < len(line) and line[at] in _NAME:
        at += 1
    rest = line[at:].lstrip(" \t")
    if line[0] not in _LETTERS or (rest and rest[0] != "="):
        raise ValueError(f"line {number}: not a setting")
    return line[:at].lower(), rest


def _value(lines: list[str], number: int, rest: str) -> tuple[str, int]:
    """The value that begins with `rest` of the line before `number`, and the number of the line after it."""
    if '"' not in rest and "\\" not in rest:
        return rest.partition("#")[0].partition(";")[0].strip(_SPACE), number
    value: list[str] = []
    kept = 0  # how much of it is not white space at the end
    quoted = False
    characters = iter(rest)
    while character := next(characters, ""):
        if character == "\\":
            escaped = next(characters, "")
            if escaped:
                if escaped not in _ESCAPES:
                    raise ValueError(f"line {number}: \\{escaped} has no meaning")
                value.append(_ESCAPES[escaped])
            elif number < len(lines):  # the value goes on in the next line
                characters = iter(lines[number])
                number += 1
            kept = len(value)
        elif character == '"':
            quoted = not quoted
            kept = len(value)
        elif quoted or character not in _SPACE + "#;":
            value.append(character)
            kept = len(value)
        elif character in "#;":
            break
        elif value:
            value.append(character)
    if quoted:
        raise ValueError(f"line {number}: a quote that is not closed")
    return "".join(value[:kept]), number


def oid_bytes_of(content: bytes) -> int:
    """Return the size of the object ids of a repository with these settings; 0 where git cannot read them."""
    try:
        pairs = dict(parse(content.decode(errors="surrogateescape")))
    except ValueError:
        return 0
    return SHA256_BYTES if pairs.get("extensions.objectformat", "").lower() == "sha256" else SHA1_BYTES


def general_key(key: str) -> str:
    """Return `filter.*.clean` for `filter.lfs.clean`: a key without its subsection."""
    first, last = key.find("."), key.rfind(".")
    return key if first == last else f"{key[:first]}.*{key[last:]}"
