"""Reading a journal, on sqlite3 alone: what the recorder reads by, and all that a command needs that changes nothing.

A reader starts in a tenth of the time that SQLAlchemy and eventsourcing take to load.
"""

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from omac.domain.kernel.event import Event, Latest, Recorded
from omac.domain.kernel.ids import StreamId
from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.set_aside import PositionEmptied
from omac.journal.codec import Codec
from omac.journal.file import connect_for_reading, damaged, refusal_of, way_back
from omac.journal.mark import Mark

PAGE = 1_000

State = TypeVar("State")


class StoredRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event as it is stored, names resolved: an eventsourcing Notification, and what is recorded beside it."""

    id: int
    originator_id: str
    originator_version: int | None
    topic: str
    at: int
    run: str
    actor: str
    correlation: str | None
    causation: int | None
    state: bytes
    happened: int | None


COLUMNS = (
    "position", "stream", "version", "kind", "at", "run", "actor", "correlation", "causation", "body", "happened",
)  # fmt: skip
_SELECT = f"SELECT {', '.join(COLUMNS)} FROM event"  # noqa: S608  # our own names
_NAMED = tuple(COLUMNS.index(name) for name in ("stream", "kind", "run", "actor"))  # stored as ids of names


class Records(Protocol):
    """A journal that can be read while other processes write to it."""

    def records(self, after: int = 0, until: int | None = None) -> Iterator[Recorded]:
        """Return all records above position `after`, up to `until`, in order. Raises Refusal."""
        ...

    def load(self, stream: StreamId, initial: State, evolve: Callable[[State, Event], State]) -> Latest[State]:
        """Return the state of an aggregate and its version; the initial state and 0 when it has no events."""
        ...


class Reader:
    """Reads one journal's file, for several threads. Raises Refusal when the file cannot be used."""

    def __init__(self, path: str, mark: Mark | None = None, *, lenient: bool = False) -> None:
        """Open it; `mark` is what is known of it, `lenient`: events that are missing are left to the caller."""
        self.path = path
        self._connection = connect_for_reading(path, mark, lenient=lenient)
        self._turn = threading.Lock()  # else one thread's statement would read the older snapshot of another's
        self._texts: dict[int, str] = {}

    def close(self) -> None:
        with self._turn:
            self._connection.close()

    def head(self) -> int:
        """Return the last position; 0 for an empty journal."""
        return int(self._one("SELECT position FROM head", "it has no head"))

    def position_at(self, moment: int) -> int:
        """Return the last position recorded at `moment` (nanoseconds since 1970 UTC) or before; 0 for none.

        A clock may be set back: events between two that qualify belong to the past, whatever they say.
        """
        ((position,),) = self._all("SELECT max(position) FROM event WHERE at <= ?", moment)
        return int(position or 0)

    def journal_id(self) -> str:
        """Return the random name the journal got when it was created."""
        return str(self._one("SELECT id FROM journal", "it has no name"))

    def select(
        self, after: int, limit: int, until: int | None = None, kinds: Sequence[str] = ()
    ) -> Sequence[StoredRow]:
        """Return at most `limit` rows above position `after`, up to `until`, in order, of some or of all kinds."""
        last = 2**63 - 1 if until is None else until
        marks = ", ".join("?" * len(kinds))
        among = f" AND kind IN (SELECT id FROM name WHERE text IN ({marks}))" if kinds else ""  # noqa: S608  # marks
        query = f"{_SELECT} WHERE position > ? AND position <= ?{among} ORDER BY position LIMIT ?"
        return self._named(self._all(query, after, last, *kinds, limit))

    def versions(self, stream: str) -> list[StoredRow]:
        """Return the events of an aggregate in the order of versions; a log has none."""
        where = "version IS NOT NULL AND stream = (SELECT id FROM name WHERE text = ?)"
        return self._named(self._all(f"{_SELECT} WHERE {where} ORDER BY version", stream))

    def streams(self, aggregate: str) -> list[str]:
        """Return the streams of an aggregate, by the first word of their names."""
        query = "SELECT text FROM name WHERE text > ? AND text < ? ORDER BY text"
        return [text for (text,) in self._all(query, f"{aggregate}/", f"{aggregate}0")]  # 0 comes behind /

    def spooled(self, host: str) -> frozenset[str]:
        """Return the names of files in the spool of `host` that are remembered as recorded."""
        return frozenset(name for (name,) in self._all("SELECT id FROM spooled WHERE host = ?", host))

    def kinds(self) -> Iterator[tuple[str, int]]:
        """Return how many events of each kind exist, most frequent first."""
        query = "SELECT text, count(*) AS n FROM event JOIN name ON name.id = kind GROUP BY text ORDER BY n DESC, text"
        return ((str(kind), int(number)) for kind, number in self._all(query))

    def caused(self, after: int, limit: int) -> list[tuple[int, int]]:
        """Return at most `limit` positions above `after` that have a cause, and it, in order."""
        query = "SELECT position, causation FROM event WHERE position > ? AND causation > 0 ORDER BY position LIMIT ?"
        return self._all(query, after, limit)

    def correlated(self, correlation: str, limit: int) -> list[int]:
        """Return the first positions of a conversation."""
        query = "SELECT position FROM event WHERE correlation = ? ORDER BY position LIMIT ?"
        return [position for (position,) in self._all(query, correlation, limit)]

    def repaired_at(self) -> int:
        """Return the position of the last repair of a record; 0 where there was none."""
        if not self._all("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'set_aside'"):
            return 0  # of an early omac, which is given the table when it is next opened to be written
        return int(self._one("SELECT coalesce(max(record), 0) FROM set_aside", "its repairs cannot be read"))

    def _named(self, rows: Sequence[Any]) -> list[StoredRow]:
        self._learn({row[index] for row in rows for index in _NAMED} - self._texts.keys())
        return [self._row(values) for values in rows]

    def _row(self, values: Sequence[Any]) -> StoredRow:
        fields = list(values)
        for index in _NAMED:
            try:
                fields[index] = self._texts[fields[index]]
            except KeyError:
                raise damaged(self.path, f"something it refers to is missing ({fields[index]})") from None
        return StoredRow(*fields)

    def _learn(self, ids: set[int]) -> None:
        wanted = sorted(ids)
        for start in range(0, len(wanted), 500):
            part = wanted[start : start + 500]
            marks = ", ".join("?" * len(part))
            self._texts.update(self._all(f"SELECT id, text FROM name WHERE id IN ({marks})", *part))  # noqa: S608  # marks

    def _one(self, query: str, otherwise: str) -> Any:
        rows = self._all(query)
        if not rows:
            raise damaged(self.path, otherwise)
        return rows[0][0]

    def _all(self, query: str, *values: int | str) -> list[Any]:
        try:
            with self._turn:
                return self._connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise refusal_of(error, self.path) from error


class ReadJournal:
    """A journal that is open to read only; `store` is its file, `mark` what is known of it."""

    def __init__(self, path: str, mark: Mark | None = None) -> None:
        self.store = Reader(path, mark)
        self._codec = Codec()

    def close(self) -> None:
        self.store.close()

    def records(self, after: int = 0, until: int | None = None) -> Iterator[Recorded]:
        """Return all records above position `after`, up to `until`, in order. Raises Refusal."""
        return records(self.store, self._codec, after, until)

    def of_kinds(self, kinds: Sequence[str], after: int = 0) -> Iterator[Recorded]:
        """Return the records of some kinds above position `after`, in order. Raises Refusal."""
        while rows := self.store.select(after, PAGE, kinds=kinds):
            for row in rows:
                yield recorded(self.store.path, self._codec, row)
            after = rows[-1].id

    def at(self, position: int) -> Recorded | None:
        """Return the record at a position; None where there is none. Raises Refusal."""
        return next(self.records(position - 1, position), None) if 0 < position <= self.store.head() else None

    def caused_after(self, position: int) -> Iterator[tuple[int, int]]:
        """Yield the positions above `position` that have a cause, and it, in order. Raises Refusal."""
        while pairs := self.store.caused(position, PAGE):
            yield from pairs
            position = pairs[-1][0]

    def of_correlation(self, correlation: str, limit: int) -> Sequence[int]:
        """Return the first positions of a conversation. Raises Refusal."""
        return self.store.correlated(correlation, limit)

    def history(self, stream: StreamId) -> list[Recorded]:
        """Return the records of an aggregate, in order. Raises Refusal."""
        return [recorded(self.store.path, self._codec, row) for row in self.store.versions(stream)]

    def load(self, stream: StreamId, initial: State, evolve: Callable[[State, Event], State]) -> Latest[State]:
        """Return the state of an aggregate and its version; the initial state and 0 when it has no events."""
        return load(self.store, self._codec, stream, initial, evolve)


def load(
    reader: Reader, codec: Codec, stream: StreamId, initial: State, evolve: Callable[[State, Event], State]
) -> Latest[State]:
    """Return the state of an aggregate and its version; the initial state and 0 when it has no events."""
    entry = Latest(initial)
    for row in reader.versions(stream):
        event = recorded(reader.path, codec, row).event
        emptied = type(event) is PositionEmptied  # it counts as a version, and changes nothing
        entry = Latest(entry.state if emptied else evolve(entry.state, event), row.originator_version or 0)
    return entry


def records(reader: Reader, codec: Codec, after: int, until: int | None) -> Iterator[Recorded]:
    """Return all records above position `after`, up to `until`, in order. Raises Refusal for one that cannot be read or
    is missing."""
    while rows := reader.select(after, PAGE, until):
        for row in rows:
            after += 1
            if row.id != after:
                raise damaged(reader.path, f"position {after} is missing")
            yield recorded(reader.path, codec, row)


def wrong_type(at: object, happened: object, causation: object, correlation: object, body: object) -> str:
    """Return which column of an event holds what it never can, "" for none: SQLite keeps any type in any column."""
    if type(at) is not int:
        return "the recorded time is no number"
    if happened is not None and type(happened) is not int:
        return "the time it happened is no number"
    if causation is not None and type(causation) is not int:
        return "the causation is no number"
    if correlation is not None and type(correlation) is not str:
        return "the correlation id is no text"
    return "" if type(body) is bytes else "the body is no bytes"


def recorded(path: str, codec: Codec, row: StoredRow) -> Recorded:
    """Return a stored row as the rest of omac sees it. Raises Refusal (journal-newer, journal-damaged)."""
    if wrong := wrong_type(row.at, row.happened, row.causation, row.correlation, row.state):
        raise damaged(path, f"{wrong} at position {row.id}")
    try:
        event = codec.decode(row.topic, row.state)
    except Refusal as refusal:
        fix = (*refusal.fix, *way_back(path))
        message = f"the journal {path} at position {row.id}: {refusal.message}"
        raise Refusal(refusal.reason, message, fix=fix) from refusal
    return Recorded(
        row.id, StreamId(row.originator_id), row.originator_version, row.at, row.run, row.actor,
        row.correlation, row.causation, event, row.happened,
    )  # fmt: skip
