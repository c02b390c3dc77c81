"""Errors about omac.yaml in plain English: the field, what is wrong with it, and what is expected."""

import re
from collections.abc import Iterator
from typing import Any, get_args

import msgspec

from omac.domain.skills.document import ENTRIES_MAX, REQUIRED, RULES, SECTIONS, below, without_indices
from omac.domain.skills.meta import TEXT, MetaError
from omac.domain.skills.values import INTEGER_MAX, is_text, shown

LOCATED = re.compile(r"(?P<message>.*?)(?: - at `\$\.?(?P<where>[^`]*)`)?")
MISSING = re.compile(r"Object missing required field `(.*)`")
MISMATCH = re.compile(r"Expected `(?P<expected>[^`]*)`, got `[^`]*`")
PART = re.compile(r"([^.\[\]]+)|\[([0-9]+)\]")
EXPECTED = {
    "bool": "true or false",
    "int": "a whole number",
    "array": "a list",
    "object": "a mapping of keys to values",
}


def translated(error: msgspec.ValidationError | UnicodeEncodeError, document: object) -> MetaError:
    """Return what msgspec found in `document` as a MetaError, which shows a text shortened and a number not at all."""
    if isinstance(error, UnicodeEncodeError):  # an incomplete surrogate pair where something else than text is expected
        where, text = next((where, text) for where, text in _texts(document, "") if not is_text(text))
        return MetaError(where, f"{shown(text)} {RULES[TEXT]}")
    located = LOCATED.fullmatch(str(error))
    assert located is not None, "both parts may be empty"
    message, where = located["message"], located["where"] or ""
    missing = MISSING.fullmatch(message)
    where = below(where, missing[1]) if missing else where
    field = without_indices(where)
    value = _value_at(document, where)
    if value is None and field in REQUIRED and not where.endswith("]"):
        return MetaError(where, REQUIRED[field])
    mismatch = MISMATCH.fullmatch(message)
    if mismatch:
        return MetaError(where, _mismatch(mismatch["expected"].split(" | "), value))
    return MetaError(where, _broken_rule(message, field, value))


def _texts(value: object, where: str) -> Iterator[tuple[str, str]]:
    """Yield each text in the sections and lists of a document, with the path of its field."""
    match value:
        case str():
            yield where, value
        case list():
            for index, item in enumerate(value):
                yield from _texts(item, f"{where}[{index}]")
        case dict() if without_indices(where) in SECTIONS:
            for key, item in value.items():
                yield from _texts(item, below(where, key))


def _value_at(document: object, where: str) -> object:
    value: Any = document  # Any: msgspec has seen mappings and lists along the path
    for key, index in PART.findall(where):
        value = value[int(index)] if index else value.get(key)
    return value


def _mismatch(expected: list[str], value: object) -> str:
    if "str" not in expected:
        return f"must be {EXPECTED[expected[0]]}, not {_kind_of(value)}"
    quoted = ": put it in quotes" if isinstance(value, (bool, int, float)) else ""
    return f"must be text, not {_kind_of(value)}{quoted}"


def _broken_rule(message: str, field: str, value: object) -> str:
    """Return which rule `value` breaks; it has the right type."""
    match value:
        case []:
            return REQUIRED[field]
        case list():
            return f"has {len(value)} entries, at most {ENTRIES_MAX} may be"
        case "" if "of length" in message:
            return "must not be empty"
        case str() if "of length" in message:
            return f"{shown(value)} is {len(value)} characters long, at most {message.rpartition(' ')[2]} may be"
        case str():
            rule = next(rule for pattern, rule in RULES.items() if message.endswith(repr(pattern)))
            return f"{shown(value)} {rule}"
        case _:
            return _number_rule(message, field)


def _number_rule(message: str, field: str) -> str:
    if message.endswith((f" {INTEGER_MAX}", f" {-INTEGER_MAX - 1}")):
        return "is a number beyond 64 bits"
    section, _, key = field.rpartition(".")
    (bounds,) = get_args(SECTIONS[section].__annotations__[key])[0].__metadata__
    return f"must be from {bounds.ge} to {bounds.le}"


def _kind_of(value: object) -> str:
    """Return in a word or two which kind of YAML value this is."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list():
            return "a list"
        case dict():
            return "a mapping"
        case _:
            return f"a {type(value).__name__}"
