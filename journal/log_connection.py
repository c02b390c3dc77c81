"""A connection to a journal that reads its events in the order of positions, in whichever file they lie: the oldest in
sealed segments, all others in the journal's own.

Rules

1. Nothing else knows of segments when it reads events. A query names the table `event` and bounds positions by its
   first two parameters, "position > ? AND position <= ?"; each file answers for its positions.
2. A segment is opened when an event of it is read, never before, and is then the one that the journal lists: of this
   journal, of these positions, of this size.
3. Rows of sealed positions that are still in the journal's file count for nothing: the segment has them.
"""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any

from omac.journal.segment import Segment, SegmentError, SegmentPrunedMeanwhile, open_segment, verify_segment

ALL = (-(2**63), 2**63 - 1)  # every position that SQLite can hold
PAGE = 1_000

_VERSIONS = (
    "SELECT stream, max(version) FROM event WHERE +position > ? AND +position <= ? AND version IS NOT NULL "
    "GROUP BY stream"
)

# Where rows lie (None: in the journal's own file), above which position, and up to which.
Part = tuple[Segment | None, int, int]


class JournalConnection(sqlite3.Connection):
    """A connection to the file of a journal; closing it closes the segments that it opened."""

    _opened: tuple[Segment, sqlite3.Connection] | None = None

    def close(self) -> None:
        self._release()
        super().close()

    def segments(self) -> list[Segment]:
        """Return the segments that the journal lists, in order; none in a journal of an earlier omac. Raises
        sqlite3.Error."""
        try:
            rows = self.execute(
                "SELECT first, last, file, bytes, sha256, pruned FROM segment ORDER BY first"
            ).fetchall()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return []
            raise
        segments, last = [Segment(*row) for row in rows], 0
        for segment in segments:
            if [type(value) for value in segment] != [int, int, str, int, str, int] or not (
                segment.first == last + 1 <= segment.last and segment.has_plain_name()
            ):
                raise sqlite3.DatabaseError(f"malformed: its list of segments is wrong behind position {last}")
            last = segment.last
        return segments

    def sealed_to(self) -> int:
        """Return the last position that is in a segment; 0 for none. Raises sqlite3.Error."""
        segments = self.segments()
        return segments[-1].last if segments else 0

    def pruned(self, segment: Segment) -> tuple[int, bytes, int]:
        """Return the position of a pruned segment that carries counts, these, as an event's body, and the time of its
        last event. Raises sqlite3.Error."""
        with _named(segment):
            position, body, at = self._in(segment).execute("SELECT position, body, at FROM pruned").fetchone()
        return position, body, at

    def sealed_versions(self) -> dict[int, int]:
        """Return the last version of each stream in segments, as these have it. Raises sqlite3.Error."""
        versions: dict[int, int] = {}
        for stream, version in self.rows(_VERSIONS, 0, self.sealed_to()):
            versions[stream] = max(version, versions.get(stream, 0))
        return versions

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Write what is executed all or nothing, and be the only one who writes meanwhile. Raises sqlite3.Error."""
        self.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            if self.in_transaction:
                self.execute("ROLLBACK")
            raise

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read one snapshot: a seal moves rows between two statements that are not in one."""
        if self.in_transaction:
            yield
            return
        self.execute("BEGIN")
        try:
            yield
        finally:
            if self.in_transaction:  # an error of the disk ends it
                self.execute("ROLLBACK")

    def rows(self, query: str, after: int, until: int, *values: Any, limit: int | None = None) -> list[Any]:
        """Return the rows of a query, in the order of positions, at most `limit`. Raises sqlite3.Error."""
        try:
            return self._rows(query, after, until, values, limit)
        except SegmentPrunedMeanwhile:
            if self.in_transaction:
                raise
        return self._rows(query, after, until, values, limit)

    def _rows(self, query: str, after: int, until: int, values: Sequence[Any], limit: int | None) -> list[Any]:
        rows: list[Any] = []
        with self.snapshot():
            for part, above, to in self.parts(after, until):
                if limit is not None and len(rows) >= limit:
                    break
                with _named(part):
                    cursor = self._in(part).execute(query, (above, to, *values))
                    rows += cursor.fetchall() if limit is None else cursor.fetchmany(limit - len(rows))
                    cursor.close()
        return rows

    def newest(self, query: str, *values: Any) -> Any:
        """Return the one value of a query for the newest rows for which there is one. Raises sqlite3.Error."""
        with self.snapshot():
            for part, above, to in reversed(list(self.parts(*ALL))):
                with _named(part):
                    ((value,),) = self._in(part).execute(query, (above, to, *values)).fetchall()
                if value is not None:
                    return value
        return None

    def pages(self, query: str, after: int, until: int) -> Iterator[list[Any]]:
        """Yield the rows of a query, which begin with their positions, in the order of these; in a transaction. Between
        two pages any segment may be read: no cursor is open then. Raises sqlite3.Error."""
        for part, above, to in self.parts(after, until):
            while page := self._page(part, query, above, to):
                yield page
                above = page[-1][0]

    def _page(self, part: Segment | None, query: str, above: int, to: int) -> list[Any]:
        with _named(part), closing(self._in(part).execute(query, (above, to))) as cursor:
            return cursor.fetchmany(PAGE)

    def parts(self, after: int, until: int) -> list[Part]:
        """Return where the rows above position `after`, up to `until`, lie. Raises sqlite3.Error."""
        segments = self.segments()
        sealed = segments[-1].last if segments else ALL[0]
        parts: list[Part] = [
            (segment, max(after, segment.first - 1), min(until, segment.last))
            for segment in segments
            if segment.last > after and segment.first <= until
        ]
        if until > sealed:
            parts.append((None, max(after, sealed), until))
        return parts

    def path(self) -> str:
        """Return the path of the journal's file."""
        (name,) = self.execute("SELECT CAST(file AS BLOB) FROM pragma_database_list WHERE name = 'main'").fetchone()
        return os.fsdecode(name)  # a name of files need not be UTF-8

    def id(self) -> str:
        """Return the journal's id. Raises sqlite3.Error."""
        return str(self.execute("SELECT id FROM journal").fetchone()[0])

    def _in(self, segment: Segment | None) -> sqlite3.Connection:
        """The connection to where a part lies: at most one segment is open."""
        if segment is None:
            return self
        if self._opened is None or self._opened[0] != segment:
            self._release()
            self._opened = segment, self._open(segment)
        connection = self._opened[1]
        connection.text_factory = self.text_factory
        return connection

    def _open(self, segment: Segment) -> sqlite3.Connection:
        try:
            return open_segment(self.path(), self.id(), segment)
        except SegmentError:
            self._require_listed(segment)
            raise

    def verify(self, segment: Segment) -> None:
        """Read a segment whole. Raises SegmentError where it is not the one that was sealed, SegmentPrunedMeanwhile."""
        try:
            verify_segment(self.path(), self.id(), segment)
        except SegmentError:
            self._require_listed(segment)
            raise

    def _require_listed(self, segment: Segment) -> None:
        """Raise SegmentPrunedMeanwhile where the journal lists another file in the place of a segment by now."""
        path = self.path().replace("%", "%25").replace("?", "%3f").replace("#", "%23")
        query, moved = "SELECT 1 FROM segment WHERE first = ? AND file <> ?", None
        with (
            suppress(sqlite3.Error),
            closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as another,  # not of the snapshot that is read
        ):
            moved = another.execute(query, (segment.first, segment.file)).fetchone()
        if moved:
            raise SegmentPrunedMeanwhile(segment)

    def _release(self) -> None:
        if self._opened is not None:
            self._opened[1].close()
            self._opened = None


@contextmanager
def _named(segment: Segment | None) -> Iterator[None]:
    """Name the segment in an error of SQLite that occurs inside: raise SegmentError in its place."""
    try:
        yield
    except (SegmentError, SegmentPrunedMeanwhile):
        raise
    except sqlite3.DatabaseError as error:
        if segment is None:
            raise
        raise SegmentError(segment, "segment-altered", f"cannot be read: {error}") from error
