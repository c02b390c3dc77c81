"""The recorder: stored events in, positions out; one transaction for many callers.

Implements eventsourcing's ApplicationRecorder on SQLAlchemy Core, and adds what a group commit needs.
"""

import contextlib
import itertools
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from eventsourcing.persistence import ApplicationRecorder, StoredEvent

from omac.domain.kernel.refusal import Refusal
from omac.journal.codec import EncodedEvent
from omac.journal.format import IsLiving, Present, assume_living, leave, next_top
from omac.journal.judgement import Conflicts, Groups, StoredEvents, conflicts_of, raise_times, remember
from omac.journal.leaves import completed, content, standing, store
from omac.journal.mark import Mark
from omac.journal.merkle import leaf_hash
from omac.journal.reader import COLUMNS, Reader
from omac.journal.schema import EVENT, NAME, checkpoint, pragma, refusal_of
from omac.journal.sealing import delete_sealed, list_pruned, list_segment
from omac.journal.segment import Segment
from omac.journal.watch import JournalWatch


class SqlRecorder(ApplicationRecorder):
    """Records into one journal, which `reader` reads.

    Methods that write must be called by one thread at a time. Raises Refusal when the store cannot be used.
    """

    def __init__(
        self,
        path: str,
        writer: sa.Engine,
        is_living: IsLiving = assume_living,
        present: Present | None = None,
        mark: Mark | None = None,
    ) -> None:
        self.path = path
        self.reader = Reader(path)
        self._writer = writer
        self._is_living = is_living
        self._present = present  # the run that is listed until it closes the store
        self._statement = _insert_statement(writer)
        self._watch = JournalWatch(path)
        self._mark = mark
        self._ids: dict[str, int] = {}  # interned names, as committed
        self._data_version: int | None = None

    def close(self) -> None:
        with contextlib.suppress(Refusal):
            self._leave()
        self.reader.close()
        self._writer.dispose()  # the last to close: it takes the log away

    def _leave(self) -> None:
        """Say how far the journal goes; a run that stays listed is dead, and counts for nothing."""
        self._require_same_file()
        if self._present:
            with contextlib.suppress(sa.exc.DBAPIError), self._writer.begin() as connection:
                leave(connection, self._present.run)
        self._write_mark()

    def insert_events(self, stored_events: StoredEvents, **kwargs: Any) -> Sequence[int]:
        """Append the events of many callers in one durable transaction; keyword `groups` says whose they are.

        Positions are gapless and ascend, and each event has a leaf in the tree. Raises Conflicts, and then nothing was
        appended, when a caller's first version is not the next of its stream, or its spooled file is in the journal
        already; Refusal when the store fails.
        """
        groups: Groups = kwargs["groups"]
        self._require_same_file()
        new: dict[str, int] = {}
        sealed = [event.sealed if isinstance(event, EncodedEvent) else None for event in stored_events]
        try:
            with self._writer.begin() as connection:
                kinds = {event.topic for event in stored_events}
                top = next_top(connection, kinds, self.path, self._is_living, encrypted=any(sealed))
                unheard = self._intern(
                    connection, {str(event.originator_id) for event in stored_events} | kinds, groups, new
                )
                ids = self._ids | new if new else self._ids
                if conflicts := conflicts_of(connection, stored_events, groups, ids, unheard):
                    raise Conflicts(conflicts)
                raise_times(connection, top, groups)
                tree = completed(connection, standing(connection, top, self.path), top)
                self._insert(connection, top, stored_events, sealed, groups, ids)
                if tree is not None:
                    store(connection, tree, _leaves(top, stored_events, sealed, groups))
                connection.exec_driver_sql("UPDATE head SET position = ?", (top + len(stored_events),))
        except sa.exc.DBAPIError as error:
            raise refusal_of(error, self.path) from error
        self._ids |= new
        return range(top + 1, top + 1 + len(stored_events))

    def _insert(
        self,
        connection: sa.Connection,
        top: int,
        stored_events: StoredEvents,
        sealed: Sequence[bytes | None],
        groups: Groups,
        ids: dict[str, int],
    ) -> None:
        rows: list[tuple[Any, ...]] = []
        events = zip(stored_events, sealed, strict=True)
        for size, meta in groups:
            run, actor = ids[meta.run], ids[meta.actor]
            for event, fields in itertools.islice(events, size):
                top += 1
                stream, kind = ids[event.originator_id], ids[event.topic]  # type: ignore[index]  # our ids are texts
                rows.append(
                    (top, stream, event.originator_version, kind, meta.at, run, actor, meta.correlation,
                     meta.causation, event.state, fields, meta.happened)
                )  # fmt: skip
        if files := [meta.spooled for _, meta in groups if meta.spooled is not None]:
            remember(connection, files)
        if rows:
            connection.exec_driver_sql(self._statement, rows)

    def _intern(self, connection: sa.Connection, names: set[str], groups: Groups, new: dict[str, int]) -> set[str]:
        """Add to `new` the ids of `names`, and of those of the groups, that this process has not met; returns those
        that nobody had."""
        wanted = names | {meta.run for _, meta in groups} | {meta.actor for _, meta in groups}
        missing = sorted(wanted - self._ids.keys())
        for start in range(0, len(missing), 500):
            part = missing[start : start + 500]
            known = connection.execute(sa.select(NAME.c.text, NAME.c.id).where(NAME.c.text.in_(part)))
            new.update((text, id_) for text, id_ in known)
        unheard = {text for text in missing if text not in new}
        for text in sorted(unheard):
            new[text] = connection.execute(sa.insert(NAME).values(text=text).returning(NAME.c.id)).scalar_one()
        return unheard

    def changed_by_others(self) -> bool:
        """Whether another connection committed since the last call; at the first call, yes.

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
        """What is written to a file that was removed, replaced or cut is lost. Raises Refusal (journal-unavailable)."""
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
        within = [one for one in versions if _is_within(one.originator_version, gt, lte)]
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
        """See eventsourcing.persistence.ApplicationRecorder; gives StoredRows."""
        return self.reader.select((start or 0) - inclusive_of_start, limit, stop, topics)

    def max_notification_id(self) -> int | None:
        return self.head() or None

    def subscribe(self, gt: int | None = None, topics: Sequence[str] = ()) -> Any:
        """Not offered: the feed delivers, in the order of commits, without a thread per subscriber."""
        raise NotImplementedError("use the feed")


def _leaves(top: int, stored_events: StoredEvents, sealed: Sequence[bytes | None], groups: Groups) -> list[bytes]:
    """The leaves of events that come after position `top`."""
    leaves: list[bytes] = []
    events = zip(stored_events, sealed, strict=True)
    for size, meta in groups:
        for event, fields in itertools.islice(events, size):
            top += 1
            text = content(
                top, str(event.originator_id), event.originator_version, event.topic, meta.at, meta.run, meta.actor,
                meta.correlation, meta.causation, meta.happened, fields, event.state,
            )  # fmt: skip
            leaves.append(leaf_hash(text))
    return leaves


def _is_within(version: int, above: int | None, up_to: int | None) -> bool:
    return (above is None or version > above) and (up_to is None or version <= up_to)


def _insert_statement(engine: sa.Engine) -> str:
    """The insert in the engine's dialect, its parameters in the order of COLUMNS.

    Given to the driver as it is: what Core does for each row costs three times what the database does.
    """
    compiled = sa.insert(EVENT).compile(dialect=engine.dialect, column_keys=list(COLUMNS))
    assert tuple(compiled.positiontup or ()) == COLUMNS, "a dialect with positional parameters"
    return str(compiled)
