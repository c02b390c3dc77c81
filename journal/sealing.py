"""Taking sealed events out of the journal's file: the segment is listed, then its rows are deleted.

Rules

1. Listing a segment and keeping the last version of each of its streams is one transaction; from then on its events are
   read from it. It is refused where the journal was repaired meanwhile.
2. Rows are deleted afterwards, a few in a transaction, and overwritten with zeros: whoever appends waits a moment at
   most. What is left of them when omac is killed counts for nothing, and the next seal deletes it.
"""

import sqlite3
import time

from omac.domain.kernel.refusal import Refusal, quoted
from omac.journal.file import refusal_of
from omac.journal.log_connection import JournalConnection
from omac.journal.segment import Segment
from omac.journal.store import pragma

ROWS = 5_000  # deleted in one transaction
BETWEEN_S = 0.002  # another process that waits to append comes in between


def list_segment(connection: JournalConnection, path: str, segment: Segment, repaired_at: int) -> None:
    """List a segment that is in its place; `repaired_at` is the position of the last repair when it was written. Raises
    Refusal."""
    try:
        with connection.transaction():
            sealed_to = connection.execute(_SEALED_TO).fetchone()[0]
            repaired = connection.execute(_REPAIRED).fetchone()[0]
            if sealed_to != segment.first - 1 or repaired != repaired_at:
                message = f"the journal {path} was changed while its events were sealed; nothing was taken out of it"
                raise Refusal("contention", message, fix=[f"omac journal seal --journal {quoted(path)}"])
            connection.execute(_LIST, segment)
            connection.execute(_KEEP_VERSIONS, (segment.last,))
    except sqlite3.Error as error:
        raise refusal_of(error, path) from error


def list_pruned(connection: JournalConnection, path: str, segment: Segment) -> None:
    """List what is left of a segment in its place. Raises Refusal."""
    try:
        with connection.transaction():
            connection.execute(_REPLACE, (*segment, segment.first, segment.last))
    except sqlite3.Error as error:
        raise refusal_of(error, path) from error


def delete_sealed(connection: JournalConnection, path: str) -> int:
    """Delete the rows of listed segments from the journal's file; return how many there were. Raises Refusal."""
    pragma(connection, path, "secure_delete=ON")
    deleted = 0
    try:
        while True:
            with connection.transaction():
                last = connection.execute(_SEALED_TO).fetchone()[0]
                first = connection.execute(_FIRST_LEFT, (last,)).fetchone()[0]
                if first is None:
                    return deleted
                deleted += connection.execute(_DELETE, (first, min(last, first + ROWS - 1))).rowcount
            time.sleep(BETWEEN_S)
    except sqlite3.Error as error:
        raise refusal_of(error, path) from error


_SEALED_TO = "SELECT coalesce(max(last), 0) FROM segment"
_REPAIRED = "SELECT coalesce(max(record), 0) FROM set_aside WHERE record > 0"
_LIST = "INSERT INTO segment (first, last, file, bytes, sha256, pruned) VALUES (?, ?, ?, ?, ?, ?)"
_REPLACE = """
    UPDATE segment SET first = ?, last = ?, file = ?, bytes = ?, sha256 = ?, pruned = ? WHERE first = ? AND last = ?
"""
_KEEP_VERSIONS = """
    INSERT OR REPLACE INTO sealed_version (stream, version)
    SELECT stream, max(version) FROM event WHERE version IS NOT NULL AND position <= ? GROUP BY stream
"""
_FIRST_LEFT = "SELECT min(position) FROM event WHERE position >= 1 AND position <= ?"
_DELETE = "DELETE FROM event WHERE position >= ? AND position <= ?"
