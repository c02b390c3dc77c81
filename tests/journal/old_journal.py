"""Long journals of the first form: the day in `golden/format-1.db.gz`, repeated until it is as long as it should be.

Rows are copied from the golden journal, but for the values that differ from day to day. These are positions, times,
versions, the names of runs, sandboxes and conversations, and the positions that causes and outcomes refer to.
"""

import gzip
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

GOLDEN = Path(__file__).parent / "golden" / "format-1.db.gz"
BEGINS = 4  # the first position of its day: the skill was approved before
CALLS = range(13, 19)  # accesses that a busy day has more often
BUSY = 20
GAP_NS = 1_000_000

Row = tuple[Any, ...]


def write_old_journal(path: Path, events: int) -> None:
    """Write a journal of the first form with so many events, 0600; its last day may break off, as after a kill."""
    path.write_bytes(gzip.decompress(GOLDEN.read_bytes()))
    path.chmod(0o600)
    with closing(sqlite3.connect(path, isolation_level=None)) as journal:
        journal.execute("PRAGMA synchronous=OFF")
        journal.execute("BEGIN")
        days = _Days(journal)
        rows = days.rows()
        journal.executemany(
            f"INSERT INTO event VALUES ({', '.join('?' * 13)})", (next(rows) for _ in range(days.left(events)))
        )
        journal.executemany("INSERT INTO name VALUES (?, ?)", days.new_names())
        journal.execute("UPDATE head SET position = ?", (events,))
        journal.execute("COMMIT")


class _Days:
    """The golden day, again and again."""

    def __init__(self, journal: sqlite3.Connection) -> None:
        self._golden: list[Row] = journal.execute("SELECT * FROM event ORDER BY position").fetchall()
        self._texts: dict[int, str] = dict(journal.execute("SELECT id, text FROM name"))
        self._known = len(self._texts)
        self._next_id: int = max(self._texts)
        self._ids: dict[str, int] = {text: id_ for id_, text in self._texts.items()}
        self._versions = dict(
            journal.execute("SELECT stream, max(version) FROM event WHERE version > 0 GROUP BY stream")
        )
        self._random = random.Random(7)

    def left(self, events: int) -> int:
        """Return how many rows are missing."""
        return events - len(self._golden)

    def new_names(self) -> list[tuple[int, str]]:
        """Return the names that the days have beside those of the golden one."""
        return list(self._texts.items())[self._known :]

    def rows(self) -> Iterator[Row]:
        """Yield the rows that follow those of the golden journal, without an end."""
        position, at = self._golden[-1][0], self._golden[-1][4]
        while True:
            changed: dict[str, str] = {}  # of this day: what the golden day calls otherwise
            moved: dict[int, int] = {}
            for row in self._day():
                position, at = position + 1, at + GAP_NS
                moved[row[0]] = position
                yield self._moved(row, position, at, changed, moved)

    def _day(self) -> Iterator[Row]:
        calls = [row for row in self._golden if row[0] in CALLS]
        for row in self._golden[BEGINS - 1 :]:
            yield row
            if row[0] == CALLS[-1]:
                for _ in range(BUSY):
                    yield from calls

    def _moved(self, row: Row, position: int, at: int, changed: dict[str, str], moved: dict[int, int]) -> Row:
        _, stream, version, kind, _, run, actor, correlation, causation, body, sealed, leaf, happened = row
        if version is not None:
            name = "/".join(self._renamed(part, changed) for part in self._texts[stream].split("/"))
            stream = self._id(name)
            version = self._versions[stream] = self._versions.get(stream, 0) + 1
        if self._texts[kind] in ("access.completed", "access.aborted"):
            fields = msgspec.msgpack.decode(body[1:])
            body = body[:1] + msgspec.msgpack.encode([moved[fields[0]], *fields[1:]])
        return (
            position, stream, version, kind, at, self._id(self._renamed(self._texts[run], changed)), actor,
            correlation and self._renamed(correlation, changed), causation and moved[causation], body, sealed, leaf,
            happened,
        )  # fmt: skip

    def _renamed(self, word: str, changed: dict[str, str]) -> str:
        """Return a word of a name for this day; the ids of runs, sandboxes and conversations differ from day to day."""
        host, _, run = word.rpartition("@")
        if host:
            return f"{host}@{self._renamed(run, changed)}"
        if len(word) not in (12, 16) or not set(word) <= set("0123456789abcdef") or word == self._host():
            return word
        return changed.setdefault(word, f"{self._random.getrandbits(4 * len(word)):0{len(word)}x}")

    def _host(self) -> str:
        return str(self._texts[self._golden[0][1]].split("/")[1])

    def _id(self, text: str) -> int:
        if text not in self._ids:
            self._next_id += 1
            self._ids[text] = self._next_id
            self._texts[self._next_id] = text
        return self._ids[text]
