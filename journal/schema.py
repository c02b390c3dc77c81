"""The store: tables, pragmas and how a journal file is opened, by its writer or by readers.

One row of `event` is one event; `name` interns the texts that repeat (streams, kinds, runs, actors); `head` holds the
last position, advanced in the same transaction as the events. `happened` is for an event that happened before it was
recorded at `at`; `sealed` and `leaf` are there for encrypted fields and for proofs, and are empty in this version.
`spooled` remembers which files of a spool (by its host) are in the journal already, for as long as they are still
there. `opened` lists the runs that have the journal open, `set_aside` keeps the rows that a repair replaced.

`journal.schema` is the lowest format that understands every event of the journal (`journal/format.py`). Tables and
columns of a later layout are added when an older journal is opened for writing: an older omac does not mind them.
"""

import contextlib
import errno
import os
import shlex
import sqlite3
import stat
from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.pool import StaticPool

from omac.domain.refusal import Reason, Refusal

SCHEMA = 2  # the highest format that this omac understands
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
# Logs without versions (accesses) do not pay for the index that guards aggregates.
sa.Index("event_version", EVENT.c.stream, EVENT.c.version, unique=True, sqlite_where=EVENT.c.version.is_not(None))

BUSY_MS = 5_000
WAL_PAGES = 16_384  # 64 MiB before a commit has to checkpoint; the writer does it earlier when idle


def open_for_writing(path: str, journal_id: str) -> sa.Engine:
    """The engine of the one writer of this process; creates the journal (0600, named `journal_id`) where none is.

    Raises Refusal: journal-read-only, journal-newer, journal-damaged, journal-unavailable, state-unusable.
    """
    _create_file(path)
    _look_first(path)
    engine = sa.create_engine(
        sa.URL.create("sqlite", database=path), poolclass=StaticPool, connect_args={"check_same_thread": False}
    )
    sa.event.listen(engine, "connect", _prepare_writer)
    sa.event.listen(engine, "begin", _begin_immediate)
    try:
        with engine.begin() as connection:
            METADATA.create_all(connection)
            _add_columns(connection)
            if connection.execute(sa.select(JOURNAL.c.schema)).first() is None:
                connection.execute(sa.insert(JOURNAL).values(id=journal_id, schema=FIRST_SCHEMA))
                connection.execute(sa.insert(HEAD).values(id=1, position=0))
            _check_schema(connection, path)
    except sa.exc.DBAPIError as error:
        engine.dispose()
        raise refusal_of(error, path) from error
    except Refusal:
        engine.dispose()
        raise
    return engine


def open_for_reading(path: str) -> sa.Engine:
    """An engine that cannot write, for as many readers as there are; works on read-only media too.

    Raises Refusal: journal-unavailable (there is none), journal-newer, journal-damaged, state-unusable.
    """
    if not os.path.exists(path):
        raise _none_yet(path)
    _check_regular(path, os.stat(path).st_mode)
    for query in ({"mode": "ro", "uri": "true"}, {"mode": "ro", "immutable": "1", "uri": "true"}):
        engine = sa.create_engine(
            sa.URL.create("sqlite", database=f"file:{_uri_path(path)}", query=query),
            connect_args={"check_same_thread": False},
        )
        sa.event.listen(engine, "connect", _prepare_reader)
        try:
            with engine.connect() as connection:
                _check_schema(connection, path)
        except sa.exc.DBAPIError as error:
            engine.dispose()
            # A write-ahead log wants its index file; read-only media without one can only be read as they lie.
            if "immutable" in query or "unable to open" not in str(error.orig) or _pending(path):
                raise refusal_of(error, path) from error
        except Refusal:
            engine.dispose()
            raise
        else:
            return engine
    raise AssertionError("the second attempt either returned or raised")


def refusal_of(error: sa.exc.DBAPIError, path: str) -> Refusal:
    """What a database error means for the person who runs omac."""
    text = str(error.orig)
    if "readonly" in text or "read-only" in text:
        fix = [f"ls -l {shlex.quote(path)}", "omac serve --journal PATH  # somewhere you can write"]
        return Refusal("journal-read-only", f"the journal {path} cannot be written: {text}", fix=fix)
    if "full" in text:
        return Refusal(
            "journal-unavailable", f"the disk of the journal {path} is full", fix=[f"df -h {shlex.quote(path)}"]
        )
    if "malformed" in text or "not a database" in text or "no such table" in text or "no such column" in text:
        return damaged(path, text)
    if "locked" in text or "busy" in text:
        return Refusal(
            "journal-unavailable",
            f"the journal {path} is locked by another program",
            fix=[f"fuser {shlex.quote(path)}"],
        )
    return Refusal(
        "journal-unavailable", f"the journal {path} cannot be used: {text}", fix=[f"ls -l {shlex.quote(path)}"]
    )


def damaged(path: str, what: str) -> Refusal:
    """The refusal of a file that is no journal, or no whole one."""
    fix = [
        f"sqlite3 {shlex.quote(path)} 'pragma integrity_check'",
        "omac serve --journal PATH  # begins a new journal there",
    ]
    return Refusal("journal-damaged", f"{path} is not a journal of omac, or is damaged: {what}", fix=fix)


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
    _check_regular(path, mode)
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


def _check_regular(path: str, mode: int) -> None:
    if stat.S_ISLNK(mode):
        raise Refusal(
            "state-unusable",
            f"the journal {path} is a symbolic link; name the file itself",
            fix=[f"ls -l {shlex.quote(path)}"],
        )
    if not stat.S_ISREG(mode):
        raise Refusal("state-unusable", f"the journal {path} is not a regular file", fix=[f"ls -l {shlex.quote(path)}"])


def _look_first(path: str) -> None:
    """Leave alone, to the byte, what is no journal or a later one: a writer's pragmas would already change it."""
    try:
        open_for_reading(path).dispose()
    except Refusal as refusal:
        if refusal.reason != "journal-unavailable":
            raise


def _none_yet(path: str) -> Refusal:
    fix = ["omac serve --no-inner  # creates it"]
    return Refusal("journal-unavailable", f"there is no journal at {path} yet", fix=fix)


def _check_schema(connection: sa.Connection, path: str) -> None:
    if not sa.inspect(connection).get_table_names():  # another process is about to create them
        raise _none_yet(path)
    schema = connection.execute(sa.select(JOURNAL.c.schema)).scalar_one()
    if schema > SCHEMA:
        raise Refusal(
            "journal-newer",
            f"the journal {path} has schema {schema}; this omac knows {SCHEMA}",
            fix=["omac version  # then install the newer omac"],
        )


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
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _add_columns(connection: sa.Connection) -> None:
    """Bring the table of an older layout to the present one."""
    if "happened" not in _columns(connection.exec_driver_sql("PRAGMA table_info(event)").all()):
        connection.exec_driver_sql("ALTER TABLE event ADD COLUMN happened BIGINT")


def _prepare_reader(connection: sqlite3.Connection, _record: Any) -> None:
    connection.execute(f"PRAGMA busy_timeout={BUSY_MS}")
    columns = _columns(connection.execute("PRAGMA table_info(event)").fetchall())
    if columns and "happened" not in columns:  # a journal of an older layout is read as if it had the present one
        connection.execute("PRAGMA temp_store=MEMORY")
        connection.execute("CREATE TEMP VIEW event AS SELECT *, NULL AS happened FROM main.event")
    connection.execute("PRAGMA query_only=ON")


def _columns(rows: Iterable[Sequence[Any]]) -> set[str]:
    return {row[1] for row in rows}


def _uri_path(path: str) -> str:
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _pending(path: str) -> bool:
    """Whether committed events lie in a write-ahead log that an immutable open would not see."""
    try:
        return os.path.getsize(path + "-wal") > 0
    except OSError:
        return False
