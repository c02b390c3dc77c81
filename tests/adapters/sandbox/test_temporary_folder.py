"""adapters/sandbox/temporary_folder.py: what launches that were killed have left is removed, and nothing else."""

import tempfile
from pathlib import Path

import pytest

from omac.adapters.files import lock
from omac.adapters.sandbox.temporary_folder import PREFIX, TemporaryFolder


def test_what_a_killed_launch_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder without a lock is removed with all that is in it; one with a lock, and others, stay."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / f"{PREFIX}x/deep/er").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    first = TemporaryFolder()
    second = TemporaryFolder()
    assert {str(path) for path in tmp_path.iterdir()} == {first.path, second.path, str(tmp_path / "other")}
    first.remove()
    second.remove()
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_a_link_put_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that may write among temporary files has nothing removed by a link that it puts there meanwhile."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    left, kept = tmp_path / f"tmp/{PREFIX}x", tmp_path / "kept"
    left.mkdir(parents=True)
    kept.mkdir()
    (kept / "file").touch()

    def swapped(descriptor: int) -> bool:
        left.rename(tmp_path / "away")
        left.symlink_to(kept)
        return True

    monkeypatch.setattr(lock, "try_acquire", swapped)
    TemporaryFolder().remove()
    assert (kept / "file").exists()
