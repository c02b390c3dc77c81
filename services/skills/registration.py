"""Registering: what a person does about a skill from a command line. Vouch for it, give it values, forget it.

A server that runs sees what a command recorded, and reacts.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from omac.domain.kernel import ids
from omac.domain.kernel.event import PERSON, Cause
from omac.domain.kernel.ids import StreamId
from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.skills import registration
from omac.domain.skills.registration import Code, Registration
from omac.services.credentials.values import Credentials, SetResult, Values
from omac.services.kernel.execution import Execution
from omac.services.ports import FrozenSkills, Interpreters
from omac.services.skills.resolution import Candidate


@dataclass(eq=False, repr=False)
class Registering:
    """Records what a person decides about a skill; `frozen` takes the copies that approvals are for, `interpreters`
    resolves by what they run."""

    _execution: Execution
    _frozen: FrozenSkills
    _interpreters: Interpreters
    _credentials: Credentials

    def known(self, candidate: Candidate) -> Registration:
        """Return the recorded registration of a skill."""
        return self._execution.entry(registration.AGGREGATE, self._stream(candidate)).state

    async def approve(self, candidate: Candidate, digest: str | None = None) -> bool:
        """Vouch for the code as it was found, and adopt what was given to it elsewhere. False: exactly this code was
        approved already.

        `digest`: only if this is that of the copy.

        Raises Refusal: skill-invalid (it cannot be copied), skill-changed (it is no longer what was found).
        """
        code = await self._freeze(candidate, digest)
        changed = await self._approve(candidate, code)
        skill, place = candidate.skill, candidate.place
        if skill.sidecar is not None and place.workdir and place.repository is None:
            names = [field.name for field in skill.sidecar.fields]
            with contextlib.suppress(Refusal):  # a store is locked, say: the next start adopts them
                await self._credentials.adopt(place.scope, skill.name, code.digest, names, Cause("omac"), skill.base)
        return changed

    async def preview(self, candidate: Candidate) -> tuple[Code, str]:
        """Return the code that an approval would be for now, and the path of its copy; nothing is recorded. Raises
        Refusal, as `approve`."""
        code = await self._freeze(candidate, None)
        return code, await self._frozen.checked(code.digest, candidate.skill.source)

    async def note(self, candidate: Candidate) -> bool:
        """Register a skill without approving it. False: it was registered."""
        return await self._decide(candidate, registration.Register(candidate.skill.code, candidate.place.dir))

    async def revoke(self, stream: StreamId) -> bool:
        """Revoke the approval of a registration. False: it had none."""
        why = registration.Revoke("a person revoked it")
        return bool(await self._execution.execute(registration.AGGREGATE, stream, why, PERSON))

    async def register(
        self, candidate: Candidate, values: Values, adopted: Sequence[str] = (), digest: str | None = None
    ) -> tuple[Refusal, ...]:
        """Give a skill values, then approve it; `adopted` names those that come from defaults. Raises Refusal; then it
        is not approved. Returns what failed once the values counted."""
        code = await self._freeze(candidate, digest)
        if values:
            await self._introduce(candidate, code)
        result = await self.give(candidate, values, adopted, code=code.digest) if values else None
        await self._approve(candidate, code)
        return result.problems if result else ()

    async def give(
        self,
        candidate: Candidate,
        values: Values,
        adopted: Sequence[str] = (),
        *,
        mirror: bool = True,
        code: str | None = None,
    ) -> SetResult:
        """Give a skill values; they are remembered for `code`, else for the code that it has, unless `mirror` is false.
        Raises Refusal; then nothing counts as given."""
        skill, scope = candidate.skill, candidate.place.scope
        remembered = self._credentials.defaults(skill.name)
        origins = {name: remembered[name].code for name in adopted if name in remembered}
        code = code or self.code(candidate)
        await self._introduce(candidate, skill.code)
        return await self._credentials.give(
            scope, skill.name, code, values, PERSON, base=skill.base, mirror=mirror, adopted=origins
        )

    async def _introduce(self, candidate: Candidate, code: Code) -> None:
        """Register a skill that is not registered yet, before it gets values: so their record has the directory, or the
        repository."""
        if candidate.place.dir and self.known(candidate).found is None:
            await self._decide(candidate, registration.Register(code, candidate.place.dir))

    def code(self, candidate: Candidate) -> str:
        """Return the id of a skill's code under which values are saved as defaults: the approved copy's digest, else
        the hash."""
        skill, approved = candidate.skill, self.known(candidate).approved
        if approved is None or approved.bundle_hash != skill.bundle_hash:
            return skill.bundle_hash
        same = candidate.place.repository is not None or skill.code.is_bundle(approved)
        return approved.digest if same else skill.bundle_hash

    async def deregister(self, stream: StreamId) -> bool:
        """Forget a registration, and with it the approval. False: there was none."""
        return bool(await self._execution.execute(registration.AGGREGATE, stream, registration.Deregister(), PERSON))

    async def _freeze(self, candidate: Candidate, digest: str | None) -> Code:
        """The copy that an approval is for, and by what it runs; nothing is recorded. Raises Refusal, as `approve`."""
        skill = candidate.skill
        frozen = await self._frozen.freeze(skill.source)
        if frozen.bundle_hash != skill.bundle_hash or digest not in (None, frozen.digest):
            message = f"{skill.name} in {skill.source} changed while omac read it; nothing was approved"
            fix = [f"omac approve {quoted(skill.name)} {candidate.place.flags}"]
            raise Refusal("skill-changed", message, fix=fix)
        sidecar = skill.sidecar
        if sidecar is None:
            return Code(skill.source, frozen.bundle_hash, frozen.digest)
        copy = await self._frozen.checked(frozen.digest, skill.source)
        by = await self._interpreters.resolve(sidecar.command, skill.source, copy, candidate.place.workdir)
        return Code(skill.source, frozen.bundle_hash, frozen.digest, by)

    async def _approve(self, candidate: Candidate, code: Code) -> bool:
        before = self.known(candidate).approved if candidate.place.repository else None
        if before is not None and msgspec.structs.replace(before, source=code.source) == code:
            return False  # the same files, in whichever worktree
        return await self._decide(candidate, registration.Approve(code, candidate.place.dir))

    async def _decide(self, candidate: Candidate, command: registration.Command) -> bool:
        return bool(await self._execution.execute(registration.AGGREGATE, self._stream(candidate), command, PERSON))

    def _stream(self, candidate: Candidate) -> StreamId:
        skill = candidate.skill
        return ids.registration_stream(self._execution.host, candidate.place.scope, skill.base, skill.name)
