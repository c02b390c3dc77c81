"""Real media that cannot be written: bubblewrap mounts them for one process. Permission bits do not stop root."""

import shutil
from pathlib import Path

import pytest

needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap makes the media")


def read_only(folder: Path) -> list[str]:
    """Return a command prefix: the command sees `folder` on a read-only medium."""
    return ["bwrap", "--dev-bind", "/", "/", "--ro-bind", str(folder), str(folder)]


def small_disk(folder: Path, size_bytes: int) -> list[str]:
    """Return a command prefix: the command has an empty disk of that size at `folder`, gone when it ends."""
    return ["bwrap", "--dev-bind", "/", "/", "--size", str(size_bytes), "--tmpfs", str(folder)]
