"""The indexes of an inspection, held against the worktrees that a checkout would write: after everything else, when
it is known which git folders there are, what settings name, and through which folders git reaches something.
"""

from __future__ import annotations

import os

from omac.adapters.files.descriptor import Descriptor
from omac.adapters.git.open_folder import opened_root
from omac.domain.kernel.digest import sha256_hex
from omac.domain.kernel.paths import below_any
from omac.domain.kernel.refusal import quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from omac.adapters.git.git_place import GitPlace
    from omac.adapters.git.inspection import Inspection
    from omac.domain.git.checkout import ObeyedPaths

SECONDS_MAX = 20.0
FEW = 16  # paths: finding those that lie in a folder costs less than loading what finds them among many
_INDEX = "index"


def note(inspection: Inspection) -> None:
    """Note what the indexes bring into such places at launch: the host may keep it there."""
    known = _Known(inspection)
    for git_folder in inspection.places:
        inspection.baseline.around[git_folder.git] = known.around(git_folder)
        for worktree in known.worktrees(git_folder):
            if known.has_obeyed_paths(worktree):
                paths = known.obeyed_paths(worktree, ())
                inspection.baseline.note_written(git_folder.git, _noted(git_folder, paths))
        if named := known.named_elsewhere(git_folder):
            inspection.baseline.note_written(git_folder.git, _noted(git_folder, named))


def _noted(git_folder: GitPlace, paths: ObeyedPaths) -> bytes:
    """The digests of what an index writes, one after the other."""
    from omac.domain.git.checkout import TooMany, digest_of, written
    from omac.domain.git.split_index import NotWhole

    writes = written(git_folder.indexes(), git_folder.oid_bytes, paths)
    try:
        return b"".join(digest_of(name, fields) for name, fields in writes)
    except (TooMany, NotWhole):
        return b""


def judge(inspection: Inspection) -> None:
    """Set each index aside that brings something else there, and has changed, or what is around has. Raises
    Exhausted."""
    known = _Known(inspection)
    for git_folder in inspection.places:
        if not known.is_to_judge(git_folder):
            continue
        inspection.budget.check()
        if git_folder.git in inspection.changed and (problem := _split_problem(git_folder)):
            _set_aside(inspection, git_folder, problem)
            continue
        before = inspection.baseline.written_before(git_folder.git)
        for worktree in known.worktrees(git_folder):
            if problem := _problem(known, git_folder, worktree, before):
                _set_aside(inspection, git_folder, problem)
                break
        else:
            _report_elsewhere(inspection, known, git_folder, before)


def _report_elsewhere(inspection: Inspection, known: _Known, git_folder: GitPlace, before: frozenset[bytes]) -> None:
    """Report an index that brings other hooks and the like into a worktree outside the projects, where its owner may
    have staged them meanwhile."""
    if not (named := known.named_elsewhere(git_folder)) or git_folder.git not in inspection.baseline.nodes:
        return
    from omac.domain.git.checkout import TooMany, digest_of, written
    from omac.domain.git.split_index import NotWhole

    try:
        writes = written(git_folder.indexes(), git_folder.oid_bytes, named)
        new = [os.fsdecode(name) for name, fields in writes if digest_of(name, fields) not in before]
    except (TooMany, NotWhole):
        return
    if new:
        as_it_is = "--cached --text --no-textconv --no-ext-diff"  # whatever attributes say
        command = f"git -C {quoted(git_folder.worktree)} diff {as_it_is} -- {quoted(min(new))}"
        inspection.report(f"{git_folder.git}/{_INDEX}", f"has git checkout write what git obeys, as staged: {command}")


def set_all_aside(inspection: Inspection) -> None:
    """Set each index aside, unjudged, that has changed, or around which something has."""
    known = _Known(inspection)
    for git_folder in inspection.places:
        if known.is_to_judge(git_folder):
            _set_aside(inspection, git_folder, "was not inspected: it takes too long")


def _split_problem(git_folder: GitPlace) -> str:
    """Return why the two files of a split index are not what git writes; empty if they are, or if it is not split."""
    parts = git_folder.indexes()
    if not parts or b"link" not in parts[0]:
        return ""
    from omac.domain.git.split_index import split_problem

    return split_problem(parts, git_folder.oid_bytes)


def _problem(known: _Known, git_folder: GitPlace, worktree: str, before: frozenset[bytes]) -> str:
    from omac.domain.git.checkout import TooMany, digest_of, git_folders, written
    from omac.domain.git.split_index import NotWhole

    parts = git_folder.indexes()
    top = os.fsencode(worktree)
    try:
        bare = git_folders(parts, git_folder.oid_bytes, lambda path: os.path.lexists(top + b"/" + path))
        paths = known.obeyed_paths(worktree, bare)
        new: bytes | None = None
        for name, fields in written(parts, git_folder.oid_bytes, paths):
            if digest_of(name, fields) not in before:
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

    def worktrees(self, git_folder: GitPlace) -> list[str]:
        """Return the folders that a checkout of an index may write to: the worktree by the settings, and every folder
        that names the git folder."""
        worktrees = {git_folder.worktree, *self._inspection.worktrees.get(git_folder.git, ())}
        return sorted(path for path in worktrees if path)

    def named_elsewhere(self, git_folder: GitPlace) -> ObeyedPaths | None:
        """Return what the settings that worktrees share name in one that lies outside the projects; None: nothing."""
        names = self._inspection.relative.get(git_folder.common, ())
        is_main = git_folder.git == git_folder.common
        if is_main or not names or not git_folder.worktree or below_any(git_folder.worktree, self._inspection.projects):
            return None
        from omac.domain.git.checkout import ObeyedPaths

        return ObeyedPaths(map(os.fsencode, names), ())

    def around(self, git_folder: GitPlace) -> str:
        """Return a digest of all in its worktrees that says what an index may bring there."""
        lists = (self._obeyed, self._reached, self._repositories)
        surroundings = [
            (worktree, *(tuple(_below(worktree, paths)) for paths in lists)) for worktree in self.worktrees(git_folder)
        ]
        return sha256_hex(ascii((self._inspection.marked, surroundings)).encode())

    def is_to_judge(self, git_folder: GitPlace) -> bool:
        """Return whether there is an index that has changed, or around which something has."""
        is_as_before = self.around(git_folder) == self._inspection.baseline.around.get(git_folder.git, "")
        is_changed = not is_as_before or git_folder.git in self._inspection.changed
        return is_changed and os.path.lexists(f"{git_folder.git}/{_INDEX}")

    def has_obeyed_paths(self, worktree: str) -> bool:
        """Return whether anything that git obeys, or goes through, lies in a worktree."""
        lists = (self._obeyed, self._reached, self._repositories)
        return any(_below(worktree, paths) for paths in lists)

    def obeyed_paths(self, worktree: str, bare: Iterable[bytes]) -> ObeyedPaths:
        """Return the paths that git obeys in a worktree, and `bare`."""
        from omac.domain.git.checkout import ObeyedPaths

        obeyed, reached = _below(worktree, self._obeyed), _below(worktree, self._reached)
        above: set[str] = set()
        for path in (*obeyed, *reached, *_below(worktree, self._repositories)):
            folder = os.path.dirname(path)
            while len(folder) > len(worktree) and folder not in above:
                above.add(folder)
                folder = os.path.dirname(folder)

        def within(paths: Iterable[str]) -> list[bytes]:
            return [os.fsencode(path[len(worktree) + 1 :]) for path in paths]

        return ObeyedPaths((*within(obeyed), *bare), within(above), within(reached))


def _below(folder: str, paths: Sequence[str]) -> Sequence[str]:
    """Return those of sorted paths that lie in a folder."""
    if len(paths) < FEW:
        return [path for path in paths if path.startswith(f"{folder}/")]
    from bisect import bisect_left

    return paths[bisect_left(paths, f"{folder}/") : bisect_left(paths, f"{folder}0")]  # "0" comes after "/"


def _set_aside(inspection: Inspection, git_folder: GitPlace, problem: str) -> None:
    try:
        folder = opened_root(git_folder.git)
    except OSError as error:
        inspection.report(f"{git_folder.git}/{_INDEX}", f"{problem}; it could not be set aside: {error.strerror}")
        return
    with Descriptor(folder):
        inspection.set_aside(folder, _INDEX, f"{git_folder.git}/{_INDEX}", problem)
