"""The repair of a journal: rows that cannot be read are set aside, so that all others can be.

Rules

1. A repair replaces only positions with a finding (`journal/check.py`), and of those only what was asked for with what
   follows from it: later findings of the same stream.
2. The replaced row is kept whole in `set_aside`, and `position.set-aside` says so, in one transaction with it. A copy
   of that event is kept there, too, under its negative position: it counts when the event is damaged later.
3. What a repair would do is known before: the same transaction, rolled back.
4. What it says is recorded after the last position that stays, wherever a head or a moved row may stand, and gets its
   leaf at once where all events before have theirs: no event before it gets a late one by it.
5. It repeats until the check finds nothing more, at most `ROUNDS_MAX` times.
"""

import sqlite3
from collections.abc import Callable, Collection, Sequence

from omac.domain.kernel.ids import HostId, journal_stream
from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.kernel.set_aside import PositionEmptied, PositionSetAside
from omac.journal import leaves
from omac.journal.check import Damage, Fold, examine
from omac.journal.codec import Codec
from omac.journal.file import VERSION_INDEX, beyond_repair, connect_for_reading, damaged, refusal_of
from omac.journal.format import IsLiving, in_use, living, raise_schema
from omac.journal.log_connection import JournalConnection
from omac.journal.merkle import leaf_hash
from omac.journal.schema import create_version_index
from omac.journal.segment import NAMES
from omac.journal.set_aside_positions import digest_of
from omac.journal.store import open_for_writing

ROUNDS_MAX = 8
_EMPTIED = "position.emptied"
_TREE = "SELECT size FROM tree"
_PLAIN = ("position", "version", "at", "correlation", "causation", "body", "sealed", "leaf", "happened")


def require_repairable(path: str) -> None:
    """Raise Refusal, and leave nothing behind, where at `path` is no journal, or one beyond repair at the first
    look."""
    try:
        connect_for_reading(path, lenient=True).close()
    except Refusal as refusal:
        raise beyond_repair(refusal, path) from refusal


class _RolledBack(Exception):
    """The end of a transaction that was only to show what it would do."""


class Repair:
    """The repair of the journal at `path` by the person of `host`; `run` names the command in the journal.

    `new_fold` gives the fold of a new system; `clock` nanoseconds since 1970 UTC; `codec` may have the keys of personal
    fields.
    """

    def __init__(
        self,
        path: str,
        host: HostId,
        run: str,
        clock: Callable[[], int],
        new_fold: Callable[[], Fold],
        is_living: IsLiving,
        codec: Codec | None = None,
    ) -> None:
        self._path = path
        self._host = host
        self._run = run
        self._clock = clock
        self._new_fold = new_fold
        self._is_living = is_living
        self._codec = codec or Codec()
        self._last = 0  # the last position that stays
        self._first: int | None = None  # the first position that this repair appended

    def plan(self, positions: Collection[int] = ()) -> list[Damage]:
        """Return what `perform` would mend: all findings, or those at `positions` and what follows from them. Raises
        Refusal: journal-in-use (a run has it open), journal-damaged (it is beyond repair), misuse (a position without a
        finding), or the journal cannot be written."""
        return self._settle(positions, commit=False)

    def perform(self, positions: Collection[int] = ()) -> list[Damage]:
        """Mend it, and return what was mended. Raises Refusal as `plan`; then nothing has changed."""
        return self._settle(positions, commit=True)

    def _settle(self, positions: Collection[int], *, commit: bool) -> list[Damage]:
        try:
            return self._transact(positions, commit=commit)
        except Refusal as refusal:
            raise beyond_repair(refusal, self._path) from refusal

    def _transact(self, positions: Collection[int], *, commit: bool) -> list[Damage]:
        require_repairable(self._path)
        connection = open_for_writing(self._path, "", lenient=True)
        mended: list[Damage] = []
        try:
            with connection.transaction():
                for present in living(connection, self._is_living):
                    raise in_use(self._path, present)
                mended = self._rounds(connection, positions)
                if any(finding.remedy not in ("head", "reindex") for finding in mended):
                    raise_schema(connection, [_EMPTIED])
                self._add_leaves(connection)
                if not commit:
                    raise _RolledBack
        except _RolledBack:
            pass
        except sqlite3.IntegrityError as error:
            raise damaged(self._path, f"its indexes cannot be rebuilt: {error}") from error
        except sqlite3.Error as error:
            raise refusal_of(error, self._path) from error
        finally:
            connection.close()
        return mended

    def _rounds(self, raw: JournalConnection, positions: Collection[int]) -> list[Damage]:
        mended: list[Damage] = []
        for number in range(ROUNDS_MAX):
            findings = examine(raw, self._new_fold(), self._codec)
            if number == 0:
                _require_damaged(findings, positions, self._path)
            chosen = _chosen(findings, positions, mended)
            if not chosen:
                return mended
            indexes = any(finding.remedy == "reindex" for finding in chosen)
            if indexes:  # rows that it refuses could not be replaced
                raw.execute(f"DROP INDEX IF EXISTS {VERSION_INDEX}")
                if not any(segment.pruned for segment in raw.segments()):  # else some are known from here alone
                    raw.execute("DELETE FROM sealed_version")
                raw.executemany("INSERT OR REPLACE INTO sealed_version VALUES (?, ?)", raw.sealed_versions().items())
            self._last = _last_that_stays(raw, findings)
            for finding in sorted(chosen, key=lambda finding: finding.remedy == "fill"):  # a moved row gives way first
                self._repair(raw, finding)
            if indexes:
                raw.execute("REINDEX")
                create_version_index(raw)
            mended += chosen
        return mended

    def _add_leaves(self, raw: JournalConnection) -> None:
        """Append the leaves of recorded findings. The next opening does so where others are missing, or the tree is."""
        rows = raw.execute(_TREE).fetchall() if leaves.has_tree(raw) else []
        if self._first is None or [size for (size,) in rows] != [self._first - 1]:
            return
        stored = leaves.current_tree(raw, self._last, self._path)
        texts = list(leaves.Contents(raw).between(self._first - 1, self._last))
        if [position for position, text in texts if text is not None] == list(range(self._first, self._last + 1)):
            hashes = [leaf_hash(text) for _, text in texts if text is not None]
            raw.executemany("INSERT INTO leaf (position, hash) VALUES (?, ?)", enumerate(hashes, self._first))
            leaves.grow(raw, stored, hashes)

    def _repair(self, raw: sqlite3.Connection, finding: Damage) -> None:
        match finding.remedy:
            case "empty" | "remove" | "retime":
                self._set_aside(raw, finding)
            case "fill":
                self._append_finding(raw, finding, "")
                columns = "position, stream, version, kind, at, run, actor, body"
                raw.execute(f"INSERT INTO event ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", self._hole(raw, finding))  # noqa: S608  # our columns
            case "head":
                raw.execute("DELETE FROM head")
                raw.execute("INSERT INTO head (id, position) VALUES (1, ?)", (self._last,))
            case "reindex":
                pass  # around all others
            case "none" | "segment" | "snapshot":
                problem = f"at position {finding.position}: {finding.problem}" if finding.position else finding.problem
                message = f"the journal {self._path} is beyond repair: {problem}; nothing was changed"
                raise Refusal("journal-damaged", message)

    def _set_aside(self, raw: sqlite3.Connection, finding: Damage) -> None:
        position = finding.position
        (body,) = raw.execute("SELECT body FROM event WHERE position = ?", (position,)).fetchone()
        record = self._append_finding(raw, finding, digest_of(body))
        self._keep(raw, record, position)
        if finding.remedy == "remove":
            raw.execute("DELETE FROM event WHERE position = ?", (position,))
        elif finding.remedy == "retime":
            raw.execute(
                "UPDATE event SET happened = coalesce(happened, at), at = ? WHERE position = ?",
                (finding.after, position),
            )
        else:
            raw.execute(
                "UPDATE event SET position = ?, stream = ?, version = ?, kind = ?, at = ?, run = ?, actor = ?, "
                "body = ?, correlation = NULL, causation = NULL, sealed = NULL, leaf = NULL, happened = NULL "
                "WHERE position = ?",
                (*self._hole(raw, finding), position),
            )

    def _keep(self, raw: sqlite3.Connection, record: int, position: int) -> None:
        """Copy a row of events into the table beside."""
        texts = [f"coalesce((SELECT text FROM name WHERE id = event.{name}), '#' || {name})" for name in NAMES]  # noqa: S608  # our columns
        into, values = ", ".join((*NAMES, *_PLAIN)), ", ".join((*texts, *_PLAIN))
        raw.execute(
            f"INSERT INTO set_aside (record, {into}) SELECT ?, {values} FROM event WHERE position = ?",  # noqa: S608  # our columns
            (record, position),
        )

    def _hole(self, raw: sqlite3.Connection, finding: Damage) -> tuple[object, ...]:
        """The row that stands at an emptied position, in the order of its columns up to actor, then its body."""
        stream, version = finding.keeps or (journal_stream(self._host), None)
        kind, body = self._codec.encode(PositionEmptied())
        return (
            finding.position, _name(raw, stream), version, _name(raw, kind), finding.after, _name(raw, self._run),
            _name(raw, "omac"), body,
        )  # fmt: skip

    def _append_finding(self, raw: sqlite3.Connection, finding: Damage, digest: str) -> int:
        """Append the event that says so; return its position."""
        event = PositionSetAside(finding.position, finding.kind, finding.stream, finding.problem, digest)
        kind, body = self._codec.encode(event)
        (at,) = raw.execute("SELECT max(at) FROM event WHERE typeof(at) = 'integer'").fetchone()
        self._last += 1
        self._first = min(self._first or self._last, self._last)
        row = (
            self._last, _name(raw, journal_stream(self._host)), _name(raw, kind), max(self._clock(), at or 0),
            _name(raw, self._run), _name(raw, "person"), body,
        )  # fmt: skip
        raw.execute(
            "INSERT INTO event (position, stream, kind, at, run, actor, body) VALUES (?, ?, ?, ?, ?, ?, ?)", row
        )
        self._keep(raw, -self._last, self._last)
        raw.execute("UPDATE head SET position = ?", (self._last,))
        return self._last


def _require_damaged(findings: Sequence[Damage], positions: Collection[int], path: str) -> None:
    """Raise Refusal (misuse) for a position that is sound."""
    if sound := sorted(set(positions) - {finding.position for finding in findings}):
        message = f"position {sound[0]} is sound; only damaged positions can be set aside"
        raise Refusal("misuse", message, fix=[f"omac journal check --journal {quoted(path)}"])


def _chosen(findings: Sequence[Damage], positions: Collection[int], mended: Sequence[Damage]) -> list[Damage]:
    """Return the findings to be repaired: all, or those at `positions` with later ones of the same streams. Findings
    about the journal as a whole, and rows to be removed, are always among them."""
    if not positions:
        return list(findings)
    named = [finding for finding in (*mended, *findings) if finding.position in positions]
    since: dict[str, int] = {}
    for finding in named:
        for stream in (finding.stream, *([finding.keeps[0]] if finding.keeps else [])):
            since[stream] = min(since.get(stream, finding.position), finding.position)
    return [
        finding
        for finding in findings
        if finding.position in (0, *positions)
        or finding.remedy == "remove"  # no position of the journal: it is in the way of all others
        or (finding.stream and finding.position > since.get(finding.stream, finding.position))
    ]


def _last_that_stays(raw: sqlite3.Connection, findings: Sequence[Damage]) -> int:
    removed = {finding.position for finding in findings if finding.remedy == "remove"}
    rows = raw.execute("SELECT position FROM event ORDER BY position DESC")
    last = next((int(position) for (position,) in rows if position not in removed), 0)
    return max(last, *(finding.position for finding in findings if finding.remedy == "fill"), 0)


def _name(raw: sqlite3.Connection, text: str) -> int:
    """The number of an interned text."""
    raw.execute("INSERT OR IGNORE INTO name (text) VALUES (?)", (text,))
    return int(raw.execute("SELECT id FROM name WHERE text = ?", (text,)).fetchone()[0])
