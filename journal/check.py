"""The check of a journal: every position, row by row, and what is wrong with it.

Rules

1. A check reads one snapshot and changes nothing; it works beside a server.
2. Positions are consecutive from 1 to the head, versions are consecutive in each stream, every name exists, every
   event can be decoded and folded, recorded time never runs back, and SQLite finds its own file sound.
3. A position with a finding counts as emptied (`domain/kernel/set_aside.py`) for all that follow it: a finding that
   only follows from an earlier one is found all the same, and nothing is found twice.
4. Leaves outlive their events: a tree that is larger than the journal says that events at the end are missing.
5. A row that is missing may have held the version that a stream lacks: an emptied position takes it over.
6. A sealed segment that is not what was sealed ends the check: what follows cannot be folded without it. No repair
   changes a segment, nor what is found at its positions where names of the journal are damaged.
7. A few rows far behind all others do not lengthen the journal: they stand where no event can be, as those below 1.
"""

import sqlite3
import sys
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

from omac.domain.kernel.event import Event, Recorded
from omac.domain.kernel.ids import HostId, StreamId, journal_stream, key_of
from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.set_aside import PositionEmptied
from omac.domain.kernel.sizes import counted
from omac.journal.codec import Codec, wrong_type
from omac.journal.file import VERSION_INDEX, beyond_repair, reading, segment_refusal
from omac.journal.leaves import has_tree
from omac.journal.log_connection import ALL, JournalConnection
from omac.journal.pruned import PrunedPositions
from omac.journal.segment_check import damaged_segments
from omac.journal.subject_ciphers import UNREADABLE

FILL_MAX = 100_000  # missing positions that are taken for rows that were there
STRAYS_MAX = 100  # rows behind more missing positions than that, which are taken for moved ones
SOUND_MAX = 20  # findings of SQLite's own check that are shown

Remedy = Literal["empty", "fill", "retime", "remove", "head", "reindex", "segment", "snapshot", "none"]
Fold = Callable[[Recorded], None]  # raises Refusal for a record that cannot follow


class Damage(NamedTuple):
    """Damage at a position; at position 0, of the journal as a whole.

    `stream`, `version` and `kind` are those of the row, "" and None if it has none. `remedy` is the repair; `keeps` are
    the stream and version of the emptied position, `after` the least time it may have.
    """

    position: int
    stream: str
    version: int | None
    kind: str
    problem: str
    remedy: Remedy
    keeps: tuple[str, int] | None = None
    after: int = 0
    fix: str = ""  # a command for what no repair mends


class _Row(NamedTuple):
    """A row as it is stored, whatever types it has."""

    position: int
    stream: Any
    version: Any
    kind: Any
    at: Any
    run: Any
    actor: Any
    correlation: Any
    causation: Any
    body: Any
    happened: Any
    sealed: Any


def check(path: str, fold: Fold, codec: Codec | None = None) -> list[Damage]:
    """Return what is wrong with the journal at `path`, in the order of positions; `fold` is that of a new system, and
    `codec` may have the keys of personal fields. Raises Refusal: there is no journal, it is of a later omac, or it
    cannot be read at all."""
    try:
        with reading(path, lenient=True) as connection:
            connection.execute("BEGIN")
            return examine(connection, fold, codec)
    except Refusal as refusal:
        raise beyond_repair(refusal, path) from refusal


def examine(connection: JournalConnection, fold: Fold, codec: Codec | None) -> list[Damage]:
    """Return what is wrong with the journal of a connection that is in a transaction. Raises sqlite3.Error."""
    # A name that is no text is a finding, not the end of the check.
    connection.text_factory = lambda content: content.decode("utf-8", "surrogateescape")
    findings = list(_unsound(connection))
    try:
        if any(not _is_text(id_) or not id_ for (id_,) in connection.execute("SELECT id FROM journal")):
            findings.append(_of_all("its id is empty or no text", "none"))
        if segments := _segments(connection):
            return sorted([*findings, *segments], key=lambda finding: finding.position)
        if connection.sealed_to() and _has_other_versions(connection):
            findings.append(_of_all("the last versions of sealed streams are not those of the segments", "reindex"))
        layout = _Layout(connection)
        layout.read()
        row_findings = [*layout.findings, *_Contents(connection, layout, fold, codec or Codec()).findings()]
        findings += _none_of_segments(row_findings, connection.sealed_to())
    except sqlite3.DatabaseError as error:
        if not findings:
            raise
        findings.append(_of_all(f"its rows cannot be read to the end: {error}", "none"))
    return sorted(findings, key=lambda finding: finding.position)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and not any("\udc80" <= character <= "\udcff" for character in value)


def _is_stream(text: str) -> bool:
    try:
        key_of(StreamId(text))
    except ValueError:
        return False
    return True


def _of_all(problem: str, remedy: Remedy) -> Damage:
    return Damage(0, "", None, "", problem, remedy)


def _unsound(connection: JournalConnection) -> Iterator[Damage]:
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (VERSION_INDEX,)).fetchone():
        yield _of_all(f"the index {VERSION_INDEX} is missing", "reindex")
    for (text,) in connection.execute(f"PRAGMA integrity_check({SOUND_MAX})"):
        for line in str(text).splitlines():
            if line != "ok" and not line.startswith(("***", "NULL value in event.")):  # those rows are found below
                index = "index" in line and "Tree" not in line
                yield _of_all(f"SQLite: {line}", "reindex" if index else "none")


def _segments(connection: JournalConnection) -> list[Damage]:
    """The segments that are missing, or not what was sealed: without them nothing can be folded."""
    path = connection.path()
    return [
        Damage(position, "", None, "", f"{error} ({error.kind})", "segment", fix=segment_refusal(error, path).fix[0])
        for position, error in damaged_segments(connection)
    ]


def _none_of_segments(findings: list[Damage], sealed_to: int) -> Iterator[Damage]:
    """The findings; what stands at a sealed position no repair can change, be it for a name that the journal lost."""
    for finding in findings:
        if 1 <= finding.position <= sealed_to:
            finding = finding._replace(problem=f"{finding.problem}, and it lies in a sealed segment", remedy="none")
        yield finding


def _has_other_versions(connection: JournalConnection) -> bool:
    """Return whether the last versions of sealed streams differ from those in the segments. If segments were pruned,
    only the streams left in segments are compared."""
    listed, sealed = dict(connection.execute(_SEALED).fetchall()), connection.sealed_versions()
    is_pruned = any(segment.pruned for segment in connection.segments())
    return any(listed.get(stream) != version for stream, version in sealed.items()) or (
        not is_pruned and listed.keys() != sealed.keys()
    )


class _Layout:
    """Positions and versions, without what the rows hold."""

    def __init__(self, connection: JournalConnection) -> None:
        self._connection = connection
        self.missing: set[int] = set()
        self.claimed: dict[int, tuple[int, int]] = {}  # a missing position: stream (its number) and version
        self.unfit: dict[int, str] = {}  # positions whose version cannot be
        self.last = 0  # the position of the last row that stands where an event can be
        self.findings: list[Damage] = []
        self._lasts: dict[Any, tuple[int, int]] = {}  # of a stream: version and position

    def read(self) -> None:
        for position, stream, version in self._rows():
            if position < 1:
                self.findings.append(Damage(position, "", None, "", "positions begin at 1", "remove"))
                continue
            if position - self.last - 1 > FILL_MAX:
                if self._is_apart(position):
                    problem = f"the event before it is at position {self.last}"
                    self.findings.append(Damage(position, "", None, "", problem, "remove"))
                    continue
                problem = f"positions {self.last + 1} to {position - 1} are missing"
                self.findings.append(Damage(self.last + 1, "", None, "", problem, "none"))
                return
            self.missing.update(range(self.last + 1, position))
            if version is not None:
                self._version(position, stream, version)
            self.last = position
        heads = [head for (head,) in self._connection.execute("SELECT position FROM head")]
        if heads != [self.last]:
            self._head(heads, self.last)
        self._leaves()

    def _rows(self) -> Iterator[Any]:
        if self._connection.sealed_to():  # what stands before the first position lies in no segment
            yield from self._connection.execute("SELECT position, stream, version FROM event WHERE position < 1")
        pruned, after = PrunedPositions(self._connection), 0
        for page in self._connection.pages(_VERSIONS, 0 if self._connection.sealed_to() else ALL[0], ALL[1]):
            for row in page:
                while after + 1 < row[0] and pruned.has(after + 1):
                    after += 1
                    yield after, None, None
                after = row[0]
                yield row

    def _leaves(self) -> None:
        """Leaves tell of events that are missing at the end, even where the head does not."""
        if not has_tree(self._connection):
            return  # an earlier omac's: the next opening makes one
        row = self._connection.execute("SELECT size FROM tree").fetchone()
        top = max(self.last, *self.missing) if self.missing else self.last
        if row is None:
            if self._connection.execute("SELECT 1 FROM leaf").fetchone():
                self.findings.append(_of_all("the tree of its leaves is missing", "none"))
        elif not isinstance(row[0], int) or row[0] > top + FILL_MAX:
            self.findings.append(_of_all(f"it has leaves of {counted(row[0], 'event')}, its last is at {top}", "none"))
        else:
            self.missing.update(range(top + 1, row[0] + 1))

    def _is_apart(self, position: int) -> bool:
        (count,) = self._connection.execute("SELECT count(*) FROM event WHERE position >= ?", (position,)).fetchone()
        return bool(count <= STRAYS_MAX)

    def _head(self, heads: list[Any], top: int) -> None:
        head = heads[0] if len(heads) == 1 and isinstance(heads[0], int) else 0
        if top < head <= top + FILL_MAX:
            self.missing.update(range(top + 1, head + 1))
        else:
            shown = ", ".join(map(str, heads)) or "missing"
            self.findings.append(_of_all(f"its head is {shown}, its last event is at position {top}", "head"))

    def _version(self, position: int, stream: Any, version: Any) -> None:
        last, since = self._lasts.get(stream, (0, 0))
        if not isinstance(version, int) or version <= last:
            self.unfit[position] = f"version {version} follows version {last} of its stream"
            return
        lacking = version - last - 1
        if lacking:
            free = [at for at in range(since + 1, position) if at in self.missing and at not in self.claimed]
            if len(free) < lacking:
                self.unfit[position] = f"version {version} follows version {last} of its stream"
                return
            for number, at in enumerate(free[:lacking], last + 1):
                self.claimed[at] = stream, number
        self._lasts[stream] = version, position


def _early(connection: sqlite3.Connection) -> int:
    """The last position of an omac without leaves: the first one kept the time at which something happened elsewhere as
    the recorded time, which may lie before that of an earlier position."""
    if not has_tree(connection):
        return sys.maxsize
    late = connection.execute("SELECT late FROM tree").fetchone()
    return late[0] if late and isinstance(late[0], int) else 0


class _Contents:
    """The contents of the rows, decoded and folded in order."""

    def __init__(self, connection: JournalConnection, layout: _Layout, fold: Fold, codec: Codec) -> None:
        self._connection = connection
        self._layout = layout
        self._fold = fold
        self._codec = codec
        names = connection.execute("SELECT id, text FROM name")
        self._names: dict[Any, str] = {id_: text for id_, text in names if _is_text(text)}
        self._top_at = 0
        self._early = _early(connection)

    def findings(self) -> Iterator[Damage]:
        missing = iter(sorted(self._layout.missing))
        gap = next(missing, None)
        pages = self._connection.pages(_ROWS, 0, self._layout.last)
        pruned, after = PrunedPositions(self._connection), 0
        for row in (_Row._make(values) for page in pages for values in page):
            while after + 1 < row.position and (record := pruned.record(after + 1)) is not None:
                self._fold(record)
                after += 1
            after = row.position
            while gap is not None and gap < row.position:
                yield self._missing(gap)
                gap = next(missing, None)
            yield from self._row(row)
        while gap is not None:
            yield self._missing(gap)
            gap = next(missing, None)

    def _missing(self, position: int) -> Damage:
        claim = self._layout.claimed.get(position)
        keeps = (self._names.get(claim[0], ""), claim[1]) if claim else None
        kept = self._empty(position, keeps)
        return Damage(position, "", None, "", "it is missing", "fill", kept, self._top_at)

    def _row(self, row: _Row) -> Iterator[Damage]:
        stream, kind = self._names.get(row.stream), self._names.get(row.kind)
        after = self._top_at
        event = self._event(row, stream, kind)
        if isinstance(event, str):
            sound = (
                stream is not None
                and _is_stream(stream)
                and row.version is not None
                and row.position not in self._layout.unfit
            )
            kept = self._empty(row.position, (stream or "", row.version) if sound else None)
            version = row.version if isinstance(row.version, int) else None
            yield Damage(row.position, stream or "", version, kind or "", event, "empty", kept, after)
        elif row.at < self._top_at and row.position > self._early:
            problem = f"its recorded time lies {(self._top_at - row.at) / 1e9:.3f} s before that of an earlier position"
            yield Damage(row.position, stream or "", row.version, kind or "", problem, "retime", None, after)
        else:
            self._top_at = max(self._top_at, row.at)

    def _event(self, row: _Row, stream: str | None, kind: str | None) -> Event | str:
        """The event, decoded and folded; else what is wrong with it."""
        names = {"stream": stream, "kind": kind, "run": self._names.get(row.run), "actor": self._names.get(row.actor)}
        if nameless := [column for column, name in names.items() if name is None]:
            return f"it names a {nameless[0]} that does not exist"
        if not _is_stream(stream or ""):
            return f"its stream {stream!r} is not one of omac's"
        if wrong := wrong_type(row.at, row.happened, row.causation, row.correlation, row.body, row.sealed):
            return wrong
        if row.correlation is not None and not _is_text(row.correlation):
            return "the correlation id is no text"
        if row.position in self._layout.unfit:
            return self._layout.unfit[row.position]
        try:
            event = self._codec.decode(names["kind"] or "", row.body, row.sealed, stream or "")
            self._fold(_recorded(row, names, event))
        except Refusal as refusal:
            if refusal.reason in UNREADABLE:
                raise
            return refusal.message
        return event

    def _empty(self, position: int, keeps: tuple[str, int] | None) -> tuple[str, int] | None:
        """Fold an emptied position; return the stream and version that it can keep."""
        if keeps is not None:
            try:
                self._fold(_emptied(position, *keeps))
            except Refusal:
                keeps = None  # no such stream is folded: its versions count for nothing
            else:
                return keeps
        self._fold(_emptied(position, "", None))
        return keeps


def _recorded(row: _Row, names: dict[str, str | None], event: Event) -> Recorded:
    stream, run, actor = StreamId(names["stream"] or ""), names["run"] or "", names["actor"] or ""
    return Recorded(row.position, stream, row.version, row.at, run, actor, row.correlation, row.causation, event)


def _emptied(position: int, stream: str, version: int | None) -> Recorded:
    name = StreamId(stream) if stream else journal_stream(HostId(""))
    return Recorded(position, name, version, 0, "", "omac", None, None, PositionEmptied())


_SEALED = "SELECT stream, version FROM sealed_version"
_VERSIONS = "SELECT position, stream, version FROM event WHERE position > ? AND position <= ? ORDER BY position"
_ROWS = f"""
    SELECT {", ".join(_Row._fields)} FROM event WHERE position > ? AND position <= ? ORDER BY position
"""  # noqa: S608  # its own column names
