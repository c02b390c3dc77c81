"""Objects that a repository has in common with another: `git clone` of a local path makes hard links to them.

A program that writes through one name changes the file behind the other, and git does not hash an object when it reads
it. So packs with a second name are pinned (`folders.py`); loose objects and commit graphs are copied first.
"""

from __future__ import annotations

import errno
import os
import stat

from omac.adapters.files.descriptor import FOLDER_FLAGS, Descriptor
from omac.adapters.git import pointers
from omac.domain.kernel.refusal import quoted

LOOSE_MAX = 50_000  # entries that are looked at
BYTES_MAX = 512 << 20  # that are copied
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK_BYTES = 1 << 24
_INDEXES = ("info", "info/commit-graphs")
_FAN_OUT = frozenset(f"{number:02x}" for number in range(256))


def unshare(objects: str) -> list[str]:
    """Copy the loose objects and commit graphs that have a second name; return what a person should know. Raises
    Refusal (git-unsafe) where that would be too much, or is not possible."""
    left = _Left()
    try:
        folder = os.open(objects, FOLDER_FLAGS)
    except OSError:
        return []  # it was replaced: what is mounted is checked later
    try:
        for name in (*_INDEXES, *sorted(_FAN_OUT.intersection(os.listdir(folder)))):
            _unshare_in(folder, name, objects, left)
            if left.entries < 0:
                consequence = "those that another repository shares can be changed there"
                return [f"{objects} has more than {LOOSE_MAX} loose objects: {consequence}. {_repack(objects)}"]
    except OSError as error:
        if error.errno == errno.EROFS:
            return []  # nothing can be changed inside either
        message = f"{objects} shares objects with another repository, and they cannot be copied: {error.strerror}"
        raise pointers.unsafe(message, _repack(objects)) from None
    finally:
        os.close(folder)
    return []


class _Left:
    """The numbers of entries that may still be inspected, and of bytes that may still be copied."""

    def __init__(self) -> None:
        self.entries = LOOSE_MAX
        self.bytes = BYTES_MAX


def _unshare_in(objects: int, name: str, path: str, left: _Left) -> None:
    try:
        folder = _opened(name, objects)
    except OSError:
        return  # a link, or not there: no folder of objects
    own = os.geteuid()
    with Descriptor(folder):
        shared = []
        with os.scandir(folder) as scan:
            for entry in scan:
                left.entries -= 1
                if left.entries < 0:
                    break
                if entry.is_file(follow_symlinks=False):
                    seen = entry.stat(follow_symlinks=False)
                    if seen.st_nlink > 1 and own in (0, seen.st_uid):  # nobody else's can be changed anyway
                        shared.append(entry.name)
        for file_name in shared:
            left.bytes -= _copied(folder, file_name, left.bytes, path)


def _opened(name: str, folder: int) -> int:
    """Open a folder below another, following no link."""
    first, _, rest = name.partition("/")
    opened = os.open(first, FOLDER_FLAGS, dir_fd=folder)
    if not rest:
        return opened
    with Descriptor(opened):
        return os.open(rest, FOLDER_FLAGS, dir_fd=opened)


def _copied(folder: int, name: str, bytes_max: int, objects: str) -> int:
    """Put a copy in the place of a file; its size. Raises Refusal where it is larger than `bytes_max`."""
    try:
        source = os.open(name, _READ, dir_fd=folder)
    except FileNotFoundError:
        return 0
    with Descriptor(source):
        seen = os.fstat(source)
        if not stat.S_ISREG(seen.st_mode) or seen.st_nlink < 2:
            return 0
        if seen.st_size > bytes_max:
            message = f"{objects} shares more than {BYTES_MAX >> 20} MiB of loose objects with another repository"
            raise pointers.unsafe(message, _repack(objects))
        draft = f"tmp_obj_{os.urandom(6).hex()}"  # as git names them, which removes what is left of such
        _write_copy(folder, draft, source, seen)
        try:
            os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            os.unlink(draft, dir_fd=folder)
            raise
    return seen.st_size


def _write_copy(folder: int, draft: str, source: int, seen: os.stat_result) -> None:
    target = os.open(draft, _MAKE, 0o400, dir_fd=folder)
    try:
        left = seen.st_size
        while left > 0 and (count := os.copy_file_range(source, target, min(left, _CHUNK_BYTES))):
            left -= count
        if os.geteuid() == 0:
            os.fchown(target, seen.st_uid, seen.st_gid)
        os.fchmod(target, stat.S_IMODE(seen.st_mode))
        os.utime(target, ns=(seen.st_atime_ns, seen.st_mtime_ns))  # git removes old ones that nothing needs
    except OSError:
        os.unlink(draft, dir_fd=folder)
        raise
    finally:
        os.close(target)


def _repack(objects: str) -> str:
    return f"git --git-dir={quoted(os.path.dirname(objects))} repack -ad"
