"""A `.git` in a worktree: a git folder, or a file that leads to one; anything else is disabled."""

from __future__ import annotations

import os

from omac.adapters.git import pointers
from omac.adapters.git.git_folder import inspect_folder, try_to_put
from omac.adapters.git.git_place import led_to
from omac.adapters.git.inspection import Exhausted, Inspection
from omac.adapters.git.open_folder import content_of, open_listable
from omac.adapters.git.quarantine import kind_of
from omac.adapters.git.stamp import node_of, stamp_of
from omac.domain.git.folder import ADMIN, WHOLE, Folder
from omac.domain.kernel.paths import below, below_any
from omac.domain.kernel.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

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
            opened = open_listable(entry.name, parent)
        except OSError as error:
            self._disable(parent, entry, path, f"cannot be inspected: {error.strerror}")
            return
        try:
            known = self._baseline.nodes.get(path)
            inspect_folder(self._inspection, path, Folder(WHOLE, worktree, path), opened)
            if not self._inspection.is_first and known != node_of(os.fstat(opened)):
                self._inspection.report(path, "is a nested repository that is new")
        except Exhausted:
            if not self._inspection.is_first:
                self._disable(parent, entry, path, UNJUDGED)
            raise
        except OSError as error:
            if self._inspection.is_first or self._inspection.while_running:
                raise
            self._disable(parent, entry, path, f"could not be inspected as a whole: {error.strerror}")
        finally:
            os.close(opened)

    def _pointer(self, parent: int, entry: Entry, path: str) -> None:
        """A `.git` file: it leads to a git folder that is judged by itself, or nowhere."""
        stamp = stamp_of(entry.stat(follow_symlinks=False))
        content = content_of(parent, entry.name, pointers.BYTES_MAX) or b""
        if content == NO_REPOSITORY:
            return  # this inspection has put it there, or the watch before it
        named = _named(path, content)
        is_straight = named != "" and led_to(named) == named
        if is_straight:
            self._inspection.traversed.add(named)
            self._inspection.worktrees.setdefault(named, set()).add(os.path.dirname(path))
        if self._inspection.is_first:
            self._baseline.note(path, stamp)
            if is_straight:
                self._baseline.straight.add(path)
            return
        if self._baseline.strays.get(path) == stamp:
            if path in self._baseline.straight and not is_straight and named and os.path.exists(named):
                self._disable(parent, entry, path, f"leads past a link to {named}, and did not before", is_known=True)
            return
        self._new_pointer(parent, entry, path, named, is_straight=is_straight)

    def _new_pointer(self, parent: int, entry: Entry, path: str, named: str, *, is_straight: bool) -> None:
        if not named:
            self._disable(parent, entry, path, "is new, and names no git folder in a way that git writes")
            return
        target = os.path.realpath(named)
        if not self._inspection.while_running and not is_straight:
            self._disable(parent, entry, path, f"is new, and leads to {named}, which is not there, or past a link")
        elif not self._inspection.while_running and not self._is_own(target, os.path.dirname(path)):
            self._disable(parent, entry, path, f"is new, and leads to {target}, whose worktree is another folder")
        elif not below_any(target, (*self._inspection.projects, *self._known)):
            self._disable(parent, entry, path, f"is new, and leads out of the project: {target}")
        elif not (self._may_become_gits(target) if self._inspection.while_running else self._is_gits(target)):
            self._disable(parent, entry, path, f"is new, and leads to {target}, where git keeps no repository")
        elif (target, os.path.dirname(path)) not in self._inspection.announced:
            self._inspection.report(path, f"is new, and leads to {target}")

    def _is_own(self, git: str, worktree: str) -> bool:
        """Return whether the settings of a git folder name this worktree, or none."""
        from omac.domain.git.config_allowlist import worktree_of

        try:
            named = worktree_of(pointers.read(f"{git}/config", pointers.CONFIG_BYTES_MAX) or b"")
        except Refusal:
            return False
        return not named or led_to(os.path.join(git, named)) == worktree

    def _may_become_gits(self, target: str) -> bool:
        """Return whether git may be about to make a git folder at `target`, not among the other files of one."""
        root = outermost(target, self._known)
        return root in ("", target) or target[len(root) + 1 :].startswith(("modules/", "worktrees/"))

    def _is_gits(self, target: str) -> bool:
        """Return whether a folder is judged as one of git's, and cannot become another one by a checkout. A folder in
        one of git's own (`lfs`) does not count, nor one of a worktree, whose files may be in the index and missing."""
        if target in self._known:
            return True
        root = outermost(target, self._known)
        if root:
            return innermost(root, target, None)[0] == target
        project = next((candidate for candidate in self._inspection.projects if below(target, candidate)), "/")
        above = os.path.dirname(target)
        while below(above, project):
            if os.path.lexists(f"{above}/.git"):
                return False
            above = os.path.dirname(above)
        return True

    def _disable(self, parent: int, entry: Entry, path: str, problem: str, *, is_known: bool = False) -> None:
        """Set a `.git` aside and leave one that leads nowhere, so that git there finds no repository around it."""
        stamp = stamp_of(entry.stat(follow_symlinks=False))
        if self._inspection.is_first:
            self._baseline.note(path, stamp)
            return
        is_new = is_known or self._baseline.strays.get(path) != stamp
        if is_new and self._inspection.set_aside(parent, entry.name, path, problem):
            try_to_put(self._inspection, parent, entry.name, path, NO_REPOSITORY)


def _named(path: str, content: bytes) -> str:
    """The git folder that a `.git` file names, as git takes it; empty where git would not have written it so."""
    written = content.removeprefix(b"gitdir: ").rstrip(b"\r\n")
    if written == content or not pointers.is_plain(os.fsdecode(written)):
        return ""
    try:
        return pointers.target(path)
    except Refusal:
        return ""


def outermost(path: str, known: Iterable[str]) -> str:
    """Return the outermost git folder that a path lies in, by those `known` and by name; empty: it is in a worktree."""
    for git in known:
        if below(path, git):
            return git
    at = path.find("/.git/")
    return path[: at + 5] if at >= 0 else path if path.endswith("/.git") else ""


def innermost(git: str, folder: str, known: Folder | None) -> tuple[str, Folder]:
    """Return the git folder that `folder` belongs to: that of a linked worktree or a submodule in `git`, or `git`
    itself, of which `known` is said."""
    nearest = known or Folder(WHOLE, os.path.dirname(git), git)
    parts = folder[len(git) + 1 :].split("/") if folder != git else []
    if len(parts) > 1 and parts[0] == "worktrees":
        admin = f"{git}/worktrees/{parts[1]}"
        return innermost(admin, folder, Folder(ADMIN, "", git))
    if parts and parts[0] == "modules":
        for number in range(2, len(parts) + 1):
            module = f"{git}/{'/'.join(parts[:number])}"
            if os.path.lexists(f"{module}/HEAD") or os.path.lexists(f"{module}/config"):
                return innermost(module, folder, Folder(WHOLE, os.path.dirname(module), module))
    return git, nearest
