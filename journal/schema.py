"""The store: tables, pragmas and how a journal file is opened, by its writer or by readers.

One row of `event` is one event; `name` interns the texts that repeat (streams, kinds, runs, actors); `head` holds the
last position, advanced in the same transaction as the events. `happened` is for an event that happened before it was
recorded at `at`; `sealed` has encrypted fields (`journal/commitments.py`); `leaf` is not used. The leaves of
the events are in a table of their own, with their `tree` (`journal/leaves.py`).
`spooled` remembers which files of a spool (by its host) are in the journal already, for as long as they are still
there. `opened` lists the runs that have the journal open, `set_aside` keeps the rows that a repair replaced. `segment`
lists the files that the oldest events were moved to, `sealed_version` the last version of each stream in them.

`journal.schema` is the lowest format that understands every event of the journal (`journal/format.py`).
"""

import contextlib
import errno
import os
import shlex
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.pool import StaticPool

from omac.domain.kernel.refusal import Reason, Refusal
from omac.journal import file
from omac.journal.file import (
    BUSY_MS,
    VERSION_INDEX,
    connect_for_reading,
    lacks_happened,
    require_known,
    require_regular,
)
from omac.journal.log_connection import JournalConnection
from omac.journal.mark import Mark

FIRST_SCHEMA = 1  # of a new journal: its first events decide what it needs
METADATA = sa.MetaData()

JOURNAL = sa.Table(
    "journal",
    METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("schema", sa.Integer, nullable=False),
)
NAME = sa.Table(
    "name",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("text", sa.Text, nullable=False, unique=True),
)
HEAD = sa.Table(
    "head",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("position", sa.BigInteger, nullable=False),
)
EVENT = sa.Table(
    "event",
    METADATA,
    sa.Column("position", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=False),
    sa.Column("stream", sa.Integer, nullable=False),
    sa.Column("version", sa.Integer),
    sa.Column("kind", sa.Integer, nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("run", sa.Integer, nullable=False),
    sa.Column("actor", sa.Integer, nullable=False),
    sa.Column("correlation", sa.Text),
    sa.Column("causation", sa.BigInteger),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("sealed", sa.LargeBinary),
    sa.Column("leaf", sa.LargeBinary),
    sa.Column("happened", sa.BigInteger),
)
LEAF = sa.Table(
    "leaf",
    METADATA,
    sa.Column("position", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=False),
    sa.Column("hash", sa.LargeBinary, nullable=False),
)
TREE = sa.Table(
    "tree",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("peaks", sa.LargeBinary, nullable=False),
    sa.Column("late", sa.BigInteger, nullable=False),
)
SPOOLED = sa.Table(
    "spooled",
    METADATA,
    sa.Column("host", sa.Text, primary_key=True),
    sa.Column("id", sa.Text, primary_key=True),
)
OPENED = sa.Table(
    "opened",
    METADATA,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("start_ticks", sa.BigInteger, nullable=False),
    sa.Column("boot_id", sa.Text, nullable=False),
    sa.Column("version", sa.Text, nullable=False),
    sa.Column("schema", sa.Integer, nullable=False),
)
SET_ASIDE = sa.Table(
    "set_aside",
    METADATA,
    sa.Column("record", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=False),
    sa.Column("position", sa.BigInteger, nullable=False),
    sa.Column("stream", sa.Text),
    sa.Column("version", sa.Integer),
    sa.Column("kind", sa.Text),
    sa.Column("at", sa.BigInteger),
    sa.Column("run", sa.Text),
    sa.Column("actor", sa.Text),
    sa.Column("correlation", sa.Text),
    sa.Column("causation", sa.BigInteger),
    sa.Column("body", sa.LargeBinary),
    sa.Column("sealed", sa.LargeBinary),
    sa.Column("leaf", sa.LargeBinary),
    sa.Column("happened", sa.BigInteger),
)
SEGMENT = sa.Table(
    "segment",
    METADATA,
    sa.Column("first", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=False),
    sa.Column("last", sa.BigInteger, nullable=False),
    sa.Column("file", sa.Text, nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("sha256", sa.Text, nullable=False),
    sa.Column("pruned", sa.BigInteger, nullable=False),
)
SEALED_VERSION = sa.Table(
    "sealed_version",
    METADATA,
    sa.Column("stream", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=False),
    sa.Column("version", sa.Integer, nullable=False),
)
# Logs without versions (accesses) do not pay for the index that guards aggregates.
sa.Index(VERSION_INDEX, EVENT.c.stream, EVENT.c.version, unique=True, sqlite_where=EVENT.c.version.is_not(None))

STORE_ERRORS = (sqlite3.Error, sa.exc.DBAPIError)  # of the driver, which Core wraps where it is in between
WAL_PAGES = 16_384  # 64 MiB before a commit has to checkpoint; the writer does it earlier when idle


def open_for_writing(
    path: str,
    journal_id: str,
    arrive: Callable[[sa.Connection], None] = lambda _: None,
    *,
    mark: Mark | None = None,
    lenient: bool = False,
) -> sa.Engine:
    """The engine of the one writer of this process; creates the journal (0600, named `journal_id`) where none is.

    `arrive` is called in the transaction that opens it. `mark` is what is known of the journal; `lenient`: events that
    are missing are left to the caller.
    Raises Refusal: journal-read-only, journal-newer, journal-damaged, journal-unavailable, state-unusable.
    """
    if mark is not None and not os.path.lexists(path):
        mark.require_unmarked()
    _create_file(path)
    _look_first(path, mark, lenient)
    engine = sa.create_engine(
        sa.URL.create("sqlite", database=path),
        poolclass=StaticPool,
        connect_args={"check_same_thread": False, "factory": JournalConnection},
    )
    sa.event.listen(engine, "connect", _prepare_writer)
    sa.event.listen(engine, "begin", _begin_immediate)
    created = False
    try:
        checkpoint(engine, path)  # fails where a log was cut that others still have open: nothing is written over it
        with engine.begin() as connection:
            METADATA.create_all(connection)
            _add_column(connection)
            if connection.execute(sa.select(JOURNAL.c.schema)).first() is None:
                connection.execute(sa.insert(JOURNAL).values(id=journal_id, schema=FIRST_SCHEMA))
                connection.execute(sa.insert(HEAD).values(id=1, position=0))
                created = True
            _begin_tree(connection)
            require_known(path, connection.execute(sa.select(JOURNAL.c.schema)).scalar_one())
            arrive(connection)
        if created:
            checkpoint(engine, path)  # a copy of the file alone is a journal, from the beginning
    except STORE_ERRORS as error:
        engine.dispose()
        raise refusal_of(error, path) from error
    except Refusal:
        engine.dispose()
        raise
    return engine


def _add_column(connection: sa.Connection) -> None:
    """Bring the table of the first omac to the present layout; its rows stay as they are."""
    raw = connection.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)
    if lacks_happened(raw):
        connection.exec_driver_sql("ALTER TABLE event ADD COLUMN happened BIGINT")


def _begin_tree(connection: sa.Connection) -> None:
    """Begin a tree where there is none; leaves without their tree are damage, and stay as they are."""
    if connection.execute(sa.select(TREE.c.id)).first() is None and (
        connection.execute(sa.select(LEAF.c.position).limit(1)).first() is None
    ):
        connection.execute(sa.insert(TREE).values(id=1, size=0, peaks=b"", late=0))


def checkpoint(engine: sa.Engine, path: str) -> bool:
    """Move what is in the write-ahead log to the journal file, as far as no reader is in the way; return whether all.

    The log is never cut (PASSIVE): a log that shrinks is one that somebody else cut. Raises Refusal when it cannot be
    moved (the disk is full, say); it stays in the log, where it is safe.
    """
    busy, frames, moved = pragma(engine, path, "wal_checkpoint(PASSIVE)")
    return not busy and frames == moved


def pragma(engine: sa.Engine, path: str, text: str) -> Sequence[Any]:
    """Return what a pragma answers, without a transaction. Raises Refusal."""
    with engine.connect() as connection:
        raw = connection.connection.driver_connection
        assert isinstance(raw, sqlite3.Connection)
        try:
            return tuple(raw.execute(f"PRAGMA {text}").fetchone())
        except sqlite3.Error as error:
            raise refusal_of(error, path) from error


def cursor_of(connection: sa.Connection) -> Any:
    """Return the driver's cursor in the transaction of a connection, for what every append executes: Core takes ten
    times as long as the database. What fails there raises sqlite3.Error."""
    return connection.connection.cursor()


def refusal_of(error: sqlite3.Error | sa.exc.DBAPIError, path: str) -> Refusal:
    """What a database error means for the person who runs omac."""
    cause = error.orig if isinstance(error, sa.exc.DBAPIError) else None
    return file.refusal_of(cause or error, path)


def _create_file(path: str) -> None:
    """Create the file, 0600, where there is none; its -wal and -shm take over that mode.

    A file that exists is opened by SQLite alone: closing any other descriptor of it drops every POSIX lock that this
    process holds on it, and the next process to close the database would delete the write-ahead log under us.
    """
    try:
        _create_folders(os.path.dirname(path))
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        mode = os.lstat(path).st_mode
    except OSError as error:
        raise _not_writable(path, str(error.strerror), error.errno) from error
    require_regular(path, mode)
    if not os.access(path, os.W_OK):
        raise _not_writable(path, os.strerror(errno.EACCES), errno.EACCES)


def _not_writable(path: str, why: str, number: int | None) -> Refusal:
    reason: Reason = "journal-read-only" if number in _NOT_WRITABLE else "journal-unavailable"
    fix = [f"ls -ld {shlex.quote(path)}", "omac serve --journal PATH  # somewhere you can write"]
    return Refusal(reason, f"the journal {path} cannot be opened for writing: {why}", fix=fix)


_NOT_WRITABLE = (errno.EPERM, errno.EACCES, errno.EROFS)


def _create_folders(path: str) -> None:
    """Make each missing folder 0700; makedirs would leave the outer ones to the umask."""
    if path and not os.path.isdir(path):
        _create_folders(os.path.dirname(path))
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)


def _look_first(path: str, mark: Mark | None, lenient: bool) -> None:
    """Leave alone, to the byte, what is no journal or a later one: a writer's pragmas would already change it."""
    try:
        connect_for_reading(path, mark, lenient=lenient).close()
    except Refusal as refusal:
        if refusal.reason != "journal-unavailable":
            raise


def _prepare_writer(connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None  # transactions begin where we say so
    for pragma in (
        f"busy_timeout={BUSY_MS}",
        "journal_mode=WAL",
        "synchronous=FULL",
        f"wal_autocheckpoint={WAL_PAGES}",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _begin_immediate(connection: sa.Connection) -> None:
    cursor_of(connection).execute("BEGIN IMMEDIATE")
