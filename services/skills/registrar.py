"""The registrar: looks at the skills of a place as they are now, records what is new or changed, and has them judged.

Finding registers, where that is wanted; it never approves. What was given elsewhere to the very code that is approved
here is adopted before it could be missed.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from omac.domain.directories import skill_plan
from omac.domain.directories.directory import ActivationPlan, Directory
from omac.domain.directories.skill_plan import KnownSkill, SkillPolicy
from omac.domain.harness.harness import Harness
from omac.domain.kernel import ids
from omac.domain.kernel.event import Cause
from omac.domain.kernel.ids import StreamId, WorkdirId
from omac.domain.kernel.refusal import Refusal
from omac.domain.sidecars.sidecar import SidecarSpec
from omac.domain.skills import registration
from omac.domain.skills.meta import FoundSkill
from omac.domain.skills.registration import UNREADABLE, Code, Registration
from omac.domain.skills.scope import SkillScope
from omac.services.credentials.values import Credentials
from omac.services.kernel.engine import Engine, together
from omac.services.ports import FrozenSkills, Policies, Repositories, SkillFolders

_log = logging.getLogger("omac.registrar")


@dataclass(eq=False, repr=False)
class Registrar:
    """The registrar of one server: `harness` is that of its run, `environment` omac's own."""

    _engine: Engine
    _folders: SkillFolders
    _frozen: FrozenSkills
    _credentials: Credentials
    _harness: Harness
    _policies: Policies
    _environment: Mapping[str, str]
    _repositories: Repositories
    _repository_of: dict[str, WorkdirId] = field(default_factory=dict, init=False)  # scopes, by directory

    async def plan(self, workdir: str) -> ActivationPlan:
        """Return what shall run in a directory, or, for the empty path, of what all share. Raises Refusal, OSError."""
        skill_scope = SkillScope(workdir, self._harness.name)
        await self._identify(workdir)
        policy = await self._policies.policy(workdir)
        skills = await self._discover(workdir)
        await together(partial(self._register, skill_scope, policy, skill) for skill in skills if skill.problem is None)
        await together(partial(self._adopt, skill_scope, skill) for skill in skills if skill.problem is None)
        known = {skill.name: self._known(skill_scope, skill) for skill in skills}
        return skill_plan.plan(skills, skill_scope, known, policy, self._environment, self._engine.run)

    def is_approved(self, spec: SidecarSpec) -> bool:
        """Return whether the code that `spec` runs is approved now, or needs no approval."""
        scope = spec.repository or ids.scope_of(spec.workdir)
        code = Code(spec.source, spec.bundle_hash, spec.digest)
        for base in self._harness.bases:
            known = self._registration(ids.registration_stream(self._engine.host, scope, base, spec.skill))
            runs = known.covers(code) if spec.repository else known.may_run(code, self._engine.run)
            if runs is not None and runs.digest == spec.digest:
                return True
        return not spec.digest

    def loss(self, spec: SidecarSpec) -> str:
        """Return in a few words what `spec` has lost, its approval or a secret that it was made with; "" for no
        loss."""
        if not self.is_approved(spec):
            return "its code is no longer approved"
        values = self._credentials.values_of(ids.scope_of(spec.workdir), spec.skill)
        if spec.repository:
            values = values.over(self._credentials.values_of(spec.repository, spec.skill))
        secrets = [(name, stored.fingerprint) for name, stored in values.secrets.items()]
        wanted = [item for names in spec.stored.values() for item in names.items()]
        return "a secret was revoked or replaced" if any(item not in secrets for item in wanted) else ""

    def is_worktree(self, workdir: str, scope: str) -> bool:
        """Return whether a directory was, when its skills were planned last, in the repository of this scope."""
        return self._repository_of.get(workdir) == scope

    async def _identify(self, workdir: str) -> None:
        """Find of which repository a directory is a worktree now."""
        repository = await self._repositories.of(workdir) if workdir else None
        if repository is not None:
            self._repository_of[workdir] = repository.scope
        else:
            self._repository_of.pop(workdir, None)

    async def shared_differ(self, shared: Directory) -> bool:
        """Return whether the skills that all directories share differ from those of `shared`."""
        present = {skill.name: (skill.source, skill.bundle_hash) for skill in await self._discover("")}
        return present != {name: (skill.source, skill.bundle_hash) for name, skill in shared.skills.items()}

    async def _discover(self, workdir: str) -> list[FoundSkill]:
        bases = self._harness.bases
        return await (self._folders.discover(workdir, bases) if workdir else self._folders.discover_global(bases))

    async def _register(self, skill_scope: SkillScope, policy: SkillPolicy, skill: FoundSkill) -> None:
        stream = self._stream(skill_scope, skill)
        before = self._registration(stream)
        approved = self._shared(skill_scope, skill).approved
        by_repository = approved is not None and approved.bundle_hash == skill.bundle_hash
        if before.found is None and not policy.auto_register and not by_repository:
            return
        code = Code(skill.source, skill.bundle_hash, await self._digest(skill.source))
        await self._decide(stream, registration.Discover(code, skill_scope.workdir))
        if policy.bundle_drift == "accept" and before.approved is not None:
            await self._accept(stream, before.approved, code)

    async def _accept(self, stream: StreamId, approved: Code, present: Code) -> None:
        """Freeze and accept changed code, as this run's policy demands, so that the run executes one version of it."""
        if approved.source != present.source or approved.bundle_hash == present.bundle_hash:
            return  # a copy planted elsewhere inherits nothing
        try:
            frozen = await self._frozen.freeze(present.source)
        except (Refusal, OSError) as problem:  # one skill that cannot be copied; it stays as it was approved
            _log.warning("%s has changed and cannot be copied: %s", present.source, problem)
            return
        if frozen.bundle_hash == present.bundle_hash:
            code = Code(present.source, frozen.bundle_hash, frozen.digest)
            await self._decide(stream, registration.Accept(code, self._engine.run))

    async def _adopt(self, skill_scope: SkillScope, skill: FoundSkill) -> None:
        """Adopt saved defaults where the very code that they were given to is approved here (rule 4 of credentials)."""
        known, sidecar = self._known(skill_scope, skill), skill.sidecar
        code = known.may_run(skill.code, "")
        if not skill_scope.workdir or sidecar is None or code is None:
            return
        values = known.credential_for(skill.code)
        has = {*values.secrets, *values.config, *values.taken}
        remembered = self._credentials.defaults(skill.name)
        names = [field.name for field in sidecar.fields if field.name not in has]
        if not any(name in remembered and remembered[name].code == code.digest for name in names):
            return
        try:
            await self._credentials.adopt(skill_scope.scope, skill.name, code.digest, names, Cause("omac"), skill.base)
        except Refusal as refusal:  # a store is locked, say: the values stay missing, and are said to be
            _log.warning(
                "%s in %s: remembered values cannot be adopted: %s", skill.name, skill_scope.shown, refusal.message
            )

    async def _digest(self, source: str) -> str:
        try:
            return await self._folders.digest(source)
        except OSError as error:
            _log.info("%s cannot be read as a whole: %s", source, error)
            return UNREADABLE

    def _known(self, skill_scope: SkillScope, skill: FoundSkill) -> KnownSkill:
        values = self._credentials.values_of(skill_scope.scope, skill.name, skill.base)
        own, scope = self._registration(self._stream(skill_scope, skill)), self._repository_of.get(skill_scope.workdir)
        if scope is None:
            return KnownSkill(own, values)
        shared_values = self._credentials.values_of(scope, skill.name, skill.base)
        return KnownSkill(own, values, scope, self._shared(skill_scope, skill), shared_values)

    def _shared(self, skill_scope: SkillScope, skill: FoundSkill) -> Registration:
        """Return the registration of a skill for each worktree of the repository of a place."""
        scope = self._repository_of.get(skill_scope.workdir)
        if scope is None:
            return Registration()
        return self._registration(ids.registration_stream(self._engine.host, scope, skill.base, skill.name))

    def _registration(self, stream: StreamId) -> Registration:
        return self._engine.system.registrations[stream].state

    def _stream(self, skill_scope: SkillScope, skill: FoundSkill) -> StreamId:
        return ids.registration_stream(self._engine.host, skill_scope.scope, skill.base, skill.name)

    async def _decide(self, stream: StreamId, command: registration.Command) -> None:
        await self._engine.execute(registration.AGGREGATE, stream, command, Cause("omac"))
