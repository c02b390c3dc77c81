"""Unix sockets in the file system: who connects to one acts by the program that listens there."""

from __future__ import annotations

import os
import stat

from omac.adapters.files import lock
from omac.adapters.files.descriptor import FOLDER_FLAGS, Descriptor

REMOVAL_WAIT_S = 1.0  # for another process that removes sockets, too


def is_socket(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry of a listing is a socket; a call of its own is needed for none of the other kinds."""
    if entry.is_symlink() or entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False):
        return False
    try:
        return stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)
    except OSError:
        return False


def sockets_in(folder: str) -> list[str]:
    """Return the paths of the sockets in a folder; none where it cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries if is_socket(entry)]
    except OSError:
        return []


def dead_sockets_in(folder: str) -> list[str]:
    """Return the paths of the sockets in a folder that no process has."""
    return [path for path in sockets_in(folder) if not is_in_use(path)]


def remove_sockets(folder: str, paths: list[str]) -> bool:
    """Remove sockets from a folder, whose times stay as they are: by these the folders of runs are kept. Return False
    where the folder is gone, or another process keeps the one above it locked. Raises OSError."""
    try:
        descriptor = os.open(folder, FOLDER_FLAGS)
    except FileNotFoundError:
        return False
    # the folder itself is locked by the process that ends the run
    with Descriptor(descriptor) as opened, Descriptor(os.open("..", FOLDER_FLAGS, dir_fd=opened)) as above:
        if not lock.acquire_within(above, REMOVAL_WAIT_S):  # else one takes the times that another has changed
            return False
        times = os.stat(opened)
        try:
            for path in paths:
                try:
                    os.unlink(os.path.basename(path), dir_fd=opened)
                except FileNotFoundError:
                    pass  # another process was first
        finally:
            os.utime(opened, ns=(times.st_atime_ns, times.st_mtime_ns))
    return True


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
