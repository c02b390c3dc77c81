"""The indexes of an inspection, held against the worktrees that a checkout would write: after everything else, when
it is known which git folders there are, what settings name, and through which folders git reaches something.
"""

from __future__ import annotations

import os

from omac.adapters.git.open_folder import opened_root
from omac.domain.kernel.digest import sha256_hex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from omac.adapters.git.git_place import GitPlace
    from omac.adapters.git.inspection import Inspection
    from omac.domain.git.checkout import Places

SECONDS_MAX = 20.0
FEW = 16  # paths: finding those that lie in a folder costs less than loading what finds them among many
_INDEX = "index"


def note(inspection: Inspection) -> None:
    """Note what the indexes bring into such places at launch: the host may keep it there."""
    known = _Known(inspection)
    for place in inspection.places:
        inspection.baseline.around[place.git] = known.around(place)
        for worktree in known.worktrees(place):
            if known.has_places(worktree):
                inspection.baseline.note_written(place.git, _noted(known, place, worktree))


def _noted(known: _Known, place: GitPlace, worktree: str) -> bytes:
    """The digests of what an index writes, one after the other."""
    from omac.domain.git.checkout import TooMany, digest_of, written
    from omac.domain.git.split_index import NotWhole

    writes = written(place.indexes(), place.oid_bytes, known.places(worktree, ()))
    try:
        return b"".join(digest_of(name, what) for name, what in writes)
    except (TooMany, NotWhole):
        return b""


def judge(inspection: Inspection) -> None:
    """Set each index aside that brings something else there, and has changed, or what is around has. Raises
    Exhausted."""
    known = _Known(inspection)
    for place in inspection.places:
        if not known.is_to_judge(place):
            continue
        inspection.budget.check()
        if place.git in inspection.changed and (problem := _split_problem(place)):
            _set_aside(inspection, place, problem)
            continue
        before = inspection.baseline.written_before(place.git)
        for worktree in known.worktrees(place):
            if problem := _problem(known, place, worktree, before):
                _set_aside(inspection, place, problem)
                break


def set_all_aside(inspection: Inspection) -> None:
    """Set each index aside, unjudged, that has changed, or around which something has."""
    known = _Known(inspection)
    for place in inspection.places:
        if known.is_to_judge(place):
            _set_aside(inspection, place, "was not inspected: it takes too long")


def _split_problem(place: GitPlace) -> str:
    """Return why the two files of a split index are not what git writes; empty if they are, or if it is not split."""
    parts = place.indexes()
    if not parts or b"link" not in parts[0]:
        return ""
    from omac.domain.git.split_index import split_problem

    return split_problem(parts, place.oid_bytes)


def _problem(known: _Known, place: GitPlace, worktree: str, before: frozenset[bytes]) -> str:
    from omac.domain.git.checkout import TooMany, digest_of, git_folders, written
    from omac.domain.git.split_index import NotWhole

    parts = place.indexes()
    top = os.fsencode(worktree)
    try:
        bare = git_folders(parts, place.oid_bytes, lambda path: os.path.lexists(top + b"/" + path))
        places = known.places(worktree, bare)
        new: bytes | None = None
        for name, what in written(parts, place.oid_bytes, places):
            if digest_of(name, what) not in before:
                new = max(new or b"", name)
    except TooMany:
        return "would have git checkout write more where git obeys it than can be inspected"
    except NotWhole as problem:
        return str(problem)
    if new is None:
        return ""
    shown = os.fsdecode(new)[:200]
    return f"would have git checkout write {shown!r}, which git obeys" if shown else "brings entries without a name"


class _Known:
    """The facts that an inspection knows of its projects when it has seen all of them; paths are sorted."""

    def __init__(self, inspection: Inspection) -> None:
        self._inspection = inspection
        self._repositories = sorted(map(os.path.dirname, inspection.gits))
        named = (git for git in inspection.gits if not git.endswith("/.git") and "/.git/" not in git)
        self._obeyed = sorted((*named, *inspection.pinned))
        self._reached = sorted(path for path in inspection.traversed if "/.git/" not in f"{path}/")

    def worktrees(self, place: GitPlace) -> list[str]:
        """Return the folders that a checkout of an index may write to: the worktree by the settings, and every folder
        that names the git folder."""
        worktrees = {place.worktree, *self._inspection.worktrees.get(place.git, ())}
        return sorted(one for one in worktrees if one)

    def around(self, place: GitPlace) -> str:
        """Return a digest of all in its worktrees that says what an index may bring there."""
        lists = (self._obeyed, self._reached, self._repositories)
        surroundings = [(one, *(tuple(_below(one, paths)) for paths in lists)) for one in self.worktrees(place)]
        return sha256_hex(ascii((self._inspection.marked, surroundings)).encode())

    def is_to_judge(self, place: GitPlace) -> bool:
        """Return whether there is an index that has changed, or around which something has."""
        is_as_before = self.around(place) == self._inspection.baseline.around.get(place.git, "")
        is_changed = not is_as_before or place.git in self._inspection.changed
        return is_changed and os.path.lexists(f"{place.git}/{_INDEX}")

    def has_places(self, worktree: str) -> bool:
        """Return whether anything that git obeys, or goes through, lies in a worktree."""
        lists = (self._obeyed, self._reached, self._repositories)
        return any(_below(worktree, paths) for paths in lists)

    def places(self, worktree: str, bare: Iterable[bytes]) -> Places:
        """Return all that there is of it in a worktree, and `bare`."""
        from omac.domain.git.checkout import Places

        obeyed, reached = _below(worktree, self._obeyed), _below(worktree, self._reached)
        above: set[str] = set()
        for path in (*obeyed, *reached, *_below(worktree, self._repositories)):
            folder = os.path.dirname(path)
            while len(folder) > len(worktree) and folder not in above:
                above.add(folder)
                folder = os.path.dirname(folder)

        def within(paths: Iterable[str]) -> list[bytes]:
            return [os.fsencode(path[len(worktree) + 1 :]) for path in paths]

        return Places((*within(obeyed), *bare), within(above), within(reached))


def _below(folder: str, paths: Sequence[str]) -> Sequence[str]:
    """Return those of sorted paths that lie in a folder."""
    if len(paths) < FEW:
        return [path for path in paths if path.startswith(f"{folder}/")]
    from bisect import bisect_left

    return paths[bisect_left(paths, f"{folder}/") : bisect_left(paths, f"{folder}0")]  # "0" comes after "/"


def _set_aside(inspection: Inspection, place: GitPlace, what: str) -> None:
    try:
        folder = opened_root(place.git)
    except OSError as error:
        inspection.report(f"{place.git}/{_INDEX}", f"{what}; it could not be set aside: {error.strerror}")
        return
    try:
        inspection.set_aside(folder, _INDEX, f"{place.git}/{_INDEX}", what)
    finally:
        os.close(folder)
