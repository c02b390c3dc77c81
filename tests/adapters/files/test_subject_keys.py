"""The keys of personal fields: each directory has its own, on the disk before it is used, and gone once erased."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from omac.adapters.files import subject_keys
from omac.adapters.files.state import StateDir
from omac.adapters.files.subject_keys import SubjectKeyFiles
from omac.domain.kernel.ids import workdir_id
from omac.domain.kernel.refusal import Refusal

SHOP, OTHER = workdir_id("/w/shop"), workdir_id("/w/other")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def keys(folder: Path) -> SubjectKeyFiles:
    return files(folder)


def files(folder: Path) -> SubjectKeyFiles:
    """Return the keys as another process has them."""
    return StateDir(str(folder)).subject_keys(str(folder / "journal.db"), "id")


def test_a_directory_has_one(keys: SubjectKeyFiles, folder: Path) -> None:
    """A directory's key is made when first needed, the same for every process, and readable by its owner alone."""
    assert keys.current(SHOP) == ()
    assert not (folder / "subjects").exists()
    (key,) = keys.minted(SHOP)
    assert len(key) == 32
    assert keys.minted(SHOP) == keys.current(SHOP) == files(folder).minted(SHOP) == (key,)
    assert keys.minted(OTHER) != (key,)
    assert {name: os.stat(folder / name).st_mode & 0o777 for name in ("subjects", f"subjects/{SHOP}")} == {
        "subjects": 0o700, f"subjects/{SHOP}": 0o600,
    }  # fmt: skip


def test_keys_of_many_directories(keys: SubjectKeyFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server meets any number of directories: it has a bounded number of keys in memory, and finds all of them."""
    monkeypatch.setattr(subject_keys, "REMEMBERED_MAX", 3)
    subjects = [workdir_id(f"/w/{number}") for number in range(10)]
    minted = [keys.minted(subject) for subject in subjects]
    assert [keys.current(subject) for subject in subjects] == minted
    assert len(keys._held) <= 3


def test_another_journal_has_others(folder: Path) -> None:
    """A journal elsewhere has keys of its own, in a folder named by its id."""
    elsewhere = StateDir(str(folder)).subject_keys("/elsewhere/journal.db", "0123456789abcdef")
    assert elsewhere.minted(SHOP) != files(folder).minted(SHOP)
    assert os.listdir(folder / "subjects-0123456789ab") == [SHOP]


def test_many_at_once(folder: Path) -> None:
    """Threads that ask for a key at once all get the same one."""
    minted: list[tuple[bytes, ...]] = []
    threads = [threading.Thread(target=lambda: minted.append(files(folder).minted(SHOP))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(minted) == 8
    assert len(set(minted)) == 1
    assert os.listdir(folder / "subjects") == [SHOP]


def test_it_is_destroyed(keys: SubjectKeyFiles, folder: Path) -> None:
    """A destroyed key is gone for every process and can be destroyed again; the next key is another one."""
    second, (key,) = files(folder), keys.minted(SHOP)
    assert second.current(SHOP) == (key,)
    keys.destroy(SHOP)
    assert keys.current(SHOP) == second.current(SHOP) == ()
    keys.destroy(SHOP)
    assert second.minted(SHOP) != (key,)
    assert keys.current(SHOP) == second.current(SHOP) != ()


def test_it_is_destroyed_while_it_is_made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that another process destroys between its making and the end of that is not used."""
    link = os.link

    def linked(*words: Any, **folders: Any) -> None:
        link(*words, **folders)
        if words[1] == SHOP:
            files(folder).destroy(SHOP)

    monkeypatch.setattr(os, "link", linked)
    with pytest.raises(Refusal, match="removed as soon as it was made"):
        files(folder).minted(SHOP)
    assert os.listdir(folder / "subjects") == []


def test_a_draft_that_is_gone_is_no_reason_to_keep_a_key(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key is destroyed though its maker removes the draft of it meanwhile."""
    keys = files(folder)
    keys.minted(SHOP)
    draft = folder / "subjects" / ".draft.0"
    draft.write_bytes((folder / "subjects" / SHOP).read_bytes())
    read = SubjectKeyFiles._read_any

    def gone(self: SubjectKeyFiles, path: str) -> tuple[bytes, ...]:
        content = read(self, path)
        os.unlink(path)
        return content

    monkeypatch.setattr(SubjectKeyFiles, "_read_any", gone)
    keys.destroy(SHOP)
    assert os.listdir(folder / "subjects") == []


def test_what_a_killed_process_left_of_it(keys: SubjectKeyFiles, folder: Path) -> None:
    """A draft that holds the destroyed key is removed; drafts of other keys, and one that is cut off, stay."""
    keys.minted(SHOP)
    keys.minted(OTHER)
    for name, subject in (("a", SHOP), ("b", OTHER)):
        os.link(folder / "subjects" / subject, folder / "subjects" / f".draft.{name}")
    (folder / "subjects" / ".draft.c").write_text("ab")
    keys.destroy(SHOP)
    assert sorted(os.listdir(folder / "subjects")) == [".draft.b", ".draft.c", OTHER]


def test_older_keys_are_added(keys: SubjectKeyFiles, folder: Path) -> None:
    """The keys of a backup are added before the present one, once."""
    (key,) = keys.minted(SHOP)
    older = {SHOP: (bytes(32), key), OTHER: (bytes(32),)}
    for _ in range(2):
        keys.add(older)
    assert files(folder).all() == {SHOP: (bytes(32), key), OTHER: (bytes(32),)}
    assert keys.minted(SHOP) == (bytes(32), key)


@pytest.mark.parametrize("content", ["", "xyz", "ab" * 31, "ab" * 32 + "\n" + "ab" * 3])
def test_a_file_that_was_changed(keys: SubjectKeyFiles, folder: Path, content: str) -> None:
    """A key file that was changed is refused, and the rest of it is not used as a key."""
    keys.minted(SHOP)
    (folder / "subjects" / SHOP).write_text(content)
    with pytest.raises(Refusal, match="does not hold keys") as refused:
        files(folder).minted(SHOP)
    assert refused.value.reason == "state-unusable"


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_a_link_is_not_followed(keys: SubjectKeyFiles, folder: Path, tmp_path: Path, kind: str) -> None:
    """A link in place of a key is refused by name, and so is a folder."""
    keys.minted(OTHER)
    path = folder / "subjects" / SHOP
    if kind == "link":
        (tmp_path / "key").write_text("ab" * 32)
        path.symlink_to(tmp_path / "key")
    else:
        path.mkdir()
    descriptors = os.listdir("/proc/self/fd")
    with pytest.raises(Refusal, match=str(path)):
        keys.current(SHOP)
    assert os.listdir("/proc/self/fd") == descriptors
