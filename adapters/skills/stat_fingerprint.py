"""The stamps that the file system keeps of everything in a folder: enough to see in milliseconds that nothing has
changed.

A process cannot set the time of a status change (ctime), except by setting the clock. So editing, renaming or replacing
a file leaves another ctime or another inode.
"""

import os
import time
from collections.abc import Collection
from typing import NamedTuple

import msgspec

from omac.adapters.skills.tree import walk_open
from omac.adapters.skills.worker_pool import go_on

TICK_NS = 20_000_000  # two changes within one tick of the file system's clock can bear the same time

Stamp = tuple[bytes, int, int, int, int, int]


class Stamps(NamedTuple):
    """Of each entry, and of the folder itself (""): relpath, device, inode, size, mode, ctime in ns; in order."""

    rows: list[Stamp]

    def encoded(self) -> bytes:
        """Return the stamps in bytes, as msgpack."""
        return msgspec.msgpack.encode(self.rows)

    def settled_at(self, now_ns: int) -> bool:
        """Return whether the last change is so long before `now_ns` that a later one bears another time."""
        return max(row[5] for row in self.rows) < now_ns - TICK_NS


def file_system_now_ns() -> int:
    """The time by the clock that is never behind the stamps of files: the kernel takes these from it (Linux 6.13), or
    from one that is less than a tick behind it."""
    return time.clock_gettime_ns(time.CLOCK_REALTIME)


def stamps_of(top: int, shown: str, skipped: Collection[str]) -> Stamps:
    """The stamps of the open folder `top` and all in it but folders whose name is `skipped`. Raises OSError."""
    rows = [_stamp("", os.fstat(top))]
    for _, below, entries in walk_open(top, shown, skipped):
        for entry in entries:
            go_on()
            relpath = below + entry.name
            try:
                rows.append(_stamp(relpath, entry.stat(follow_symlinks=False)))
            except OSError as error:
                raise OSError(error.errno, error.strerror, os.path.join(shown, relpath)) from None
    rows.sort()
    return Stamps(rows)


def _stamp(relpath: str, status: os.stat_result) -> Stamp:
    return os.fsencode(relpath), status.st_dev, status.st_ino, status.st_size, status.st_mode, status.st_ctime_ns
