"""Files and folders below an open folder, as an inspection meets them: nothing is followed, and nothing waited for."""

from __future__ import annotations

import os
import stat

from omac.adapters.files import atomic, bounded
from omac.adapters.files.descriptor import FOLDER_FLAGS, Descriptor
from omac.adapters.files.without_links import opened_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    Done = TypeVar("Done")

_LISTABLE = stat.S_IRUSR | stat.S_IXUSR


def content_of(folder: int, name: str, bytes_max: int) -> bytes | None:
    """Return what a regular file in an open folder holds; None where it cannot be read, or is longer."""
    try:
        return bounded.read(name, bytes_max, dir_fd=folder)
    except OSError:
        return None


def put(folder: int, name: str, content: bytes) -> None:
    """Create a file in an open folder. Raises OSError."""
    atomic.create(name, content, 0o644, dir_fd=folder)


def while_writable(folder: int, act: Callable[[], Done]) -> Done:
    """Do something in an open folder; if its owner, the user, may not write in it, permit that for so long. Raises
    OSError."""
    try:
        return act()
    except PermissionError:
        status = os.fstat(folder)
        if status.st_uid != os.geteuid() or status.st_mode & stat.S_IWUSR:
            raise
    os.fchmod(folder, stat.S_IMODE(status.st_mode) | stat.S_IRWXU)
    try:
        return act()
    finally:
        os.fchmod(folder, stat.S_IMODE(status.st_mode))


def is_there(folder: int, name: str) -> bool:
    """Return whether an open folder has an entry of a name."""
    try:
        os.lstat(name, dir_fd=folder)
    except OSError:
        return False
    return True


def open_listable(name: str, parent: int) -> int:
    """Open a folder in an open folder for listing it. Its owner gets the right to, where that is the user: git passes
    through what it cannot list. Raises OSError."""
    try:
        folder = os.open(name, FOLDER_FLAGS, dir_fd=parent)
    except PermissionError:
        flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        with Descriptor(os.open(name, flags, dir_fd=parent)) as path_only:
            _let_owner_list(path_only)
        return os.open(name, FOLDER_FLAGS, dir_fd=parent)
    _let_owner_list(folder)
    return folder


def opened_root(path: str) -> int:
    """Open a folder that an inspection begins with, for listing it; no link is followed on the way. Raises OSError."""
    with Descriptor(opened_path(path)) as path_only:
        _let_owner_list(path_only)
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=path_only)


def _let_owner_list(folder: int) -> None:
    status = os.fstat(folder)
    if status.st_uid == os.geteuid() and status.st_mode & _LISTABLE != _LISTABLE and stat.S_ISDIR(status.st_mode):
        os.chmod(f"/proc/self/fd/{folder}", stat.S_IMODE(status.st_mode) | _LISTABLE)
