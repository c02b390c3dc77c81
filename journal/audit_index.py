"""The index of the audit: rows that ended, in a SQLite database that can be deleted at any time.

It holds nothing that the journal does not: an index that is missing, damaged, of another journal or of another form
is made again. Rows, the state of the fold and the position they reach are committed together, so an index that was
interrupted goes on where it was. Methods raise sqlite3.Error or OSError; the caller reads the journal instead.
"""

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from omac.journal.folders import make_private

FORM = "7"
BUSY_S = 0.2  # another process that indexes is not waited for
BROKEN = (sqlite3.Error, OSError)
_TABLES = """
CREATE TABLE progress (name TEXT, position INTEGER, digest BLOB, begun INTEGER, state BLOB);
CREATE TABLE row (
    number INTEGER PRIMARY KEY, ended INTEGER, at INTEGER, skill TEXT, session TEXT, outcome TEXT, body BLOB
);
CREATE INDEX row_ended ON row (ended);
CREATE INDEX row_at ON row (at);
CREATE INDEX row_skill ON row (skill, at);
CREATE INDEX row_session ON row (session, at);
CREATE INDEX row_outcome ON row (outcome, at);
"""


class IndexProgress(NamedTuple):
    """The progress of an index: `digest` is that of the record at `position`, `begun` the journal's last position when
    the index was begun, `state` that of the fold."""

    position: int
    digest: bytes
    begun: int
    state: bytes


class IndexedRow(NamedTuple):
    """A row by its place in the audit and the position of its end, with the fields that are searched, and as bytes."""

    number: int
    ended: int
    at: int
    skill: str | None
    session: str | None
    outcome: str
    body: bytes


class AuditIndex:
    """An index in the file `path`, of what `name` says: a journal, and the form of what is indexed."""

    def __init__(self, path: str, name: str) -> None:
        self._name = f"{FORM}:{name}"
        self._connection = open_index(path)

    def close(self) -> None:
        self._connection.close()

    def progress(self) -> IndexProgress | None:
        """Return how far it is; None for an empty one."""
        query = "SELECT position, digest, begun, state FROM progress WHERE name = ?"
        row = self._connection.execute(query, (self._name,)).fetchone()
        return IndexProgress(*row) if row is not None else None

    def append(self, before: IndexProgress | None, rows: Iterable[IndexedRow], after: IndexProgress) -> bool:
        """Add rows in one transaction; return False, and add nothing, where another process was first. Without
        `before`, what it held is dropped."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            if before is not None and self.progress() != before:
                return False
            if before is None:
                self._connection.execute("DELETE FROM row")
            self._connection.execute("DELETE FROM progress")
            self._connection.executemany("INSERT INTO row VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
            self._connection.execute("INSERT INTO progress VALUES (?, ?, ?, ?, ?)", (self._name, *after))
            self._connection.execute("COMMIT")
            return True
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def select(
        self, at: IndexProgress, fields: dict[str, str], times: tuple[int, int] | None, *, newest_first: bool
    ) -> Iterator[bytes]:
        """Yield the rows with these values and within these times (None: at any), of one snapshot. Raises sqlite3.Error
        where the index is no longer where it was."""
        searched = [f"{name} = ?" for name in fields]  # without times the rows come as they lie, and none is sorted
        searched += ["at BETWEEN ? AND ?"] if times is not None else []
        where = f"WHERE {' AND '.join(searched)} " if searched else ""
        query = f"SELECT body FROM row {where}ORDER BY number {'DESC' if newest_first else 'ASC'}"  # noqa: S608  # ours
        return (body for (body,) in self._rows(at, query, *fields.values(), *(times or ())))

    def rows(self, at: IndexProgress) -> Iterator[IndexedRow]:
        """Yield all rows, in order. Raises as `select`."""
        query = "SELECT number, ended, at, skill, session, outcome, body FROM row ORDER BY number"
        return (IndexedRow(*row) for row in self._rows(at, query))

    def select_ended(self, at: IndexProgress, fields: dict[str, str], after: int) -> Iterator[tuple[int, bytes]]:
        """Yield the rows with these values that ended behind position `after`, in the order of their ends, with these.
        Raises as `select`."""
        searched = "".join(f"+{name} = ? AND " for name in fields)  # by the index of ends: none is sorted
        query = f"SELECT ended, body FROM row WHERE {searched}ended > ? ORDER BY ended"  # noqa: S608  # ours
        return self._rows(at, query, *fields.values(), after)

    def _rows(self, at: IndexProgress, query: str, *values: str | int) -> Iterator[Any]:
        self._connection.execute("BEGIN")
        try:
            if self.progress() != at:
                raise sqlite3.OperationalError("another process has changed the index")
            for row in self._connection.execute(query, values):  # noqa: UP028  # that closes the cursor, maybe too late
                yield row
        finally:
            with contextlib.suppress(sqlite3.ProgrammingError):  # the index was closed before all rows were taken
                self._connection.execute("ROLLBACK")


def open_index(path: str) -> sqlite3.Connection:
    """Open the file; where it is none of this form, it is made anew."""
    try:
        return _opened(path)
    except sqlite3.DatabaseError as error:
        if "locked" in str(error):
            raise
        delete_index(path)
        return _opened(path)


def damaged_row(error: BaseException) -> sqlite3.DatabaseError:
    """Return the error of a row that cannot be decoded, which is damage as SQLite's own."""
    return sqlite3.DatabaseError(f"malformed: {error}")


def is_damage(error: BaseException) -> bool:
    """Return whether an error says that the file is no whole database."""
    return isinstance(error, sqlite3.DatabaseError) and any(word in str(error) for word in ("malformed", "not a data"))


def delete_index(path: str) -> None:
    """Remove the file; the next to ask makes it again."""
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path + suffix)


def _opened(path: str) -> sqlite3.Connection:
    make_private(os.path.dirname(path))
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(path, isolation_level=None, timeout=BUSY_S)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        if not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
            connection.executescript(f"BEGIN IMMEDIATE;{_TABLES}COMMIT;")
        connection.execute("SELECT name, position, digest, begun, state FROM progress").fetchone()
        connection.execute("SELECT number, ended, at, skill, session, outcome, body FROM row LIMIT 1").fetchone()
    except UnicodeDecodeError as error:  # what SQLite says of a damaged schema has its bytes in it
        connection.close()
        raise sqlite3.DatabaseError("malformed: its schema is no text") from error
    except BaseException:
        connection.close()
        raise
    return connection
