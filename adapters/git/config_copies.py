"""Copies of repositories' settings, which git can write in a sandbox, and what of them is set on the host at the end.

The host's own files are pinned, or not shown at all. In a git folder that can be written as a whole the copy is one of
`adapters/sandbox/replaceable.py`, for a linked worktree it is a file beside the session's refs (`refs.py`).
"""

from __future__ import annotations

import os
import stat

from omac.adapters.git import pointers, program, refs
from omac.adapters.git.repository import is_folder, mode_of
from omac.domain.kernel.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PACKED_BYTES_MAX = 8 << 20  # of refs whose names are held in memory
UNREADABLE = "the copy of the settings in the sandbox cannot be read; the host's are as they were"


class ConfigCopy:
    """The copy of the settings file `path` of the git folder `git`, whose common folder is `common`. `place` is where
    it is on the host, empty for one of the sandbox's own.

    `before` is what it held at launch, None where there was none; `after` is what it holds at the end. `known` are the
    branches at launch, None where git alone can list them, `own` is the one that was checked out.
    """

    def __init__(self, path: str, git: str, common: str, place: str = "") -> None:
        self.path = path
        self.git = git
        self.common = common
        self.place = place
        self.before: bytes | None = None
        self.after: bytes | None = None
        self.known: frozenset[str] | None = None
        self.own = ""

    def state(self) -> list[object]:
        """Return what `of_state` makes a copy of."""
        known = None if self.known is None else sorted(self.known)
        return [self.path, self.git, self.common, self.place, self.before, known, self.own]

    @classmethod
    def of_state(cls, state: list[Any]) -> ConfigCopy:
        """Return the copy that `state` was called on. Raises ValueError, TypeError."""
        path, git, common, place, before, known, own = state
        copy = cls(path, git, common, place)
        copy.before = copy.after = before
        copy.known = None if known is None else frozenset(known)
        copy.own = own
        return copy

    def note(self) -> None:
        """Keep what the end is compared with. Raises Refusal (git-unsafe)."""
        self.before = self.after = pointers.read(self.place or self.path, pointers.CONFIG_BYTES_MAX) or b""
        if self.path == f"{self.common}/config":  # no other one has settings of branches
            self.known = branches_of(self.common)
            self.own = refs.branch_of(self.git)

    def collect(self) -> None:
        """Read what a copy on the host holds. A session's folder that is gone had none, or was removed by a person."""
        if self.place and self.before is not None and is_folder(os.path.dirname(self.place)):
            try:
                self.after = pointers.read(self.place, pointers.CONFIG_BYTES_MAX)
            except Refusal:
                self.after = None

    def copy_back(self) -> list[tuple[str, str]]:
        """Set on the host what was set inside, as far as it may be: (setting, why it stays). Never raises."""
        if self.before == self.after:
            return []
        if self.before is None or self.after is None:
            return [("config", UNREADABLE)]
        if mode_of(self.path) != 0 and not stat.S_ISREG(mode_of(self.path)):
            return [("config", "is no file any more; the settings made inside are lost")]
        from omac.domain.git.config_changes import Branches, changes  # rarely needed, and it costs 6 ms

        try:
            own = {name.removeprefix("refs/heads/") for name in (self.own, refs.branch_of(self.git))}
            wanted_changes = changes(self.before, self.after, Branches(self.known, own, branches_of(self.common)))
        except (Refusal, ValueError):
            return [("config", UNREADABLE)]
        refusals = wanted_changes.refused
        for key, values in wanted_changes.wanted:
            if complaint := _set(self.path, key, values):
                refusals.append((key, f"could not be set as inside: {complaint}"))
        return refusals


def branches_of(common: str) -> frozenset[str] | None:
    """Return the names of a repository's branches, without refs/heads/; None where git alone can list them, or there
    are too many. Raises Refusal."""
    if is_folder(f"{common}/reftable") or _size(f"{common}/packed-refs") > PACKED_BYTES_MAX:
        return None
    packed = refs.packed_of(common)
    names = [name[11:] for name in packed if name.startswith("refs/heads/")]
    waiting, left = [""], refs.LOOSE_MAX  # a program can leave any number of empty folders there
    while waiting:
        folder = waiting.pop()
        if not is_folder(f"{common}/refs/heads/{folder}"):
            continue
        with os.scandir(f"{common}/refs/heads/{folder}") as scan:
            for entry in scan:
                left -= 1
                if left < 0:
                    return None
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(f"{folder}{entry.name}/")
                else:
                    names.append(folder + entry.name)
    return frozenset(names)


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def _set(path: str, key: str, values: list[str]) -> str:
    """Have git write one setting to the host's file; returns its complaint."""
    if not values:
        return program.complaint("config", "--file", path, "--unset-all", "--", key)
    for number, value in enumerate(values):
        how = "--add" if number else "--replace-all"
        if complaint := program.complaint("config", "--file", path, how, "--", key, value):
            return complaint
    return ""
