"""A git folder on disk, for the judges of its files (domain/git/judges.py)."""

from __future__ import annotations

import os
import stat

from omac.adapters.git import pointers
from omac.adapters.git.stamp import node_of
from omac.adapters.linux.without_links import opened_folder, opened_without_links
from omac.domain.confinement import below
from omac.domain.git.grammar import INDEX_BYTES_MAX, Place
from omac.domain.refusal import Refusal

_MARKS = ("HEAD", "objects", "refs")


class GitPlace(Place):
    """The git folder `git`, whose worktree is `worktree`, empty for none. `pinned` are paths in that which settings
    name, and `written_before` is what an index would have written there and into git folders at launch."""

    def __init__(self, git: str, worktree: str, common: str, projects: tuple[str, ...], oid_bytes: int) -> None:
        self.git = git
        self.worktree = worktree
        self.common = common
        self.projects = projects
        self.oid_bytes = oid_bytes
        self.pinned: tuple[str, ...] = ()
        self.written_before: dict[bytes, bytes] = {}

    def holds(self, path: str) -> bool:
        """As in Place."""
        real = os.path.realpath(os.path.join(self.git, path)) if "\0" not in path else "/"
        return self._is_ours(real)

    def reaches(self, path: str, *, beside: str) -> bool:
        """As in Place."""
        real = led_to(os.path.join(self.git, beside, path))
        return real != "" and self._is_ours(real)

    def is_own_worktree(self, path: str) -> bool:
        """As in Place."""
        real = led_to(os.path.join(self.git, path))
        project = next((one for one in self.projects if below(real, one)), "")
        within = real[len(project) + 1 :].lower().split("/")
        if not real or not project or ".git" in within:
            return False
        if all(os.path.lexists(f"{real}/{name}") for name in _MARKS):
            return False  # what is checked out there would be git's own files
        dot = f"{real}/.git"
        try:
            return _is_same(dot, self.git) or pointers.target(dot) == self.git
        except (OSError, Refusal):
            return False

    def is_named_by(self, path: str) -> bool:
        """As in Place: of a worktree that the host adds meanwhile, its own pointer says so."""
        try:
            return not self.holds(path) and pointers.target(os.path.join(self.git, path)) == self.git
        except (Refusal, ValueError):
            return False

    def is_common(self, path: str) -> bool:
        """As in Place."""
        return "\0" not in path and os.path.realpath(os.path.join(self.git, path)) == self.common

    def has_entries(self, paths: frozenset[bytes]) -> bool:
        """As in Place."""
        if not paths:
            return True
        from omac.domain.git.index import entries, index_problem

        content = self._file("index")
        if index_problem(content, self.oid_bytes):
            return False
        return paths <= {name for name, _what in entries(content, self.oid_bytes) if name in paths}

    def checkout_problem(self, content: bytes) -> str:
        """As in Place."""
        if not self.worktree:
            return ""
        from omac.domain.git.checkout import TooMany, git_folders, written

        top = os.fsencode(self.worktree)
        try:
            whole = self._with_other_parts(content)
            places = git_folders(whole, self.oid_bytes, lambda path: os.path.lexists(top + b"/" + path))
            found = written(content, self.oid_bytes, {*places, *map(os.fsencode, self.pinned)})
        except TooMany:
            return "would have git checkout write more into git folders than can be looked at"
        new = [name for name, what in found.items() if self.written_before.get(name) != what]
        return f"would have git checkout write {os.fsdecode(new[0])[:200]!r}, which git obeys" if new else ""

    def note(self, places: frozenset[str]) -> dict[bytes, bytes]:
        """Return what the index would have written at or below these paths of the worktree, at launch."""
        from omac.domain.git.checkout import TooMany, written

        content = self._file("index")
        try:
            return written(content, self.oid_bytes, map(os.fsencode, places)) if content else {}
        except TooMany:
            return {}

    def _with_other_parts(self, content: bytes) -> list[bytes]:
        """A split index is two files, and either may be the one that has changed."""
        from omac.domain.git.index import shared_index

        index = self._file("index")
        shared = shared_index(index, self.oid_bytes)
        others = [index, self._file(shared) if shared else b""]
        return [content, *(one for one in others if one and one != content)]

    def _file(self, name: str) -> bytes:
        try:
            folder = opened_folder(self.git)
        except OSError:
            return b""
        try:
            return pointers.read(f"/proc/self/fd/{folder}/{name}", INDEX_BYTES_MAX) or b""
        except Refusal:
            return b""
        finally:
            os.close(folder)

    def _is_ours(self, real: str) -> bool:
        return any(below(real, project) for project in self.projects)


def led_to(path: str) -> str:
    """Return the canonical path of what is at an absolute path that passes through no link; empty: there is nothing,
    or a link stands in the way."""
    if "\0" in path:
        return ""
    root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        found = opened_without_links(path, root)
    except OSError:
        return ""
    finally:
        os.close(root)
    try:
        is_link = stat.S_ISLNK(os.fstat(found).st_mode)
        return "" if is_link else os.readlink(f"/proc/self/fd/{found}")
    finally:
        os.close(found)


def _is_same(path: str, other: str) -> bool:
    """Whether two paths are one folder, and the first no link."""
    seen = os.lstat(path)
    return node_of(seen) == node_of(os.stat(other))
