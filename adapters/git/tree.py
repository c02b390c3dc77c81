"""The parts of a folder that matter before a launch: repositories, and files whose name is to be hidden.

The walk is bounded, visits parents first, and follows no link. Of git folders only those parts are walked in which
files may have any name; a folder that merely looks like one is walked as a whole.
"""

from __future__ import annotations

import errno
import os

from omac.adapters.files.sockets import is_in_use, is_socket
from omac.domain.sandbox.hidden_names import ENTRIES_MAX, is_env_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

    from omac.domain.sandbox.hidden_names import HiddenNames

_OF_ANY_NAME = ("lfs", "annex", "modules", "worktrees")  # in a git folder, or in folders of these
_OF_A_BARE_ONE = ("objects", "refs", "logs", "hooks", "info")  # of these git's grammar says what is in them


class TreeContents:
    """`worktrees`: folders below the first that have a `.git`; `bare`: folders that are git folders themselves.

    `env_files` and `named`, which match a person's pattern, are the paths of what is to be hidden, and so are
    `sockets` that a process has; `unread` are folders that cannot be listed, but can be passed through.
    """

    def __init__(self) -> None:
        self.worktrees: list[str] = []
        self.bare: list[str] = []
        self.env_files: list[str] = []
        self.named: list[str] = []
        self.sockets: list[str] = []
        self.unread: list[str] = []
        self.complete = True


def walk(
    workdir: str,
    entries_max: int = ENTRIES_MAX,
    names: HiddenNames | None = None,
    left_out: AbstractSet[str] = frozenset(),
) -> TreeContents:
    """Walk through a canonical folder; `complete` says whether all of it was seen. Folders of `left_out` are not
    entered."""
    scan = _Scan(workdir, names)
    waiting = [workdir]
    for path in waiting:  # which grows meanwhile
        below = scan.folder(path)
        if scan.seen > entries_max:
            scan.found.complete = False
            break
        waiting += [folder for folder in below if folder not in left_out] if left_out else below
    return scan.found


class _Scan:
    """The state of a walk: what it has `found`, and how many entries it has `seen`."""

    def __init__(self, workdir: str, names: HiddenNames | None) -> None:
        self.found = TreeContents()
        self.seen = 0
        self._workdir = workdir
        self._names = names

    def folder(self, path: str) -> list[str]:
        """Scan one folder; return the folders in it that are to be scanned."""
        try:
            scan = os.scandir(path)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM):
                self.found.unread.append(path)
            return []
        with scan:
            below, marks = self._entries(path, scan)
        if marks < 3:
            return below
        if self._is_nested(path):
            self.found.bare.append(path)
        return _in_a_bare_one(path, below, self._names)

    def _entries(self, path: str, scan: Iterable[os.DirEntry[str]]) -> tuple[list[str], int]:
        """Note what is in a folder; return the folders in it, and how many marks of a bare repository it has."""
        files, names = self.found, self._names
        matches = names.matches if names else None
        env_files = names is not None and names.env_files
        below: list[str] = []
        marks = 0
        for entry in scan:
            self.seen += 1
            name = entry.name
            if name == ".git":
                below += self._dot_git(path, entry.path)
            elif matches is not None and matches(name):
                files.named.append(entry.path)
            elif entry.is_dir(follow_symlinks=False):
                below.append(entry.path)
                if name in ("objects", "refs"):
                    marks += 1
            elif name in ("HEAD", "objects", "refs"):
                marks += 1
            elif env_files and name[0] == "." and is_env_file(name):
                files.env_files.append(entry.path)
            elif is_socket(entry) and is_in_use(entry.path):
                files.sockets.append(entry.path)
        return below, marks

    def _dot_git(self, path: str, dot: str) -> list[str]:
        if self._is_nested(path):
            self.found.worktrees.append(path)
        return [f"{dot}/{part}" for part in _OF_ANY_NAME] if self._names is not None else []

    def _is_nested(self, path: str) -> bool:
        return path != self._workdir and "/.git/" not in path


def _in_a_bare_one(path: str, folders: list[str], names: HiddenNames | None) -> list[str]:
    """Return those folders in a bare repository that may hold anything."""
    if "/lfs/" in f"{path}/" or "/annex/" in f"{path}/":
        return folders
    return [folder for folder in folders if folder[len(path) + 1 :] not in _OF_A_BARE_ONE] if names else []
