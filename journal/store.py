"""The store of a journal: its file, as its one writer in this process opens it. Its tables: `journal/schema.py`."""

import contextlib
import errno
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Any

from omac.domain.kernel.refusal import Reason, Refusal, quoted
from omac.journal.event_kinds import FIRST_SCHEMA
from omac.journal.file import (
    BUSY_MS,
    ELSEWHERE,
    MEND_MODES,
    connect_for_reading,
    disk_full,
    lacks_happened,
    on_read_only,
    refusal_of,
    require_known,
    require_regular,
)
from omac.journal.folders import MORE_FILES, make_private
from omac.journal.log_connection import JournalConnection
from omac.journal.mark import Mark

TABLES = frozenset({
    "event", "head", "journal", "leaf", "name", "opened", "sealed_version", "segment", "set_aside", "spooled", "tree",
})  # fmt: skip
WAL_RETRY_S = 0.005
PAGE_BYTES = 4_096  # of SQLite, by default
# 4 MiB before a commit has to checkpoint; the writer does it earlier when idle. The flush of a log that grows stores
# where its new blocks are, too, which takes twice the time of one that is written over.
WAL_PAGES = 1_024
WAL_PAGES_MIN = 256
WAL_SHARE = 16  # of a disk, one part for the log: a log that fills a disk could not be moved to the journal any more


def open_for_writing(
    path: str,
    journal_id: str,
    arrive: Callable[[JournalConnection], None] = lambda _: None,
    *,
    mark: Mark | None = None,
    lenient: bool = False,
) -> JournalConnection:
    """The connection of the one writer of this process; creates the journal (0600, named `journal_id`) where none is.

    `arrive` is called in the transaction that opens it. `mark` is what is known of the journal; `lenient`: events that
    are missing are left to the caller.
    Raises Refusal: journal-read-only, journal-newer, journal-damaged, journal-unavailable, state-unusable.
    """
    if mark is not None:
        mark.find()
    _create_file(path)
    _inspect(path, mark, lenient)
    try:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=JournalConnection)
    except sqlite3.Error as error:
        raise refusal_of(error, path) from error
    try:
        _prepare_writer(connection, path)
        checkpoint(connection, path)  # fails where a log that others have open was cut: nothing is written over it
        with connection.transaction():
            created = _lay_out(connection, journal_id)
            require_known(path, connection.execute("SELECT schema FROM journal").fetchone()[0])
            arrive(connection)
        if created:
            checkpoint(connection, path)  # a copy of the file alone is a journal, from the beginning
    except sqlite3.Error as error:
        connection.close()
        raise refusal_of(error, path) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _lay_out(connection: JournalConnection, journal_id: str) -> bool:
    """Bring a journal to the present layout; its rows stay as they are. Return whether it is a new one."""
    if not {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")} >= TABLES:
        from omac.journal.schema import create_missing  # late: what it loads takes longer than all else here

        create_missing(connection)
    if lacks_happened(connection):  # that of the first omac
        connection.execute("ALTER TABLE event ADD COLUMN happened BIGINT")
    created = connection.execute("SELECT 1 FROM journal").fetchone() is None
    if created:
        connection.execute("INSERT INTO journal (id, schema) VALUES (?, ?)", (journal_id, FIRST_SCHEMA))
        connection.execute("INSERT INTO head (id, position) VALUES (1, 0)")
    if connection.execute(_HAS_TREE_OR_LEAVES).fetchone() is None:  # leaves without their tree are damage, and stay
        connection.execute("INSERT INTO tree (id, size, peaks, late) VALUES (1, 0, x'', 0)")
    return created


def checkpoint(connection: JournalConnection, path: str) -> bool:
    """Move what is in the write-ahead log to the journal file, as far as no reader is in the way; return whether all.

    The log is never cut (PASSIVE): a log that shrinks is one that somebody else cut. Raises Refusal when it cannot be
    moved (the disk is full, say); it stays in the log, where it is safe.
    """
    busy, frames, moved = pragma(connection, path, "wal_checkpoint(PASSIVE)")
    return not busy and frames == moved


def pragma(connection: JournalConnection, path: str, text: str) -> Sequence[Any]:
    """Return what a pragma answers, without a transaction. Raises Refusal."""
    try:
        return tuple(connection.execute(f"PRAGMA {text}").fetchone())
    except sqlite3.Error as error:
        raise refusal_of(error, path) from error


def _create_file(path: str) -> None:
    """Create the file, 0600, where there is none; its -wal and -shm take over that mode.

    A file that exists is opened by SQLite alone: closing any other descriptor of it drops every POSIX lock that this
    process holds on it, and the next process to close the database would delete the write-ahead log under us.
    """
    try:
        make_private(os.path.dirname(path))
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        mode = os.lstat(path).st_mode
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise disk_full(path) from error
        raise _not_writable(path, str(error.strerror), error.errno) from error
    require_regular(path, mode)
    if not os.access(path, os.W_OK):
        number = errno.EROFS if os.statvfs(path).f_flag & os.ST_RDONLY else errno.EACCES
        raise _not_writable(path, os.strerror(number), number)


def _not_writable(path: str, why: str, number: int | None) -> Refusal:
    if number == errno.EROFS:
        return on_read_only(path)
    reason: Reason = "journal-read-only" if number in _NOT_WRITABLE else "journal-unavailable"
    fix = [MORE_FILES] if number == errno.EMFILE else [f"ls -ld {quoted(path)}", MEND_MODES, ELSEWHERE]
    return Refusal(reason, f"the journal {path} cannot be opened for writing: {why}", fix=fix)


_NOT_WRITABLE = (errno.EPERM, errno.EACCES)


def _inspect(path: str, mark: Mark | None, lenient: bool) -> None:
    """Leave alone, to the byte, what is no journal or a later one: a writer's pragmas would already change it."""
    try:
        connect_for_reading(path, mark, lenient=lenient).close()
    except Refusal as refusal:
        if refusal.reason != "journal-unavailable":
            raise


def _prepare_writer(connection: JournalConnection, path: str) -> None:
    _enter_wal(connection)
    for pragma in (f"busy_timeout={BUSY_MS}", "synchronous=FULL", f"wal_autocheckpoint={_wal_pages(path)}"):
        connection.execute(f"PRAGMA {pragma}")


def _wal_pages(path: str) -> int:
    """Return how many pages the log may have before a commit moves it to the journal: fewer on a small disk."""
    disk = os.statvfs(os.path.dirname(path) or ".")
    share = disk.f_blocks * disk.f_frsize // WAL_SHARE // PAGE_BYTES
    return min(WAL_PAGES, max(WAL_PAGES_MIN, share)) if share else WAL_PAGES  # some file systems say nothing


def _enter_wal(connection: JournalConnection) -> None:
    """Turn the write-ahead log on, which a new journal needs once. Processes that do so at the same moment may each
    hold what the other needs: then SQLite refuses at once, or all wait for its whole timeout (sqlite3_busy_handler). So
    each lets go and tries again. Raises sqlite3.Error."""
    connection.execute("PRAGMA busy_timeout=0")
    deadline = time.monotonic() + BUSY_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            is_busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY  # or one of its extended codes
            if not is_busy or time.monotonic() > deadline:
                raise
            time.sleep(WAL_RETRY_S)
        else:
            return


_HAS_TREE_OR_LEAVES = "SELECT 1 FROM tree UNION ALL SELECT 1 FROM leaf LIMIT 1"
