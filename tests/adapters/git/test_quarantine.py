"""adapters/git/quarantine.py: a folder is moved to another file system as a whole, or not at all."""

import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from omac.adapters.git import quarantine
from omac.adapters.git.quarantine import Quarantine

FILES = {"HEAD", "config", "refs/heads/a", *(f"objects/{number:02}" for number in range(20))}


class Ground:
    """A git folder, and a state directory on another file system."""

    def __init__(self, top: Path, state: Path) -> None:
        self.git = top / "x" / ".git"
        self.state = state
        for name in FILES:
            path = self.git / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x" * 10_000)
        assert top.stat().st_dev != state.stat().st_dev

    def take(self) -> str:
        parent = os.open(self.git.parent, os.O_RDONLY)
        try:
            return Quarantine(str(self.state), "launch").take(parent, ".git")
        finally:
            os.close(parent)

    def left(self) -> set[str]:
        return {str(path.relative_to(self.git)) for path in self.git.rglob("*") if path.is_file()}

    def kept(self) -> list[Path]:
        return [path for path in self.state.rglob("*") if path.is_file()]


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as state:
        yield Ground(tmp_path, Path(state))


def test_all_of_it_is_moved(ground: Ground) -> None:
    """A git folder is moved without a name by which git would know it, and a link becomes a text."""
    (ground.git / "link").symlink_to("/etc/passwd")
    moved = Path(ground.take())
    assert not ground.git.exists()
    names = {str(path.relative_to(moved)) for path in ground.kept()}
    assert names == FILES - {"HEAD"} | {"was-HEAD", "link"}
    assert (moved / "link").read_text() == "a symbolic link to /etc/passwd\n"
    assert (moved / "objects/07").read_bytes() == b"x" * 10_000


def test_what_is_too_large_stays_as_it_is(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder is measured before anything is moved, and stays if it is too large."""
    monkeypatch.setattr(quarantine, "COPIED_BYTES_MAX", 200_000)
    with pytest.raises(OSError, match="too large"):
        ground.take()
    assert ground.left() == FILES
    assert not ground.kept()


def test_what_cannot_be_copied_as_a_whole_stays_as_it_is(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder stays when the other disk fills up during the copy, and the copied part is removed."""
    copy = quarantine._copy

    def failing(parent: int, name: str, target: int, kept: str, size: int) -> None:
        if name == "07":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        copy(parent, name, target, kept, size)

    monkeypatch.setattr(quarantine, "_copy", failing)
    with pytest.raises(OSError, match="No space"):
        ground.take()
    assert ground.left() == FILES
    assert not ground.kept()


def test_a_file_of_many_names_is_copied_once(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of many names takes no more room in the quarantine than in its folder."""
    for number in range(100):
        os.link(ground.git / "config", ground.git / f"name{number}")
    monkeypatch.setattr(quarantine, "COPIED_BYTES_MAX", 900_000)
    moved = Path(ground.take())
    assert not ground.git.exists()
    assert len({path.stat().st_ino for path in ground.kept()}) == len(FILES)
    assert (moved / "name7").read_bytes() == b"x" * 10_000


def test_what_comes_meanwhile_is_not_removed(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that appears during the copy stays; only copied files are removed."""
    copy = quarantine._copy

    def slow(parent: int, name: str, target: int, kept: str, size: int) -> None:
        copy(parent, name, target, kept, size)
        if name == "a":
            (ground.git / "refs/heads/new").write_text("x")

    monkeypatch.setattr(quarantine, "_copy", slow)
    with pytest.raises(OSError, match="not empty"):
        ground.take()
    assert len(ground.kept()) == len(FILES)
    assert ground.left() == {"refs/heads/new"}
