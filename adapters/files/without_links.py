"""Device, inode and mount of a path, found without following a symbolic link on the way (openat2(2), statx(2)).

A path that was resolved once stays the one that was meant only as long as nobody puts a link in its way.
"""

from __future__ import annotations

import errno
import os
import stat

from omac.adapters.files.descriptor import Descriptor
from omac.adapters.linux.syscall import SyscallBuffer, call, words

OPENAT2 = 437  # on every architecture
RESOLVE_NO_SYMLINKS = 0x04
AT_EMPTY_PATH = 0x1000
STATX_MNT_ID = 0x1000
STATX_BTIME = 0x800
_STATX = {"x86_64": 332, "aarch64": 291}.get(os.uname().machine, -1)
_MOUNT_AT = 0x90  # of stx_mnt_id in struct statx
_BIRTH_AT = 0x50  # of stx_btime: seconds in 8 bytes, nanoseconds in 4
_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_ROOT = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_HOW = words(_FLAGS, 0, RESOLVE_NO_SYMLINKS)  # struct open_how


def mount_of(descriptor: int) -> int | None:
    """Return the number of the mount that an open path lies in, as in /proc/PID/mountinfo; None before Linux 5.8."""
    read = statx(descriptor, b"", AT_EMPTY_PATH, STATX_MNT_ID)
    return int.from_bytes(read[_MOUNT_AT : _MOUNT_AT + 8], "little") if read else None


def born_ns(descriptor: int) -> int | None:
    """Return when an open file or folder was made; None where its file system does not record that."""
    read = statx(descriptor, b"", AT_EMPTY_PATH, STATX_BTIME)
    seconds = int.from_bytes(read[_BIRTH_AT : _BIRTH_AT + 8], "little", signed=True)
    return seconds * 10**9 + int.from_bytes(read[_BIRTH_AT + 8 : _BIRTH_AT + 12], "little") if read else None


def statx(descriptor: int, path: bytes, flags: int, wanted: int) -> bytes:
    """Return the struct statx of a path, relative to an open one; empty where nothing that is wanted is known."""
    answer = SyscallBuffer()
    try:
        call(_STATX, descriptor, path + b"\0", flags, wanted, answer)
    except OSError:
        return b""
    read = bytes(answer)
    return read if int.from_bytes(read[:4], "little") & wanted else b""


def opened_without_links(path: str, root: int) -> int:
    """Open an absolute path below the open folder `root`, by O_PATH; at its end a link itself. Raises OSError: ELOOP
    where a link stands in the way."""
    path = path.strip("/") or "."
    try:
        return call(OPENAT2, root, os.fsencode(path) + b"\0", _HOW, len(_HOW))
    except OSError as problem:
        if problem.errno != errno.ENOSYS:  # before Linux 5.6
            raise
    return opened_by_steps(path, root)


def opened_path(path: str) -> int:
    """Open an absolute path, by O_PATH; at its end a link itself. Raises OSError: ELOOP where a link stands in the
    way."""
    with Descriptor(os.open("/", _ROOT)) as root:
        return opened_without_links(path, root)


def opened_folder(path: str) -> int:
    """Open a folder for listing it, and for what is relative to it; no link is followed on the way. Raises OSError."""
    with Descriptor(opened_path(path)) as descriptor:
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=descriptor)


def opened_by_steps(path: str, root: int) -> int:
    """Open a path below `root` one folder after the other. Raises OSError: as openat2."""
    here = os.dup(root)
    parts = path.split("/")
    for number, part in enumerate(parts, 1):
        with Descriptor(here):
            below = os.open(part, _FLAGS, dir_fd=here)
        here = below
        if number < len(parts) and stat.S_ISLNK(os.fstat(here).st_mode):
            os.close(here)
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    return here
