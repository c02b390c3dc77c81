"""Files and folders that are made on the host only so that something can be pinned there, and removed again.

Removing one that another sandbox has pinned would unpin it there: a mount ends with the name it is mounted on, when
that is removed in another mount namespace (unlink(2)). So every launch holds a lock together with all others, from
before it looks at what is there until it ends. Each placeholder is listed before it is made, and whoever ends last
removes all that are listed, also those of a launch that was killed.
"""

from __future__ import annotations

import fcntl
import os

from omac.domain.refusal import Refusal, look_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omac.domain.confinement import Policy

LOCK = "placeholders.lock"  # in the state directory
LIST = "placeholders"  # beside it: lines of what is there, in hexadecimal, and of the content that a file was given


class Placeholders:
    """Those of one launch. `state` is the state directory, which is made where it is missing."""

    __slots__ = ("_lock", "_state")

    def __init__(self, state: str) -> None:
        self._state = state
        self._lock = -1

    def hold(self) -> None:
        """Keep what others have made, and what is there, from being removed. Raises Refusal (state-unusable)."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            os.makedirs(self._state, 0o700, exist_ok=True)
            self._lock = os.open(f"{self._state}/{LOCK}", flags, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_SH)
        except OSError as problem:
            message = f"the state directory {self._state} cannot be used: {problem.strerror}"
            raise Refusal("state-unusable", message, fix=[look_at(self._state)]) from problem

    def make(self, policy: Policy) -> None:
        """Make what is missing. Raises Refusal (path-changed, state-unusable)."""
        for entry in policy.entries:
            if not entry.made or os.path.lexists(entry.path):
                continue  # another sandbox was first
            content = entry.content if entry.made == "file" else None
            try:
                self._list(entry.path, content)
                if content is None:
                    os.mkdir(entry.path, 0o700)
                else:
                    _write(entry.path, content)
            except FileExistsError:
                continue
            except OSError as problem:
                message = f"{entry.path} cannot be made, which keeps a place from being used: {problem.strerror}"
                raise Refusal("path-changed", message, fix=[look_at(os.path.dirname(entry.path))]) from problem

    def end(self) -> None:
        """Let go; whoever is last removes all that were made and are still as they were made."""
        if self._lock < 0:
            return
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pass  # another sandbox is at work
        else:
            _remove_listed(f"{self._state}/{LIST}")
        os.close(self._lock)
        self._lock = -1

    def _list(self, path: str, content: bytes | None) -> None:
        kept = "-" if content is None else content.hex() + "."
        line = f"{os.fsencode(path).hex()} {kept}\n".encode()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(f"{self._state}/{LIST}", flags, 0o600)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)


def _remove_listed(path: str) -> None:
    try:
        with open(path, encoding="ascii") as file:
            lines = file.read().splitlines()
    except (OSError, ValueError):
        return  # none was made
    for line in reversed(lines):
        try:
            name, kept = line.split(" ")
            placeholder = os.fsdecode(bytes.fromhex(name))
            if kept == "-":
                os.rmdir(placeholder)
            else:
                content = bytes.fromhex(kept.strip("."))
                if _content(placeholder, len(content) + 1) == content:
                    os.unlink(placeholder)
        except (OSError, ValueError):
            pass  # somebody has put something there, or taken it away
    os.unlink(path)


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
