"""Pruned positions: what a reader gets for events whose contents were dropped from a sealed segment.

Rules

1. A pruned segment keeps the events that the state of omac follows from: those of aggregates that lived at its end, and
   of accesses that were open then. All others are dropped; their leaves stay in the journal.
2. A fold meets `PositionPruned` in the place of each dropped event. The first of a segment carries what the dropped
   events added to counts that a state keeps, so that the state at the segment's end, and behind it, is what it was.
"""

from datetime import UTC, datetime

from omac.domain.kernel.event import Recorded
from omac.domain.kernel.ids import HostId, journal_stream
from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.kernel.set_aside import PositionPruned
from omac.journal.codec import Codec
from omac.journal.log_connection import JournalConnection
from omac.journal.segment import Segment

KIND = "position.pruned"
_NOTHING = PositionPruned()


class PrunedPositions:
    """The positions of pruned segments. Raises sqlite3.Error."""

    def __init__(self, connection: JournalConnection) -> None:
        self._connection = connection
        self._segments = [segment for segment in connection.segments() if segment.pruned]
        self._counts: dict[Segment, tuple[int, PositionPruned, int]] = {}

    def has(self, position: int) -> bool:
        """Return whether a position lies in a pruned segment."""
        return any(segment.first <= position <= segment.last for segment in self._segments)

    def record(self, position: int) -> Recorded | None:
        """Return what stands in the place of an event that was dropped; None outside of pruned segments. Raises
        sqlite3.Error, Refusal (journal-newer)."""
        for segment in self._segments:
            if segment.first <= position <= segment.last:
                counted_at, counts, at = self._of(segment)
                event = counts if position == counted_at else _NOTHING
                return Recorded(position, _STREAM, None, at, "", "omac", None, None, event)
        return None

    def _of(self, segment: Segment) -> tuple[int, PositionPruned, int]:
        if segment not in self._counts:
            counted_at, body, at = self._connection.pruned(segment)
            counts = Codec().decode(KIND, body)
            assert isinstance(counts, PositionPruned)
            self._counts[segment] = counted_at, counts, at
        return self._counts[segment]


def pruned_refusal(position: int, last: int, day: str, path: str) -> Refusal:
    """Return the refusal of what needs the contents of a position that was pruned."""
    message = (
        f"the contents of positions 1 to {last} of the journal {path} were pruned on {day}; "
        f"position {position} is among them"
    )
    named = f"--journal {quoted(path)}"
    fix = [
        f"omac replay --at {last} {named}  # the first state that is left",
        f"omac audit verify {named}  # their proofs stay",
    ]
    return Refusal("pruned", message, fix=fix)


def day_of(moment: int) -> str:
    """Return the day of a moment, in UTC."""
    return datetime.fromtimestamp(moment // 10**9, UTC).strftime("%Y-%m-%d")


_STREAM = journal_stream(HostId("-"))
