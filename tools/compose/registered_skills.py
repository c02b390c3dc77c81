"""The skills that this host knows by the journal, for commands that list them and forget them."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import NamedTuple

import msgspec

from omac.adapters.sidecars.interpreters import interpreter_problem
from omac.adapters.skills.verifying import check_copy
from omac.domain.credentials.credential import Credential
from omac.domain.harness.table import harness_named
from omac.domain.kernel import ids
from omac.domain.kernel.event import Recorded
from omac.domain.kernel.ids import HostId, StreamId
from omac.domain.kernel.paths import below
from omac.domain.kernel.refusal import Refusal, problem_of
from omac.domain.skills.meta import FoundSkill
from omac.domain.skills.registration import (
    Approved,
    AutoRegistered,
    Code,
    Deregistered,
    Registered,
    Registration,
    closest,
)
from omac.domain.skills.repository import WorktreeFolder, is_repository
from omac.domain.skills.scope import SkillScope
from omac.journal.file import is_of_segment
from omac.journal.reader import ReadJournal
from omac.projections.status import RegistrationStatus, registry_of
from omac.projections.system import System
from omac.services.ports import CopyDamaged, SkillFolders
from omac.services.skills.resolution import Candidate, ambiguous
from omac.tools.compose.journals import read_if_any, system_of
from omac.tools.compose.repositories import repository_of
from omac.tools.compose.scope_options import Where, harness_of, scopes_of
from omac.tools.compose.state import StateDir, host_id, living_roots
from omac.tools.compose.tool_caches import cache_folders

History = Callable[[StreamId], Iterable[Recorded]]

ENDS_APPROVALS = "  # ends approvals, on every branch"


class RegisteredSkill(msgspec.Struct, frozen=True):
    """A registration."""

    stream: StreamId
    status: RegistrationStatus
    state: Registration

    @property
    def gone(self) -> bool:
        """Return whether its source folder is no longer there."""
        return not os.path.isdir(self.status.source)


class Times(NamedTuple):
    """The times (ns, UTC) when the code of a registration was registered last, and approved last; 0 for never."""

    registered: int = 0
    approved: int = 0


def prune_commands(known: Iterable[RegisteredSkill]) -> list[str]:
    """Return the commands that deregister those of these skills whose folder is gone, one for each directory, with a
    remark where that ends approvals: a checkout of another branch may bring the folder back, which then needs them."""
    gone = [registered.status for registered in known if registered.gone and not is_repository(registered.status.scope)]
    approved = {status.dir for status in gone if status.approved_hash and os.path.isdir(status.dir)}
    return [
        f"omac deregister --prune {SkillScope(place).where}" + ENDS_APPROVALS * (place in approved)
        for place in dict.fromkeys(status.dir for status in gone)
    ]


class Standing(NamedTuple):
    """The reasons why a skill may run: its own registration, that of its repository, and the values that count as
    given.

    `approved` is the code approved for its files as they are now, else the code approved last; `is_current`: the
    former, and its copy and interpreters are what was approved; else `obstacle` says what is wrong with these.
    `repository` is that of the approval for its files, if that is one by repository.
    """

    known: RegisteredSkill | None
    shared: RegisteredSkill | None
    approved: Code | None
    is_current: bool
    repository: WorktreeFolder | None
    given: Credential
    obstacle: str = ""


def digest_now(folders: SkillFolders, source: str) -> str:
    """Return the digest over every file of a skill; empty where it cannot be read as a whole."""
    import trio  # late: commands that only read start without it

    try:
        return trio.run(folders.digest, source)
    except OSError:
        return ""


class Registry:
    """Every registration of this host in one journal."""

    def __init__(
        self,
        host: HostId,
        system: System,
        histories: Callable[[], AbstractContextManager[History]],
        copies: str = "",
        path: str = os.defpath,
        roots: Sequence[str] = (),
        caches: Sequence[str] = (),
    ) -> None:
        """Read the registrations from the system of a journal; `histories` opens what returns the records of one of
        its streams, `copies` is the folder of its approved copies, `path` the PATH that leads to interpreters, `roots`
        are folders in which agents of living runs may write, `caches` those where any may."""
        self._host = host
        self._histories = histories
        self._copies = copies
        self._path = path
        self._roots = tuple(roots)
        self._caches = tuple(caches)
        self.system = system
        self.known = tuple(self._of_host())
        self._by_stream = {registered.stream: registered for registered in self.known}
        self._bases: dict[tuple[str, str], list[str]] = {}  # of the skills of one name in one scope
        for registered in self.known:
            status = registered.status
            self._bases.setdefault((status.scope, status.skill), []).append(status.harness)

    @classmethod
    def read(cls, environment: Mapping[str, str], journal_path: str | None) -> "Registry":
        """Read the registrations from the journal named or in use; empty where there is none yet. Raises Refusal."""
        state = StateDir.of(environment)
        path = state.journal_in_use(environment, journal_path)
        with read_if_any(state, path) as journal:
            if journal is None:
                return cls(HostId(""), System(), partial(_histories, state, path))
            copies = state.frozen(path, journal.store.journal_id())
            histories, path = partial(_histories, state, path), environment.get("PATH", os.defpath)
            system = system_of(journal, state)
            host = host_id(state)
            roots = living_roots(state, host, lambda stream: system.runs[stream].state)
            return cls(host, system, histories, copies, path, roots, cache_folders(environment))

    def times(self, known: Sequence[RegisteredSkill]) -> list[Times]:
        """Return the times of these registrations, in their order: they are read when somebody asks. Raises Refusal."""
        if not known:
            return []
        with self._histories() as history:
            return [_times(history(registered.stream)) for registered in known]

    def credential(self, scope: str, skill: str, base: str | None = None) -> Credential:
        """Return the values given to the skill in the base folder `base`; None: to any skill of that name."""
        return self.system.credentials[ids.credential_stream(self._host, scope, skill)].state.of(base)

    def find(self, scope: str, base: str, skill: str) -> RegisteredSkill | None:
        """The registration of a skill in the base folder `base`."""
        return self._by_stream.get(ids.registration_stream(self._host, scope, base, skill))

    def standing(self, candidate: Candidate, folders: SkillFolders) -> Standing:
        """Return what lets a skill run as its files are now."""
        skill_scope, skill = candidate.place, candidate.skill
        part = skill_scope.repository or (repository_of(skill_scope.workdir) if skill_scope.workdir else None)
        own = None if skill_scope.repository else self.find(skill_scope.scope, skill.base, skill.name)
        shared = self.find(part.scope, skill.base, skill.name) if part else None
        values = self.credential(skill_scope.scope, skill.name, skill.base)
        covering = self._covered(shared, skill, folders)
        if part is not None and covering is not None:
            values = values.over(self.credential(part.scope, skill.name, skill.base))
        approved = own.state.approved if own else None
        holding = closest(own.state.may_run(skill.code, "") if own else None, covering)
        if holding is not None:
            obstacle = self.obstacle(holding, skill_scope.workdir)
            return Standing(own, shared, holding, not obstacle, part if covering else None, values, obstacle)
        return Standing(own, shared, approved or (shared.state.approved if shared else None), False, None, values)

    def holding(self, candidate: Candidate, folders: SkillFolders) -> list[RegisteredSkill]:
        """Return the registrations whose approval holds for a skill as its files are now: its own, and that of the
        repository of its directory."""
        skill_scope, skill = candidate.place, candidate.skill
        part = repository_of(skill_scope.workdir) if skill_scope.workdir else None
        own = self.find(skill_scope.scope, skill.base, skill.name)
        shared = self.find(part.scope, skill.base, skill.name) if part else None
        holds = [own] if own and own.state.may_run(skill.code, "") else []
        return holds + ([shared] if shared and self._covered(shared, skill, folders) else [])

    def obstacle(self, approved: Code, workdir: str) -> str:
        """Return why approved code cannot run in a directory all the same: its copy, or a program by which it runs, is
        not what was approved; "" for nothing."""
        try:
            check_copy(os.path.join(os.path.realpath(self._copies), approved.digest.partition(":")[2]), approved.source)
        except CopyDamaged as damaged:
            return str(damaged)
        except OSError as error:
            return f"the approved copy of {approved.source} cannot be read: {problem_of(error)}"
        around = (workdir, *(root for root in self._roots if below(workdir, root))) if workdir else ()
        return interpreter_problem(approved.interpreters or (), self._path, (*self._caches, *around))

    def _covered(self, shared: RegisteredSkill | None, skill: FoundSkill, folders: SkillFolders) -> Code | None:
        """Return the approval by repository that holds for exactly the files of a skill."""
        approved = shared.state.approved if shared else None
        if shared is None or approved is None or approved.bundle_hash != skill.bundle_hash:
            return None
        digest = digest_now(folders, skill.source)
        return shared.state.covers(Code(skill.source, skill.bundle_hash, digest))

    def within(self, where: Where) -> list[RegisteredSkill]:
        """The registrations that a command line means."""
        scopes = scopes_of(where)
        bases = harness_named(where.harness).bases if where.harness else None
        return [
            registered
            for registered in self.known
            if registered.status.scope in scopes and (not bases or registered.status.harness in bases)
        ]

    def place(self, known: RegisteredSkill) -> SkillScope:
        """Return the scope of a registered skill, with a harness that sees it."""
        status = known.status
        others = [base for base in self._bases[status.scope, status.skill] if base != status.harness]
        return SkillScope(status.dir, harness_of(status.harness, others))

    def named(self, where: Where, name: str, command: str, words: str = "") -> list[RegisteredSkill]:
        """Return the registrations of the one skill that a name means: a folder that agents see in several base folders
        has one for each. Raises Refusal (skill-ambiguous)."""
        matches = [registered for registered in self.within(where) if registered.status.skill == name]
        if where.harness and len({registered.status.scope for registered in matches}) == 1:
            bases = harness_named(where.harness).bases
            matches = [min(matches, key=lambda registered: bases.index(registered.status.harness))]
        if len({(registered.status.scope, registered.status.source) for registered in matches}) > 1:
            raise ambiguous(
                name, [(self.place(registered), registered.status.source) for registered in matches], command, words
            )
        return matches

    def _of_host(self) -> list[RegisteredSkill]:
        skills = []
        for status in registry_of(self.system):
            stream = ids.registration_stream(self._host, status.scope, status.harness, status.skill)
            entry = self.system.registrations.entries.get(stream)
            if entry is not None and entry.position == status.since:
                skills.append(RegisteredSkill(stream, status, entry.state))
        return skills


@contextmanager
def _histories(state: StateDir, path: str) -> Iterator[History]:
    """Open what returns the records of a stream of the journal at `path`."""
    with read_if_any(state, path) as journal:
        yield partial(_history, journal) if journal is not None else lambda _: ()


def _history(journal: ReadJournal, stream: StreamId) -> Iterable[Recorded]:
    """The records of a stream; none where a segment cannot be read, which tells nothing but when things happened."""
    try:
        return journal.history(stream)
    except Refusal as refusal:
        if not is_of_segment(refusal):
            raise
        return ()


def _times(history: Iterable[Recorded]) -> Times:
    times = Times()
    for recorded in history:
        match recorded.event:
            case Registered() | AutoRegistered():
                times = times._replace(registered=recorded.at)
            case Approved():
                times = times._replace(approved=recorded.at)
            case Deregistered():
                times = Times()
            case _:
                pass
    return times
