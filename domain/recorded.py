"""The envelope of an event: what is asked of the journal (a draft) and what it gives back (a record)."""

from typing import Any

import msgspec

from omac.domain.ids import StreamId


class Event(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Something that happened: past tense, immutable. Fields are only ever appended, each with a default."""


class Cause(msgspec.Struct, frozen=True, gc=False):
    """Who asked for it, in which conversation, and after which record."""

    actor: str  # "person", "bridge", "agent" or "omac"
    correlation: str | None = None  # one id for everything that follows from one command
    causation: int | None = None  # the position of the record that led to this one


class Draft(msgspec.Struct, frozen=True, gc=False):
    """An event on its way to the journal. `version` is the expected next version; None in a log without versions."""

    stream: StreamId
    version: int | None
    event: Any  # a registered Event; the journal's closed registry decides


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """An event that happened: durable, at `position` (from 1, gapless) and `at` (nanoseconds since 1970, UTC)."""

    position: int
    stream: StreamId
    version: int | None
    at: int
    run: str
    actor: str
    correlation: str | None
    causation: int | None
    event: Any
