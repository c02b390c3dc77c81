"""Reading a journal, on sqlite3 alone: what the recorder reads by, and all that a command needs that changes nothing. A
reader starts in a tenth of the time that SQLAlchemy and eventsourcing take to load."""

import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import msgspec

from omac.domain.kernel.event import Event, Latest, Recorded
from omac.domain.kernel.ids import StreamId
from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.set_aside import PositionEmptied
from omac.journal.codec import Codec, wrong_type
from omac.journal.commitments import Commitments
from omac.journal.event_kinds import KIND_OF
from omac.journal.file import connect_for_reading, damaged, refusal_of, restore_commands
from omac.journal.log_connection import ALL, JournalConnection
from omac.journal.mark import Mark
from omac.journal.pruned import PrunedPositions
from omac.journal.segment import NAMES, Segment, SegmentError, missing_segments
from omac.journal.subject_ciphers import UNREADABLE, KeysOf

PAGE = 1_000
CAUSES_PAGE = 10_000
NAMES_MAX = 10_000  # remembered: runs, launches and directories leave names for good, and a server reads for weeks

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
    sealed: bytes | None
    happened: int | None


COLUMNS = (
    "position", "stream", "version", "kind", "at", "run", "actor", "correlation", "causation", "body", "sealed",
    "happened",
)  # fmt: skip
_SELECT = f"SELECT {', '.join(COLUMNS)} FROM event"  # noqa: S608  # our own names
_NAMED = tuple(map(COLUMNS.index, NAMES))


class Reader:
    """Reads one journal's file, for several threads. Raises Refusal when the file cannot be used."""

    def __init__(self, path: str, mark: Mark | None = None, *, lenient: bool = False) -> None:
        """Open it; `mark` is what is known of it, `lenient`: events that are missing are left to the caller."""
        self.path = path
        self._connection = connect_for_reading(path, mark, lenient=lenient)
        self._turn = threading.Lock()  # else one thread's statement would read the older snapshot of another's
        self._texts: dict[int, str] = {}
        self._pruned: PrunedPositions | None = None

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
        query = "SELECT max(position) FROM event WHERE position > ? AND position <= ? AND at <= ?"
        with self._use() as connection:
            return int(connection.newest(query, moment) or 0)

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
        query = f"{_SELECT} WHERE position > ? AND position <= ?{among} ORDER BY position"
        return self._named(self._rows(query, after, last, *kinds, limit=limit))

    def versions(self, stream: str) -> list[StoredRow]:
        """Return the events of an aggregate in the order of versions; a log has none."""
        # The plus keeps SQLite to the index of versions: it would walk through all positions.
        where = "+position > ? AND +position <= ? AND version IS NOT NULL AND stream = ?"
        query = f"{_SELECT} WHERE {where} ORDER BY version"
        with self._use() as connection, connection.snapshot():
            ids = connection.execute("SELECT id FROM name WHERE text = ?", (stream,)).fetchall()
            rows = [row for (id_,) in ids for row in connection.rows(query, *_of_stream(connection, id_), id_)]
        return self._named(rows)

    def newest_first(self, stream: str) -> Iterator[StoredRow]:
        """Return the events of an aggregate, the last one first; each is read when it is asked for."""
        below: int | None = 2**63 - 1
        where = "version < ? AND stream = (SELECT id FROM name WHERE text = ?)"
        query = f"{_SELECT} WHERE {where} ORDER BY version DESC LIMIT 1"
        while rows := self._named(self._all(query, below, stream)):
            yield rows[0]
            below = rows[0].originator_version

    def streams(self, aggregate: str) -> list[str]:
        """Return the streams of an aggregate, by the first word of their names."""
        query = "SELECT text FROM name WHERE text > ? AND text < ? ORDER BY text"
        return [text for (text,) in self._all(query, f"{aggregate}/", f"{aggregate}0")]  # 0 comes behind /

    def spooled(self, host: str) -> frozenset[str]:
        """Return the names of files in the spool of `host` that are remembered as recorded."""
        return frozenset(name for (name,) in self._all("SELECT id FROM spooled WHERE host = ?", host))

    def kinds(self) -> Iterator[tuple[str, int]]:
        """Return how many events of each kind exist, most frequent first."""
        query = "SELECT kind, count(*) FROM event WHERE position > ? AND position <= ? GROUP BY kind"
        counts: Counter[int] = Counter()
        for kind, number in self._rows(query, *ALL):
            counts[kind] += number
        texts = self._texts_of(counts)
        named = [(texts[kind], number) for kind, number in counts.items() if kind in texts]
        return iter(sorted(named, key=lambda pair: (-pair[1], pair[0])))

    def causes(self, after: int, until: int, earliest: int) -> list[tuple[int, int]]:
        """Return the positions above `after`, up to `until`, whose cause is at position `earliest` or behind it, and
        these, in order."""
        query = "SELECT position, causation FROM event WHERE position > ? AND position <= ? AND causation >= ?"
        return self._rows(f"{query} ORDER BY position", after, until, earliest)

    def correlated(self, correlation: str, limit: int) -> list[int]:
        """Return the first positions of a conversation."""
        query = "SELECT position FROM event WHERE position > ? AND position <= ? AND correlation = ? ORDER BY position"
        return [position for (position,) in self._rows(query, *ALL, correlation, limit=limit)]

    def segments(self) -> list[Segment]:
        """Return the sealed segments, in order."""
        with self._use() as connection:
            return connection.segments()

    def missing_segments(self) -> list[SegmentError]:
        """Return why segments cannot be read, as far as their files' names and sizes show it."""
        lacking = list(missing_segments(self.path, self.segments()))
        listed = self.segments() if lacking else []  # without what was pruned meanwhile
        return [error for error in lacking if error.segment in listed]

    def sealed_to(self) -> int:
        """Return the last position that is in a segment; 0 for none."""
        with self._use() as connection:
            return connection.sealed_to()

    def pruned_record(self, position: int) -> Recorded | None:
        """Return what stands in the place of an event that was dropped; None where none was."""
        with self._use() as connection:
            if self._pruned is None or not self._pruned.has(position):
                self._pruned = PrunedPositions(connection)
            return self._pruned.record(position)

    def pruned_to(self) -> tuple[int, int]:
        """Return the last position of pruned segments, and when that was pruned (nanoseconds since 1970 UTC); zeros
        where none is."""
        return max(((segment.last, segment.pruned) for segment in self.segments() if segment.pruned), default=(0, 0))

    def rows_before(self, position: int) -> bool:
        """Return whether rows of positions below `position` are still in the journal's own file."""
        return bool(self._all("SELECT 1 FROM event WHERE position >= 1 AND position < ? LIMIT 1", position))

    def has_rows(self, first: int, last: int) -> bool:
        """Return whether the journal's own file has all rows from position `first` to `last`."""
        query = "SELECT count(*) FROM event WHERE position BETWEEN ? AND ?"
        return int(self._all(query, first, last)[0][0]) == last - first + 1

    def repaired_at(self) -> int:
        """Return the position of the last repair of a record; 0 where there was none."""
        if not self._all("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'set_aside'"):
            return 0  # of an early omac, which is given the table when it is next opened to be written
        query = "SELECT coalesce(max(record), 0) FROM set_aside WHERE record > 0"
        return int(self._one(query, "its repairs cannot be read"))

    def leaf(self, position: int) -> str:
        """Return the leaf of a position in hexadecimal digits, which is the same after a seal, a prune and a repair; ""
        where it has none, such as an event of an earlier omac."""
        if not self._all("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'leaf'"):
            return ""
        return "".join(bytes(leaf).hex() for (leaf,) in self._all("SELECT hash FROM leaf WHERE position = ?", position))

    def _named(self, rows: Sequence[Any]) -> list[StoredRow]:
        texts = self._texts_of({row[index] for row in rows for index in _NAMED})
        return [self._row(values, texts) for values in rows]

    def _row(self, values: Sequence[Any], texts: dict[int, str]) -> StoredRow:
        fields = list(values)
        for index in _NAMED:
            try:
                fields[index] = texts[fields[index]]
            except KeyError:
                raise damaged(self.path, f"something it refers to is missing ({fields[index]})") from None
        return StoredRow(*fields)

    def _texts_of(self, ids: Iterable[int]) -> dict[int, str]:
        """Return names by their ids, at least those of `ids` that there are: the dictionary that is remembered, which
        another thread may replace."""
        texts, ids = self._texts, list(ids)
        wanted = [id_ for id_ in ids if id_ not in texts]  # what is no number, in a damaged row, sorts with none
        if wanted and len(texts) >= NAMES_MAX:
            texts, wanted = {}, ids
            self._texts = texts
        for start in range(0, len(wanted), 500):
            part = wanted[start : start + 500]
            marks = ", ".join("?" * len(part))
            query = f"SELECT id, text FROM name WHERE id IN ({marks}) AND typeof(text) = 'text'"  # noqa: S608  # marks
            texts.update(self._all(query, *part))
        return texts

    def _one(self, query: str, otherwise: str) -> Any:
        rows = self._all(query)
        if not rows:
            raise damaged(self.path, otherwise)
        return rows[0][0]

    def _all(self, query: str, *values: int | str | None) -> list[Any]:
        with self._use() as connection:
            return connection.execute(query, values).fetchall()

    def _rows(self, query: str, after: int, until: int, *values: int | str, limit: int | None = None) -> list[Any]:
        with self._use() as connection:
            return connection.rows(query, after, until, *values, limit=limit)

    @contextmanager
    def _use(self) -> Iterator[JournalConnection]:
        try:
            with self._turn:
                yield self._connection
        except sqlite3.Error as error:
            raise refusal_of(error, self.path) from error


def _of_stream(connection: JournalConnection, stream: int) -> tuple[int, int]:
    """Above which position the versions of a stream lie, and to which: in segments only where versions are sealed."""
    sealed = connection.sealed_to()
    if not sealed or connection.execute("SELECT 1 FROM sealed_version WHERE stream = ?", (stream,)).fetchone():
        return ALL
    return sealed, ALL[1]


class Records:
    """The records of a journal, which other processes may write to meanwhile: by the rows of `_reader`."""

    _reader: Reader
    codec: Codec

    def records(self, after: int = 0, until: int | None = None) -> Iterator[Recorded]:
        """Return all records above position `after`, up to `until`, in order. Raises Refusal for one that cannot be
        read or is missing."""
        return self._records(self.codec, after, until)

    def folded(self, after: int = 0, until: int | None = None) -> Iterator[Recorded]:
        """Return the same for a fold of a state (`Codec.folding`). Raises Refusal."""
        return self._records(self.codec.folding(), after, until)

    def history(self, stream: StreamId) -> list[Recorded]:
        """Return the records of an aggregate, in order. Raises Refusal."""
        return [self._recorded(row) for row in self._reader.versions(stream)]

    def load(self, stream: StreamId, initial: State, evolve: Callable[[State, Event], State]) -> Latest[State]:
        """Return the state of an aggregate and its version; the initial state and 0 when it has no events."""
        entry, path = Latest(initial), self._reader.path
        for row in self._reader.versions(stream):
            if row.originator_version != entry.version + 1:
                raise damaged(path, f"version {entry.version + 1} of {stream} is missing")
            event = self._recorded(row).event
            emptied = type(event) is PositionEmptied  # it counts as a version, and changes nothing
            try:
                state = entry.state if emptied else evolve(entry.state, event)
            except KeyError as error:  # of every aggregate's rules
                version = f"version {row.originator_version} of {stream}, at position {row.id},"
                raise damaged(path, f"{version} cannot follow: {error.args[0]}") from error
            entry = Latest(state, row.originator_version or 0)
        return entry

    def _records(self, codec: Codec, after: int, until: int | None) -> Iterator[Recorded]:
        reader = self._reader
        while rows := reader.select(after, PAGE, until):
            for row in rows:
                after += 1
                while row.id != after:
                    if row.id < after or (record := reader.pruned_record(after)) is None:
                        raise damaged(reader.path, f"position {after} is missing")
                    yield record
                    after += 1
                yield recorded(reader.path, codec, row)
        while until is not None and after < until and (record := reader.pruned_record(after + 1)) is not None:
            after += 1  # the last of those that are asked for were dropped
            yield record

    def _recorded(self, row: StoredRow) -> Recorded:
        return recorded(self._reader.path, self.codec, row)


class ReadJournal(Records):
    """A journal that is open to read only; `store` is its file, `mark` what is known of it. `keys` gives those of a
    journal's personal fields, by its id; without them these are read as erased."""

    def __init__(self, path: str, mark: Mark | None = None, keys: KeysOf | None = None) -> None:
        self.store = self._reader = Reader(path, mark)
        self.codec = Codec()
        try:
            if keys is not None:
                self.codec.commitments = Commitments(keys(self.store.journal_id()))
        except BaseException:
            self.store.close()
            raise

    def close(self) -> None:
        self.store.close()

    def of_kinds(self, kinds: Sequence[str], after: int = 0) -> Iterator[Recorded]:
        """Return the records of some kinds above position `after`, in order. Raises Refusal."""
        while rows := self.store.select(after, PAGE, kinds=kinds):
            for row in rows:
                yield self._recorded(row)
            after = rows[-1].id

    def readable_of_kinds(self, kinds: Sequence[str]) -> Iterator[Recorded]:
        """Return those that can be read, whatever is damaged, or in a segment that is lost. Raises Refusal."""
        sealed = self.store.segments()
        for start, end in [*((segment.first - 1, segment.last) for segment in sealed), (self.store.sealed_to(), None)]:
            with suppress(Refusal):
                while rows := self.store.select(start, PAGE, end, kinds):
                    for row in rows:
                        with suppress(Refusal):
                            yield self._recorded(row)
                    start = rows[-1].id

    def at(self, position: int) -> Recorded | None:
        """Return the record at a position; None where there is none. Raises Refusal."""
        return next(self.records(position - 1, position), None) if 0 < position <= self.store.head() else None

    def caused_by(self, positions: Collection[int]) -> Iterator[int]:
        """Yield the positions of all that follows from these records, in order. Raises Refusal."""
        causes, head = set(positions), self.store.head()
        earliest = after = min(positions, default=head)
        while after < head:
            for position, cause in self.store.causes(after, after + CAUSES_PAGE, earliest):
                if cause in causes and cause < position:
                    causes.add(position)
                    yield position
            after += CAUSES_PAGE

    def of_type(self, event: type[Event], after: int) -> Iterator[Recorded]:
        """Yield the records of one kind of event above position `after`, in order. Raises Refusal."""
        while rows := self.store.select(after, CAUSES_PAGE, kinds=(KIND_OF[event],)):
            yield from map(self._recorded, rows)
            after = rows[-1].id

    def of_correlation(self, correlation: str, limit: int) -> Sequence[int]:
        """Return the first positions of a conversation. Raises Refusal."""
        return self.store.correlated(correlation, limit)


def recorded(path: str, codec: Codec, row: StoredRow) -> Recorded:
    """Return a stored row as the rest of omac sees it. Raises Refusal (also of UNREADABLE)."""
    if wrong := wrong_type(row.at, row.happened, row.causation, row.correlation, row.state, row.sealed):
        raise damaged(path, f"{wrong} at position {row.id}")
    try:
        event = codec.decode(row.topic, row.state, row.sealed, row.originator_id)
    except Refusal as refusal:
        if refusal.reason in UNREADABLE:
            raise
        message = f"the journal {path} at position {row.id}: {refusal.message}"
        raise Refusal(refusal.reason, message, fix=(*refusal.fix, *restore_commands(path))) from refusal
    return Recorded(
        row.id, StreamId(row.originator_id), row.originator_version, row.at, row.run, row.actor,
        row.correlation, row.causation, event, row.happened,
    )  # fmt: skip
