"""journal/snapshot_store.py: snapshots that count for one journal, at one position, in one form."""

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from contract.journals import called, commit_now, journal_at

from omac.journal import snapshot_store
from omac.journal.application import Journal
from omac.journal.reader import Reader
from omac.journal.snapshot_store import SnapshotStore


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    opened = journal_at(tmp_path / "journal.db")
    commit_now(opened, [called(str(number)) for number in range(40)])
    yield opened
    opened.close()


StoreOf = Callable[..., SnapshotStore]


@pytest.fixture
def store_of() -> Iterator[StoreOf]:
    """Return what makes a store of a journal's snapshots; the readers are closed at the end."""
    with ExitStack() as readers:

        def opened(path: Path, form: str = "1") -> SnapshotStore:
            reader = readers.enter_context(closing(Reader(str(path))))
            return SnapshotStore(reader, str(path.parent / "snapshots"), form)

        yield opened


def test_the_newest_at_or_before_a_position(
    store_of: StoreOf, tmp_path: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store yields the snapshots at or before a position, the newest first; none before the first."""
    monkeypatch.setattr(snapshot_store, "APART", 10)
    store = store_of(tmp_path / "journal.db")
    for position in (10, 20, 30):
        store.write(position, b"of %d" % position)
    assert list(store.newest(40)) == [(30, b"of 30"), (20, b"of 20"), (10, b"of 10")]
    assert next(store.newest(29)) == (20, b"of 20")
    assert list(store.newest(9)) == []


def test_few_are_kept(store_of: StoreOf, tmp_path: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots close to each other are dropped but for the newest; the kept ones are their owner's alone."""
    monkeypatch.setattr(snapshot_store, "APART", 10)
    store = store_of(tmp_path / "journal.db")
    for position in range(1, 41):
        store.write(position, b"x")
    assert [position for position, _ in store.newest(40)] == [40, 30, 20, 10]
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "snapshots").iterdir()} == {0o600}
    assert (tmp_path / "snapshots").stat().st_mode & 0o777 == 0o700


def test_a_snapshot_of_another_form_or_journal_is_ignored(store_of: StoreOf, tmp_path: Path, journal: Journal) -> None:
    """A snapshot of another form or journal is ignored: another omac folds otherwise, and another journal differs."""
    path = tmp_path / "journal.db"
    store_of(path).write(20, b"x")
    assert list(store_of(path, form="2").newest(40)) == []
    foreign = journal_at(tmp_path / "other.db")
    commit_now(foreign, [called(str(number)) for number in range(40)])
    assert list(store_of(tmp_path / "other.db").newest(40)) == []
    foreign.close()


def test_a_journal_that_went_on_otherwise(store_of: StoreOf, tmp_path: Path, journal: Journal) -> None:
    """A restored copy with other records since ignores the snapshot of the lost ones, and uses the one before."""
    path = tmp_path / "journal.db"
    journal.store.checkpoint()
    shutil.copy(path, tmp_path / "copy.db")
    commit_now(journal, [called("lost")])
    store_of(path).write(41, b"with what was lost")
    store_of(path).write(40, b"before")
    again = journal_at(tmp_path / "copy.db")
    commit_now(again, [called("else")])
    snapshots = store_of(tmp_path / "copy.db").newest(41)
    assert list(snapshots) == [(40, b"before")]
    again.close()


def test_a_repair_ends_them(store_of: StoreOf, tmp_path: Path, journal: Journal) -> None:
    """A repair of a record invalidates the snapshots that folded it."""
    path = tmp_path / "journal.db"
    store_of(path).write(20, b"x")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("INSERT INTO set_aside (record, position) VALUES (41, 5)")
    assert list(store_of(path).newest(40)) == []


@pytest.mark.parametrize("damage", ["cut", "empty", "edited", "link", "folder", "fifo", "hole"])
def test_damage_is_nothing(store_of: StoreOf, tmp_path: Path, journal: Journal, damage: str) -> None:
    """A damaged snapshot, or anything else in its place, is skipped for the one before, without waiting."""
    store = store_of(tmp_path / "journal.db")
    snapshot_store_path = tmp_path / "snapshots" / f"{30:020}"
    store.write(20, b"good")
    store.write(30, b"another one")
    store.write(20, b"good")
    content = snapshot_store_path.read_bytes()
    match damage:
        case "cut":
            snapshot_store_path.write_bytes(content[:-1])
        case "empty":
            snapshot_store_path.write_bytes(b"")
        case "edited":
            snapshot_store_path.write_bytes(content.replace(b"another", b"evil   "))
        case "hole":
            os.truncate(snapshot_store_path, snapshot_store.BYTES_MAX + 1)
        case _:
            snapshot_store_path.unlink()
            if damage == "link":
                (tmp_path / "elsewhere").write_bytes(content)
                snapshot_store_path.symlink_to(tmp_path / "elsewhere")
            elif damage == "folder":
                snapshot_store_path.mkdir()
            else:
                os.mkfifo(snapshot_store_path)
    assert list(store.newest(40)) == [(20, b"good")]


def test_the_draft_of_a_process_that_was_killed(store_of: StoreOf, tmp_path: Path, journal: Journal) -> None:
    """Such a draft goes with the next snapshot; that of a process which lives stays."""
    store = store_of(tmp_path / "journal.db")
    store.write(10, b"x")
    left, living = (Path(f"{store.path(20)}.{pid}") for pid in (2**22 + 1, 1))  # no process has a pid so large
    for draft in (left, living):
        draft.write_bytes(b"half")
    store.write(30, b"y")
    assert (left.exists(), living.exists(), store.read(30)) == (False, True, b"y")


def test_a_snapshot_that_cannot_be_written(store_of: StoreOf, tmp_path: Path, journal: Journal) -> None:
    """A snapshot that cannot be written is left out, and no part of it remains."""
    store = store_of(tmp_path / "journal.db")
    (tmp_path / "snapshots").write_text("in the way")
    store.write(20, b"x")
    assert list(store.newest(40)) == []
    (tmp_path / "snapshots").unlink()
    (tmp_path / "snapshots" / f"{20:020}").mkdir(parents=True)
    store.write(20, b"x")
    assert os.listdir(tmp_path / "snapshots") == [f"{20:020}"]
