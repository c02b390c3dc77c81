"""The directory, scopes and harness that the flags of a command mean, even where nothing is on disk any more."""

import os
import shlex
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import msgspec

from omac.domain.harness.table import DEFAULT_HARNESS, HARNESSES, harness_named
from omac.domain.kernel import ids
from omac.domain.kernel.ids import WorkdirId
from omac.domain.kernel.refusal import Refusal
from omac.domain.skills.meta import ScopeKind
from omac.services.skills.resolution import Candidate, SkillSearch
from omac.tools.compose.project import project_of
from omac.tools.terminal.invocation import expanded

if TYPE_CHECKING:
    from omac.services.ports import SkillFolders


Answer = TypeVar("Answer")


class Where(NamedTuple):
    """The flags by which a command line names skills. `workdir` None: the project around the current directory, and
    the skills that all projects share. `repository`: skills in each worktree of the repository that holds it."""

    workdir: str | None = None
    shared: bool = False
    harness: str | None = None
    repository: bool = False

    @property
    def flags(self) -> str:
        """The flags as typed, ready to be pasted."""
        words = ["--global"] if self.shared else []
        words += ["--workdir", self.workdir] if self.workdir is not None else []
        words += ["--harness", self.harness] if self.harness is not None else []
        words += ["--repository"] if self.repository else []
        return shlex.join(words)

    @property
    def scope(self) -> ScopeKind | None:
        """The scope that was named, if one was."""
        return "global" if self.shared else None if self.workdir is None else "workdir"


def directory_of(where: Where) -> str:
    """Return the canonical path of the directory that the flags name, which may be missing."""
    return project_here() if where.workdir is None else os.path.realpath(expanded(where.workdir or "."))


def project_here() -> str:
    """Return the project around the current directory, as omac start finds it."""
    return project_of(os.path.realpath("."), os.path.realpath(expanded("~")))


def place_of(where: Where) -> str:
    """Return the scope in words that follow a verb."""
    return "among the global skills" if where.shared else f"in {directory_of(where)}"


def scopes_of(where: Where) -> frozenset[WorkdirId]:
    """Return the scopes whose registrations the flags name. Without a directory these include the scope of the current
    one, whose skills may be gone."""
    if where.shared:
        return frozenset({ids.GLOBAL})
    own = ids.workdir_id(directory_of(where))
    return frozenset({own} if where.workdir is not None else {own, ids.workdir_id(os.path.realpath(".")), ids.GLOBAL})


def harness_of(base: str, others: Sequence[str]) -> str:
    """A harness that sees what lies in the folder `base`; `others` are bases with a skill of the same name."""
    for harness in HARNESSES:
        if harness.base == base or (base == harness.bases[-1] and harness.base not in others):
            return harness.name
    return DEFAULT_HARNESS.name


def is_home(path: str) -> bool:
    """Return whether a path is the user's home folder, which is no project: the skills below it are those that all
    projects share."""
    home = expanded("~")
    return home != "~" and path == os.path.realpath(home)


def search_of(where: Where, folders: "SkillFolders") -> SkillSearch:
    """Return the search for these flags; in the home folder, where no flag names it, for the skills that all projects
    share. Raises Refusal: misuse, bad-request, directory-missing, not-a-directory."""
    path = project_here() if where.workdir is None else os.path.abspath(expanded(where.workdir or "."))
    canonical = at_once(folders.canonical(path, ("/",)))
    harness = harness_named(where.harness) if where.harness else None
    return SkillSearch(canonical, harness, "global" if where.workdir is None and is_home(canonical) else where.scope)


def for_repository(candidate: Candidate, where: Where, command: str) -> Candidate:
    """Return the skill that is meant, with `--repository` in the scope of its repository; `command` names the skill.
    Raises Refusal: misuse, git-unsafe."""
    if not where.repository:
        return candidate
    skill_scope = candidate.place
    if not skill_scope.workdir:
        message = f"{candidate.skill.name} is shared by all projects, also in each worktree of a repository"
        raise Refusal("misuse", message, fix=[f"{command} --global"])
    from omac.tools.compose.repositories import repository_for

    repository = repository_for(skill_scope.workdir, command)
    return msgspec.structs.replace(candidate, place=msgspec.structs.replace(skill_scope, repository=repository))


def at_once(work: Coroutine[Any, Any, Answer]) -> Answer:
    """Return what a coroutine gives that never waits: reading folders, outside of an event loop."""
    try:
        work.send(None)
    except StopIteration as done:
        return cast(Answer, done.value)
    raise AssertionError("it waits for an event loop")
