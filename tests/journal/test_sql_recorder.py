"""The recorder on SQLite keeps the contract of recorders, and some promises of its own."""

import contextlib
import functools
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from contract.journals import commits_of, python, sqlite_recorder
from contract.recorder import RecorderContract, Store, assert_whole, everything, group, insert, log, versions

from omac.domain.kernel.refusal import Refusal
from omac.journal import reader, sql_recorder
from omac.journal.judgement import Conflict
from omac.journal.reader import NAMES_MAX
from omac.journal.sql_recorder import SqlRecorder


@dataclass
class SqliteStore:
    """A file that does not exist yet."""

    opening: Callable[[], SqlRecorder]


class TestSqlite(RecorderContract):
    """The contract, on a file."""

    @pytest.fixture
    def store(self, path: Path) -> Store:
        """Return a store that does not exist yet."""
        return SqliteStore(functools.partial(sqlite_recorder, str(path)))


@pytest.fixture
def recorder(path: Path) -> Iterator[SqlRecorder]:
    """Yield a recorder on a new file."""
    opened = sqlite_recorder(str(path))
    yield opened
    opened.close()


def test_names_are_stored_once(recorder: SqlRecorder, path: Path) -> None:
    """A text that a thousand events repeat is stored once, whichever recorder writes it."""
    second = sqlite_recorder(str(path))
    try:
        for _ in range(3):
            insert(recorder, [group(log("a-stream", b"x"))])
            insert(second, [group(log("a-stream", b"x"))])
    finally:
        second.close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        names = [name for (name,) in connection.execute("SELECT text FROM name ORDER BY text")]
    assert names == ["a-stream", "person", "run-1", "thing.seen"]


def test_an_append_costs_the_same_after_many_names(recorder: SqlRecorder) -> None:
    """A server meets names of runs, launches and directories for weeks. They make no append and no read slower, and a
    bounded number is remembered."""

    def cpu_s() -> float:
        began = time.thread_time()
        insert(recorder, [group(log("a", b"x"))])
        recorder.reader.select(recorder.head() - 1, 1)
        return time.thread_time() - began

    before = min(cpu_s() for _ in range(30))
    for start in range(0, 2 * NAMES_MAX, 1_000):
        insert(recorder, [group(log(f"stream-{number}", b"x")) for number in range(start, start + 1_000)])
        recorder.reader.select(recorder.head() - 1_000, 1_000)
    assert min(cpu_s() for _ in range(30)) < 2 * before
    assert len(recorder._ids) < 2 * NAMES_MAX
    assert len(recorder.reader._texts) < 2 * NAMES_MAX


def test_names_that_were_forgotten(recorder: SqlRecorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records stay the same, however few names are remembered."""
    monkeypatch.setattr(sql_recorder, "NAMES_MAX", 3)
    monkeypatch.setattr(reader, "NAMES_MAX", 3)
    for count in range(1, 5):
        insert(recorder, [group(versions(name, count)) for name in ("a", "b", "c", "d", "e")])
    rows = everything(recorder)
    assert [(row.originator_id, row.originator_version) for row in rows] == [
        (name, count) for count in range(1, 5) for name in ("a", "b", "c", "d", "e")
    ]
    assert recorder.reader.versions("c") == [row for row in rows if row.originator_id == "c"]


def test_one_flush_for_many_callers(recorder: SqlRecorder) -> None:
    """A batch is one transaction, in conflict or not."""
    commits = commits_of(recorder)
    insert(recorder, [group(versions("a", 1)), group(versions("a", 1)), group(log("l", b"x"))])
    assert len(commits) == 1


def test_a_reader_cannot_write(recorder: SqlRecorder, path: Path) -> None:
    """Connections that read cannot write."""
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        recorder.reader._connection.execute("UPDATE head SET position = 7")


def test_checkpoint_moves_the_log_into_the_file(recorder: SqlRecorder, path: Path) -> None:
    """A checkpoint moves everything that was committed into the file."""
    insert(recorder, [group(log("a", b"x" * 100_000))])
    small = path.stat().st_size
    recorder.checkpoint()
    assert path.stat().st_size > max(small, 100_000)
    assert len(everything(recorder)) == 1


def test_a_store_that_cannot_be_reached_any_more(recorder: SqlRecorder, path: Path) -> None:
    """A read of a file that has lost its name is refused, since the file is no longer the journal."""
    os.rename(path, path.with_name("elsewhere.db"))
    try:
        with pytest.raises(Refusal) as refused:
            recorder.head()
        assert refused.value.reason == "journal-unavailable"
    finally:
        os.rename(path.with_name("elsewhere.db"), path)


def test_a_journal_that_is_removed_takes_nothing_more(recorder: SqlRecorder, path: Path) -> None:
    """An insert into a removed file, which would be lost silently, is refused; once the file is back, inserts go on."""
    batch = group(log("log", b"x"))
    insert(recorder, [batch])
    elsewhere = path.with_name("elsewhere.db")
    os.rename(path, elsewhere)
    with pytest.raises(Refusal, match="was removed") as refused:
        insert(recorder, [batch])
    assert refused.value.reason == "journal-unavailable"
    os.rename(elsewhere, path)
    (positions,) = insert(recorder, [batch])
    assert not isinstance(positions, Conflict)
    assert list(positions) == [2]


UNTIL_KILLED = """
    import sys
    from contract.journals import sqlite_recorder
    from contract.recorder import group, insert, log, versions
    recorder, number = sqlite_recorder(sys.argv[1]), 0
    while True:
        number += 1
        groups = [group(versions("a", number), log("l", b"x" * 3_000)), group(log("l", b"y"))]
        print(number, *insert(recorder, groups)[0], flush=True)
"""


@pytest.mark.full
def test_reported_records_survive_a_kill(path: Path) -> None:
    """A process killed at any moment leaves every record that it reported, whole, and the journal goes on."""
    for _ in range(3):
        with python(UNTIL_KILLED, str(path)) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(40)]
            process.kill()
            lines += process.stdout.readlines()
        numbers = [[int(word) for word in line.split()] for line in lines if line.endswith("\n")]
        assert len(numbers) >= 40
        recorder = sqlite_recorder(str(path))
        rows = {row.id: row for row in everything(recorder)}
        assert_whole(recorder, len(rows))
        for number, first, second in numbers:
            assert (rows[first].originator_id, rows[first].originator_version, rows[second].originator_id) == (
                "a",
                number,
                "l",
            )
        assert len(rows) % 3 == 0, "no transaction is there in part"
        recorder.close()
        path.unlink()
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
