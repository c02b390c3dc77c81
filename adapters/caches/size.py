"""The disk space of a tree that programs in a sandbox wrote, and may be writing to right now."""

import os
from typing import NamedTuple

from omac.adapters.files.descriptor import FOLDER_FLAGS
from omac.adapters.files.emptying import BATCH, Step

DEPTH_MAX = 100  # folders are open while what is below them is counted
NAMES_MAX = 5_000_000
BLOCK_BYTES = 512  # of st_blocks, whatever the file system


class Size(NamedTuple):
    """Bytes on the disk; `whole` is false where there are more that were not counted."""

    bytes: int
    whole: bool


def measured(folder: int, step: Step) -> Size:
    """The size of an open folder and all below it; follows no link, opens nothing but folders. Raises OSError.

    A file with several names counts once.
    """
    total, whole, names, untold = os.fstat(folder).st_blocks * BLOCK_BYTES, True, 0, 0
    seen: set[tuple[int, int]] = set()
    stack = [(os.dup(folder), os.scandir(folder))]
    try:
        while stack:
            entry = next(stack[-1][1], None)
            if entry is None:
                _close(*stack.pop())
                continue
            names, untold = names + 1, untold + 1
            if untold == BATCH:
                step(untold)
                untold = 0
            if names > NAMES_MAX:
                whole = False
                break
            try:
                status = entry.stat(follow_symlinks=False)
                if status.st_nlink > 1 and not entry.is_dir(follow_symlinks=False):
                    if (status.st_dev, status.st_ino) in seen:
                        continue
                    seen.add((status.st_dev, status.st_ino))
                total += status.st_blocks * BLOCK_BYTES
                if not entry.is_dir(follow_symlinks=False):
                    continue
                if len(stack) >= DEPTH_MAX:
                    whole = False
                    continue
                below = os.open(entry.name, FOLDER_FLAGS, dir_fd=stack[-1][0])
            except FileNotFoundError:
                continue  # it went while we looked
            except OSError:
                whole = False
                continue
            stack.append((below, os.scandir(below)))
    finally:
        for opened in stack:
            _close(*opened)
    step(untold)
    return Size(total, whole)


def _close(folder: int, scan: "os._ScandirIterator[str]") -> None:
    scan.close()
    os.close(folder)
