"""A `.git` in a worktree: a git folder, or a file that leads to one; anything else is disabled."""

from __future__ import annotations

import os

from omac.adapters.git import pointers
from omac.adapters.git.git_folder import DIRECTORY, GitFolder, make_listable, try_to_put
from omac.adapters.git.inspection import Exhausted, Inspection
from omac.adapters.git.quarantine import kind_of
from omac.adapters.git.stamp import node_of, stamp_of
from omac.domain.confinement import below
from omac.domain.git.folder import WHOLE, Folder
from omac.domain.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omac.adapters.git.entry import Entry

NO_REPOSITORY = b"gitdir: /dev/null/set-aside-by-omac\n"  # git stops here, and does not go on to a repository around it
UNJUDGED = "was not inspected: it takes too long"


class DotJudge:
    """Judges each `.git`, in one inspection. `known`: git folders that are judged by themselves."""

    def __init__(self, inspection: Inspection, known: frozenset[str]) -> None:
        self._inspection = inspection
        self._baseline = inspection.baseline
        self._known = known

    def judge(self, parent: int, folder: str, entry: Entry) -> None:
        """Judge an entry of the open folder `parent`, whose path is `folder`. Raises Exhausted, OSError."""
        path = f"{folder}/{entry.name}"
        if path in self._known:
            return
        if entry.is_dir(follow_symlinks=False) and self._inspection.is_hurried:
            self._disable(parent, entry, path, UNJUDGED)
        elif entry.is_dir(follow_symlinks=False):
            self._repository(parent, folder, entry, path)
        elif entry.is_file(follow_symlinks=False):
            self._pointer(parent, entry, path)
        else:
            kind = kind_of(entry.stat(follow_symlinks=False).st_mode)
            self._disable(parent, entry, path, f"is {kind} in place of a git folder")

    def _repository(self, parent: int, worktree: str, entry: Entry, path: str) -> None:
        try:
            make_listable(entry.name, parent)
            opened = os.open(entry.name, DIRECTORY, dir_fd=parent)
        except OSError as error:
            self._disable(parent, entry, path, f"cannot be inspected: {error.strerror}")
            return
        try:
            known = self._baseline.nodes.get(path)
            GitFolder(self._inspection, path, Folder(WHOLE, worktree, path)).inspect(opened)
            if not self._inspection.is_first and known != node_of(os.fstat(opened)):
                self._inspection.report(path, "is a nested repository that is new")
        except Exhausted:
            if not self._inspection.is_first:
                self._disable(parent, entry, path, UNJUDGED)
            raise
        finally:
            os.close(opened)

    def _pointer(self, parent: int, entry: Entry, path: str) -> None:
        """A `.git` file: it leads to a git folder that is judged by itself, or nowhere."""
        stamp = stamp_of(entry.stat(follow_symlinks=False))
        if self._inspection.is_first:
            self._baseline.note(path, stamp)
            return
        if self._baseline.strays.get(path) == stamp:
            return
        try:
            if pointers.read(path, pointers.BYTES_MAX) == NO_REPOSITORY:
                return  # this inspection has put it there, or the watch before it
            target = os.path.realpath(pointers.target(path))
        except Refusal:
            self._disable(parent, entry, path, "is new, and names no git folder in a way that git writes")
            return
        if any(below(target, place) for place in (*self._inspection.projects, *self._known)):
            self._inspection.report(path, f"is new, and leads to {target}")
        else:
            self._disable(parent, entry, path, f"is new, and leads out of the project: {target}")

    def _disable(self, parent: int, entry: Entry, path: str, what: str) -> None:
        """Set a `.git` aside and leave one that leads nowhere, so that git there finds no repository around it."""
        stamp = stamp_of(entry.stat(follow_symlinks=False))
        if self._inspection.is_first:
            self._baseline.note(path, stamp)
        elif self._baseline.strays.get(path) != stamp and self._inspection.set_aside(parent, entry.name, path, what):
            try_to_put(self._inspection, parent, entry.name, path, NO_REPOSITORY)
