"""A git folder on disk, for the judges of its files (domain/git/judges.py)."""

from __future__ import annotations

import os
import stat

from omac.adapters.files.descriptor import Descriptor
from omac.adapters.files.without_links import opened_folder, opened_path
from omac.adapters.git import pointers
from omac.adapters.git.stamp import node_of
from omac.domain.git.folder import ALL_MARKS, MARKS
from omac.domain.git.grammar import INDEX_BYTES_MAX
from omac.domain.git.place import JudgedFolder
from omac.domain.kernel.paths import below, below_any
from omac.domain.kernel.refusal import Refusal


class GitPlace(JudgedFolder):
    """The git folder `git`, whose worktree is `worktree`, empty for none. What its files lead through in the projects
    is added to `traversed`: no checkout may put a link there. `was_straight`: at launch its settings led to its
    worktree past no link."""

    def __init__(self, git: str, worktree: str, common: str, projects: tuple[str, ...], traversed: set[str]) -> None:
        self.git = git
        self.worktree = worktree
        self.common = common
        self.projects = projects
        self.traversed = traversed
        self.was_straight = True

    def holds(self, path: str) -> bool:
        real = os.path.realpath(os.path.join(self.git, path)) if "\0" not in path else "/"
        return self._is_ours(real)

    def reaches(self, path: str, *, beside: str) -> bool:
        return self._is_ours(self._led_to(path, beside))

    def is_own_worktree(self, path: str) -> bool:
        real = self._led_to(path)
        project = next((candidate for candidate in self.projects if below(real, candidate)), "")
        within = real[len(project) + 1 :].lower().split("/")
        if not real or not project or ".git" in within:
            return False
        marks = 0
        for name, bits in MARKS.items():
            marks |= bits if os.path.lexists(f"{real}/{name}") else 0
        if marks == ALL_MARKS:
            return False  # what is checked out there would be git's own files
        dot = f"{real}/.git"
        try:
            return _is_same(dot, self.git) or pointers.target(dot) == self.git
        except (OSError, Refusal):
            return False

    def leads_past_link(self, path: str) -> bool:
        return self.was_straight and not self._led_to(path) and os.path.exists(os.path.join(self.git, path))

    def is_named_by(self, path: str) -> bool:
        """Implement JudgedFolder. A worktree that the host adds meanwhile counts: its own pointer names this git
        folder. git writes that last: while the program is at work, one that has none yet is judged later."""
        try:
            if self.holds(path):
                return False
            pointer = os.path.join(self.git, path)
            return (self.is_in_use and not os.path.lexists(pointer)) or pointers.target(pointer) == self.git
        except (Refusal, ValueError):
            return False

    def is_common(self, path: str) -> bool:
        return self._led_to(path) == self.common

    def has_entries(self, paths: frozenset[bytes]) -> bool:
        if not paths:
            return True
        from omac.domain.git.index import index_problem
        from omac.domain.git.split_index import NotWhole, all_entries

        indexes = self.indexes()
        if not self.worktree or any(index_problem(content, self.oid_bytes) for content in indexes):
            return False
        try:
            names = {name for name, _fields in all_entries(indexes, self.oid_bytes) if name in paths}
        except NotWhole:
            return False
        files = [f"{self.worktree}/{os.fsdecode(path)}" for path in paths]
        return paths <= names and all(not os.path.exists(path) or led_to(path) for path in files)

    def has(self, name: str) -> bool:
        return os.path.lexists(f"{self.git}/{name}")

    def content(self, name: str) -> bytes:
        """Return what a file of the git folder holds; empty where it is none."""
        try:
            with Descriptor(opened_folder(self.git)) as folder:
                return pointers.read_leniently(f"/proc/self/fd/{folder}/{name}", INDEX_BYTES_MAX)
        except OSError:
            return b""

    def indexes(self) -> list[bytes]:
        """Return what there is of the index: one file, or two where it is split."""
        index = self.content("index")
        shared = ""
        if b"link" in index:
            from omac.domain.git.split_index import shared_index

            shared = shared_index(index, self.oid_bytes)
        return [content for content in (index, self.content(shared) if shared else b"") if content]

    def _led_to(self, path: str, beside: str = "") -> str:
        """Return where a plain path leads past no link, which is added to `traversed`; empty: nowhere."""
        if not pointers.is_plain(path):
            return ""
        real = led_to(os.path.join(self.git, beside, path))
        if real:
            self.traversed.add(real)
        return real

    def _is_ours(self, real: str) -> bool:
        return real != "" and below_any(real, self.projects)


def led_to(path: str) -> str:
    """Return the canonical path of what is at an absolute path that passes through no link; empty: there is nothing,
    or a link stands in the way."""
    if "\0" in path:
        return ""
    try:
        with Descriptor(opened_path(path)) as descriptor:
            is_link = stat.S_ISLNK(os.fstat(descriptor).st_mode)
            return "" if is_link else os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""


def _is_same(path: str, other: str) -> bool:
    """Return whether two paths are one folder, and the first no link."""
    seen = os.lstat(path)
    return node_of(seen) == node_of(os.stat(other))
