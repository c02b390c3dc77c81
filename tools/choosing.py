"""Which skill a name on a command line means, and the flags by which a command means just this one."""

import os
from collections.abc import Sequence

from omac.domain import ids
from omac.domain.harness import DEFAULT_HARNESS, HARNESSES, harness_named
from omac.domain.ids import WorkdirId
from omac.domain.place import Place
from omac.domain.refusal import Refusal
from omac.services.ports import SkillFolders
from omac.services.registering import Candidate, Search, every, find
from omac.tools.opened import Where


async def chosen(
    folders: SkillFolders, search: Search, name: str, command: str, words: str = "", bundle_hash: str | None = None
) -> Candidate:
    """The one skill with a sidecar that `name`, and `bundle_hash` if it is given, mean.

    `command` is what fixes begin with, `words` the flags that they repeat. Raises Refusal: as `find`.
    """
    try:
        return await find(folders, search, name, command)
    except Refusal as refusal:
        if refusal.reason != "skill-ambiguous":
            fix = [_with(line, words) if line.startswith(command) else line for line in refusal.fix]
            raise Refusal(refusal.reason, refusal.message, fix=fix, skill=name) from None
    there = [one for one in await every(folders, search, guidance=True) if one.skill.name == name and _runs(one)]
    meant = [one for one in there if one.skill.bundle_hash == bundle_hash] or there
    if len(meant) == 1:
        (one,) = meant
        narrow = Search(search.workdir, harness_named(one.place.harness), one.skill.scope)
        return await find(folders, narrow, name, command)
    places = [(one.place, one.skill.source) for one in meant]
    raise ambiguous(name, places, command, words)


def ambiguous(name: str, places: Sequence[tuple[Place, str]], command: str, words: str) -> Refusal:
    """The refusal of a name that means several skills, with a command for each; their sources are given."""
    import shlex

    where = "; ".join(source for _, source in places)
    fix = [_with(f"{command} {shlex.quote(name)} {exact_flags(place)}", words) for place, _ in places]
    return Refusal("skill-ambiguous", f"{name} may mean {len(places)} skills: {where}", fix=fix, skill=name)


def exact_flags(place: Place) -> str:
    """What a command needs to mean this place, and no other harness's."""
    return f"{Place(place.workdir).flags} --harness {place.harness}"


def flags_of(place: Place, where: Where) -> str:
    """The flags of a place, its harness named where the person named one."""
    return exact_flags(place) if where.harness else place.flags


def directory_of(where: Where) -> str:
    """The directory that is meant, whether it is there or not, without links."""
    return os.path.realpath(os.path.expanduser(where.workdir or "."))


def scopes_of(where: Where) -> frozenset[WorkdirId]:
    """The scopes that are meant."""
    if where.shared:
        return frozenset({ids.GLOBAL})
    own = ids.workdir_id(directory_of(where))
    return frozenset({own} if where.workdir is not None else {own, ids.GLOBAL})


def harness_of(base: str, others: Sequence[str] = ()) -> str:
    """A harness that sees what lies in the folder `base`; `others` are bases with a skill of the same name."""
    for harness in HARNESSES:
        if harness.base == base or (base == harness.bases[-1] and harness.base not in others):
            return harness.name
    return DEFAULT_HARNESS.name


def _runs(candidate: Candidate) -> bool:
    skill = candidate.skill
    return skill.problem is not None or (skill.meta is not None and skill.meta.sidecar is not None)


def _with(line: str, words: str) -> str:
    return f"{line} {words}" if words else line
