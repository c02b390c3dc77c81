"""The codec: an event to the bytes that are stored, and back, whatever version wrote them.

Stored form of a body: a msgpack array of the kind's version followed by the event's fields in order. In the place of
personal fields stand commitments, and the fields themselves are encrypted beside it (`journal/commitments.py`).
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from omac.domain.kernel.event import Event
from omac.domain.kernel.refusal import Refusal
from omac.journal.commitments import Commitments, OpenedField
from omac.journal.event_kinds import KINDS, UPCASTERS, Upcaster
from omac.journal.personal_fields import PERSONAL, SHOWN_BY_STATES


class Versioned(msgspec.Struct, frozen=True):
    """An event with its place in its stream: what eventsourcing calls a domain event.

    `originator_version` is None in a log without versions.
    """

    originator_id: str
    originator_version: Any  # int | None; the library's protocol says int
    data: Event


class EncodedEvent(msgspec.Struct, frozen=True, gc=False):
    """An event as it will be stored, with the fields of eventsourcing's StoredEvent, which takes ten times as long to
    make."""

    originator_id: str
    originator_version: int | None
    topic: str
    state: bytes
    sealed: bytes | None = None


class Codec:
    """Encodes and decodes events by the registry it is given. Raises Refusal for what it cannot read.

    `commitments` has the keys of personal fields. Without keys these are stored in the clear, and read as erased.
    """

    def __init__(
        self,
        kinds: Mapping[str, tuple[int, type[Event]]] = KINDS,
        upcasters: Mapping[tuple[str, int], Upcaster] = UPCASTERS,
    ) -> None:
        self.commitments = Commitments()
        self._closed: frozenset[str] = frozenset()  # kinds whose personal fields nobody wants
        self._kinds = kinds
        self._upcasters = upcasters
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder().decode
        self._prefix = {cls: (kind, self._encode(version)) for kind, (version, cls) in kinds.items()}
        self._current: dict[str, tuple[bytes, Callable[[bytes], Event]]] = {}  # as far as they were needed
        self._written: dict[type[Event], tuple[str, bytes, Callable[[bytes], Event]]] = {}  # the same

    def encode(self, event: Event) -> tuple[str, bytes]:
        """The kind and the stored bytes of an event. Raises TypeError for one that is not registered."""
        kind, version = self._registered(type(event))
        return kind, version + self._encode(event)

    def stored(self, stream: str, version: int | None, event: Event) -> EncodedEvent:
        """The event as it will be stored, proven to be decodable. Raises Refusal, TypeError, ValueError, OverflowError
        for one that is not."""
        kind, prefix, decode = self._written.get(type(event)) or self._writing(type(event))
        fields = self._encode(event)
        try:
            is_same = decode(fields) == event
        except _BROKEN as broken:
            raise _damaged(kind, broken) from broken
        if not is_same:
            raise ValueError("it is not the same when it is read")
        committed = self.commitments.protect(kind, stream, event)
        if committed is None:
            return EncodedEvent(stream, version, kind, prefix + fields)
        fields, sealed = committed
        return EncodedEvent(stream, version, kind, prefix + fields, sealed)

    def decode(self, kind: str, body: bytes, sealed: bytes | None = None, stream: str = "") -> Event:
        """The event that `body` holds, brought to its kind's current version, with the personal fields that are
        `sealed` beside it. Raises Refusal: journal-newer for a kind or version from a later omac, journal-damaged for
        broken bytes."""
        if kind not in self._kinds:
            raise _newer(f"an event of kind {kind!r}")
        current, cls = self._kinds[kind]
        prefix, decode = self._current.get(kind) or self._newest(kind)
        try:
            if body.startswith(prefix):
                plain: bytes | None = body
                if sealed is not None and kind in self._closed:
                    plain = self.commitments.blanked(kind, cls, body)
                elif sealed is not None:
                    plain = self.commitments.plain(kind, stream, body, sealed)
                if plain is not None:
                    return decode(plain[len(prefix) :])
            fields = self._fields(kind, current, body)
            if sealed is not None:
                fields = self.commitments.opened(kind, stream, cls, fields, sealed)
            return msgspec.convert(fields, cls)
        except _BROKEN as broken:
            raise _damaged(kind, broken) from broken

    def _writing(self, cls: type[Event]) -> tuple[str, bytes, Callable[[bytes], Event]]:
        """The kind of an event, and as `_newest`. Raises TypeError for one that is not registered."""
        kind, _ = self._registered(cls)
        written = self._written[cls] = kind, *self._newest(kind)
        return written

    def _registered(self, cls: type[Event]) -> tuple[str, bytes]:
        try:
            return self._prefix[cls]
        except KeyError:
            raise TypeError(f"{cls.__qualname__} is not in the registry of events") from None

    def _newest(self, kind: str) -> tuple[bytes, Callable[[bytes], Event]]:
        """Return the bytes that begin a body of a kind's current version, and the decoder for the rest."""
        current, cls = self._kinds[kind]
        newest = self._current[kind] = self._encode(current), msgspec.msgpack.Decoder(cls).decode
        return newest

    def folding(self) -> "Codec":
        """A codec for folds of states, which decide by no personal field and keep few: it leaves the others closed, as
        if they were erased, where that is quicker."""
        codec = Codec(self._kinds, self._upcasters)
        codec.commitments = self.commitments
        codec._closed = frozenset(PERSONAL) - SHOWN_BY_STATES
        return codec

    def fields(self, kind: str, body: bytes) -> tuple[type[Event], list[Any]]:
        """The class of an event, and its fields, with commitments in the place of personal ones. Raises Refusal as
        `decode`."""
        if kind not in self._kinds:
            raise _newer(f"an event of kind {kind!r}")
        current, cls = self._kinds[kind]
        try:
            return cls, self._fields(kind, current, body)
        except _BROKEN as broken:
            raise _damaged(kind, broken) from broken

    def personal(self, kind: str, body: bytes, sealed: bytes, stream: str) -> dict[str, OpenedField]:
        """The personal fields of an event that are `sealed`, by name; none where their key is gone. Raises Refusal as
        `decode`."""
        cls, fields = self.fields(kind, body)
        try:
            shown = self.commitments.fields(kind, stream, cls, fields, sealed) or {}
        except _BROKEN as broken:
            raise _damaged(kind, broken) from broken
        return {cls.__struct_fields__[index]: field for index, field in shown.items()}

    def _fields(self, kind: str, current: int, body: bytes) -> list[Any]:
        """The fields of an event, brought to its kind's current version."""
        version, fields = self._decode(b"\x92" + body)
        if version > current:
            raise _newer(f"version {version} of {kind!r} events (this omac knows {current})")
        for step in range(version, current):
            fields = self._upcasters[kind, step](fields)
        return list(fields)


# What the decoder and upcasters raise for bytes that nobody wrote: no such version, fields of another shape, nesting
# without end.
_BROKEN = (msgspec.MsgspecError, TypeError, ValueError, LookupError, AttributeError, RecursionError)


def _damaged(kind: str, broken: Exception) -> Refusal:
    return Refusal("journal-damaged", f"an event of kind {kind!r} cannot be decoded: {broken}")


def _newer(content: str) -> Refusal:
    message = f"the journal holds {content}: a newer omac wrote it, and this one cannot read it"
    return Refusal("journal-newer", message, fix=["omac version  # then install the newer omac"])


def wrong_type(
    at: object, happened: object, causation: object, correlation: object, body: object, sealed: object
) -> str:
    """Return which column of an event holds what it never can, "" for none: SQLite keeps any type in any column."""
    if type(at) is not int:
        return "the recorded time is no number"
    if happened is not None and type(happened) is not int:
        return "the time it happened is no number"
    if causation is not None and type(causation) is not int:
        return "the causation is no number"
    if correlation is not None and type(correlation) is not str:
        return "the correlation id is no text"
    if sealed is not None and type(sealed) is not bytes:
        return "the sealed fields are no bytes"
    return "" if type(body) is bytes else "the body is no bytes"
