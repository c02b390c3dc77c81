"""The current state of every aggregate of one kind: its events folded, stream by stream."""

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from omac.domain.ids import StreamId
from omac.domain.recorded import Cause, Event, Recorded

State = TypeVar("State")


class Entry(msgspec.Struct, Generic[State], frozen=True):
    """An aggregate: its state, the version that state has, the run that appended last, and the position of that."""

    state: State
    version: int = 0
    run: str = ""
    position: int = 0
    correlation: str | None = None

    def cause(self) -> Cause:
        """For what omac itself does next: it follows from the last record of this stream."""
        return Cause("omac", self.correlation, self.position or None)


class Aggregates(Generic[State]):
    """All aggregates of one kind; `evolve` is its fold, `initial` the state before any event."""

    def __init__(self, initial: State, evolve: Callable[[State, Event], State]) -> None:
        self._none = Entry(initial)
        self._evolve = evolve
        self.entries: dict[StreamId, Entry[State]] = {}

    def __getitem__(self, stream: StreamId) -> Entry[State]:
        return self.entries.get(stream, self._none)

    def apply(self, recorded: Recorded) -> None:
        """Fold one event. Raises KeyError when it cannot follow: the journal is damaged."""
        entry = self._next(recorded)
        self._put(recorded, self._evolve(entry.state, recorded.event))

    def skip(self, recorded: Recorded) -> None:
        """Count a version whose event was set aside; the state stays. Raises KeyError when it cannot follow."""
        self._put(recorded, self._next(recorded).state)

    def _next(self, recorded: Recorded) -> Entry[State]:
        entry = self[recorded.stream]
        if recorded.version != entry.version + 1:
            raise KeyError(f"version {recorded.version} after {entry.version}")
        return entry

    def _put(self, recorded: Recorded, state: State) -> None:
        version = recorded.version or 0
        self.entries[recorded.stream] = Entry(state, version, recorded.run, recorded.position, recorded.correlation)
