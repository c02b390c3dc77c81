"""The watch over a journal's files: acknowledged events are on the disk under the journal's name, or omac refuses."""

import os
import shutil
import sqlite3
import subprocess
import threading
from contextlib import closing
from pathlib import Path

import pytest
from contract.journals import called, commit_now, journal_at, python, run_python

from omac.domain.kernel.refusal import Refusal
from omac.journal.application import Journal
from omac.journal.check import check
from omac.journal.reader import ReadJournal
from omac.projections.system import System

from .damage import append_calls, read


def refused(journal: Journal) -> Refusal:
    """Return the refusal of an append."""
    with pytest.raises(Refusal) as caught:
        append_calls(journal, "lost")
    assert caught.value.reason == "journal-unavailable"
    assert any(command.startswith("omac journal check") for command in caught.value.fix)
    return caught.value


def log_of(path: Path) -> Path:
    """Return the path of the write-ahead log."""
    return path.with_name(f"{path.name}-wal")


@pytest.mark.parametrize("removed", [("-wal",), ("-wal", "-shm")])
def test_a_log_that_is_removed(path: Path, removed: tuple[str, ...]) -> None:
    """A journal whose log is removed acknowledges nothing more; the next run reads every acknowledged event."""
    journal = journal_at(path)
    append_calls(journal, "a", "b", "c")
    for suffix in removed:
        path.with_name(f"{path.name}{suffix}").unlink()
    for _ in range(2):
        refusal = refused(journal)
        assert "write-ahead log" in refusal.message
        assert "nothing is lost" in refusal.message
    assert read(path) == ["a", "b", "c"]
    journal.close()
    again = journal_at(path)
    append_calls(again, "d")
    again.close()
    assert read(path) == ["a", "b", "c", "d"]


def test_moved_away_while_an_append_waits(path: Path) -> None:
    """An append that waits for its turn while the journal is moved away is refused, and not in what was moved."""
    journal = journal_at(path)
    append_calls(journal, "a")
    moved, refusals = path.with_name("moved.db"), list[Refusal]()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        waiting = threading.Thread(target=lambda: refusals.append(refused(journal)))
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive()
        for suffix in ("-wal", "-shm", ""):
            path.with_name(f"{path.name}{suffix}").rename(moved.with_name(f"{moved.name}{suffix}"))
        other.execute("ROLLBACK")
        waiting.join()
    journal.close()
    assert [f"{path} was removed while" in refusal.message for refusal in refusals] == [True]
    assert read(moved) == ["a"]


def test_a_log_that_is_replaced(path: Path) -> None:
    """A journal whose log was replaced refuses appends, so that the log of another process is not written over."""
    journal = journal_at(path)
    append_calls(journal, "a")
    shutil.copy(log_of(path), log_of(path).with_name("other"))
    os.replace(log_of(path).with_name("other"), log_of(path))
    assert "was replaced" in refused(journal).message
    journal.close()


def test_a_log_that_is_cut(path: Path) -> None:
    """A journal whose log was cut has lost events: it refuses appends and reads."""
    journal = journal_at(path)
    append_calls(journal, "a", "b")
    os.truncate(log_of(path), 0)
    assert "was cut" in refused(journal).message
    with pytest.raises(Refusal):
        journal.store.head()
    journal.close()


@pytest.mark.parametrize("limit", ["unlimited", "9999999"])
def test_readers_name_the_log_that_is_cut(path: Path, limit: str) -> None:
    """A command that reads meanwhile reports why the journal cannot be read, and names the processes to stop; also
    where there is a limit on the size of files, which may not be the cause."""
    journal = journal_at(path)
    commit_now(journal, [called("x" * 500) for _ in range(500)])
    os.truncate(log_of(path), log_of(path).stat().st_size // 2)
    code = "from omac.tools.entry import main; main()"
    limited = ["bash", "-c", f'ulimit -f {limit}; exec "$@"', "bash", "env", f"OMAC_STATE_DIR={path.parent}"]
    done = run_python(code, "audit", "--journal", str(path), wrap=limited)
    assert (done.returncode, "disk I/O error" in done.stderr, "try: fuser" in done.stderr) == (5, True, True), done
    journal.close()


def test_a_journal_that_is_cut(path: Path) -> None:
    """A journal whose file was cut refuses appends."""
    journal = journal_at(path)
    append_calls(journal, "a")
    journal.store.checkpoint()
    os.truncate(path, 4096)
    assert "was cut" in refused(journal).message
    journal.close()


def test_a_journal_that_comes_back(path: Path) -> None:
    """A journal that was moved away takes appends again once it is back: it is the same file."""
    journal = journal_at(path)
    append_calls(journal, "a")
    away = path.with_name("away.db")
    path.rename(away)
    assert "was removed" in refused(journal).message
    away.rename(path)
    append_calls(journal, "b")
    journal.close()
    assert read(path) == ["a", "b"]


def test_checkpoints_and_other_processes_are_no_loss(path: Path) -> None:
    """Changes that SQLite itself makes to the files, here and in other processes, are not taken for damage."""
    journal = journal_at(path)
    for number in range(30):
        append_calls(journal, *(f"{number}-{entry}" for entry in range(5)))
        journal.store.checkpoint()
        second = journal_at(path, "other")
        append_calls(second, "other")
        second.close()
        with closing(sqlite3.connect(path)) as beside:
            beside.execute("SELECT count(*) FROM event").fetchone()
    journal.close()
    assert len(read(path)) == 30 * 6


def test_a_copy_of_a_new_journal_is_a_journal(path: Path, tmp_path: Path) -> None:
    """The file of a new journal has its tables without the log, so a copy of it is a journal."""
    journal = journal_at(path)
    shutil.copy(path, tmp_path / "copy.db")
    append_calls(journal, "a", "b")
    journal.store.checkpoint()
    shutil.copy(path, tmp_path / "later.db")
    journal.close()
    assert read(tmp_path / "copy.db") == []
    assert read(tmp_path / "later.db") == ["a", "b"]


@pytest.mark.full
def test_a_cut_log_that_others_have_open_is_not_written_over(path: Path) -> None:
    """A reader keeps the index of a log that is gone: opening the journal meanwhile is refused, and harms nothing."""
    writer = """
        import os, sys
        from pathlib import Path
        from contract.journals import called, commit_now, journal_at
        from omac.domain.kernel.event import Cause
        from omac.journal.codec import Versioned
        journal = journal_at(Path(sys.argv[1]))
        for number in range(60):
            draft = called(str(number) * 500)
            commit_now(journal, [draft])
        print("written", flush=True)
        sys.stdin.read()
        os.truncate(sys.argv[1] + "-wal", 0)
        os._exit(0)
    """
    with python(writer, str(path), stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "written\n"
        reader = ReadJournal(str(path))
        assert reader.store.head() == 60
        process.stdin.close()
        process.wait()
    with pytest.raises(Refusal) as caught:
        journal_at(path)
    assert caught.value.reason == "journal-unavailable"
    assert caught.value.fix[0].startswith("fuser ")
    reader.close()
    journal = journal_at(path)
    append_calls(journal, "again")
    journal.close()
    assert read(path)[-1] == "again"
    assert check(str(path), System().apply) == []
