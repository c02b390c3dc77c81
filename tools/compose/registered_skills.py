"""What the journal says of the skills that this host knows, for commands that list them and forget them."""

import os
from collections.abc import Collection, Mapping
from contextlib import closing

import msgspec

from omac.domain.credentials.credential import Credential
from omac.domain.harness.table import harness_named
from omac.domain.kernel import ids
from omac.domain.kernel.event import Recorded
from omac.domain.kernel.ids import HostId, StreamId
from omac.domain.skills.registration import Approved, AutoRegistered, Deregistered, Registered, Registration
from omac.domain.skills.scope import SkillScope
from omac.journal.reader import Records
from omac.projections.status import RegistrationStatus, registry_of
from omac.projections.system import System
from omac.services.skills.resolution import ambiguous
from omac.tools.cli.scope_options import Where, harness_of, scopes_of
from omac.tools.compose.journals import read_if_any
from omac.tools.compose.state import StateDir, host_id


class RegisteredSkill(msgspec.Struct, frozen=True):
    """A registration: `at` is when its code was registered last, `approved_at` when it was approved last (ns, UTC)."""

    stream: StreamId
    status: RegistrationStatus
    state: Registration
    at: int = 0
    approved_at: int = 0

    @property
    def gone(self) -> bool:
        """Whether its source folder is no longer there."""
        return not os.path.isdir(self.status.source)


class Registry:
    """Every registration of this host in one journal."""

    def __init__(self, host: HostId, journal: Records | None) -> None:
        self._host = host
        self._at: dict[StreamId, int] = {}
        self._approved_at: dict[StreamId, int] = {}
        self.system = System()
        for recorded in journal.records() if journal else ():
            self.system.apply(recorded)
            self._note(recorded)
        self.known = tuple(self._of_host())

    @classmethod
    def read(cls, environment: Mapping[str, str], journal_path: str | None) -> "Registry":
        """From the journal that is meant; empty where there is none yet. Raises Refusal."""
        state = StateDir.of(environment)
        path = state.journal_in_use(environment, journal_path)
        journal = read_if_any(state, path)
        if journal is None:
            return cls(HostId(""), None)
        with closing(journal):
            return cls(host_id(state), journal)

    def credential(self, scope: str, skill: str, base: str | None = None) -> Credential:
        """What was given to the skill in the base folder `base`; None: to any skill of that name."""
        return self.system.credentials[ids.credential_stream(self._host, scope, skill)].state.of(base)

    def stores(self, scopes: Collection[str]) -> set[str]:
        """The stores that hold a secret of an approved skill in one of these scopes."""
        skills = [(one.status.scope, one.status.skill) for one in self.known if one.state.approved]
        given = [self.credential(scope, skill) for scope, skill in skills if scope in scopes]
        return {stored.store for one in given for stored in one.secrets.values()}

    def find(self, scope: str, base: str, skill: str) -> RegisteredSkill | None:
        """The registration of a skill in the base folder `base`."""
        stream = ids.registration_stream(self._host, scope, base, skill)
        return next((one for one in self.known if one.stream == stream), None)

    def within(self, where: Where) -> list[RegisteredSkill]:
        """The registrations that a command line means."""
        scopes = scopes_of(where)
        bases = harness_named(where.harness).bases if where.harness else None
        return [one for one in self.known if one.status.scope in scopes and (not bases or one.status.harness in bases)]

    def place(self, known: RegisteredSkill) -> SkillScope:
        """Where it belongs, with a harness that sees it."""
        status = known.status
        others = [
            one.status.harness
            for one in self.known
            if one is not known and (one.status.scope, one.status.skill) == (status.scope, status.skill)
        ]
        return SkillScope(status.dir, harness_of(status.harness, others))

    def one(self, where: Where, name: str, command: str, words: str = "") -> RegisteredSkill | None:
        """The registration that a name means; None if there is none. Raises Refusal (skill-ambiguous)."""
        matches = [one for one in self.within(where) if one.status.skill == name]
        if where.harness and len({one.status.scope for one in matches}) == 1:
            bases = harness_named(where.harness).bases
            matches = [min(matches, key=lambda one: bases.index(one.status.harness))]
        if len(matches) > 1:
            raise ambiguous(name, [(self.place(one), one.status.source) for one in matches], command, words)
        return matches[0] if matches else None

    def _of_host(self) -> list[RegisteredSkill]:
        skills = []
        for status in registry_of(self.system):
            stream = ids.registration_stream(self._host, status.scope, status.harness, status.skill)
            entry = self.system.registrations.entries.get(stream)
            if entry is not None and entry.position == status.since:
                at, approved_at = self._at.get(stream, 0), self._approved_at.get(stream, 0)
                skills.append(RegisteredSkill(stream, status, entry.state, at, approved_at))
        return skills

    def _note(self, recorded: Recorded) -> None:
        match recorded.event:
            case Registered() | AutoRegistered():
                self._at[recorded.stream] = recorded.at
            case Approved():
                self._approved_at[recorded.stream] = recorded.at
            case Deregistered():
                self._at.pop(recorded.stream, None)
                self._approved_at.pop(recorded.stream, None)
            case _:
                pass
