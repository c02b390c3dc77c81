"""Entries that hold things in place: what is a mount can be neither renamed nor removed.

A pinned file in a folder that can be written is worth nothing if the folder can be moved away and another put in its
place, so every folder on the way to it is bound onto itself. What is made is shared: the git of other users reads it.
"""

from __future__ import annotations

import os
import stat

from omac.adapters.git import pointers
from omac.adapters.git.repository import mode_of
from omac.domain.kernel.paths import below
from omac.domain.kernel.refusal import list_command, quoted
from omac.domain.sandbox.confinement import DENY, READ, WRITE, Entry


class Pins:
    """Collects the entries of one workdir; of two for one path the stricter stays."""

    def __init__(self, workdir: str) -> None:
        self.workdir = workdir
        self.entries: dict[str, Entry] = {}

    def grant(self, path: str, reason: str, *, made: str = "") -> None:
        """Make a path outside the workdir, or a folder around pinned things, writable. Raises Refusal for a link."""
        if path == self.workdir or path in self.entries or not self._there(path, made):
            return
        if mode_of(path) == 0 and not _can_be_made(path):
            return
        self._hold_parents(path)
        self.entries[path] = Entry(path, WRITE, reason, made=made if mode_of(path) == 0 else "", shared=True)

    def pin(self, path: str, reason: str, *, made: str = "", content: bytes = b"", access: str = READ) -> None:
        """Keep a path as it is; a missing one is `made` ("file" or "folder"), or else left out. Raises Refusal."""
        if path == self.workdir or not self._there(path, made):
            return
        missing = mode_of(path) == 0
        if missing and not _can_be_made(path):
            return
        self._hold_parents(path)
        known = self.entries.get(path)
        if known is None or known.access in (WRITE, READ) or access == DENY:
            self.entries[path] = Entry(
                path, access, reason, made=made if missing else "", content=content if missing else b"", shared=True
            )

    def put(self, entry: Entry) -> None:
        self.entries[entry.path] = entry

    def _there(self, path: str, made: str) -> bool:
        return _mode_behind_no_link(path) != 0 or made != ""

    def _hold_parents(self, path: str) -> None:
        """Add an entry for every folder between a writable one and the path."""
        parent = os.path.dirname(path)
        held: list[str] = []
        while parent not in self.entries and parent != self.workdir:
            if not below(parent, self.workdir) and not self._covered(parent):
                break
            held.append(parent)
            parent = os.path.dirname(parent)
        for folder in reversed(held):
            made = "" if self._there(folder, "") else "folder"
            reason = "git: what is pinned below it stays there"
            self.entries[folder] = Entry(folder, WRITE, reason, made=made, shared=True)

    def _covered(self, path: str) -> bool:
        """Return whether a path outside the workdir lies in something that was granted."""
        while len(path) > 1:
            path = os.path.dirname(path)
            if path in self.entries:
                return self.entries[path].access == WRITE
        return False


def _mode_behind_no_link(path: str) -> int:
    """Return the mode of what is at a path, 0 where nothing is. Raises Refusal (git-unsafe) for a link."""
    mode = mode_of(path)
    if stat.S_ISLNK(mode):
        raise pointers.unsafe(
            f"{path} is a symbolic link, so it cannot be pinned",
            f"{list_command(path)}  # put the file or folder itself in its place",
        )
    return mode


def _can_be_made(path: str) -> bool:
    """Return whether a program of the user's can make a missing path: not in a folder of another user's that the user
    may not change, nor where the file system is read-only. Raises Refusal (git-unsafe) where a program could, by
    changing the folder's mode first, and omac cannot, and behind a link, which then leads to itself."""
    folder = os.path.dirname(path)
    while _mode_behind_no_link(folder) == 0 and len(folder) > 1:
        folder = os.path.dirname(folder)
    if os.access(folder, os.W_OK | os.X_OK):
        return True
    if os.stat(folder).st_uid != os.geteuid() or os.statvfs(folder).f_flag & os.ST_RDONLY:
        return False
    message = f"nothing can be pinned in {folder}, which you may not change"
    raise pointers.unsafe(message, f"chmod u+rwx {quoted(folder)}")
