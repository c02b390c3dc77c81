"""The recorder: stored events in, positions out; one transaction for many callers.

Implements eventsourcing's ApplicationRecorder on SQLAlchemy Core, and adds what a group commit needs.
"""

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from eventsourcing.persistence import ApplicationRecorder, IntegrityError, Notification, StoredEvent

from omac.domain.refusal import Refusal
from omac.journal.file import damaged
from omac.journal.format import IsLiving, Present, assume_living, leave, next_top
from omac.journal.mark import Mark
from omac.journal.reader import Row
from omac.journal.schema import EVENT, HEAD, JOURNAL, NAME, SPOOLED, checkpoint, refusal_of
from omac.journal.watch import Watch


class Meta(msgspec.Struct, frozen=True):
    """What is recorded beside an event: `at` in nanoseconds since 1970 UTC, and who, in which run, after what."""

    at: int
    run: str
    actor: str
    correlation: str | None = None
    causation: int | None = None


Group = tuple[Sequence[StoredEvent], Meta]  # all or nothing, for one caller


class SqlRecorder(ApplicationRecorder):
    """Records into, and reads from, one journal. `writer` None: read-only.

    Methods that write must be called by one thread at a time. Raises Refusal when the store cannot be used.
    """

    def __init__(
        self,
        path: str,
        reader: sa.Engine,
        writer: sa.Engine | None = None,
        is_living: IsLiving = assume_living,
        present: Present | None = None,
        mark: Mark | None = None,
    ) -> None:
        self.path = path
        self._reader = reader
        self._writer = writer
        self._is_living = is_living
        self._present = present  # the run that is listed until it closes the store
        self._statement = _insert_statement(writer) if writer else ""
        self._watch = Watch(path, log=writer is not None)
        self._mark = mark
        self._ids: dict[str, int] = {}  # interned names, as committed
        self._texts: dict[int, str] = {}

    def close(self) -> None:
        """Let go of the store."""
        if self._writer:
            with contextlib.suppress(Refusal):
                self._leave()
        self._reader.dispose()
        if self._writer:  # the last to close: it takes the log away
            self._writer.dispose()

    def _leave(self) -> None:
        """Say how far the journal goes; a run that stays listed is dead, and counts for nothing."""
        assert self._writer is not None
        self._require_same_file()
        if self._present:
            with contextlib.suppress(sa.exc.DBAPIError), self._writer.begin() as connection:
                leave(connection, self._present.run)
        self._write_mark()

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int]:
        """Append for one caller; keyword `meta` is a Meta. Raises IntegrityError on a version conflict."""
        result = self.insert_groups([(stored_events, kwargs["meta"])])[0]
        if isinstance(result, IntegrityError):
            raise result
        return result

    def insert_groups(self, groups: Sequence[Group]) -> list[Sequence[int] | IntegrityError]:
        """Append many callers' events in one durable transaction; a caller with a version conflict gets its error.

        Positions are gapless and ascend in the order of the groups.
        """
        try:
            return self._insert_groups(groups, _insert_at_once)
        except sa.exc.IntegrityError:  # rare: find the ones in conflict, keep the others
            return self._insert_groups(groups, _insert_one_by_one)

    def insert_spooled(
        self, host: str, ids: Sequence[str], groups: Sequence[Group], present: Collection[str]
    ) -> list[Sequence[int] | IntegrityError]:
        """As `insert_groups`, and remember in the same transaction the id of each group that was inserted.

        Ids of that host that are not `present` any more are forgotten.
        """

        def insert(
            connection: sa.Connection, top: int, groups: Sequence[Group], names: dict[str, int], statement: str
        ) -> list[Sequence[int] | IntegrityError]:
            results = _insert_one_by_one(connection, top, groups, names, statement)
            done = [id_ for id_, result in zip(ids, results, strict=True) if not isinstance(result, IntegrityError)]
            gone = [id_ for id_ in _spooled(connection, host) if id_ not in present]
            if gone:
                this = sa.and_(SPOOLED.c.host == host, SPOOLED.c.id == sa.bindparam("gone"))
                connection.execute(sa.delete(SPOOLED).where(this), [{"gone": id_} for id_ in gone])
            if done:
                connection.execute(sa.insert(SPOOLED), [{"host": host, "id": id_} for id_ in done])
            return results

        return self._insert_groups(groups, insert)

    def spooled(self, host: str) -> set[str]:
        """The ids of that host's spool that are remembered."""
        with self._read() as connection:
            return set(_spooled(connection, host))

    def _insert_groups(self, groups: Sequence[Group], insert: "Insert") -> list[Sequence[int] | IntegrityError]:
        assert self._writer is not None, "opened for reading"
        self._require_same_file()
        new: dict[str, int] = {}
        try:
            with self._writer.begin() as connection:
                kinds = {event.topic for events, _ in groups for event in events}
                top = next_top(connection, kinds, self.path, self._is_living)
                self._intern(connection, groups, new)
                results = insert(connection, top, groups, self._ids | new if new else self._ids, self._statement)
                last = max((done[-1] for done in results if not isinstance(done, Exception) and done), default=top)
                connection.execute(sa.update(HEAD).values(position=last))
        except sa.exc.IntegrityError:
            raise
        except sa.exc.DBAPIError as error:
            raise refusal_of(error, self.path) from error
        self._ids |= new
        return results

    def _intern(self, connection: sa.Connection, groups: Sequence[Group], new: dict[str, int]) -> None:
        wanted: set[str] = set()
        for events, meta in groups:
            wanted.add(meta.run)
            wanted.add(meta.actor)
            for event in events:
                wanted.add(str(event.originator_id))
                wanted.add(event.topic)
        missing = [text for text in sorted(wanted) if text not in self._ids]
        for start in range(0, len(missing), 500):
            part = missing[start : start + 500]
            known = connection.execute(sa.select(NAME.c.text, NAME.c.id).where(NAME.c.text.in_(part)))
            new.update((text, id_) for text, id_ in known)
        for text in missing:
            if text not in new:
                new[text] = connection.execute(sa.insert(NAME).values(text=text).returning(NAME.c.id)).scalar_one()

    def checkpoint(self) -> None:
        """Move what is in the write-ahead log to the journal file, and mark how far the journal goes.

        Raises Refusal when it cannot be moved (the disk is full, say); it stays in the log, where it is safe.
        """
        assert self._writer is not None, "opened for reading"
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
        """Move what a log without a name holds to the journal: nobody else has it, and nobody has a new one yet."""
        if self._writer is None:
            return False
        try:
            return checkpoint(self._writer, self.path)
        except Refusal:
            return False

    def head(self) -> int:
        """The last position; 0 for an empty journal."""
        self._require_same_file()
        with self._read() as connection:
            return int(connection.execute(sa.select(HEAD.c.position)).scalar_one())

    def position_at(self, moment: int) -> int:
        """The last position recorded at `moment` (nanoseconds since 1970 UTC) or before; 0 when there is none.

        A clock may be set back: events between two that qualify belong to the past, whatever they say.
        """
        with self._read() as connection:
            query = sa.select(sa.func.max(EVENT.c.position)).where(EVENT.c.at <= moment)
            return int(connection.execute(query).scalar() or 0)

    def journal_id(self) -> str:
        """The random name the journal got when it was created."""
        with self._read() as connection:
            return str(connection.execute(sa.select(JOURNAL.c.id)).scalar_one())

    def rows(self, after: int, limit: int, until: int | None = None) -> list[Row]:
        """At most `limit` events above position `after`, up to `until`, in order."""
        query = sa.select(*_COLUMNS).where(EVENT.c.position > after).order_by(EVENT.c.position).limit(limit)
        if until is not None:
            query = query.where(EVENT.c.position <= until)
        with self._read() as connection:
            found = connection.execute(query).all()
            name = self._name_lookup(connection, found)
            return [
                Row(p, name(s), v, name(k), at, name(r), name(a), c, z, b) for p, s, v, k, at, r, a, c, z, b in found
            ]

    def select_events(
        self,
        originator_id: Any,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[StoredEvent]:
        """See eventsourcing.persistence.AggregateRecorder."""
        query = _NAMED.where(_STREAM.c.text == str(originator_id), EVENT.c.version.is_not(None)).limit(limit)
        if gt is not None:
            query = query.where(EVENT.c.version > gt)
        if lte is not None:
            query = query.where(EVENT.c.version <= lte)
        query = query.order_by(EVENT.c.version.desc() if desc else EVENT.c.version)
        with self._read() as connection:
            return [StoredEvent(s, v, k, b) for s, v, k, b, _ in connection.execute(query)]

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[Notification]:
        """See eventsourcing.persistence.ApplicationRecorder."""
        query = _NAMED.order_by(EVENT.c.position).limit(limit)
        if start is not None:
            query = query.where(EVENT.c.position >= start if inclusive_of_start else EVENT.c.position > start)
        if stop is not None:
            query = query.where(EVENT.c.position <= stop)
        if topics:
            query = query.where(_KIND.c.text.in_(topics))
        with self._read() as connection:
            return [Notification(s, v, k, b, p) for s, v, k, b, p in connection.execute(query)]

    def max_notification_id(self) -> int | None:
        """See eventsourcing.persistence.ApplicationRecorder."""
        return self.head() or None

    def subscribe(self, gt: int | None = None, topics: Sequence[str] = ()) -> Any:
        """Not offered: the feed delivers, in the order of commits, without a thread per subscriber."""
        raise NotImplementedError("use the feed")

    def kinds(self) -> Iterator[tuple[str, int]]:
        """How many events of each kind there are, most frequent first."""
        count = sa.func.count()
        query = sa.select(_KIND.c.text, count).select_from(EVENT.join(_KIND, _KIND.c.id == EVENT.c.kind))
        with self._read() as connection:
            found = connection.execute(query.group_by(_KIND.c.text).order_by(count.desc(), _KIND.c.text)).all()
        return ((str(kind), int(number)) for kind, number in found)

    def _read(self) -> "_Reading":
        return _Reading(self._reader, self.path)

    def _name_lookup(self, connection: sa.Connection, found: Sequence[Any]) -> Any:
        needed = {row[i] for row in found for i in (1, 3, 5, 6)} - self._texts.keys()
        if needed:
            names = connection.execute(sa.select(NAME.c.id, NAME.c.text).where(NAME.c.id.in_(needed)))
            self._texts.update((id_, text) for id_, text in names)
        return self._texts.__getitem__


class _Reading:
    """A connection for reading whose errors are refusals."""

    def __init__(self, engine: sa.Engine, path: str) -> None:
        self._engine = engine
        self._path = path

    def __enter__(self) -> sa.Connection:
        try:
            self._connection = self._engine.connect()
        except sa.exc.DBAPIError as error:
            raise refusal_of(error, self._path) from error
        return self._connection

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        self._connection.close()
        if isinstance(error, sa.exc.DBAPIError):
            raise refusal_of(error, self._path) from error
        if isinstance(error, sa.exc.NoResultFound | KeyError):
            raise damaged(self._path, f"something it refers to is missing ({error})") from error


_COLUMNS = (
    EVENT.c.position,
    EVENT.c.stream,
    EVENT.c.version,
    EVENT.c.kind,
    EVENT.c.at,
    EVENT.c.run,
    EVENT.c.actor,
    EVENT.c.correlation,
    EVENT.c.causation,
    EVENT.c.body,
)
_STREAM = NAME.alias("stream")
_KIND = NAME.alias("kind")
_NAMED = sa.select(_STREAM.c.text, EVENT.c.version, _KIND.c.text, EVENT.c.body, EVENT.c.position).select_from(
    EVENT.join(_STREAM, _STREAM.c.id == EVENT.c.stream).join(_KIND, _KIND.c.id == EVENT.c.kind)
)
_INSERTED = tuple(column.name for column in _COLUMNS)  # sealed and leaf stay empty


def _insert_statement(engine: sa.Engine) -> str:
    """The insert in the engine's dialect, its parameters in the order of _INSERTED.

    Given to the driver as it is: what Core does for each row costs three times what the database does.
    """
    compiled = sa.insert(EVENT).compile(dialect=engine.dialect, column_keys=list(_INSERTED))
    assert tuple(compiled.positiontup or ()) == _INSERTED, "a dialect with positional parameters"
    return str(compiled)


def _insert_rows(
    connection: sa.Connection, top: int, groups: Sequence[Group], ids: dict[str, int], statement: str
) -> list[Sequence[int]]:
    rows: list[tuple[Any, ...]] = []
    positions: list[Sequence[int]] = []
    for events, meta in groups:
        at, run, actor, correlation, causation = (
            meta.at,
            ids[meta.run],
            ids[meta.actor],
            meta.correlation,
            meta.causation,
        )
        positions.append(range(top + 1, top + 1 + len(events)))
        for event in events:
            top += 1
            stream, kind = ids[event.originator_id], ids[event.topic]  # type: ignore[index]  # our ids are texts
            rows.append(
                (top, stream, event.originator_version, kind, at, run, actor, correlation, causation, event.state)
            )
    if rows:
        connection.exec_driver_sql(statement, rows)
    return positions


Insert = Callable[
    [sa.Connection, int, Sequence[Group], dict[str, int], str], list[Sequence[int] | IntegrityError]
]  # connection, last position, groups, interned names, statement


def _insert_at_once(
    connection: sa.Connection, top: int, groups: Sequence[Group], ids: dict[str, int], statement: str
) -> list[Sequence[int] | IntegrityError]:
    return list(_insert_rows(connection, top, groups, ids, statement))


def _insert_one_by_one(
    connection: sa.Connection, top: int, groups: Sequence[Group], ids: dict[str, int], statement: str
) -> list[Sequence[int] | IntegrityError]:
    results: list[Sequence[int] | IntegrityError] = []
    for group in groups:
        try:
            with connection.begin_nested():
                (positions,) = _insert_rows(connection, top, [group], ids, statement)
        except sa.exc.IntegrityError as error:
            results.append(IntegrityError(str(error.orig)))
        else:
            results.append(positions)
            top = positions[-1] if positions else top
    return results


def _spooled(connection: sa.Connection, host: str) -> Sequence[str]:
    return connection.execute(sa.select(SPOOLED.c.id).where(SPOOLED.c.host == host)).scalars().all()
