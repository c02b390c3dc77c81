"""The quarantine for files that the host's programs must not meet: a folder in the state directory.

No sandbox sees that folder. Moved there, a program cannot be run by its name, and git takes nothing for a repository.
Files lose their execute bits, a symbolic link becomes a text that says where it led, and in a folder nothing is called
`HEAD` or `.git` any more. Every move is relative to open folders and follows no link.

On another file system a move is a copy, and then a removal. An entry that is larger than may be copied, or that cannot
be copied as a whole, stays as it is: a git folder of which a part is here and a part there would be lost to its owner.
"""

from __future__ import annotations

import errno
import os
import stat

from omac.adapters.files import atomic
from omac.adapters.files.descriptor import FOLDER_FLAGS, Descriptor
from omac.adapters.git.stamp import node_of
from omac.journal.folders import make_private

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

FOLDER = "set-aside"  # in the state directory, with one folder for each launch
ENTRIES_MAX = 1_000_000  # of all that a launch has set aside, looked at one by one
COPIED_BYTES_MAX = 256 << 20  # of all that a launch has set aside on another file system, holes included
_ENTRY_BYTES = 4096  # that one is counted for
_NAME_CHARACTERS_MAX = 40
_DEPTH_MAX = 100
_CHUNK_BYTES = 1 << 20
_GITS = ("HEAD", ".git")


class Quarantine:
    """The things that one launch left; `path` is their folder, made when the first one comes."""

    def __init__(self, state: str, launch: str) -> None:
        self.path = f"{state}/{FOLDER}/{launch}"
        self._folder = -1
        self._number = 0
        self._entries_left = ENTRIES_MAX
        self._copied_left = COPIED_BYTES_MAX

    def close(self) -> None:
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1

    def take(self, parent: int, name: str) -> str:
        """Move an entry of an open folder here; return its new path. Raises OSError."""
        target = self._open()
        seen = os.lstat(name, dir_fd=parent)
        kept = self._free_name(target, name)
        if stat.S_ISDIR(seen.st_mode) or stat.S_ISREG(seen.st_mode):
            try:
                os.rename(name, kept, src_dir_fd=parent, dst_dir_fd=target)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                self._copied_left = _carry(parent, name, target, kept, self._copied_left)
            else:
                self._defuse(target, kept)
        else:
            _describe(parent, name, seen.st_mode, target, kept)
            os.unlink(name, dir_fd=parent)
        return f"{self.path}/{kept}"

    def _defuse(self, target: int, kept: str) -> None:
        try:
            self._entries_left = _defuse(target, kept, 0, self._entries_left)
        except _TooMany:
            self._entries_left = 0
            _set_mode(target, kept, 0)  # nobody but root goes in

    def _open(self) -> int:
        if self._folder < 0:
            make_private(self.path)
            self._folder = os.open(self.path, FOLDER_FLAGS)
            self._number = len(os.listdir(self._folder))
        return self._folder

    def _free_name(self, target: int, name: str) -> str:
        """A name nothing has yet: numbers do not run out."""
        shown = "".join(character if character.isalnum() or character in "._-" else "_" for character in name)
        while True:
            self._number += 1
            kept = f"{self._number}-{shown[:_NAME_CHARACTERS_MAX].lstrip('.')}"
            try:
                os.lstat(kept, dir_fd=target)
            except FileNotFoundError:
                return kept


def disarmed(parent: int, name: str) -> str:
    """Give an entry of an open folder a name that nothing obeys, in its folder, which takes no room on a full disk; a
    link or the like, which git follows under any name, is removed. Returns what was done. Raises OSError."""
    seen = os.lstat(name, dir_fd=parent)
    if not stat.S_ISDIR(seen.st_mode) and not stat.S_ISREG(seen.st_mode):
        led = f" to {os.readlink(name, dir_fd=parent)!r}" if stat.S_ISLNK(seen.st_mode) else ""
        os.unlink(name, dir_fd=parent)
        return f"{kind_of(seen.st_mode)}{led} was removed"
    kept = f"{name.lstrip('.')[:_NAME_CHARACTERS_MAX]}.set-aside-by-omac-{os.urandom(4).hex()}"
    os.rename(name, kept, src_dir_fd=parent, dst_dir_fd=parent)
    try:
        _defuse(parent, kept, 0, ENTRIES_MAX)
    except (OSError, _TooMany):
        os.chmod(kept, 0, dir_fd=parent)
    return f"it is called {kept} now, beside where it was"


class _TooMany(Exception):
    """The entries to be defused are more than ENTRIES_MAX."""


def _defuse(parent: int, name: str, depth: int, left: int) -> int:
    """Take from what was moved what makes it run, in `left` entries; how many are left then. Raises _TooMany."""
    if left <= 0:
        raise _TooMany
    seen = os.lstat(name, dir_fd=parent)
    if stat.S_ISREG(seen.st_mode):
        if seen.st_mode & 0o7111 and seen.st_nlink == 1:
            _set_mode(parent, name, 0o600)
        return left - 1
    if not stat.S_ISDIR(seen.st_mode):
        return left - 1
    _set_mode(parent, name, 0o700)
    if depth > _DEPTH_MAX:
        _set_mode(parent, name, 0)
        return left - 1
    with Descriptor(os.open(name, FOLDER_FLAGS, dir_fd=parent)) as folder, os.scandir(folder) as scan:
        for entry in scan:
            kept = entry.name
            if kept in _GITS:
                kept = f"was-{kept.lstrip('.')}-{os.urandom(4).hex()}"
                os.rename(entry.name, kept, src_dir_fd=folder, dst_dir_fd=folder)
            left = _defuse(folder, kept, depth + 1, left)
    return left - 1


def _set_mode(parent: int, name: str, mode: int) -> None:
    """Set the permissions of a file or folder: never of what a link leads to, which a program that works in a folder
    that was moved can put there meanwhile. Raises OSError."""
    with Descriptor(os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)) as opened:
        status = os.fstat(opened)
        if stat.S_ISDIR(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_nlink == 1):
            os.chmod(f"/proc/self/fd/{opened}", mode)


def _carry(parent: int, name: str, target: int, kept: str, left: int) -> int:
    """Move to another file system, `left` bytes at most; how many are left then. Raises OSError: what cannot be copied
    as a whole is where it was."""
    _Carried(target, left).measure(parent, name, 0)
    carried = _Carried(target, left)
    try:
        carried.copy(parent, name, target, kept, kept, 0)
    except OSError:
        from contextlib import suppress

        with suppress(OSError):  # nothing may be there yet; why the copy failed is what counts
            _remove(target, kept, None)
        raise
    _remove(parent, name, carried.nodes)
    return carried.left


class _Carried:
    """The entries that are copied into the open folder `target`, in `left` bytes: a file counts once, and is copied
    once, however many names it has."""

    def __init__(self, target: int, left: int) -> None:
        self.left = left
        self.nodes: dict[tuple[int, int], str] = {}  # where in the target the first copy of each is
        self._target = target

    def measure(self, parent: int, name: str, depth: int) -> None:
        """Count it. Raises OSError where it is too much."""
        if not stat.S_ISDIR(self._count(parent, name, "", depth).st_mode):
            return
        with Descriptor(os.open(name, FOLDER_FLAGS, dir_fd=parent)) as folder, os.scandir(folder) as scan:
            for entry in scan:
                self.measure(folder, entry.name, depth + 1)

    def copy(self, parent: int, name: str, folder: int, kept: str, path: str, depth: int) -> None:
        """Copy it into an open folder, where it is `path` from the target. Raises OSError."""
        seen = self._count(parent, name, path, depth)
        first = self.nodes[node_of(seen)]
        if first != path:
            os.link(first, kept, src_dir_fd=self._target, dst_dir_fd=folder, follow_symlinks=False)
        elif stat.S_ISREG(seen.st_mode):
            _copy(parent, name, folder, kept, seen.st_size)
        elif not stat.S_ISDIR(seen.st_mode):
            _describe(parent, name, seen.st_mode, folder, kept)
        else:
            os.mkdir(kept, 0o700, dir_fd=folder)
            with (
                Descriptor(os.open(name, FOLDER_FLAGS, dir_fd=parent)) as source,
                Descriptor(os.open(kept, FOLDER_FLAGS, dir_fd=folder)) as made,
            ):
                for entry in os.listdir(source):
                    theirs = f"was-{entry.lstrip('.')}" if entry in _GITS else entry
                    self.copy(source, entry, made, theirs, f"{path}/{theirs}", depth + 1)

    def _count(self, parent: int, name: str, path: str, depth: int) -> os.stat_result:
        seen = os.lstat(name, dir_fd=parent)
        node = node_of(seen)
        self.left -= _ENTRY_BYTES + (seen.st_size if stat.S_ISREG(seen.st_mode) and node not in self.nodes else 0)
        self.nodes.setdefault(node, path)
        if self.left < 0:
            raise OSError(errno.EFBIG, "it is too large to be moved to another file system", name)
        if depth > _DEPTH_MAX:
            raise OSError(errno.ELOOP, "a folder is too deep to be moved to another file system", name)
        return seen


def _remove(parent: int, name: str, nodes: Collection[tuple[int, int]] | None) -> None:
    """Remove what was copied: all of these nodes; None: everything. Raises OSError where something is left."""
    from contextlib import suppress

    seen = os.lstat(name, dir_fd=parent)
    if nodes is not None and node_of(seen) not in nodes:
        return  # came meanwhile
    if not stat.S_ISDIR(seen.st_mode):
        os.unlink(name, dir_fd=parent)
        return
    with Descriptor(os.open(name, FOLDER_FLAGS, dir_fd=parent)) as folder:
        with suppress(PermissionError):
            os.fchmod(folder, 0o700)
        for entry in os.listdir(folder):
            with suppress(OSError):  # then it is not empty
                _remove(folder, entry, nodes)
    os.rmdir(name, dir_fd=parent)


def _copy(parent: int, name: str, target: int, kept: str, size: int) -> None:
    read = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    new = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with (
        Descriptor(os.open(name, read, dir_fd=parent)) as source,
        Descriptor(os.open(kept, new, 0o600, dir_fd=target)) as copy,
    ):
        while size > 0 and (count := os.sendfile(copy, source, None, min(size, _CHUNK_BYTES))):
            size -= count


def _describe(parent: int, name: str, mode: int, target: int, kept: str) -> None:
    """A text in place of what is neither a file nor a folder."""
    if stat.S_ISLNK(mode):
        atomic.create(
            kept, b"a symbolic link to " + os.fsencode(os.readlink(name, dir_fd=parent)) + b"\n", dir_fd=target
        )
    else:
        atomic.create(kept, f"{kind_of(mode)}\n".encode(), dir_fd=target)


def kind_of(mode: int) -> str:
    """Return what a file is that is neither a regular one nor a folder."""
    if stat.S_ISLNK(mode):
        return "a symbolic link"
    if stat.S_ISFIFO(mode):
        return "a FIFO"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"
