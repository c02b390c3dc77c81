"""The stamp that shows whether a file is still the one it was: device, inode, kind, size and change time.

A program cannot set the change time, nor can it give a new file an inode that is in use. Nor can it set the time of
birth: with that, an inode that is used again is another file.
"""

from __future__ import annotations

import os
import stat

from omac.adapters.linux.syscall import SyscallBuffer, call

_STATX = {"x86_64": 332, "aarch64": 291}
_NO_FOLLOW = 0x100
_BASIC_AND_BIRTH = 0xFFF

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
    status = SyscallBuffer()
    try:
        call(_STATX[os.uname().machine], 0, os.fsencode(path) + b"\0", _NO_FOLLOW, _BASIC_AND_BIRTH, status)
    except OSError:
        return b""
    read = bytes(status)
    if stat.S_ISREG(int.from_bytes(read[28:30], "little")) and read[16:20] != b"\1\0\0\0":
        return b""
    return read[32:40] + read[80:92] + read[136:144]  # inode, time, device; the time is 0 where none is kept
