"""The entries of an index that a checkout would write where git obeys them. Such places are git folders in the
worktree, whatever their names are, places that settings name, and the place of folders through which git reaches one.
The two files of a split index are one.

git takes a folder for a repository if it has `HEAD`, and `objects` and `refs`, or a `commondir` that leads to them
(gitrepository-layout(5)). An index can bring any missing part of a repository, or all of it.
"""

from __future__ import annotations

from omac.domain.git.folder import ALL_MARKS, MARKS
from omac.domain.git.split_index import all_entries

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import TypeAlias

    Exists: TypeAlias = Callable[[bytes], bool]

FOLDERS_MAX = 1_000
SEEN_MAX = 1_000_000  # folders of an index, those around them included
ENTRIES_MAX = 10_000
DIGEST_BYTES = 24
_MARKS = {name.encode(): bits for name, bits in MARKS.items()}
_HEAD = MARKS["HEAD"]
_LINK = b"\0\0\xa0\0"  # the mode of a symbolic link
Written = tuple[bytes, bytes]  # the name of an entry, and its mode, object id and stage


class TooMany(Exception):
    """An index has more than SEEN_MAX folders, FOLDERS_MAX git folders (or 100 times as many folders with a part of
    one), or ENTRIES_MAX entries in the places asked about."""


class ObeyedPaths:
    """Paths in one worktree, relative to it. git obeys what is at or below `obeyed`; through the folders `above` it
    reaches something; `reached` is what it reaches, which is no link."""

    def __init__(self, obeyed: Iterable[bytes], above: Iterable[bytes], reached: Iterable[bytes] = ()) -> None:
        self.obeyed = frozenset(obeyed)
        self.above = frozenset(above)
        self.reached = frozenset(reached)
        self._starts = tuple(name + b"/" for name in self.obeyed)

    def __bool__(self) -> bool:
        return bool(self.obeyed or self.above or self.reached)

    def has(self, name: bytes, fields: bytes) -> bool:
        """Return whether an entry would be written in one of them, or in their place."""
        name = name.rstrip(b"/")  # of a folder that a sparse index leaves out
        if name in self.obeyed or name in self.above or name.startswith(self._starts):
            return True
        return name in self.reached and fields.startswith(_LINK)

    def may_be_in(self, content: bytes) -> bool:
        """Return whether any entry of an index may be one: before version 4 each name stands there as a whole."""
        names = (*self.obeyed, *self.above, *self.reached)
        alone = any(name + end in content for name in names for end in (b"\0", b"/\0"))
        return alone or content[7:8] == b"\4" or any(start in content for start in self._starts)


def digest_of(name: bytes, fields: bytes) -> bytes:
    """Return what stands for an entry, in DIGEST_BYTES: names may be long."""
    try:
        from _blake2 import blake2b  # hashlib loads OpenSSL, which takes 4 ms
    except ImportError:
        from hashlib import blake2b

    return blake2b(fields + name, digest_size=DIGEST_BYTES).digest()  # fields: one length for each repository


def git_folders(indexes: Sequence[bytes], oid_bytes: int, exists: Exists) -> set[bytes]:
    """Return the folders with entries that git takes, or would take after a checkout, for its own. `exists` says
    what is in the worktree. Raises TooMany, NotWhole."""
    marks = _marks(all_entries(indexes, oid_bytes), exists)
    folders = set()
    for folder, seen in marks.items():
        if not seen & _HEAD:
            continue
        for name, mark in _MARKS.items():
            seen |= mark if exists(folder + b"/" + name) else 0
        if seen == ALL_MARKS:
            folders.add(folder)
    if len(folders) > FOLDERS_MAX:
        raise TooMany
    return folders


def _marks(writes: Iterable[Written], exists: Exists) -> dict[bytes, int]:
    """Return which parts of a git folder each folder has, as bits of MARKS, by folder; folders without any are left
    out. Raises TooMany."""
    marks: dict[bytes, int] = {}
    seen: set[int] = set()  # hashes: there may be a million of folders
    last = b""
    for path, _fields in writes:
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


def written(indexes: Sequence[bytes], oid_bytes: int, paths: ObeyedPaths) -> Iterator[Written]:
    """Yield the entries that would be written at `paths`, or in their place; where the shared index is not there, also
    those of which it has the names. Raises TooMany, NotWhole."""
    is_alone = len(indexes) == 1 and b"link" in indexes[0]
    if not paths or not (is_alone or any(paths.may_be_in(content) for content in indexes)):
        return
    left = ENTRIES_MAX
    for name, fields in all_entries(indexes, oid_bytes):
        if not name or paths.has(name, fields):
            left -= 1
            if left < 0:
                raise TooMany
            yield name, fields
