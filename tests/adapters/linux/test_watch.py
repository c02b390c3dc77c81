"""adapters/linux/watch.py: a change of a watched file wakes a task, and no other event does."""

import os
from contextlib import closing, suppress
from pathlib import Path

import pytest
import trio

from omac.adapters.linux.watch import FolderWatch

BOUND_S = 10.0


async def test_a_change_of_a_named_file_is_noticed(tmp_path: Path) -> None:
    """A watch notices when its file is written, replaced or deleted, and ignores other files in the folder."""
    with closing(FolderWatch(str(tmp_path), ("wal",))) as watch, trio.fail_after(BOUND_S):
        (tmp_path / "wal").write_text("1")
        await watch.changed()
        (tmp_path / "draft").write_text("2")
        (tmp_path / "draft").rename(tmp_path / "wal")
        await watch.changed()
        (tmp_path / "wal").unlink()
        await watch.changed()
        (tmp_path / "other").write_text("3")
        with trio.move_on_after(0.05) as quiet:
            await watch.changed()
        assert quiet.cancelled_caught


async def test_without_names_any_file_counts(tmp_path: Path) -> None:
    """A watch without names notices any file, such as a spool's, whose names are not known before."""
    with closing(FolderWatch(str(tmp_path))) as watch, trio.fail_after(BOUND_S):
        (tmp_path / "anything").touch()
        await watch.changed()


def test_a_folder_that_is_missing_cannot_be_watched(tmp_path: Path) -> None:
    """A missing folder cannot be watched; its caller polls instead."""
    with pytest.raises(FileNotFoundError):
        FolderWatch(str(tmp_path / "missing"))


async def test_closing_does_not_wait_for_the_kernel(tmp_path: Path) -> None:
    """A closed watch releases its descriptor soon afterwards, from a thread."""
    with trio.fail_after(BOUND_S):
        while open_watches():  # of other tests
            await trio.sleep(0.005)
    watch = FolderWatch(str(tmp_path))
    assert len(open_watches()) == 1
    watch.close()
    with trio.fail_after(BOUND_S):
        while open_watches():
            await trio.sleep(0.005)


def open_watches() -> set[str]:
    """Return the open descriptors of this process's watches."""
    watches = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the one that listed them
            if os.readlink(f"/proc/self/fd/{name}") == "anon_inode:inotify":
                watches.add(name)
    return watches
