"""The positions that a repair set aside: their events are no more what was recorded, which their leaves outlive.

A `position.set-aside` tells of each, and the row in `set_aside` is what the leaf was made of, or an emptied position
stands there. Nothing else excuses an event from its leaf. Where such a record was damaged later, the copy of it counts
that the repair kept, if it is what the record's own leaf was made of.
"""

import contextlib
import hashlib
from collections.abc import Iterator, Sequence

import msgspec

from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.set_aside import PositionSetAside
from omac.journal.codec import Codec
from omac.journal.log_connection import ALL, JournalConnection
from omac.journal.merkle import leaf_hash


class SetAsidePositions:
    """The repairs that a journal records, read when they are first needed. In the ranges `absent` (above which
    position, up to which) events cannot be read. Raises sqlite3.Error."""

    def __init__(self, connection: JournalConnection, absent: Sequence[tuple[int, int]] = ()) -> None:
        self._connection = connection
        self._absent = absent
        self._repairs: list[tuple[int, PositionSetAside]] | None = None

    def lost(self) -> Iterator[int]:
        """Yield where a repair is recorded of which the row that it replaced is not kept as it was."""
        for record, event in self._read():
            if event.digest:
                rows = self._connection.execute("SELECT body FROM set_aside WHERE record = ?", (record,)).fetchall()
                if [digest_of(body) for (body,) in rows] != [event.digest]:
                    yield record

    def has(self, position: int, leaf: bytes) -> bool:
        """Return whether a repair set aside what had this leaf."""
        if all(event.position != position for _, event in self._read()):
            return False
        kept = self._connection.execute(_SET_ASIDE, (position,)).fetchall()
        emptied = bool(self._connection.rows(_EMPTIED, position - 1, position))
        return emptied or any(_matches(row, leaf) for row in kept)

    def _read(self) -> list[tuple[int, PositionSetAside]]:
        if self._repairs is None:
            is_repaired = self._connection.execute(_IS_REPAIRED).fetchone()
            self._repairs = list(self._repair_records()) if is_repaired else []
        return self._repairs

    def _repair_records(self) -> Iterator[tuple[int, PositionSetAside]]:
        """Yield the records of repairs, with their positions."""
        codec, after, known = Codec(), 0, set[int]()
        for start, end in [*self._absent, (ALL[1], ALL[1])]:
            for record, body in self._connection.rows(_REPAIRS, after, start):
                with contextlib.suppress(Refusal):
                    event = codec.decode("position.set-aside", body)
                    assert isinstance(event, PositionSetAside)
                    known.add(record)
                    yield record, event
            after = end
        for leaf, *row in self._connection.execute(_COPIES).fetchall():
            if row[0] not in known and _matches(row, leaf):  # it is what was recorded
                with contextlib.suppress(Refusal):
                    event = codec.decode("position.set-aside", row[-1])
                    assert isinstance(event, PositionSetAside)
                    yield row[0], event


def digest_of(body: object) -> str:
    """Return the digest of the body of a row that is set aside, which need not be bytes."""
    content = body if isinstance(body, bytes) else str(body).encode("utf-8", "surrogateescape")
    return "sha256:" + hashlib.sha256(content).hexdigest()


def _matches(row: Sequence[object], leaf: bytes) -> bool:
    try:
        return leaf_hash(msgspec.msgpack.encode(row)) == leaf
    except ValueError:
        return False


_SET_ASIDE = """
    SELECT position, stream, version, kind, at, run, actor, correlation, causation, happened, sealed, body
    FROM set_aside WHERE position = ? AND record > 0
"""
_COPIES = """
    SELECT hash, s.position, stream, version, kind, at, run, actor, correlation, causation, happened, sealed, body
    FROM set_aside AS s JOIN leaf ON leaf.position = s.position
    WHERE record < 0 AND record = -s.position AND kind = 'position.set-aside'
"""
_IS_REPAIRED = "SELECT 1 FROM name WHERE text = 'position.set-aside'"
_REPAIRS = (
    "SELECT position, body FROM event JOIN name ON name.id = kind WHERE position > ? AND position <= ? "
    "AND text = 'position.set-aside' AND typeof(body) = 'blob'"
)
_EMPTIED = (
    "SELECT 1 FROM event JOIN name ON name.id = kind WHERE position > ? AND position <= ? AND text = 'position.emptied'"
)
