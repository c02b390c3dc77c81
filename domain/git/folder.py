"""A git folder to be inspected: which of the two kinds it is, and what belongs to it."""

from __future__ import annotations

from omac.domain.kernel import PlainData

WHOLE = "git folder"
ADMIN = "admin folder of a worktree"

# What git takes a folder for its own by, whatever its name is: all three bits (gitrepository-layout(5)).
MARKS = {"HEAD": 1, "objects": 2, "refs": 4, "commondir": 6}
ALL_MARKS = 7


class Folder(PlainData):
    """A git folder that is judged by itself: its `role` (WHOLE or ADMIN), its worktree, its common folder; canonical
    paths. `only` are the names in it that the program could write, empty for all; `pinned` are the paths, relative to
    the worktree, of what settings have git run or read there."""

    role: str
    worktree: str
    common: str
    only: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()

    def inspects(self, within: str) -> bool:
        """Return whether an inspection looks at a path in it: not at what lies beside `only`."""
        return not self.only or within.partition("/")[0] in self.only
