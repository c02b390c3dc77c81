"""Files and folders that are made on the host only so that something can be pinned there, and removed again.

Removing one that another sandbox has pinned would unpin it there: a mount ends with the name it is mounted on, when
that is removed in another mount namespace (unlink(2)). So whoever uses placeholders holds a lock together with all
others, and removes its own only when nobody else does; what stays then is as harmless as it was.
"""

from __future__ import annotations

import fcntl
import os

from omac.domain.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omac.domain.confinement import Policy

LOCK = "placeholders.lock"  # in the state directory


class Placeholders:
    """Those of one launch. `state` is the state directory."""

    __slots__ = ("_lock", "_made", "_state")

    def __init__(self, state: str) -> None:
        self._state = state
        self._lock = -1
        self._made: list[tuple[str, bytes | None]] = []  # the path, and the content if it is a file

    def make(self, policy: Policy) -> None:
        """Make what is missing. Raises Refusal (path-changed)."""
        wanted = [entry for entry in policy.entries if entry.made]
        if not wanted:
            return
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._lock = os.open(f"{self._state}/{LOCK}", flags, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        for entry in wanted:
            try:
                if entry.made == "folder":
                    os.mkdir(entry.path, 0o700)
                else:
                    _write(entry.path, entry.content)
            except FileExistsError:
                continue  # another sandbox was first
            except OSError as problem:
                message = f"{entry.path} cannot be made, which keeps a place from being used: {problem.strerror}"
                raise Refusal("path-changed", message, fix=[f"ls -ld {os.path.dirname(entry.path)}"]) from problem
            self._made.append((entry.path, entry.content if entry.made == "file" else None))

    def end(self) -> None:
        """Remove what was made and is still as it was made, unless another sandbox is at work."""
        if self._lock < 0:
            return
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._made = []
        for path, content in reversed(self._made):
            try:
                if content is None:
                    os.rmdir(path)
                elif _content(path, len(content) + 1) == content:
                    os.unlink(path)
            except OSError:
                pass  # somebody has put something there, or taken it away
        os.close(self._lock)
        self._lock = -1


def _write(path: str, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, content)
    finally:
        os.close(descriptor)


def _content(path: str, bytes_max: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(descriptor, bytes_max)
    finally:
        os.close(descriptor)
