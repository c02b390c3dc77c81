"""What a checkout of an index would write where git obeys it: into git folders in the worktree, whatever their names
are, into places that settings name, and in the place of folders through which git reaches one.

git takes a folder for a repository that has `HEAD`, and `objects` and `refs`, or a `commondir` that leads to them
(gitrepository-layout(5)). An index can bring what is missing of one, or all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from omac.domain.git.folder import ALL_MARKS, MARKS
from omac.domain.git.index import entries

FOLDERS_MAX = 1_000
SEEN_MAX = 1_000_000  # folders of an index, those around them included
ENTRIES_MAX = 10_000
_MARKS = {name.encode(): bits for name, bits in MARKS.items()}
_HEAD = MARKS["HEAD"]
_LINK = b"\0\0\xa0\0"  # the mode of a symbolic link
Exists = Callable[[bytes], bool]
Written = tuple[bytes, bytes]  # the name of an entry, and its mode, object id and stage


class TooMany(Exception):
    """There are more than SEEN_MAX folders, FOLDERS_MAX git folders, or ENTRIES_MAX entries in them."""


class Places:
    """Paths in one worktree, relative to it. git obeys what is at or below `obeyed`; through the folders `above` it
    reaches something; `reached` is what it reaches, which is no link."""

    def __init__(self, obeyed: Iterable[bytes], above: Iterable[bytes], reached: Iterable[bytes] = ()) -> None:
        self.obeyed = frozenset(obeyed)
        self.above = frozenset(above)
        self.reached = frozenset(reached)
        self._starts = tuple(name + b"/" for name in self.obeyed)

    def __bool__(self) -> bool:
        return bool(self.obeyed or self.above or self.reached)

    def has(self, name: bytes, what: bytes) -> bool:
        """Return whether an entry would be written in one of them, or in their place."""
        name = name.rstrip(b"/")  # of a folder that a sparse index leaves out
        if name in self.obeyed or name in self.above or name.startswith(self._starts):
            return True
        return name in self.reached and what.startswith(_LINK)

    def may_be_in(self, content: bytes) -> bool:
        """Return whether any entry of an index may be one: before version 4 each name stands there as a whole."""
        names = (*self.obeyed, *self.above, *self.reached)
        alone = any(name + end in content for name in names for end in (b"\0", b"/\0"))
        return alone or content[7:8] == b"\4" or any(start in content for start in self._starts)


def git_folders(indexes: Sequence[bytes], oid_bytes: int, exists: Exists) -> set[bytes]:
    """Return the folders with entries that git takes, or would take after a checkout, for its own: the parts of an
    index are looked at together. `exists` says what is in the worktree. Raises TooMany."""
    marks = _marks(chain.from_iterable(entries(content, oid_bytes) for content in indexes), exists)
    found = set()
    for folder, seen in marks.items():
        if not seen & _HEAD:
            continue
        for name, mark in _MARKS.items():
            seen |= mark if exists(folder + b"/" + name) else 0
        if seen == ALL_MARKS:
            found.add(folder)
    if len(found) > FOLDERS_MAX:
        raise TooMany
    return found


def _marks(found: Iterable[Written], exists: Exists) -> dict[bytes, int]:
    """What of a git folder there is in each folder that has any of it."""
    marks: dict[bytes, int] = {}
    seen: set[int] = set()  # hashes: there may be a million of folders
    last = b""
    for path, _what in found:
        folder, _, name = path.rstrip(b"/").rpartition(b"/")
        if folder and name in _MARKS:
            marks[folder] = marks.get(folder, 0) | _MARKS[name]
        if folder == last:
            continue
        last = folder
        while folder and hash(folder) not in seen:
            seen.add(hash(folder))
            if exists(folder + b"/HEAD"):
                marks[folder] = marks.get(folder, 0) | _HEAD
            above, _, name = folder.rpartition(b"/")
            if above and name in _MARKS:
                marks[above] = marks.get(above, 0) | _MARKS[name]
            folder = above
        if len(seen) > SEEN_MAX or len(marks) > FOLDERS_MAX * 100:
            raise TooMany
    return marks


def written(content: bytes, oid_bytes: int, places: Places) -> list[Written]:
    """Return the entries that would be written in `places`, or in their place; of a part of an index also those of
    which the other part has the names. Raises TooMany."""
    found: list[Written] = []
    if not places or not (b"link" in content or places.may_be_in(content)):
        return found
    for name, what in entries(content, oid_bytes):
        if not name or places.has(name, what):
            found.append((name, what))
            if len(found) > ENTRIES_MAX:
                raise TooMany
    return found
