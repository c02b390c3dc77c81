"""Damage: journals with events of every sort, and the ways in which a disk, a person or a bug can spoil them."""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from contract.journals import called, commit_now, journal_at, texts

from omac.domain.kernel.event import Draft, Event
from omac.domain.kernel.ids import HostId, RunId, StreamId, run_stream
from omac.domain.kernel.run import RunRecovered, RunStarted, RunStopped
from omac.journal.application import Journal
from omac.journal.codec import Codec
from omac.journal.leaves import Contents
from omac.journal.log_connection import JournalConnection
from omac.journal.merkle import MerkleTree, leaf_hash
from omac.journal.reader import ReadJournal

HOST = HostId("h")
PAGE_BYTES = 4096
STARTED = RunStarted("opencode", "0", 1, 1, "boot", ())


def stream(run: str) -> StreamId:
    """Return the stream of a run."""
    return run_stream(HOST, RunId(run))


def history() -> list[Draft]:
    """Return nine events: two runs, of which one is recovered, and calls between them."""
    return [
        Draft(stream("a"), 1, STARTED),
        called("one"),
        called("two"),
        Draft(stream("b"), 1, STARTED),
        called("three"),
        Draft(stream("a"), 2, RunStopped("asked")),
        called("four"),
        Draft(stream("b"), 2, RunRecovered("c", 0, 0, 0)),
        called("five"),
    ]


def journal_of(path: Path) -> None:
    """Make a closed journal with that history, at positions 1 to 9."""
    journal = journal_at(path)
    for draft in history():
        commit_now(journal, [draft])
    journal.close()


def destroyed(path: Path) -> Iterator[int]:
    """Overwrite one page after the other, with all others whole, and yield where it begins; the first page stays."""
    content = path.read_bytes()
    for start in range(PAGE_BYTES, len(content), PAGE_BYTES):
        path.write_bytes(content[:start] + b"\xa5" * PAGE_BYTES + content[start + PAGE_BYTES :])
        yield start


def new_leaves(path: Path) -> None:
    """Make all leaves and the tree again from the events that the journal has now, as an attacker does who hides a
    change."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, factory=JournalConnection)) as connection:
        leaves = [leaf_hash(text or b"") for _, text in Contents(connection).between(0, 1_000)]
        tree = MerkleTree()
        tree.extend(leaves)
        connection.execute("DELETE FROM leaf")
        connection.executemany("INSERT INTO leaf VALUES (?, ?)", list(enumerate(leaves, 1)))
        connection.execute("UPDATE tree SET size = ?, peaks = ?, late = 0", (tree.size, b"".join(tree.peaks)))
        connection.execute("UPDATE head SET position = ?", (tree.size,))


def read(path: Path) -> list[str]:
    """Return the events of a journal of calls, as another process reads them."""
    with contextlib.closing(ReadJournal(str(path))) as journal:
        return texts(list(journal.records()))


def append_calls(journal: Journal, *words: str) -> None:
    """Append one event for each word."""
    for word in words:
        commit_now(journal, [called(word)])


def sql(path: Path, statement: str, *values: Any) -> list[Any]:
    """Run a statement beside omac."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(statement, values).fetchall()


def append(path: Path, at: StreamId, version: int | None, kind: str, body: bytes) -> int:
    """Append a row as no part of omac would; return its position."""
    for text in (at, kind):
        sql(path, "INSERT OR IGNORE INTO name (text) VALUES (?)", text)
    ((top,),) = sql(path, "SELECT position FROM head")
    sql(
        path,
        "INSERT INTO event (position, stream, version, kind, at, run, actor, body) "
        "SELECT ?, (SELECT id FROM name WHERE text = ?), ?, (SELECT id FROM name WHERE text = ?), at, run, actor, ? "
        "FROM event WHERE position = 1",
        top + 1, at, version, kind, body,
    )  # fmt: skip
    sql(path, "UPDATE head SET position = position + 1")
    sql(path, "UPDATE event SET at = (SELECT max(at) FROM event) + 1 WHERE position = ?", top + 1)
    return int(top) + 1


def encoded(event: Event) -> tuple[str, bytes]:
    """Return the kind and the bytes of an event."""
    return Codec().encode(event)


def _duplicate(path: Path) -> None:
    sql(path, "DROP INDEX event_version")
    append(path, stream("a"), 2, *encoded(RunStopped("asked")))


def _far_head(path: Path) -> None:
    sql(path, "UPDATE head SET position = 4000000000")


def _rename(path: Path, old: str, new: str) -> None:
    sql(path, "UPDATE name SET text = ? WHERE text = ?", new, old)


def _move(path: Path, position: int, to: int, head: int | None = None) -> None:
    sql(path, "UPDATE event SET position = ? WHERE position = ?", to, position)
    if head is not None:
        sql(path, "UPDATE head SET position = ?", head)


def _far_end(path: Path) -> None:
    _move(path, append(path, StreamId("control/h"), None, *encoded(called("six").event)), 10**12, head=10**12)


BEYOND_REPAIR = {
    "a schema that is text": "UPDATE journal SET schema = 'x'",
    "no name of the journal": "DELETE FROM journal",
    "an empty name of the journal": "UPDATE journal SET id = ''",
    "a tail far away": "UPDATE event SET position = position + 1000000 WHERE position > 1",
}

DAMAGE: dict[str, tuple[Callable[[Path], object], set[int]]] = {
    "undecodable bytes": (lambda path: sql(path, "UPDATE event SET body = x'c1' WHERE position = 3"), {3}),
    "a kind that is no text": (
        lambda path: sql(path, "UPDATE name SET text = CAST(text AS BLOB) WHERE text = 'run.recovered'"), {8},
    ),
    "undecodable bytes of a run": (lambda path: sql(path, "UPDATE event SET body = x'' WHERE position = 6"), {6}),
    "an unknown kind": (lambda path: append(path, StreamId("control/h"), None, "session.paused", b"\x01\x90"), {10}),
    "an event that cannot follow": (lambda path: append(path, stream("a"), 3, *encoded(RunStopped("again"))), {10}),
    "a version too far": (lambda path: append(path, stream("z"), 7, *encoded(RunStopped("x"))), {10}),
    "a duplicate": (_duplicate, {0, 10}),
    "a missing row of a log": (lambda path: sql(path, "DELETE FROM event WHERE position = 3"), {3}),
    "a missing row of an aggregate": (lambda path: sql(path, "DELETE FROM event WHERE position = 1"), {1, 6}),
    "a missing start, ended by time": (lambda path: sql(path, "DELETE FROM event WHERE position IN (2, 4)"), {2, 4, 8}),
    "the tail is missing": (lambda path: sql(path, "DELETE FROM event WHERE position > 7"), {8, 9}),
    "all is missing": (lambda path: sql(path, "DELETE FROM event"), set(range(1, 10))),
    "a head behind": (lambda path: sql(path, "UPDATE head SET position = 6"), {0}),
    "a head ahead": (lambda path: sql(path, "UPDATE head SET position = 12"), {10, 11, 12}),
    "a head far ahead": (_far_head, {0}),
    "no head": (lambda path: sql(path, "DELETE FROM head"), {0}),
    "two heads": (lambda path: sql(path, "INSERT INTO head VALUES (2, 9)"), {0}),
    "a name that is missing": (
        lambda path: sql(path, "DELETE FROM name WHERE text = 'control/test'"), {2, 3, 5, 7, 9},
    ),
    "a name that is no text": (
        lambda path: sql(path, "UPDATE name SET text = CAST(x'ff' AS TEXT) WHERE text = 'control.called'"),
        {2, 3, 5, 7, 9},
    ),
    "time that runs back": (lambda path: sql(path, "UPDATE event SET at = 2 WHERE position = 7"), {7}),
    "time that is no number": (lambda path: sql(path, "UPDATE event SET at = 'x' WHERE position = 7"), {7}),
    "a position below 1": (lambda path: sql(path, "UPDATE event SET position = -3 WHERE position = 9"), {-3, 9}),
    "a stream without a name": (lambda path: _rename(path, stream("a"), ""), {1, 6}),
    "a stream of the journal": (lambda path: _rename(path, stream("a"), "journal/"), {1, 6}),
    "a stream of one part": (lambda path: _rename(path, stream("b"), "directory/"), {4, 8}),
    "a log without a name": (lambda path: _rename(path, "control/test", ""), {2, 3, 5, 7, 9}),
    "a time of happening that is text": (
        lambda path: sql(path, "UPDATE event SET happened = 'x' WHERE position = 7"), {7},
    ),
    "a time of happening that is bytes": (
        lambda path: sql(path, "UPDATE event SET happened = x'61' WHERE position = 6"), {6},
    ),
    "a time of happening that is no whole number": (
        lambda path: sql(path, "UPDATE event SET happened = 1.5 WHERE position = 2"), {2},
    ),
    "a causation that is text": (lambda path: sql(path, "UPDATE event SET causation = 'x' WHERE position = 3"), {3}),
    "a correlation that is bytes": (
        lambda path: sql(path, "UPDATE event SET correlation = x'ff' WHERE position = 3"), {3},
    ),
    "a body that is text": (lambda path: sql(path, "UPDATE event SET body = 'x' WHERE position = 3"), {3}),
    "a last position far away": (lambda path: _move(path, 9, 10**12), {9, 10**12}),
    "a last position and a head far away": (_far_end, {0, 10**12}),
    "a position at the end of all numbers": (lambda path: _move(path, 4, 2**63 - 1), {4, 8, 2**63 - 1}),
    "a head far ahead and a position below 1": (lambda path: _move(path, 3, -3, head=10**9), {-3, 0, 3}),
    "a last head and a position below 1": (lambda path: _move(path, 3, -3, head=2**63 - 1), {-3, 0, 3}),
    "an event moved past the end": (lambda path: _move(path, 1, 14), {0, 1, 6, 10, 11, 12, 13, 14}),
    "no index of versions": (lambda path: sql(path, "DROP INDEX event_version"), {0}),
}  # fmt: skip
