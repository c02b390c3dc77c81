"""Registering: what a person does about skills from a command line. Find one, vouch for it, give it values, forget it.

These use cases write to the journal themselves; a server that runs sees it and reacts.
"""

import shlex
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import trio

from omac.domain import ids, registration
from omac.domain.harness import DEFAULT_HARNESS, HARNESSES, SHARED_BASE, Harness
from omac.domain.ids import HostId, StreamId
from omac.domain.place import Place
from omac.domain.recorded import Cause
from omac.domain.refusal import Refusal
from omac.domain.registration import Code, Registration
from omac.domain.skill import FoundSkill, SkillScope
from omac.journal.application import Journal
from omac.services.credentials import Credentials, Values
from omac.services.ports import FrozenSkills, SkillFolders

PERSON = Cause("person")


class Candidate(msgspec.Struct, frozen=True):
    """A skill that a name may mean, and the place it was found in."""

    place: Place
    skill: FoundSkill

    @property
    def code(self) -> Code:
        """Its code as it was found; no digest is taken."""
        return Code(self.skill.source, self.skill.bundle_hash)


class Search(msgspec.Struct, frozen=True):
    """Where to look. `harness` None: wherever any looks; `scope` None: in the project and in what all share."""

    workdir: str
    harness: Harness | None = None
    scope: SkillScope | None = None


async def every(folders: SkillFolders, search: Search, *, guidance: bool = False) -> list[Candidate]:
    """Every skill there, also several of one name. Raises OSError."""
    found: list[Candidate] = []
    for scope in ("workdir", "global"):
        if search.scope in (None, scope):
            look = partial(folders.discover, search.workdir) if scope == "workdir" else folders.discover_global
            workdir = search.workdir if scope == "workdir" else ""
            found += await _in_scope(partial(look, guidance=guidance), workdir, search.harness)
    return found


async def _in_scope(look: Callable[..., object], workdir: str, harness: Harness | None) -> list[Candidate]:
    if harness is not None:
        skills: list[FoundSkill] = await look(harness.bases)  # type: ignore[misc]  # a port's method with its scope bound
        return [Candidate(Place(workdir, harness.name), skill) for skill in skills]
    found: list[Candidate] = []
    for one in HARNESSES:
        found += [Candidate(Place(workdir, one.name), skill) for skill in await look((one.base,))]  # type: ignore[misc]
    for skill in await look((SHARED_BASE,)):  # type: ignore[misc]
        own = {candidate.place.harness for candidate in found if candidate.skill.name == skill.name}
        sees = next((one.name for one in HARNESSES if one.name not in own), DEFAULT_HARNESS.name)
        found.append(Candidate(Place(workdir, sees), skill))
    return found


async def find(folders: SkillFolders, search: Search, name: str, command: str) -> Candidate:
    """The one skill with a sidecar that `name` means; `command` is what fixes begin with, such as "omac register".

    Raises Refusal: skill-not-found, skill-ambiguous, skill-invalid, skill-without-sidecar.
    """
    there = await every(folders, search, guidance=True)
    meant = [candidate for candidate in there if candidate.skill.name == name]
    fix = [f"{command} {shlex.quote(name)} {candidate.place.flags}" for candidate in meant]
    if len(meant) > 1:
        where = "; ".join(candidate.skill.source for candidate in meant)
        raise Refusal("skill-ambiguous", f"{name} may mean {len(meant)} skills: {where}", fix=fix)
    if not meant:
        raise _not_found(there, search, name, command)
    (candidate,) = meant
    if candidate.skill.problem is not None:
        raise Refusal("skill-invalid", f"{name} cannot be used: {candidate.skill.problem}", fix=_edit(candidate.skill))
    if candidate.skill.meta is None or candidate.skill.meta.sidecar is None:
        message = f"{name} has no sidecar, only a SKILL.md: there is nothing to run, nor to register"
        raise Refusal("skill-without-sidecar", message)
    return candidate


def _edit(skill: FoundSkill) -> list[str]:
    return [f"${{EDITOR:-vi}} {shlex.quote(skill.source)}/omac.yaml"]


def _not_found(there: Sequence[Candidate], search: Search, name: str, command: str) -> Refusal:
    usable = [candidate for candidate in there if candidate.skill.problem is None and candidate.skill.meta]
    names = ", ".join(sorted({candidate.skill.name for candidate in there})) or "none"
    fix = [f"{command} {shlex.quote(candidate.skill.name)} {candidate.place.flags}" for candidate in usable]
    where = "in what all projects share" if search.scope == "global" else f"in {search.workdir}"
    message = f"no skill {name!r} with a sidecar {where}; there are: {names}"
    look = f"ls -la {shlex.quote(search.workdir)}/.{SHARED_BASE}/skills"
    return Refusal("skill-not-found", message, fix=fix[:10] or ["omac list --all", look])


class Registering:
    """Records what a person decides about a skill; `frozen` takes the copies that approvals are for."""

    def __init__(self, journal: Journal, host: HostId, frozen: FrozenSkills, credentials: Credentials) -> None:
        self._journal = journal
        self._host = host
        self._frozen = frozen
        self._credentials = credentials

    def known(self, candidate: Candidate) -> Registration:
        """What is recorded of a skill."""
        return self._journal.load(self._stream(candidate), Registration(), registration.evolve)[0]

    async def approve(self, candidate: Candidate, digest: str | None = None) -> bool:
        """Vouch for the code as it was found. False: exactly this code was approved already.

        `digest`: only if this is that of the copy.

        Raises Refusal: skill-invalid (it cannot be copied), skill-changed (it is no longer what was found).
        """
        skill = candidate.skill
        frozen = await self._frozen.freeze(skill.source)
        if frozen.bundle_hash != skill.bundle_hash or digest not in (None, frozen.digest):
            message = f"{skill.name} in {skill.source} changed while it was looked at: nothing was approved"
            raise Refusal("skill-changed", message, fix=[f"omac approve {shlex.quote(skill.name)} {candidate.place.flags}"])
        code = Code(skill.source, frozen.bundle_hash, frozen.digest)
        return self._decide(candidate, registration.Approve(code, candidate.place.workdir))

    def note(self, candidate: Candidate) -> bool:
        """A person wants it known, and does not vouch for it. False: it was known."""
        return self._decide(candidate, registration.Register(candidate.code, candidate.place.workdir))

    def revoke(self, candidate: Candidate) -> bool:
        """No longer vouch for a skill. False: nobody did."""
        return self._decide(candidate, registration.Revoke("a person revoked it"))

    async def register(self, candidate: Candidate, values: Values, adopted: Sequence[str] = ()) -> None:
        """Vouch for a skill and give it values; `adopted` names those that come from defaults. Raises Refusal."""
        skill = candidate.skill
        await self.approve(candidate)
        if values:
            remembered = self._credentials.defaults(skill.name)
            origins = {name: remembered[name].bundle_hash for name in adopted if name in remembered}
            await self._credentials.give(
                candidate.place.scope, skill.name, skill.bundle_hash, values, PERSON, adopted=origins
            )

    def deregister(self, stream: StreamId) -> bool:
        """Forget a registration, and with it the approval. False: there was none."""
        decide = partial(registration.decide, registration.Deregister())
        return bool(self._journal.execute(stream, Registration(), registration.evolve, decide, PERSON))

    def _decide(self, candidate: Candidate, command: registration.Command) -> bool:
        decide = partial(registration.decide, command)
        stream = self._stream(candidate)
        return bool(self._journal.execute(stream, Registration(), registration.evolve, decide, PERSON))

    def _stream(self, candidate: Candidate) -> StreamId:
        skill = candidate.skill
        return ids.registration_stream(self._host, candidate.place.scope, skill.base, skill.name)
