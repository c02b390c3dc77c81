"""Hooks of the user's that git does not run in a sandbox, where they are hidden: named at the end, if git would have.

Something was done that runs hooks when the log of HEAD was written, or for pre-push that of a remote's branch.
"""

from __future__ import annotations

import os
from itertools import islice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omac.adapters.git.repository import Repository

OF_A_PUSH = frozenset(("pre-push",))
OF_A_WORKTREE = frozenset(
    (
        "applypatch-msg",
        "commit-msg",
        "post-applypatch",
        "post-checkout",
        "post-commit",
        "post-merge",
        "post-rewrite",
        "pre-applypatch",
        "pre-commit",
        "pre-merge-commit",
        "pre-rebase",
        "prepare-commit-msg",
        "reference-transaction",
    )
)
ENTRIES_MAX = 2_000  # folders and files among the logs of remotes, which a program can make


class SkippedHooks:
    """The hooks in `folder`, by their names, and the logs of a repository at launch. `shown_by` is the command or the
    option that lets them run inside."""

    def __init__(self, folder: str, repository: Repository, shown_by: str) -> None:
        self.folder = folder
        self._shown_by = shown_by
        self._names = _hooks(folder)
        self._logs = (f"{repository.git}/logs/HEAD", f"{repository.common}/logs/refs/remotes")
        self._before = self._stamps() if self._names else ((), ())

    def warning(self) -> str:
        """Return what a person should know at the end; empty if nothing was skipped."""
        if not self._names:
            return ""
        before, now = self._before, self._stamps()
        names = [name for name in self._names if name in OF_A_WORKTREE and before[0] != now[0]]
        names += [name for name in self._names if name in OF_A_PUSH and before[1] != now[1]]
        if not names:
            return ""
        return f"hooks of {self.folder} did not run in the sandbox: {', '.join(names)}; to let them: {self._shown_by}"

    def _stamps(self) -> tuple[tuple[object, ...], tuple[object, ...]]:
        head, remotes = self._logs
        return (_stamp(head),), tuple(sorted(_stamp(path) for path in _files(remotes)))


def _hooks(folder: str) -> list[str]:
    """The names of hooks that git would run, sorted."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    wanted = OF_A_PUSH | OF_A_WORKTREE
    return [name for name in names if name in wanted and os.access(f"{folder}/{name}", os.X_OK)]


def _files(folder: str) -> list[str]:
    """Return the files in a tree, of its first ENTRIES_MAX entries; none where a link leads to it."""
    paths: list[str] = []
    waiting = [folder] if os.path.realpath(folder) == folder else []
    seen = 0
    while waiting and seen < ENTRIES_MAX:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in islice(entries, ENTRIES_MAX - seen):
                    seen += 1
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        paths.append(entry.path)
        except OSError:
            continue
    return paths


def _stamp(path: str) -> tuple[str, int, int]:
    try:
        status = os.lstat(path)
    except OSError:
        return (path, 0, 0)
    return (path, status.st_size, status.st_mtime_ns)
