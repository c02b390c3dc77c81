"""Files and folders that are made on the host only so that something can be pinned there, and removed again.

Removing one that another sandbox has pinned would unpin it there: a mount ends with the name it is mounted on, when
that is removed in another mount namespace (unlink(2)). So every launch holds a lock together with all others, from
before it looks at what is there until it ends. Each placeholder is listed before it is made, and, with its device and
inode, afterwards. The launch that ends last removes all that are listed and are still what they were, also those of a
launch that was killed; no link is followed on the way. Each launch has lock and list open, so that they hold for those
that live also where the state directory is deleted meanwhile.
"""

from __future__ import annotations

import os

from omac.adapters.files import atomic, bounded, lock
from omac.adapters.files.descriptor import Descriptor
from omac.adapters.files.journal_in_use import foreign
from omac.adapters.files.without_links import opened_without_links
from omac.domain.kernel.refusal import Refusal
from omac.journal.folders import elsewhere_command, make_private, write_command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omac.domain.sandbox.confinement import Entry, Policy

LOCK = "placeholders.lock"  # in the state directory
LIST = "placeholders"  # beside it: lines of a path in hexadecimal, the content that a file was given, device and inode


class Placeholders:
    """The placeholders of one launch. `state` is the state directory, which is made where it is missing."""

    def __init__(self, state: str) -> None:
        self._state = state
        self._lock = self._list = -1

    def hold(self) -> None:
        """Keep what others have made, and what is there, from being removed. Raises Refusal (state-unusable)."""
        try:
            make_private(self._state)
            self._lock = lock.open_file(f"{self._state}/{LOCK}")
            lock.acquire(self._lock, shared=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            self._list = os.open(f"{self._state}/{LIST}", flags, 0o600)
        except OSError as problem:
            if refusal := foreign(self._state, self._state):
                raise refusal from problem
            message = f"the state directory {self._state} cannot be used: {problem.strerror}"
            fix = [write_command(problem, self._state), elsewhere_command(problem)]
            raise Refusal("state-unusable", message, fix=fix) from problem

    def make(self, policy: Policy) -> None:
        """Make what is missing. Raises Refusal (path-changed, state-unusable)."""
        missing = [entry for entry in policy.entries if entry.made and not os.path.lexists(entry.path)]
        if not missing:
            return
        made = []
        at = f"{self._state}/{LIST}"
        try:
            atomic.write_all(self._list, "".join(_line(entry, (0, 0)) for entry in missing).encode())
            for entry in missing:
                at = entry.path
                try:
                    made.append(_line(entry, _make(entry)))
                except FileExistsError:
                    continue  # another sandbox was first
            atomic.write_all(self._list, "".join(made).encode())
        except OSError as problem:
            message = f"the placeholder {at} cannot be made: {problem.strerror}"
            folder = os.path.dirname(at)
            raise Refusal("path-changed", message, fix=[write_command(problem, folder)]) from problem

    def end(self) -> None:
        """Release them; the last launch removes all that were made and are still as they were made."""
        if self._lock < 0:
            return
        try:
            if lock.try_acquire(self._lock):
                self._remove_listed()
        except (OSError, Refusal):
            pass  # the next launch that ends last does it
        for descriptor in (self._list, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._lock = self._list = -1

    def _remove_listed(self) -> None:
        """Remove what is listed; where another state directory has the place of the one that was deleted, the launches
        in it may have pinned that too, and the last of them does it. Raises OSError."""
        with open(os.dup(self._list), "rb") as file:
            file.seek(0)
            content = file.read()
        if self._holds_lock():
            _remove_unchanged(content)
            os.unlink(f"{self._state}/{LIST}")
        elif os.path.lexists(f"{self._state}/{LOCK}"):
            following = Placeholders(self._state)
            following.hold()
            atomic.write_all(following._list, content)
            following.end()
        else:
            _remove_unchanged(content)

    def _holds_lock(self) -> bool:
        """Return whether the lock of the state directory is the file that is open."""
        try:
            return os.path.samestat(os.fstat(self._lock), os.lstat(f"{self._state}/{LOCK}"))
        except FileNotFoundError:
            return False


def _line(entry: Entry, node: tuple[int, int]) -> str:
    kept = f"{entry.content.hex()}." if entry.made == "file" else "-"
    return f"{os.fsencode(entry.path).hex()} {kept} {node[0]} {node[1]}\n"


def _make(entry: Entry) -> tuple[int, int]:
    """Make one; its device and inode. Raises OSError."""
    others = os.stat(os.path.dirname(entry.path)).st_mode & 0o055 if entry.shared else 0
    if entry.made == "file":
        made = atomic.create(entry.path, entry.content, 0o600 | others & 0o044)
    else:
        os.mkdir(entry.path, 0o700 | others)
        made = os.lstat(entry.path)
    return (made.st_dev, made.st_ino)


def _remove_unchanged(content: bytes) -> None:
    listed: dict[str, tuple[str, tuple[int, int]]] = {}
    for line in content.decode("ascii", "replace").splitlines():
        try:
            name, kept, device, inode = line.split(" ")
            listed[name] = kept, (int(device), int(inode))
        except ValueError:
            continue  # cut off, or of an earlier omac
    with Descriptor(os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as root:
        for name, (kept, node) in reversed(listed.items()):
            try:
                _remove(root, os.fsdecode(bytes.fromhex(name)), kept, node)
            except (OSError, ValueError):
                continue  # somebody has put something there, written to it, or taken it away


def _remove(root: int, path: str, kept: str, node: tuple[int, int]) -> None:
    """Remove a placeholder that is what was made. Raises OSError."""
    folder, _, name = path.rpartition("/")
    with Descriptor(opened_without_links(folder, root)) as parent:
        status = os.lstat(name, dir_fd=parent)
        if node != (0, 0) and node != (status.st_dev, status.st_ino):
            return
        if kept == "-":
            os.rmdir(name, dir_fd=parent)
            return
        content = bytes.fromhex(kept.strip("."))
        if bounded.read(name, len(content), dir_fd=parent) == content:
            os.unlink(name, dir_fd=parent)
