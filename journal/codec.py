"""The codec: an event to the bytes that are stored, and back, whatever version wrote them.

Stored form of a body: a msgpack array of the kind's version followed by the event's fields in order.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from omac.domain.kernel.event import Event
from omac.domain.kernel.refusal import Refusal
from omac.journal.event_kinds import KINDS, UPCASTERS, Upcaster


class Versioned(msgspec.Struct, frozen=True):
    """An event with its place in its stream: what eventsourcing calls a domain event.

    `originator_version` is None in a log without versions.
    """

    originator_id: str
    originator_version: Any  # int | None; the library's protocol says int
    data: Event


class Codec:
    """Encodes and decodes events by the registry it is given. Raises Refusal for what it cannot read."""

    def __init__(
        self,
        kinds: Mapping[str, tuple[int, type[Event]]] = KINDS,
        upcasters: Mapping[tuple[str, int], Upcaster] = UPCASTERS,
    ) -> None:
        self._kinds = kinds
        self._upcasters = upcasters
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder().decode
        self._prefix = {cls: (kind, self._encode(version)) for kind, (version, cls) in kinds.items()}

    def encode(self, event: Event) -> tuple[str, bytes]:
        """The kind and the stored bytes of an event. Raises TypeError for one that is not registered."""
        try:
            kind, version = self._prefix[type(event)]
        except KeyError:
            raise TypeError(f"{type(event).__qualname__} is not in the registry of events") from None
        return kind, version + self._encode(event)

    def decode(self, kind: str, body: bytes) -> Event:
        """The event that `body` holds, brought to its kind's current version. Raises Refusal: journal-newer for a kind
        or version from a later omac, journal-damaged for broken bytes."""
        if kind not in self._kinds:
            raise _newer(f"an event of kind {kind!r}")
        current, cls = self._kinds[kind]
        try:
            version, fields = self._decode(b"\x92" + body)
            if version > current:
                raise _newer(f"version {version} of {kind!r} events (this omac knows {current})")
            for step in range(version, current):
                fields = self._upcasters[kind, step](fields)
            return msgspec.convert(fields, cls)
        except _BROKEN as broken:
            raise Refusal("journal-damaged", f"an event of kind {kind!r} cannot be decoded: {broken}") from broken


# What the decoder and upcasters raise for bytes that nobody wrote: no such version, fields of another shape, nesting
# without end.
_BROKEN = (msgspec.MsgspecError, TypeError, ValueError, LookupError, AttributeError, RecursionError)


def _newer(what: str) -> Refusal:
    message = f"the journal holds {what}: a newer omac wrote it, and this one cannot read it"
    return Refusal("journal-newer", message, fix=["omac version  # then install the newer omac"])
