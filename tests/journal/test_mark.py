"""The mark of a journal: a journal that is gone, emptied or older is not taken for the one that omac knew."""

import os
import shutil
from pathlib import Path

import pytest
from contract.journals import called, commit_now

from omac.domain.kernel.refusal import Refusal
from omac.journal.application import Journal
from omac.journal.mark import Mark
from omac.journal.opening import open_journal
from omac.journal.reader import ReadJournal


def marked(path: Path) -> Mark:
    """Return the mark that a state directory keeps."""
    return Mark.of(str(path.parent), str(path))


def opened(path: Path, *words: str) -> Journal:
    """Open the journal, and append these events."""
    journal = open_journal(str(path), "run", lambda: 1, mark=marked(path))
    for word in words:
        draft = called(word)
        commit_now(journal, [draft])
    return journal


def refused(path: Path) -> Refusal:
    """Return the refusal to open the journal, for writing and reading alike; nothing is made in its place."""
    before = path.read_bytes() if path.exists() else None
    with pytest.raises(Refusal) as writing:
        opened(path)
    with pytest.raises(Refusal) as reading:
        ReadJournal(str(path), marked(path))
    assert (reading.value.message, reading.value.reason) == (writing.value.message, "journal-lost")
    assert (path.read_bytes() if path.exists() else None) == before
    assert writing.value.exit_code == 10
    assert writing.value.fix[0].startswith("omac journal restore BACKUP --journal ")
    return writing.value


def test_a_mark_grows_with_its_journal(path: Path) -> None:
    """The mark is written when the journal is closed or idle; only its owner can read or write it."""
    mark = marked(path)
    assert mark.read() is None
    first = opened(path, "a", "b")
    identity = first.store.journal_id()
    first.close()
    assert mark.read() == (identity, 2)
    assert os.stat(mark.file).st_mode & 0o777 == 0o600
    assert os.stat(os.path.dirname(mark.file)).st_mode & 0o777 == 0o700
    second = opened(path, "c")
    assert mark.read() == (identity, 2)
    second.store.checkpoint()
    assert mark.read() == (identity, 3)
    second.close()
    assert os.listdir(os.path.dirname(mark.file)) == [os.path.basename(mark.file)]


def test_a_journal_that_is_missing(path: Path) -> None:
    """A journal that was removed is refused as missing, and is not taken for a first start."""
    opened(path, "a").close()
    path.unlink()
    assert "is missing or empty; omac last saw it at position 1" in refused(path).message
    assert not path.exists()


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\x00"])
def test_a_journal_that_was_emptied(path: Path, content: bytes) -> None:
    """A file without a journal in it is not filled with a new one."""
    opened(path, "a").close()
    path.write_bytes(content)
    if content:
        with pytest.raises(Refusal) as caught:
            opened(path)
        assert caught.value.reason == "journal-damaged"
        return
    assert "is missing or empty" in refused(path).message


def test_an_older_copy(path: Path, tmp_path: Path) -> None:
    """A journal that ends earlier than it did is refused with both positions."""
    opened(path, "a").close()
    shutil.copy(path, tmp_path / "copy.db")
    opened(path, "b", "c").close()
    shutil.copy(tmp_path / "copy.db", path)
    assert "ends at position 1; omac last saw it at 3" in refused(path).message


def test_another_journal(path: Path, tmp_path: Path) -> None:
    """A journal of another name in its place is refused, however long it is."""
    opened(path, "a").close()
    source = tmp_path / "other.db"
    opened(source, "x", "y", "z").close()
    shutil.copy(source, path)
    assert "is another journal" in refused(path).message


def test_the_loss_is_accepted(path: Path) -> None:
    """The last command that a refusal names lets a new journal begin."""
    opened(path, "a").close()
    path.unlink()
    command, _, rest = refused(path).fix[-1].partition(" ")
    assert command == "rm"
    os.unlink(rest.partition("  #")[0])
    journal = opened(path)
    assert journal.store.head() == 0
    journal.close()


@pytest.mark.parametrize("content", [b"", b"x", b"id many\n", b"\xff\xfe 1", b"a b c"])
def test_a_mark_that_cannot_be_read(path: Path, content: bytes) -> None:
    """A mark that cannot be read counts for nothing, and is written again."""
    opened(path, "a").close()
    mark = marked(path)
    Path(mark.file).write_bytes(content)
    assert mark.read() is None
    opened(path, "b").close()
    assert (mark.read() or ("", 0))[1] == 2


def test_a_mark_that_cannot_be_written(path: Path) -> None:
    """A journal is used although its mark cannot be written; an older mark is only less strict."""
    opened(path, "a").close()
    mark = marked(path)
    os.unlink(mark.file)
    os.mkdir(mark.file)
    opened(path, "b").close()
    assert mark.read() is None
    assert os.listdir(os.path.dirname(mark.file)) == [os.path.basename(mark.file)], "no draft is left"
