"""Finding: which skill a name on a command line means, among those of a project and those that all projects share."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import msgspec

from omac.domain.harness.harness import SHARED_BASE, Harness
from omac.domain.harness.table import DEFAULT_HARNESS, HARNESSES
from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.skills.meta import FoundSkill, ScopeKind
from omac.domain.skills.scope import SkillScope
from omac.services.ports import SkillFolders

NEAR_MAX, NEAR_FROM = 3, 0.75  # a slip (ehco for echo), not another skill

Discover = Callable[[Sequence[str]], Awaitable[list[FoundSkill]]]


class Candidate(msgspec.Struct, frozen=True):
    """A skill that a name may mean, and the place it was found in."""

    place: SkillScope
    skill: FoundSkill


class SkillSearch(msgspec.Struct, frozen=True):
    """The folders to search. `harness` None: those of every harness; `scope` None: the project's and those that all
    share."""

    workdir: str
    harness: Harness | None = None
    scope: ScopeKind | None = None


async def every(folders: SkillFolders, search: SkillSearch, *, guidance: bool = False) -> list[Candidate]:
    """Every skill there, also several of one name. Raises OSError."""
    candidates: list[Candidate] = []
    if search.scope in (None, "workdir"):
        discover = partial(folders.discover, search.workdir, guidance=guidance)
        candidates += await _in_scope(discover, search.workdir, search.harness)
    if search.scope in (None, "global"):
        candidates += await _in_scope(partial(folders.discover_global, guidance=guidance), "", search.harness)
    return candidates


async def _in_scope(discover: Discover, workdir: str, harness: Harness | None) -> list[Candidate]:
    if harness is not None:
        return [Candidate(SkillScope(workdir, harness.name), skill) for skill in await discover(harness.bases)]
    candidates: list[Candidate] = []
    for known in HARNESSES:
        candidates += [Candidate(SkillScope(workdir, known.name), skill) for skill in await discover((known.base,))]
    for skill in await discover((SHARED_BASE,)):
        own = {candidate.place.harness for candidate in candidates if candidate.skill.name == skill.name}
        sees = next((supported.name for supported in HARNESSES if supported.name not in own), DEFAULT_HARNESS.name)
        candidates.append(Candidate(SkillScope(workdir, sees), skill))
    return candidates


async def find(
    folders: SkillFolders, search: SkillSearch, name: str, command: str, words: str = "", bundle_hash: str | None = None
) -> Candidate:
    """The one skill with a sidecar that `name`, and `bundle_hash` if it is given, mean.

    `command` is what fixes begin with, such as "omac register", `words` the flags that they repeat. Raises Refusal:
    skill-not-found, skill-ambiguous, skill-invalid, skill-without-sidecar.
    """
    there = await every(folders, search, guidance=True)
    named = [candidate for candidate in there if candidate.skill.name == name]
    matches = [candidate for candidate in named if not candidate.skill.is_guidance] or named
    if len(matches) > 1:  # the very code that was meant tells which
        matches = [candidate for candidate in matches if candidate.skill.bundle_hash == bundle_hash] or matches
    if len(matches) > 1:
        raise ambiguous(name, [(candidate.place, candidate.skill.source) for candidate in matches], command, words)
    if not matches:
        raise _not_found(there, search, name, command, words)
    (candidate,) = matches
    if candidate.skill.problem is not None:
        fix, problem = [candidate.skill.mend_command], candidate.skill.problem
        raise Refusal("skill-invalid", f"{name} cannot be used: {problem}", fix=fix)
    if candidate.skill.is_guidance:
        message = f"{name} has only a SKILL.md and no sidecar, so omac has nothing to run or register"
        raise Refusal("skill-without-sidecar", message, fix=[f"omac skill check {quoted(candidate.skill.source)}"])
    return candidate


def ambiguous(name: str, matches: Sequence[tuple[SkillScope, str]], command: str, words: str) -> Refusal:
    """The refusal of a name that means several skills, with a command for each; their sources are given."""
    where = "; ".join(source for _, source in matches)
    fix = [f"{command} {quoted(name)} {skill_scope.flags}{words and ' ' + words}" for skill_scope, _ in matches]
    return Refusal(
        "skill-ambiguous", f"{name} is ambiguous: {len(matches)} skills have this name: {where}", fix=fix, skill=name
    )


def _not_found(there: Sequence[Candidate], search: SkillSearch, name: str, command: str, words: str) -> Refusal:
    from difflib import get_close_matches

    usable = [candidate for candidate in there if candidate.skill.sidecar is not None]
    names = ", ".join(sorted({candidate.skill.name for candidate in there})) or "none"
    usable_names = {candidate.skill.name.lower() for candidate in usable}
    word = name.rstrip("/").rpartition("/")[2].lower()  # a shell completes the path of its folder
    near = get_close_matches(word, sorted(usable_names), NEAR_MAX, NEAR_FROM)
    more = words and " " + words
    fix = [
        f"{command} {quoted(candidate.skill.name)} {candidate.place.flags}{more}"
        for candidate in usable
        if candidate.skill.name.lower() in near
    ]
    where = "among the global skills" if search.scope == "global" else f"in {search.workdir}"
    message = f"no skill {name!r} with a sidecar {where}; known: {names}"
    own = any(candidate.place.workdir for candidate in there)
    project = quoted(search.workdir)
    next_step = f"omac skill check {project}" if own else f"omac skill new hello --workdir {project}"
    proposed = ["omac list --all"] + [next_step] * (search.scope != "global")
    return Refusal("skill-not-found", message, fix=fix or proposed)
