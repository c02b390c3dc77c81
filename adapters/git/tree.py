"""What lies in a folder and matters before a launch: repositories, and files whose name is to be hidden.

A bounded walk, parents first, that follows no link. Of git folders only those parts are walked in which files may have
any name; in what merely looks like one, everything is.
"""

from __future__ import annotations

import errno
import os

from omac.domain.sandbox.hidden_names import is_env_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from omac.domain.sandbox.hidden_names import HiddenNames

ENTRIES_MAX = 200_000
_OF_ANY_NAME = ("lfs", "annex", "modules", "worktrees")  # in a git folder, or in folders of these
_OF_A_BARE_ONE = ("objects", "refs", "logs", "hooks", "info")  # of these git's grammar says what is in them


class Found:
    """`worktrees`: folders below the first that have a `.git`; `bare`: folders that are git folders themselves.

    `env_files` and `named`, which match a person's pattern, are the paths of what is to be hidden; `unread` are folders
    that cannot be listed, but can be passed through.
    """

    __slots__ = ("bare", "complete", "env_files", "named", "unread", "worktrees")

    def __init__(self) -> None:
        self.worktrees: list[str] = []
        self.bare: list[str] = []
        self.env_files: list[str] = []
        self.named: list[str] = []
        self.unread: list[str] = []
        self.complete = True


def walk(
    workdir: str,
    entries_max: int = ENTRIES_MAX,
    names: HiddenNames | None = None,
    left_out: AbstractSet[str] = frozenset(),
) -> Found:
    """Look through a canonical folder; `complete` says whether all of it was seen. Folders of `left_out` are not."""
    found = Found()
    matches = names.matches if names else None
    env_files = names is not None and names.env_files
    waiting = [workdir]
    seen = 0
    for path in waiting:  # which grows meanwhile
        try:
            scan = os.scandir(path)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM):
                found.unread.append(path)
            continue
        below: list[str] = []
        marks = 0
        with scan:
            for entry in scan:
                seen += 1
                name = entry.name
                if name == ".git":
                    if path != workdir and "/.git/" not in path:
                        found.worktrees.append(path)
                    if names is not None:
                        below += [f"{entry.path}/{part}" for part in _OF_ANY_NAME]
                elif matches is not None and matches(name):
                    found.named.append(entry.path)
                elif entry.is_dir(follow_symlinks=False):
                    below.append(entry.path)
                    if name in ("objects", "refs"):
                        marks += 1
                elif name in ("HEAD", "objects", "refs"):
                    marks += 1
                elif env_files and name[0] == "." and is_env_file(name):
                    found.env_files.append(entry.path)
        if marks == 3:
            if path != workdir and "/.git/" not in path:
                found.bare.append(path)
            is_free = "/lfs/" in f"{path}/" or "/annex/" in f"{path}/"
            if not is_free:
                below = [folder for folder in below if folder[len(path) + 1 :] not in _OF_A_BARE_ONE] if names else []
        if seen > entries_max:
            found.complete = False
            return found
        waiting += [folder for folder in below if folder not in left_out] if left_out else below
    return found
