"""The current state of every aggregate of one kind: its events folded, stream by stream.

An aggregate that has ended admits no further event, so memory does not grow with those: the latest stay known, for
timelines; an earlier one is as if it had never been, and an event appended to its stream is refused by its version.
"""

from collections import deque
from typing import Any, Generic, TypeVar

import msgspec

from omac.domain.kernel.aggregate import Aggregate
from omac.domain.kernel.event import Latest, Recorded
from omac.domain.kernel.ids import StreamId

State = TypeVar("State")
ENDED_KEPT = 64  # of each kind that ends; a timeline shows fewer events


class AggregatesState(msgspec.Struct, Generic[State], frozen=True):
    """The complete state of an Aggregates."""

    entries: dict[StreamId, Latest[State]]
    ended: list[StreamId]


class Aggregates(Generic[State]):
    """All aggregates of one kind. Of those that have ended only the latest ENDED_KEPT are entries."""

    def __init__(self, aggregate: Aggregate[State, Any]) -> None:
        self._none = Latest(aggregate.initial)
        self._evolve = aggregate.evolve
        self._has_ended = aggregate.has_ended
        self._ended: deque[StreamId] = deque()
        self.entries: dict[StreamId, Latest[State]] = {}

    def __getitem__(self, stream: StreamId) -> Latest[State]:
        return self.entries.get(stream, self._none)

    def state(self) -> AggregatesState[State]:
        """Return all that is remembered, to go on from another time."""
        return AggregatesState(self.entries, list(self._ended))

    def restore(self, state: AggregatesState[State]) -> None:
        """Go on from what was remembered."""
        self.entries.update(state.entries)
        self._ended.extend(state.ended)

    def apply(self, recorded: Recorded) -> None:
        """Fold one event. Raises KeyError when it cannot follow: the journal is damaged."""
        entry = self._next(recorded)
        self._put(recorded, self._evolve(entry.state, recorded.event))

    def skip(self, recorded: Recorded) -> None:
        """Count a version whose event was set aside; the state stays. Raises KeyError when it cannot follow."""
        self._put(recorded, self._next(recorded).state)

    def _next(self, recorded: Recorded) -> Latest[State]:
        entry = self[recorded.stream]
        if recorded.version != entry.version + 1:
            raise KeyError(f"version {recorded.version} after {entry.version}")
        return entry

    def _put(self, recorded: Recorded, state: State) -> None:
        version = recorded.version or 0
        self.entries[recorded.stream] = Latest(state, version, recorded.run, recorded.position, recorded.correlation)
        if self._has_ended(state):
            self._ended.append(recorded.stream)
            if len(self._ended) > ENDED_KEPT:
                del self.entries[self._ended.popleft()]
