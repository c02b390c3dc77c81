"""Openings: the personal fields of an event as an export or a proof shows them, to whoever has no key.

An opening is the salt and the value that a commitment was made of, so that anybody can compare them with it. In the
place of a field without one stands the commitment: it was left out, or is erased.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from omac.domain.kernel.event import Event
from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.undecodable import UNDECODABLE
from omac.journal.codec import Codec
from omac.journal.commitments import OpenedField, committed_in
from omac.journal.event_kinds import KINDS
from omac.journal.personal_fields import PERSONAL

NOT_SHOWN = "(not shown: sha256 {})"
_codec = Codec()
_decode = msgspec.msgpack.Decoder().decode


class Opening(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A personal field that is shown; bytes are base64 in JSON, the value is msgpack."""

    name: str
    salt: bytes
    value: bytes


def openings_of(codec: Codec, kind: str, stream: str, body: bytes, sealed: bytes | None) -> tuple[Opening, ...]:
    """Return the personal fields of an event that the keys of `codec` open: all of them, or none. Raises Refusal
    (journal-damaged)."""
    shown = codec.personal(kind, body, sealed, stream) if sealed is not None else {}
    return tuple(Opening(name, field.salt, field.value) for name, field in shown.items())


def require_committed(kind: str, body: bytes, openings: Sequence[Opening]) -> None:
    """Raise ValueError where a field is not the one that an event commits to."""
    if not openings:
        return
    commitments = _commitments(kind, body)
    for opening in openings:
        if commitments.get(opening.name) != OpenedField(opening.salt, opening.value).commitment():
            raise ValueError(f"{opening.name} is not what was committed to")


def shown_event(kind: str, body: bytes, openings: Sequence[Opening]) -> Event:
    """Return an event with the fields that are opened. Raises Refusal, as a codec does."""
    commitments = _commitments(kind, body) if kind in PERSONAL else {}
    if not commitments:
        return _codec.decode(kind, body)
    try:
        values = {opening.name: _decode(opening.value) for opening in openings}
        cls, fields = _codec.fields(kind, body)
        for index, field in enumerate(msgspec.structs.fields(cls)):
            if field.name in commitments:
                text = NOT_SHOWN.format(commitments[field.name].hex())
                instead = [text] if getattr(field.type, "__origin__", None) is tuple else text
                fields[index] = values.get(field.name, instead)
        return msgspec.convert(fields, cls)
    except UNDECODABLE as problem:
        raise Refusal("journal-damaged", f"an event of kind {kind!r} cannot be decoded: {problem}") from problem


def shown_values(kind: str, body: bytes, openings: Sequence[Opening]) -> list[Any]:
    """Return the fields of an event of any kind, known here or not, with those that are opened."""
    fields = _decode(body[1:])  # the first byte is the kind's version
    values = {opening.name: _decode(opening.value) for opening in openings}
    names = KINDS[kind][1].__struct_fields__ if kind in KINDS else ()
    for index, field in enumerate(fields):
        if isinstance(field, msgspec.msgpack.Ext):
            name = names[index] if index < len(names) else ""
            fields[index] = values.get(name, NOT_SHOWN.format(bytes(field.data).hex()))
    return list(fields)


def _commitments(kind: str, body: bytes) -> dict[str, bytes]:
    """The commitments of an event, by the names of their fields."""
    if kind not in PERSONAL:
        return {}
    cls, fields = _codec.fields(kind, body)
    return committed_in(cls, fields)
