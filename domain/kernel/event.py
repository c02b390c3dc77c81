"""The envelope of an event: what is asked of the journal (a draft) and what it gives back (a record)."""

from typing import Any, Generic, Literal, TypeVar

import msgspec

from omac.domain.kernel.ids import StreamId

State = TypeVar("State")
Actor = Literal["person", "bridge", "agent", "omac"]


class Event(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Something that happened: past tense, immutable. Fields are only ever appended, each with a default."""


class Cause(msgspec.Struct, frozen=True, gc=False):
    """The cause of a record: who asked for it, in which conversation, and after which record."""

    actor: Actor
    correlation: str | None = None  # one id for everything that follows from one command
    causation: int | None = None  # the position of the record that led to this one


PERSON = Cause("person")


class Draft(msgspec.Struct, frozen=True, gc=False):
    """An event on its way to the journal. `version` is the expected next version; None in a log without versions."""

    stream: StreamId
    version: int | None
    event: Any  # a registered Event; the journal's closed registry decides


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """An event that happened: durable, at `position` (from 1, gapless), recorded `at` (nanoseconds since 1970, UTC).

    Recorded time never runs back. `happened` is when it happened, where another program reported that; else None.
    """

    position: int
    stream: StreamId
    version: int | None
    at: int
    run: str
    actor: str
    correlation: str | None
    causation: int | None
    event: Any
    happened: int | None = None

    @property
    def moment(self) -> int:
        """The time at which the event happened, as far as that is known: nanoseconds since 1970, UTC."""
        return self.at if self.happened is None else self.happened


class Spooled(msgspec.Struct, frozen=True):
    """The file of a spool that a record comes from: unique by `host` and `name`, and when and in which run it happened.

    `present` are the names of all files that still lie in that spool; the memory of others is dropped.
    """

    host: str
    name: str
    run: str
    happened: int
    present: frozenset[str] = frozenset()


class Latest(msgspec.Struct, Generic[State], frozen=True):
    """An aggregate: its state, the version that state has, the run that appended last, and the position of that."""

    state: State
    version: int = 0
    run: str = ""
    position: int = 0
    correlation: str | None = None

    def cause(self) -> Cause:
        """Return the cause of what omac itself does next: it follows from the last record of this stream."""
        return Cause("omac", self.correlation, self.position or None)
