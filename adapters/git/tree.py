"""The repositories in a folder: a bounded walk that follows no link and goes into no git folder."""

from __future__ import annotations

import os

ENTRIES_MAX = 200_000


class Found:
    """`worktrees`: folders below the first that have a `.git`; `bare`: folders that are git folders themselves."""

    __slots__ = ("bare", "complete", "worktrees")

    def __init__(self) -> None:
        self.worktrees: list[str] = []
        self.bare: list[str] = []
        self.complete = True


def walk(workdir: str, entries_max: int = ENTRIES_MAX) -> Found:
    """Look through a canonical folder, parents first; `complete` says whether all of it was seen."""
    found = Found()
    waiting = [workdir]
    seen = 0
    while waiting:
        path = waiting.pop()
        try:
            scan = os.scandir(path)
        except OSError:
            continue  # what cannot be listed by its owner is not listed inside either
        below: list[str] = []
        marks = 0
        with scan:
            for entry in scan:
                seen += 1
                name = entry.name
                if name == ".git":
                    if path != workdir:
                        found.worktrees.append(path)
                elif entry.is_dir(follow_symlinks=False):
                    below.append(entry.path)
                    if name in ("objects", "refs"):
                        marks += 1
                elif name == "HEAD":
                    marks += 1
        if marks == 3:
            if path != workdir:
                found.bare.append(path)
            continue
        if seen > entries_max:
            found.complete = False
            return found
        waiting += below
    return found
