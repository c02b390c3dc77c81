"""The positions that a repair set aside: their events are no more what was recorded, which their leaves outlive.

A `position.set-aside` tells of each, and the row in `set_aside` is what the leaf was made of, or an emptied position
stands there. Nothing else excuses an event from its leaf.
"""

import contextlib
from collections.abc import Iterator, Sequence

import msgspec

from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.set_aside import PositionSetAside
from omac.journal.codec import Codec
from omac.journal.log_connection import ALL, JournalConnection
from omac.journal.merkle import leaf_hash


class SetAsidePositions:
    """What repairs of a journal say, read when it is first needed. In the ranges `absent` (above which position, up to
    which) events cannot be read. Raises sqlite3.Error."""

    def __init__(self, connection: JournalConnection, absent: Sequence[tuple[int, int]] = ()) -> None:
        self._connection = connection
        self._absent = absent
        self._named: set[int] | None = None

    def has(self, position: int, leaf: bytes) -> bool:
        """Return whether a repair set aside what had this leaf."""
        if self._named is None:
            self._named = set(self._read())
        if position not in self._named:
            return False
        kept = self._connection.execute(_SET_ASIDE, (position,)).fetchall()
        emptied = bool(self._connection.rows(_EMPTIED, position - 1, position))
        return emptied or any(_matches(row, leaf) for row in kept)

    def _read(self) -> Iterator[int]:
        codec, after = Codec(), 0
        for start, end in [*self._absent, (ALL[1], ALL[1])]:
            for (body,) in self._connection.rows(_REPAIRS, after, start):
                with contextlib.suppress(Refusal):
                    event = codec.decode("position.set-aside", body)
                    assert isinstance(event, PositionSetAside)
                    yield event.position
            after = end


def _matches(row: Sequence[object], leaf: bytes) -> bool:
    try:
        return leaf_hash(msgspec.msgpack.encode(row)) == leaf
    except ValueError:
        return False


_SET_ASIDE = """
    SELECT position, stream, version, kind, at, run, actor, correlation, causation, happened, sealed, body
    FROM set_aside WHERE position = ?
"""
_REPAIRS = (
    "SELECT body FROM event JOIN name ON name.id = kind WHERE position > ? AND position <= ? "
    "AND text = 'position.set-aside' AND typeof(body) = 'blob'"
)
_EMPTIED = (
    "SELECT 1 FROM event JOIN name ON name.id = kind WHERE position > ? AND position <= ? AND text = 'position.emptied'"
)
