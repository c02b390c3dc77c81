"""The stamp that shows whether a file is still the one it was: device, inode, kind, size and change time.

A program cannot set the change time, nor can it give a new file an inode that is in use. Nor can it set the time of
birth: with that, an inode that is used again is another file.
"""

from __future__ import annotations

import os
import stat

from omac.adapters.files.descriptor import Descriptor
from omac.adapters.files.without_links import statx
from omac.adapters.git.open_folder import open_listable
from omac.domain.kernel.digest import sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_NO_FOLLOW = 0x100
_BASIC_AND_BIRTH = 0xFFF
_FILES_MAX = 50_000
_DEPTH_MAX = 50

Stamp = tuple[int, int, int, int, int]


def stamp_of(status: os.stat_result) -> Stamp:
    """Return the stamp of a file by its status."""
    return (status.st_dev, status.st_ino, stat.S_IFMT(status.st_mode), status.st_size, status.st_ctime_ns)


def node_of(status: os.stat_result) -> tuple[int, int]:
    """Return (device, inode)."""
    return (status.st_dev, status.st_ino)


def birth_of(path: str) -> bytes:
    """Return bytes that the file at an absolute path has for life, and no other file; empty where there is no file, or
    one of several names."""
    read = statx(0, os.fsencode(path), _NO_FOLLOW, _BASIC_AND_BIRTH)
    if stat.S_ISREG(int.from_bytes(read[28:30], "little")) and read[16:20] != b"\1\0\0\0":
        return b""
    return read[32:40] + read[80:92] + read[136:144]  # inode, time, device; the time is 0 where none is kept


def stamp_with_content(parent: int, name: str, status: os.stat_result, spend: Callable[[], None]) -> Stamp:
    """Return the stamp of an entry of an open folder, of a folder by all files in it. Where these are too many, no two
    stamps are the same. `spend` is called for each, and may raise what it likes. Raises OSError.

    So is a folder judged that another program keeps among git's own, such as `.git/sl` of Sapling: git's grammar says
    nothing of what is in it, and a program of the host may obey it.
    """
    stamp = stamp_of(status)
    if not stat.S_ISDIR(status.st_mode):
        return stamp
    files = []
    for file in _files(parent, name, "", 0):
        spend()
        files.append(repr(file))
        if len(files) > _FILES_MAX:
            return (*stamp[:3], 0, int.from_bytes(os.urandom(7), "big"))
    digest: bytes = sha256("\n".join(sorted(files)).encode()).digest()
    return (*stamp[:3], 0, int.from_bytes(digest[:7], "big"))


def _files(parent: int, name: str, path: str, depth: int) -> Iterator[tuple[str, Stamp]]:
    """Yield the path and the stamp of all that is no folder, and the path of what lies too deep. Raises OSError."""
    with Descriptor(open_listable(name, parent)) as folder, os.scandir(folder) as scan:
        for entry in scan:
            below, status = f"{path}/{entry.name}", entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode) and depth < _DEPTH_MAX:
                yield from _files(folder, entry.name, below, depth + 1)
            else:
                yield below, stamp_of(status)
