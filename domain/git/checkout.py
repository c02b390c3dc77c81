"""What a checkout of an index would write where git obeys it: into git folders in the worktree, whatever their names
are, and into places that the settings of a repository name.

git takes a folder for a repository that has `HEAD`, and `objects` and `refs`, or a `commondir` that leads to them
(gitrepository-layout(5)). An index can bring what is missing of one, or all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from omac.domain.git.index import entries

FOLDERS_MAX = 1_000
SEEN_MAX = 1_000_000  # folders of an index, those around them included
ENTRIES_MAX = 10_000
_HEAD, _OBJECTS, _REFS = 1, 2, 4
_WHOLE = _HEAD | _OBJECTS | _REFS
_MARKS = {b"HEAD": _HEAD, b"objects": _OBJECTS, b"refs": _REFS, b"commondir": _OBJECTS | _REFS}
Exists = Callable[[bytes], bool]


class TooMany(Exception):
    """There are more than SEEN_MAX folders, FOLDERS_MAX git folders, or ENTRIES_MAX entries in them."""


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
        if seen == _WHOLE:
            found.add(folder)
    if len(found) > FOLDERS_MAX:
        raise TooMany
    return found


def _marks(found: Iterable[tuple[bytes, bytes]], exists: Exists) -> dict[bytes, int]:
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


def written(content: bytes, oid_bytes: int, places: Iterable[bytes]) -> dict[bytes, bytes]:
    """Return mode and object id of the entries at or below `places`, by name. Raises TooMany."""
    names = frozenset(places)
    if not names or not _may_have(content, names):
        return {}
    starts = tuple(name + b"/" for name in names)
    return dict(_bounded(entries(content, oid_bytes), names, starts))


def _bounded(
    found: Iterable[tuple[bytes, bytes]], names: frozenset[bytes], starts: tuple[bytes, ...]
) -> Iterator[tuple[bytes, bytes]]:
    count = 0
    for name, what in found:
        if name in names or name.startswith(starts):
            count += 1
            if count > ENTRIES_MAX:
                raise TooMany
            yield name, what


def _may_have(content: bytes, names: frozenset[bytes]) -> bool:
    """Whether any of these may be in an index: before version 4 each name stands there as a whole."""
    return content[7:8] == b"\4" or any(name in content for name in names)
