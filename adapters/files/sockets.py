"""Unix sockets in the file system: who connects to one acts by the program that listens there."""

from __future__ import annotations

import os
import stat


def is_socket(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry of a listing is a socket; a call of its own is needed for none of the other kinds."""
    if entry.is_symlink() or entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False):
        return False
    try:
        return stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)
    except OSError:
        return False


def is_in_use(path: str) -> bool:
    """Return whether a process has a socket, and it was not merely left there. No process notices that: of datagrams
    the kernel only remembers where they would go, and it connects no socket of one kind to one of another."""
    import socket  # seldom needed

    try:
        file = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
            asking.connect(f"/proc/self/fd/{file}")  # a path may be too long for an address
    except ConnectionRefusedError:
        return False
    except OSError:
        return True  # of another kind (EPROTOTYPE), or for others only
    finally:
        os.close(file)
    return True
