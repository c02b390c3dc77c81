"""The check of a journal: every position, row by row, and what is wrong with it.

Rules

1. A check reads one snapshot and changes nothing; it works beside a server.
2. Positions are consecutive from 1 to the head, versions are consecutive in each stream, every name exists, every
   event can be decoded and folded, recorded time never runs back, and SQLite finds its own file sound.
3. A position with a finding counts as emptied (`domain/set_aside.py`) for all that follow it: a finding that only
   follows from an earlier one is found all the same, and nothing is found twice.
4. A row that is missing may have held the version that a stream lacks: an emptied position takes it over.

Records of short-lived programs were once recorded at the time they happened; such rows are no finding.
"""

import sqlite3
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

from omac.domain.ids import HostId, StreamId, journal_stream
from omac.domain.recorded import Event, Recorded
from omac.domain.refusal import Refusal
from omac.domain.set_aside import PositionEmptied
from omac.journal.codec import Codec
from omac.journal.file import VERSION_INDEX, connect_for_reading, refusal_of

FILL_MAX = 100_000  # missing positions that are taken for rows that were there
SOUND_MAX = 20  # findings of SQLite's own check that are shown

Remedy = Literal["empty", "fill", "retime", "remove", "head", "reindex", "none"]
Fold = Callable[[Recorded], None]  # raises Refusal for a record that cannot follow


class Finding(NamedTuple):
    """What is wrong at a position; 0: with the journal as a whole.

    `stream`, `version` and `kind` are what the row says, "" and None where it is missing. `remedy` is what a repair
    does; `keeps` are the stream and version of the emptied position, `after` the least time it may have.
    """

    position: int
    stream: str
    version: int | None
    kind: str
    problem: str
    remedy: Remedy
    keeps: tuple[str, int] | None = None
    after: int = 0


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


def check(path: str, fold: Fold) -> list[Finding]:
    """Return what is wrong with the journal at `path`, in the order of positions; `fold` is that of a new system.

    Raises Refusal: there is no journal, it is of a later omac, or it cannot be read at all.
    """
    connection = connect_for_reading(path, lenient=True)
    try:
        connection.execute("BEGIN")
        return examine(connection, fold)
    except sqlite3.Error as error:
        raise refusal_of(error, path) from error
    finally:
        connection.close()


def examine(connection: sqlite3.Connection, fold: Fold) -> list[Finding]:
    """Return what is wrong with the journal of a connection that is in a transaction. Raises sqlite3.Error."""
    connection.text_factory = _text  # a name that is no text is a finding, not the end of the check
    findings = list(_unsound(connection))
    try:
        layout = _Layout(connection)
        layout.read()
        findings += layout.findings
        findings += _Contents(connection, layout, fold).findings()
    except sqlite3.DatabaseError as error:
        if not findings:
            raise
        findings.append(_of_all(f"its rows cannot be read to the end: {error}", "none"))
    return sorted(findings, key=lambda finding: finding.position)


def _text(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and not any("\udc80" <= character <= "\udcff" for character in value)


def _of_all(problem: str, remedy: Remedy) -> Finding:
    return Finding(0, "", None, "", problem, remedy)


def _unsound(connection: sqlite3.Connection) -> Iterator[Finding]:
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (VERSION_INDEX,)).fetchone():
        yield _of_all(f"the index {VERSION_INDEX} is missing", "reindex")
    for (text,) in connection.execute(f"PRAGMA integrity_check({SOUND_MAX})"):
        for line in str(text).splitlines():
            if line != "ok" and not line.startswith(("***", "NULL value in event.")):  # those rows are found below
                index = "index" in line and "Tree" not in line
                yield _of_all(f"SQLite: {line}", "reindex" if index else "none")


class _Layout:
    """Positions and versions, without what the rows hold."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.missing: set[int] = set()
        self.claimed: dict[int, tuple[int, int]] = {}  # a missing position: stream (its number) and version
        self.unfit: dict[int, str] = {}  # positions whose version cannot be
        self.findings: list[Finding] = []
        self._lasts: dict[Any, tuple[int, int]] = {}  # of a stream: version and position

    def read(self) -> None:
        top = 0
        for position, stream, version in self._connection.execute(
            "SELECT position, stream, version FROM event ORDER BY position"
        ):
            if position < 1:
                self.findings.append(Finding(position, "", None, "", "positions begin at 1", "remove"))
                continue
            self._miss(top + 1, position - 1)
            if version is not None:
                self._version(position, stream, version)
            top = position
        heads = [head for (head,) in self._connection.execute("SELECT position FROM head")]
        if heads != [top]:
            self._head(heads, top)

    def _head(self, heads: list[Any], top: int) -> None:
        head = heads[0] if len(heads) == 1 and isinstance(heads[0], int) else 0
        if top < head <= top + FILL_MAX:
            self._miss(top + 1, head)
        else:
            said = ", ".join(map(str, heads)) or "missing"
            self.findings.append(_of_all(f"its head is {said}, its last event is at position {top}", "head"))

    def _miss(self, first: int, last: int) -> None:
        if last - first + 1 > FILL_MAX:
            problem = f"positions {first} to {last} are missing"
            self.findings.append(Finding(first, "", None, "", problem, "none"))
        else:
            self.missing.update(range(first, last + 1))

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


class _Contents:
    """What the rows hold, decoded and folded in order."""

    def __init__(self, connection: sqlite3.Connection, layout: _Layout, fold: Fold) -> None:
        self._connection = connection
        self._layout = layout
        self._fold = fold
        self._codec = Codec()
        names = connection.execute("SELECT id, text FROM name")
        self._names: dict[Any, str] = {id_: text for id_, text in names if _is_text(text)}
        self._top_at = 0

    def findings(self) -> Iterator[Finding]:
        missing = iter(sorted(self._layout.missing))
        gap = next(missing, None)
        for row in map(_Row._make, self._connection.execute(_ROWS)):
            while gap is not None and gap < row.position:
                yield self._missing(gap)
                gap = next(missing, None)
            yield from self._row(row)
        while gap is not None:
            yield self._missing(gap)
            gap = next(missing, None)

    def _missing(self, position: int) -> Finding:
        claim = self._layout.claimed.get(position)
        keeps = (self._names.get(claim[0], ""), claim[1]) if claim else None
        kept = self._empty(position, keeps)
        return Finding(position, "", None, "", "it is missing", "fill", kept, self._top_at)

    def _row(self, row: _Row) -> Iterator[Finding]:
        stream, kind = self._names.get(row.stream), self._names.get(row.kind)
        after = self._top_at
        event = self._event(row, stream, kind)
        if isinstance(event, str):
            sound = stream is not None and row.version is not None and row.position not in self._layout.unfit
            kept = self._empty(row.position, (stream or "", row.version) if sound else None)
            version = row.version if isinstance(row.version, int) else None
            yield Finding(row.position, stream or "", version, kind or "", event, "empty", kept, after)
        elif row.at < self._top_at and not _told_later(kind or "", row.happened):
            problem = f"its recorded time lies {(self._top_at - row.at) / 1e9:.3f} s before that of an earlier position"
            yield Finding(row.position, stream or "", row.version, kind or "", problem, "retime", None, after)
        elif not _told_later(kind or "", row.happened):
            self._top_at = row.at

    def _event(self, row: _Row, stream: str | None, kind: str | None) -> Event | str:
        """The event, decoded and folded; else what is wrong with it."""
        names = {"stream": stream, "kind": kind, "run": self._names.get(row.run), "actor": self._names.get(row.actor)}
        if nameless := [what for what, name in names.items() if name is None]:
            return f"it names a {nameless[0]} that does not exist"
        if not isinstance(row.at, int):
            return "its recorded time is no number"
        if row.correlation is not None and not _is_text(row.correlation):
            return "its correlation id is no text"
        if row.position in self._layout.unfit:
            return self._layout.unfit[row.position]
        try:
            event = self._codec.decode(names["kind"] or "", row.body)
            self._fold(_recorded(row, names, event))
        except Refusal as refusal:
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


def _told_later(kind: str, happened: int | None) -> bool:
    return happened is None and kind.startswith(("sandbox.", "guard."))


def _recorded(row: _Row, names: dict[str, str | None], event: Event) -> Recorded:
    stream, run, actor = StreamId(names["stream"] or ""), names["run"] or "", names["actor"] or ""
    return Recorded(row.position, stream, row.version, row.at, run, actor, row.correlation, row.causation, event)


def _emptied(position: int, stream: str, version: int | None) -> Recorded:
    name = StreamId(stream) if stream else journal_stream(HostId(""))
    return Recorded(position, name, version, 0, "", "omac", None, None, PositionEmptied())


_ROWS = f"""
    SELECT {", ".join(_Row._fields)} FROM event WHERE position >= 1 ORDER BY position
"""  # noqa: S608  # its own column names
