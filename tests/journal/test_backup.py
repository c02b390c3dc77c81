"""Backups of a journal: whole, private, made beside a writer, and restored without losing the present journal."""

import os
import stat
import threading
from pathlib import Path

import pytest
from contract.journals import journal_at

from omac.domain.kernel.refusal import Refusal
from omac.journal.backup import back_up, inspect, restore
from omac.journal.mark import Mark

from .damage import DAMAGE, append_calls, destroyed, journal_of, read


def mark_of(path: Path) -> Mark:
    """Return the mark that a state directory keeps."""
    return Mark.of(str(path.parent), str(path))


def test_a_backup_beside_a_writer(path: Path, tmp_path: Path) -> None:
    """A backup contains the events appended before it, as one file that only its owner can read."""
    journal = journal_at(path)
    append_calls(journal, "a", "b")
    target = tmp_path / "copy.db"
    copy = back_up(str(path), str(target))
    append_calls(journal, "c")
    journal.close()
    assert (copy.position, copy.id, copy.bytes) == (2, inspect(str(path)).id, target.stat().st_size)
    assert read(target) == ["a", "b"]
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert sorted(file.name for file in tmp_path.iterdir() if file.is_file()) == ["copy.db"]


def test_a_backup_is_of_one_moment(path: Path, tmp_path: Path) -> None:
    """A backup made while events are appended all the time is a whole journal, each time."""
    journal = journal_at(path)
    append_calls(journal, "first")
    ended = threading.Event()

    def write() -> None:
        for number in range(200):
            append_calls(journal, f"{number} {'x' * 2_000}")
        ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    copies = 0
    while not ended.is_set() or copies == 0:
        copies += 1
        copy = back_up(str(path), str(tmp_path / f"{copies}.db"))
        assert len(read(tmp_path / f"{copies}.db")) == copy.position
    writer.join()
    journal.close()


def test_a_backup_of_a_damaged_journal_names_that(path: Path, tmp_path: Path) -> None:
    """A refusal for a page that is destroyed names the journal, and never the copy, which is gone."""
    journal_of(path)
    target, refusals = str(tmp_path / "copy.db"), list[Refusal]()
    for _ in destroyed(path):
        try:
            back_up(str(path), target)
            os.unlink(target)  # a page that nothing uses
        except Refusal as refusal:
            refusals.append(refusal)
        assert not os.path.lexists(target)
    assert len(refusals) > 10
    for refused in refusals:
        assert str(path) in refused.message
        assert all(target not in text for text in (refused.message, *refused.fix)), refused


def test_a_backup_replaces_nothing(path: Path, tmp_path: Path) -> None:
    """A backup never replaces a file or a link at its path."""
    journal_at(path).close()
    target = tmp_path / "copy.db"
    target.write_text("mine")
    with pytest.raises(Refusal) as refused:
        back_up(str(path), str(target))
    assert refused.value.reason == "misuse"
    assert target.read_text() == "mine"
    target.unlink()
    target.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refusal):
        back_up(str(path), str(target))
    assert not (tmp_path / "elsewhere").exists()


def test_a_backup_of_nothing(path: Path, tmp_path: Path) -> None:
    """A backup of a missing journal is refused, and leaves no empty file."""
    with pytest.raises(Refusal) as refused:
        back_up(str(path), str(tmp_path / "copy.db"))
    assert refused.value.reason == "journal-unavailable"
    assert not (tmp_path / "copy.db").exists()


@pytest.mark.parametrize("damage", ["the tail is missing", "a head ahead"])
def test_a_gap_is_not_restored(path: Path, tmp_path: Path, damage: str) -> None:
    """A source with a gap is refused as damaged, and does not replace a journal."""
    source = tmp_path / "source.db"
    journal_of(source)
    DAMAGE[damage][0](source)
    journal_of(path)
    before = path.read_bytes()
    with pytest.raises(Refusal) as refused:
        restore(str(source), str(path), mark_of(path))
    assert refused.value.reason == "journal-damaged"
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_restored(path: Path, tmp_path: Path) -> None:
    """A restored journal is as it was at the backup, and so is its mark; the replaced journal is kept beside it."""
    journal = journal_at(path)
    append_calls(journal, "a")
    back_up(str(path), str(tmp_path / "copy.db"))
    append_calls(journal, "b")
    journal.close()
    restored, replaced = restore(str(tmp_path / "copy.db"), str(path), mark_of(path))
    assert (restored.position, restored.path) == (1, str(path))
    assert read(path) == ["a"]
    assert read(Path(replaced)) == ["a", "b"]
    assert mark_of(path).read() == (restored.id, 1)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = journal_at(path)
    append_calls(again, "c")
    again.close()
    assert read(path) == ["a", "c"]
    _, second = restore(str(tmp_path / "copy.db"), str(path), mark_of(path))
    assert second != replaced
    journals = {name for name in os.listdir(path.parent) if not name.endswith(("-wal", "-shm"))}
    assert journals == {path.name, os.path.basename(replaced), os.path.basename(second), "journals"}


def test_restored_where_there_is_none(path: Path, tmp_path: Path) -> None:
    """A restore brings back a journal that was lost."""
    journal = journal_at(path)
    append_calls(journal, "a")
    journal.close()
    back_up(str(path), str(tmp_path / "copy.db"))
    path.unlink()
    restored, replaced = restore(str(tmp_path / "copy.db"), str(path), mark_of(path))
    assert (restored.position, replaced) == (1, "")
    assert read(path) == ["a"]


def test_a_log_beside_a_lost_journal_is_not_applied_to_the_copy(path: Path, tmp_path: Path) -> None:
    """A restore keeps aside the write-ahead log that a lost journal left behind, and the restored copy is whole."""
    journal = journal_at(path)
    append_calls(journal, "a")
    back_up(str(path), str(tmp_path / "copy.db"))
    append_calls(journal, *(str(number) * 100 for number in range(60)))
    log = Path(f"{path}-wal").read_bytes()
    journal.close()
    os.unlink(path)
    Path(f"{path}-wal").write_bytes(log)
    _, replaced = restore(str(tmp_path / "copy.db"), str(path), mark_of(path))
    assert Path(f"{replaced}-wal").read_bytes() == log
    assert read(path) == ["a"]


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
def test_a_backup_takes_no_name_of_the_journals_own(path: Path, suffix: str) -> None:
    """A backup cannot have the name of one of the journal's own files: SQLite would take it for that."""
    journal_at(path).close()
    with pytest.raises(Refusal, match=r"one of the journal's own files|exists already"):
        back_up(str(path), str(path) + suffix)
