"""The stamp that shows whether a file is still the one it was: device, inode, kind, size and change time.

A program cannot set the change time, nor can it give a new file an inode that is in use.
"""

from __future__ import annotations

import os
import stat

Stamp = tuple[int, int, int, int, int]


def stamp_of(status: os.stat_result) -> Stamp:
    """Return the stamp of a file by its status."""
    return (status.st_dev, status.st_ino, stat.S_IFMT(status.st_mode), status.st_size, status.st_ctime_ns)


def node_of(status: os.stat_result) -> tuple[int, int]:
    """Return (device, inode)."""
    return (status.st_dev, status.st_ino)
