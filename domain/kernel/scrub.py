"""Scrubbing: no text that is recorded holds a routing token that lives, in whatever spelling.

A token is 32 hex digits, known by the SHA-256 of its lower-case form. It is recognised in upper case, inside a longer
run of digits, and under up to `ROUNDS` layers of percent-encoding (RFC 3986 section 2.1). Other encodings are beyond
what can be recognised: an agent that knows its token can always hide it.
"""

import re
from collections.abc import Callable, Container
from functools import cache
from hashlib import sha256
from operator import attrgetter
from typing import Any

import msgspec

from omac.domain.kernel.event import Event
from omac.domain.kernel.ids import TokenDigest

TOKEN_DIGITS = 32
ROUNDS = 3
SPELLING_CHARS_MAX = TOKEN_DIGITS * 3**ROUNDS  # of a token whose every character is percent-encoded in every round
SCRUBBED = "[token]"

_DIGITS = re.compile(rf"[0-9a-fA-F]{{{TOKEN_DIGITS},}}")
_ENCODED = re.compile(r"%([0-9a-fA-F]{2})")
# types of fields without a text
_NUMBERS = (int, bool, float, int | None, bool | None, float | None, tuple[int, ...], tuple[int | None, ...])


def scrub(event: Event, living: Container[TokenDigest]) -> Event:
    """The event with every living token in its texts replaced; itself where there is none."""
    texts_of = _texts_of(type(event))
    if texts_of is None:
        return event
    if _is_clean_field(texts_of(event)):
        return event
    clean: Event = _scrubbed(event, living)
    return clean


def scrub_text(text: str, living: Container[TokenDigest]) -> str:
    """The text with every living token replaced; itself where there is none."""
    if _is_clean(text):
        return text
    clean = layer = text
    for _ in range(ROUNDS + 1):
        replaced = _DIGITS.sub(lambda run: _without_tokens(run.group(), living), layer)
        if replaced != layer:
            clean = layer = replaced
        if "%" not in layer:
            break
        layer = _decoded(layer)
    return clean


def cut(text: str, chars_max: int) -> str:
    """Return at most so many characters of a text that is still to be scrubbed, without the part of a token that would
    be left at its end: nobody recognises a part, and what is scrubbed before it may make it the end of a record."""
    if len(text) <= chars_max:
        return text
    kept = max(0, chars_max - SPELLING_CHARS_MAX)
    return text[:kept] + text[kept:chars_max].rstrip("%0123456789abcdefABCDEF")


def may_hold_token(text: str) -> bool:
    """Return whether a text holds what may be a routing token of any run, in a spelling that is recognised."""
    for _ in range(ROUNDS + 1):
        if _is_clean(text):
            break
        if _DIGITS.search(text):
            return True
        text = _decoded(text)
    return False


def _decoded(text: str) -> str:
    """Return a text without one layer of percent-encoding."""
    return _ENCODED.sub(lambda match: chr(int(match.group(1), 16)), text)


def _is_clean(text: str) -> bool:
    """Return whether a quick test shows that a text holds no token."""
    return len(text) < TOKEN_DIGITS or ("%" not in text and not _DIGITS.search(text))


def _is_clean_field(field: Any) -> bool:
    """Return whether a quick test shows that a field holds no token."""
    if type(field) is str:
        return len(field) < TOKEN_DIGITS or _is_clean(field)
    if type(field) is tuple:
        try:
            if _is_clean("\n".join(filter(None, field))):  # of which no token is a part: many texts at once
                return True
        except TypeError:
            pass  # others than texts are among them
        return all(map(_is_clean_field, field))
    return field is None


@cache
def _texts_of(kind: type[Event]) -> Callable[[Event], tuple[Any, ...]] | None:
    """Return a function that reads the fields of such an event that may hold a text; None where no field does."""
    fields = [field.name for field in msgspec.structs.fields(kind) if field.type not in _NUMBERS]
    match fields:
        case []:
            return None
        case [name]:
            return lambda event: (getattr(event, name),)
        case _:
            return attrgetter(*fields)


def _scrubbed(value: Any, living: Container[TokenDigest]) -> Any:
    match value:
        case str():
            return scrub_text(value, living)
        case tuple():
            clean = tuple(_scrubbed(item, living) for item in value)
            return clean if any(new is not old for new, old in zip(clean, value, strict=True)) else value
        case dict():
            entries = {_scrubbed(key, living): _scrubbed(item, living) for key, item in value.items()}
            return entries if entries != value else value
        case msgspec.Struct():
            changed = {
                name: clean
                for name in value.__struct_fields__
                if (clean := _scrubbed(field := getattr(value, name), living)) is not field
            }
            return msgspec.structs.replace(value, **changed) if changed else value
        case _:
            return value


def _without_tokens(digits: str, living: Container[TokenDigest]) -> str:
    parts: list[str] = []
    lower = digits.lower().encode("ascii")
    begun = start = 0
    while (end := start + TOKEN_DIGITS) <= len(digits):
        if sha256(lower[start:end]).hexdigest() in living:  # `token_digest`, without a call for each digit
            parts += digits[begun:start], SCRUBBED
            begun = start = end
        else:
            start += 1
    return "".join((*parts, digits[begun:]))
