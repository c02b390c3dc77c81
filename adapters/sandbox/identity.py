"""Device and inode of a path, found without following a symbolic link on the way (openat2(2), RESOLVE_NO_SYMLINKS).

A path that was resolved once stays the one that was meant only as long as nobody puts a link in its way.
"""

from __future__ import annotations

import errno
import os
import stat

from omac.adapters.linux.syscall import call, words

OPENAT2 = 437  # on every architecture
RESOLVE_NO_SYMLINKS = 0x04
_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_HOW = words(_FLAGS, 0, RESOLVE_NO_SYMLINKS)  # struct open_how


def status_without_links(path: str, root: int) -> os.stat_result:
    """Return the status of an absolute path below the open folder `root`; of a link at its end, the link's own.

    Raises OSError: ELOOP where a link stands in the way.
    """
    descriptor = opened_without_links(path, root)
    try:
        return os.fstat(descriptor)
    finally:
        os.close(descriptor)


def opened_without_links(path: str, root: int) -> int:
    """Return a descriptor (O_PATH) of an absolute path below the open folder `root`. Raises OSError, as before."""
    path = path.strip("/") or "."
    try:
        return call(OPENAT2, root, os.fsencode(path) + b"\0", _HOW, len(_HOW))
    except OSError as problem:
        if problem.errno != errno.ENOSYS:  # before Linux 5.6
            raise
    return opened_by_steps(path, root)


def opened_by_steps(path: str, root: int) -> int:
    """Open a path below `root` one folder after the other. Raises OSError: as openat2."""
    here = os.dup(root)
    parts = path.split("/")
    for number, part in enumerate(parts, 1):
        try:
            below = os.open(part, _FLAGS, dir_fd=here)
        finally:
            os.close(here)
        here = below
        if number < len(parts) and stat.S_ISLNK(os.fstat(here).st_mode):
            os.close(here)
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    return here
