"""The stamp that shows whether a file is still the one it was: device, inode, kind, size and change time.

A program cannot set the change time, nor can it give a new file an inode that is in use.
"""

from __future__ import annotations

import hashlib
import os
import stat

from omac.adapters.linux.resolve_symlinks import inside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LINKED_MAX = 1_000  # files and folders below the target of a link

Stamp = tuple[int, int, int, int, int]


def stamp_of(status: os.stat_result) -> Stamp:
    """Return the stamp of a file by its status."""
    return (status.st_dev, status.st_ino, stat.S_IFMT(status.st_mode), status.st_size, status.st_ctime_ns)


def stamp_of_linked(link: str, status: os.stat_result, root: str, spend: Callable[[], None]) -> Stamp:
    """Return a stamp of a link and, if that is below `root`, of all that it leads to. Where that is too much, no two
    stamps are the same. `spend` is called for each file, and may raise what it likes. Raises OSError."""
    stamp = stamp_of(status)
    target = inside(link, root)
    if not target:
        return stamp
    parts = [repr(stamp)]
    for part in _below(target):
        spend()
        parts.append(repr(part))
        if len(parts) > LINKED_MAX:
            parts.append(repr(os.urandom(8)))
            break
    digest = hashlib.sha256("\n".join(sorted(parts)).encode()).digest()
    return (*stamp[:-1], int.from_bytes(digest[:7], "big"))


def _below(path: str) -> Iterator[tuple[str, Stamp]]:
    try:
        status = os.lstat(path)
    except OSError:
        return  # the link leads to nothing
    yield path, stamp_of(status)
    folders = [path] if stat.S_ISDIR(status.st_mode) else []
    while folders:
        with os.scandir(folders.pop()) as scan:
            for entry in scan:
                status = entry.stat(follow_symlinks=False)
                yield entry.path, stamp_of(status)
                if stat.S_ISDIR(status.st_mode):
                    folders.append(entry.path)


def node_of(status: os.stat_result) -> tuple[int, int]:
    """Return (device, inode)."""
    return (status.st_dev, status.st_ino)
