"""GoImport: looks at what the omac that was written in Go left behind, and carries out the plan that comes of it.

Looking changes nothing. Values of secrets are read for approved code only, and wait in memory for the person's word.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from omac.domain.credentials import credential
from omac.domain.credentials.credential import DEFAULTS, Credential
from omac.domain.kernel import ids
from omac.domain.kernel.event import PERSON
from omac.domain.kernel.ids import HostId
from omac.domain.kernel.refusal import Refusal
from omac.domain.legacy import go_import
from omac.domain.legacy.go_import import FoundHere, ImportGroup, KeychainSecret, Old, Seen, Step
from omac.domain.skills import registration
from omac.domain.skills.registration import Registration
from omac.journal.reader import Records
from omac.services.credentials.values import Credentials, Values
from omac.services.ports import Secrets, SkillFolders
from omac.services.skills.registration import Registering
from omac.services.skills.resolution import Candidate, SkillSearch, every

KEYCHAIN = "keychain"  # the old omac had no other store

See = Callable[[str], Seen]  # reads a skill folder as a whole; blocks; raises OSError


class Job(msgspec.Struct, frozen=True):
    """A group of the plan, and what it takes to carry it out. `candidate` None: there is nothing to do.

    `digest` is that of the copy to approve, `code` what values to remember were given to ("" unknown).
    """

    group: ImportGroup
    candidate: Candidate | None = None
    digest: str = ""
    code: str = ""
    values: Values = Values()

    def takes(self, kind: go_import.What | None = None) -> bool:
        """Return whether the job imports anything; with `kind`, anything of this kind."""
        return any(step.verdict == "take" and kind in (None, step.what) for step in self.group.steps)


class ImportPlan(msgspec.Struct, frozen=True):
    """The plan. `refusals` are those of the keychain: what is in there could not be looked at."""

    jobs: tuple[Job, ...]
    notes: tuple[str, ...]
    refusals: tuple[Refusal, ...] = ()

    @property
    def is_needed(self) -> bool:
        """Return whether the plan imports anything."""
        return any(job.takes() for job in self.jobs)


@dataclass(eq=False, repr=False)
class RecordedState:
    """The recorded state of skills, read only. `journal` or `host` None: no record exists yet."""

    _journal: Records | None
    _host: HostId | None

    def registration(self, candidate: Candidate) -> Registration:
        if self._journal is None or self._host is None:
            return Registration()
        skill = candidate.skill
        stream = ids.registration_stream(self._host, candidate.place.scope, skill.base, skill.name)
        return self._journal.load(stream, Registration(), registration.evolve).state

    def credential(self, scope: str, skill: str) -> Credential:
        if self._journal is None or self._host is None:
            return Credential()
        stream = ids.credential_stream(self._host, scope, skill)
        return self._journal.load(stream, Credential(), credential.evolve).state


@dataclass(eq=False, repr=False)
class GoImport:
    """The use case. `old` is what was read, `literal` the workdir as it was typed, links and all.

    `see` reads a skill folder; `kept` does the same for the old omac's copy of an approved skill, by name and hash.
    """

    _old: Old
    _literal: str
    _recorded: RecordedState
    _secrets: Secrets
    _see: See
    _kept: Callable[[str, str], Seen]
    _refusals: dict[str, Refusal] = field(default_factory=dict, init=False)
    _local: set[str] = field(default_factory=set, init=False)  # names of skills of the project

    async def plan(self, folders: SkillFolders, search: SkillSearch) -> ImportPlan:
        """Plan the import, for the skills that `search` finds only, and return the plan. Raises OSError."""
        candidates = [
            candidate for candidate in await every(folders, search) if go_import.matching(self._old, candidate.skill)
        ]
        self._local = {candidate.skill.name for candidate in candidates if candidate.place.workdir}
        jobs = [await self._job(candidate) for candidate in candidates]
        by_name: dict[str, list[Job]] = {}
        for job in jobs:
            by_name.setdefault(job.group.skill, []).append(job)
        jobs += [await self._defaults(same) for same in by_name.values()]
        present = {(candidate.skill.name, candidate.skill.source) for candidate in candidates}
        jobs += [Job(group) for group in go_import.judge_absent(self._old, present)]
        kept = tuple(job for job in jobs if job.group.steps)
        return ImportPlan(kept, self._old.notes, tuple(self._refusals.values()))

    async def _job(self, candidate: Candidate) -> Job:
        skill, skill_scope = candidate.skill, candidate.place
        entries = go_import.matching(self._old, skill)
        recorded = self._recorded.credential(skill_scope.scope, skill.name)
        present = FoundHere(skill_scope, skill, self._recorded.registration(candidate), recorded)
        steps = [go_import.judge_registration(present, entries[0])]
        if steps[0].verdict == "skip":
            return Job(ImportGroup(skill.name, skill.scope, skill.source, tuple(steps)))
        seen, approval = self._approval(present)
        trusted = approval.verdict != "skip"
        names = {name for entry in entries for name in entry.names}
        services = go_import.keychain_services(skill_scope, self._literal, skill.name)
        unknown = [name for name in {*names, *present.fields} if name not in {*recorded.secrets, *recorded.taken}]
        held = await self._held(services, unknown) if trusted else {}
        sources = (self._old.project, self._old.user) if skill_scope.workdir else (self._old.user,)
        unheard = None if skill_scope.workdir or skill.name in self._local else self._old.project
        steps += [
            approval,
            *go_import.judge_secrets(present, trusted, names, held),
            *go_import.judge_settings(present, trusted, sources, unheard),
        ]
        group = ImportGroup(skill.name, skill.scope, skill.source, tuple(steps))
        digest, approved = seen.digest if seen else "", present.registration.approved
        known = approved.digest if present.is_approved and approved else digest
        return Job(group, candidate, digest, known if trusted else "", _values(steps, held))

    def _approval(self, present: FoundHere) -> tuple[Seen | None, Step]:
        """Return the step for an approval, and the folder as read; None where no old approval can be for it."""
        if present.is_approved:
            return None, go_import.judge_approval(present, self._old, None, {})
        try:
            seen = self._see(present.skill.source)
        except OSError as error:
            problem = f"{error.filename or present.skill.source}: {error.strerror}"
            return None, go_import.judge_approval(present, self._old, problem, {})
        approval = go_import.approval_for(self._old, present)
        if approval is None:
            return None, go_import.judge_approval(present, self._old, seen, {})
        kept: dict[str, bytes] = {}
        if seen.loose:
            with suppress(OSError):  # there is none
                kept = self._kept(approval.name, approval.bundle_hash).loose
        return seen, go_import.judge_approval(present, self._old, seen, kept)

    async def _defaults(self, jobs: Sequence[Job]) -> Job:
        """Plan the defaults to save for the name that these jobs share, as the first job with approved code declares
        them."""
        usable = [(job.code, job.candidate) for job in jobs if job.candidate]
        if not usable:
            return Job(ImportGroup(jobs[0].group.skill, "defaults", "", ()))
        candidate = next((candidate for code, candidate in usable if code), usable[0][1])
        skill = candidate.skill
        present = FoundHere(candidate.place, skill)
        remembered = self._recorded.credential(DEFAULTS, skill.name).defaults
        names = [name for name in present.fields if name not in remembered]
        held = await self._held([credential.service(DEFAULTS, skill.name)], names)  # where the old omac kept them
        steps = go_import.judge_defaults(present, remembered, self._old.user, held)
        codes = {code for code, _ in usable if code}
        group = ImportGroup(skill.name, "defaults", "", tuple(steps))
        return Job(group, candidate, "", codes.pop() if len(codes) == 1 else "", _values(steps, held))

    async def _held(self, services: Sequence[str], names: Sequence[str]) -> dict[str, KeychainSecret]:
        """Return by name the secrets that the keychain holds, each from the first service that has it."""
        held: dict[str, KeychainSecret] = {}
        for service in services:
            try:
                values = await self._secrets.read(KEYCHAIN, service, sorted(set(names) - held.keys()))
            except Refusal as refusal:
                self._refusals.setdefault(refusal.message, refusal)
                return held
            held |= {name: KeychainSecret(service, value) for name, value in values.items()}
        return held


def _values(steps: Sequence[Step], held: Mapping[str, KeychainSecret]) -> Values:
    """Return the values that the steps import."""
    taken = [step for step in steps if step.verdict == "take" and step.name]
    secrets = {step.name: held[step.name].value for step in taken if step.value is None and step.name in held}
    config = {step.name: step.value for step in taken if step.value is not None}
    return Values(secrets, config)


async def carry_out(moved: ImportPlan, registering: Registering, credentials: Credentials) -> list[Refusal]:
    """Take over what is to be taken over; what is refused for one skill does not stop the others."""
    refused: list[Refusal] = []
    for job in moved.jobs:
        if job.candidate is not None and job.takes():
            try:
                await _carry_out(job, job.candidate, registering, credentials)
            except Refusal as refusal:
                refused.append(refusal)
    return refused


async def _carry_out(job: Job, candidate: Candidate, registering: Registering, credentials: Credentials) -> None:
    """Take over what a job takes, but for values that were given or revoked while a person was asked."""
    name = candidate.skill.name
    if job.takes("default"):
        if values := job.values.without(credentials.defaults(name)):
            await credentials.remember(name, job.code, values, PERSON)
        return
    if job.takes("approval"):
        await registering.approve(candidate, job.digest)
    elif job.takes("registration"):
        await registering.note(candidate)
    given = credentials.values_of(candidate.place.scope, name)
    if values := job.values.without({*given.secrets, *given.config, *given.taken}):
        await registering.give(candidate, values, mirror=False)
