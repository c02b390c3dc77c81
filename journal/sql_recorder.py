"""The recorder: stored events in, positions out; one transaction for many callers.

Implements eventsourcing's ApplicationRecorder on SQLite, and adds what a group commit needs.
"""

import contextlib
import itertools
import sqlite3
from collections.abc import Sequence
from typing import Any

from eventsourcing.persistence import ApplicationRecorder, StoredEvent

from omac.domain.kernel.refusal import Refusal
from omac.journal.codec import EncodedEvent
from omac.journal.file import refusal_of
from omac.journal.format import IsLiving, Present, assume_living, leave, next_top, raise_to_batches
from omac.journal.judgement import Conflicts, Groups, StoredEvents, conflicts_of, raise_times, remember
from omac.journal.leaves import completed, content, current_tree, grow
from omac.journal.log_connection import JournalConnection
from omac.journal.mark import Mark
from omac.journal.merkle import leaf_hash
from omac.journal.reader import COLUMNS, NAMES_MAX, Reader
from omac.journal.row_insert import RowInsert
from omac.journal.sealing import delete_sealed, list_pruned, list_segment
from omac.journal.segment import Segment
from omac.journal.store import checkpoint, pragma
from omac.journal.watch import JournalWatch


class SqlRecorder(ApplicationRecorder):
    """Records into one journal, which `reader` reads.

    Methods that write must be called by one thread at a time. Raises Refusal when the store cannot be used.
    """

    def __init__(
        self,
        path: str,
        writer: JournalConnection,
        is_living: IsLiving = assume_living,
        present: Present | None = None,
        mark: Mark | None = None,
    ) -> None:
        self.path = path
        self.reader = Reader(path)
        self._writer = writer
        self._is_living = is_living
        self._present = present  # the run that is listed until it closes the store
        self._events = RowInsert("event", COLUMNS)
        self._plain = RowInsert("event", _PLAIN)
        self._leaves = RowInsert("leaf", ("position", "hash"))
        self._watch = JournalWatch(path)
        self._mark = mark
        self._ids: dict[str, int] = {}  # interned names, as committed
        self._data_version: int | None = None
        self.takes_batches = False  # see `take_batches`; never again False

    def close(self) -> None:
        with contextlib.suppress(Refusal):
            self._leave()
        self.reader.close()
        self._writer.close()  # the last to close: it takes the log away

    def _leave(self) -> None:
        """Say how far the journal goes; a run that stays listed is dead, and counts for nothing."""
        self._require_same_file()
        if self._present:
            with contextlib.suppress(sqlite3.Error), self._writer.transaction():
                leave(self._writer, self._present.run)
        self._write_mark()

    def insert_events(self, stored_events: StoredEvents, **kwargs: Any) -> Sequence[int]:
        """Append the events of many callers in one durable transaction; keyword `groups` says whose they are.

        Positions are gapless and ascend, and each event has a leaf in the tree. Raises Conflicts, and then nothing was
        appended, when a caller's first version is not the next of its stream, or its spooled file is in the journal
        already; Refusal when the store fails.
        """
        groups: Groups = kwargs["groups"]
        events = [event if isinstance(event, EncodedEvent) else _encoded(event) for event in stored_events]
        self._require_same_file()
        try:
            connection = self._writer
            with connection.transaction():
                self._watch.require_same(lambda: False)  # it may have been moved away meanwhile
                streams, kinds = {event.originator_id for event in events}, {event.topic for event in events}
                encrypted = any(event.sealed for event in events)
                top = next_top(connection, kinds, self.path, self._is_living, encrypted=encrypted)
                ids, unheard = self._intern(connection, streams | kinds, groups)
                if conflicts := conflicts_of(connection, events, groups, ids, unheard):
                    raise Conflicts(conflicts)
                raise_times(connection, top, groups)
                self._insert(connection, top, events, groups, ids)
        except sqlite3.Error as error:
            raise refusal_of(error, self.path) from error
        if len(self._ids) >= NAMES_MAX:
            self._ids = {}
        self._ids |= ids
        return range(top + 1, top + 1 + len(events))

    def take_batches(self) -> None:
        """Have `takes_batches` say whether call batches may be appended from now on, which any omac that could open the
        journal then understands. Raises Refusal when the store fails."""
        self._require_same_file()
        try:
            self.takes_batches = raise_to_batches(self._writer, self.path, self._is_living)
        except sqlite3.Error as error:
            raise refusal_of(error, self.path) from error

    def _insert(
        self,
        connection: JournalConnection,
        top: int,
        events: Sequence[EncodedEvent],
        groups: Groups,
        ids: dict[str, int],
    ) -> None:
        """Insert events behind position `top`, and their leaves."""
        tree = completed(connection, current_tree(connection, top, self.path), top)
        is_plain = all(event.originator_version is None for event in events) and all(
            meta.correlation is None and meta.happened is None for _, meta in groups
        )
        rows, leaves = _rows(top, events, groups, ids, is_plain=is_plain)
        if files := [meta.spooled for _, meta in groups if meta.spooled is not None]:
            remember(connection, files)
        (self._plain if is_plain else self._events).insert(connection, rows)
        if tree is not None and leaves:
            self._leaves.insert(
                connection,
                [value for position, leaf in enumerate(leaves, top + 1) for value in (position, bytearray(leaf))],
            )
            grow(connection, tree, leaves)
        connection.execute("UPDATE head SET position = ?", (top + len(events),))

    def _intern(
        self, connection: JournalConnection, names: set[str], groups: Groups
    ) -> tuple[dict[str, int], set[str]]:
        """Return the ids of `names`, and of those of the groups; and which of them nobody had."""
        wanted = names | {meta.run for _, meta in groups} | {meta.actor for _, meta in groups}
        ids = {text: self._ids[text] for text in wanted if text in self._ids}  # of all that it ever met, only these
        missing = sorted(wanted - ids.keys())
        for start in range(0, len(missing), 500):
            part = missing[start : start + 500]
            marks = ", ".join("?" * len(part))
            ids.update(connection.execute(f"SELECT text, id FROM name WHERE text IN ({marks})", part))  # noqa: S608  # marks
        unheard = {text for text in missing if text not in ids}
        for text in sorted(unheard):
            (ids[text],) = connection.execute("INSERT INTO name (text) VALUES (?) RETURNING id", (text,)).fetchone()
        return ids, unheard

    def changed_by_others(self) -> bool:
        """Return whether another connection committed since the last call; true at the first call.

        SQLite counts the commits of others for each connection (PRAGMA data_version), which costs no transaction.
        """
        self._require_same_file()
        (version,) = pragma(self._writer, self.path, "data_version")
        changed = bool(version != self._data_version)
        self._data_version = version
        return changed

    def take_out(self, segment: Segment, repaired_at: int) -> None:
        """List a segment that is in its place, and delete its rows; it may be listed already. Raises Refusal."""
        self._require_same_file()
        if self.reader.sealed_to() < segment.last:
            list_segment(self._writer, self.path, segment, repaired_at)
        delete_sealed(self._writer, self.path)
        self.checkpoint()

    def replace_segment(self, segment: Segment) -> None:
        """List what is left of a segment, which is in its place. Raises Refusal."""
        self._require_same_file()
        list_pruned(self._writer, self.path, segment)
        self.checkpoint()

    def checkpoint(self) -> None:
        """Move what is in the write-ahead log to the journal file, and mark how far the journal goes. Raises Refusal
        when it cannot be moved (the disk is full, say); it stays in the log, where it is safe."""
        self._require_same_file()
        checkpoint(self._writer, self.path)
        self._write_mark()

    def _write_mark(self) -> None:
        if self._mark is not None:
            self._mark.write(self.journal_id(), self.head())

    def _require_same_file(self) -> None:
        """Raise Refusal (journal-unavailable) if the file was removed, replaced or cut: data written to it would be
        lost."""
        self._watch.require_same(self._rescue)

    def _rescue(self) -> bool:
        """Move the content of an unlinked log to the journal, while no other process has that log or a new one."""
        try:
            return checkpoint(self._writer, self.path)
        except Refusal:
            return False

    def head(self) -> int:
        """The last position; 0 for an empty journal."""
        self._require_same_file()
        return self.reader.head()

    def spooled(self, host: str) -> frozenset[str]:
        """Return the names of files in the spool of `host` that are remembered as recorded."""
        return self.reader.spooled(host)

    def journal_id(self) -> str:
        """The random name the journal got when it was created."""
        return self.reader.journal_id()

    def select_events(
        self,
        originator_id: Any,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[StoredEvent]:
        versions = [
            StoredEvent(row.originator_id, row.originator_version or 0, row.topic, row.state)
            for row in self.reader.versions(str(originator_id))
        ]
        within = [event for event in versions if _is_within(event.originator_version, gt, lte)]
        return (within[::-1] if desc else within)[:limit]

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[Any]:
        """Implement ApplicationRecorder of eventsourcing.persistence: return StoredRows."""
        return self.reader.select((start or 0) - inclusive_of_start, limit, stop, topics)

    def max_notification_id(self) -> int | None:
        return self.head() or None

    def subscribe(self, gt: int | None = None, topics: Sequence[str] = ()) -> Any:
        """Not offered: the feed delivers, in the order of commits, without a thread per subscriber."""
        raise NotImplementedError("use the feed")


# The columns of events that have no version, in batches of nothing else: for each None, and for bytes where it takes a
# bytearray as it is, the driver looks for an adapter, which takes as long as all else that it does for a row.
_PLAIN = tuple(name for name in COLUMNS if name not in ("version", "correlation", "happened"))


def _rows(
    top: int, events: Sequence[EncodedEvent], groups: Groups, ids: dict[str, int], *, is_plain: bool
) -> tuple[list[Any], list[bytes]]:
    """The values of the rows of events that come after position `top`, one after the other, in the order of COLUMNS, or
    of those of plain ones; and their leaves."""
    rows: list[Any] = []
    leaves: list[bytes] = []
    waiting = iter(events)
    for size, meta in groups:
        at, run, actor = meta.at, meta.run, meta.actor
        correlation, causation, happened = meta.correlation, meta.causation, meta.happened
        for event in itertools.islice(waiting, size):
            top += 1
            stream, version, kind = event.originator_id, event.originator_version, event.topic
            body, fields = event.state, event.sealed
            stored, sealed = bytearray(body), fields and bytearray(fields)
            if is_plain:
                rows += top, ids[stream], ids[kind], at, ids[run], ids[actor], causation, stored, sealed
            else:
                rows += (
                    top, ids[stream], version, ids[kind], at, ids[run], ids[actor], correlation, causation, stored,
                    sealed, happened,
                )  # fmt: skip
            leaves.append(
                leaf_hash(
                    content(top, stream, version, kind, at, run, actor, correlation, causation, happened, fields, body)
                )
            )
    return rows, leaves


def _encoded(event: StoredEvent) -> EncodedEvent:
    return EncodedEvent(str(event.originator_id), event.originator_version, event.topic, event.state)


def _is_within(version: int, above: int | None, up_to: int | None) -> bool:
    return (above is None or version > above) and (up_to is None or version <= up_to)
