"""Credentials: giving values to skills and taking them back, remembering defaults, and reading what a start needs.

The same use cases serve a command line, which writes to the journal itself, and a server; they differ in their ledger.
Secrets go from whoever gives them to a store, and from there into a sidecar; the journal sees names and fingerprints.
"""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Protocol

import msgspec
import trio

from omac.domain import credential, ids
from omac.domain.credential import DEFAULTS, Credential, Default, GiveValues, Mirror, RequestSecrets, Stored
from omac.domain.hidden import Hidden
from omac.domain.ids import GLOBAL, HostId, StreamId
from omac.domain.place import Place
from omac.domain.recorded import Cause, Event
from omac.domain.refusal import Refusal
from omac.domain.sidecar import SidecarSpec
from omac.journal.application import Journal
from omac.services.engine import Engine
from omac.services.ports import Secrets


class Values(msgspec.Struct, frozen=True):
    """Values by name: secrets, and settings in the spelling that a sidecar sees."""

    secrets: dict[str, Hidden] = {}
    config: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self.secrets or self.config)


class Ledger(Protocol):
    """Where credentials are recorded and looked up."""

    def state(self, stream: StreamId) -> Credential:
        """What is known of one credential."""

    async def execute(self, stream: StreamId, command: credential.Command, cause: Cause) -> None:
        """Decide and record. Raises Refusal."""


class JournalLedger(Ledger):
    """For a process that appends to the journal itself; it may block."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def state(self, stream: StreamId) -> Credential:
        """See Ledger."""
        return self._journal.load(stream, Credential(), credential.evolve)[0]

    async def execute(self, stream: StreamId, command: credential.Command, cause: Cause) -> None:
        """See Ledger."""
        await trio.lowlevel.checkpoint()
        self._journal.execute(stream, Credential(), credential.evolve, partial(credential.decide, command), cause)


class EngineLedger(Ledger):
    """For a server."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def state(self, stream: StreamId) -> Credential:
        """See Ledger."""
        return self._engine.system.credentials[stream].state

    async def execute(self, stream: StreamId, command: credential.Command, cause: Cause) -> None:
        """See Ledger."""
        decide: Callable[[Credential], list[Event]] = partial(credential.decide, command)
        await self._engine.execute(self._engine.system.credentials, stream, decide, cause)


class SecretsMissing(Exception):
    """A start lacks secrets: which, why, and the commands that mend it."""

    def __init__(self, names: Collection[str], detail: str, fix: Collection[str]) -> None:
        super().__init__(detail)
        self.names = tuple(names)
        self.fix = tuple(fix)


class Credentials:
    """The use cases. `key` is this host's key of fingerprints."""

    def __init__(self, ledger: Ledger, host: HostId, secrets: Secrets, key: bytes) -> None:
        self._ledger = ledger
        self._host = host
        self._secrets = secrets
        self._key = key

    def given(self, scope: str, skill: str) -> Credential:
        """What was given to a skill."""
        return self._ledger.state(self._stream(scope, skill))

    def defaults(self, skill: str) -> dict[str, Default]:
        """The values remembered for skills of that name."""
        return self._ledger.state(self._stream(DEFAULTS, skill)).defaults

    async def give(
        self,
        scope: str,
        skill: str,
        code: str,
        values: Values,
        cause: Cause,
        *,
        mirror: bool = True,
        adopted: Mapping[str, str] | None = None,
    ) -> None:
        """Keep values given to the code `code` of a skill, and remember them as defaults (not of shared skills).

        `adopted` maps names to the code that their default was given to. Raises Refusal; then nothing counts as given.
        """
        stream, service = self._stream(scope, skill), credential.service(scope, skill)
        store = await self._secrets.chosen() if values.secrets else ""
        stored = self._sealed(store, service, values.secrets)
        if values.secrets:
            await self._ledger.execute(stream, RequestSecrets(stored), cause)
            await self._secrets.write(store, service, values.secrets)
        await self._ledger.execute(stream, GiveValues(stored, values.config, dict(adopted or {})), cause)
        if mirror and scope != GLOBAL:
            await self._mirror(store, skill, code, values, cause)

    async def remember(self, skill: str, code: str, values: Values, cause: Cause) -> None:
        """Keep values as the defaults of a skill's name, and give them to none. Raises Refusal."""
        store = await self._secrets.chosen() if values.secrets else ""
        await self._mirror(store, skill, code, values, cause)

    async def take(self, scope: str, skill: str, names: Collection[str], cause: Cause) -> None:
        """Forget values of a skill: at once for whatever starts from now on, then in the stores. Raises Refusal."""
        stream, service = self._stream(scope, skill), credential.service(scope, skill)
        before = self._ledger.state(stream)
        await self._ledger.execute(stream, credential.TakeValues(tuple(names)), cause)
        for store, kept in _by_store(names, before.secrets | before.writing).items():
            await self._secrets.remove(store, service, kept)

    async def sweep(self, scope: str, skill: str, names: Collection[str]) -> None:
        """Finish what `take` could not: remove values that count as taken from the store in use. Raises Refusal."""
        store = await self._secrets.chosen()
        await self._secrets.remove(store, credential.service(scope, skill), list(names))

    async def purge(self, skill: str, cause: Cause) -> None:
        """Forget the defaults of a skill's name. Raises Refusal."""
        before = self._ledger.state(self._stream(DEFAULTS, skill))
        await self._ledger.execute(self._stream(DEFAULTS, skill), credential.Purge(), cause)
        kept = {name: default.secret for name, default in before.defaults.items() if default.secret}
        secrets = kept | before.writing  # also what was on its way when it was cut short
        for store, names in _by_store(secrets, secrets).items():
            await self._secrets.remove(store, credential.service(DEFAULTS, skill), names)

    async def remembered(self, skill: str, names: Collection[str], code: str | None = None) -> Values:
        """The defaults of these names, as far as there are any; only those given to `code`, if one is given.

        Raises Refusal when a store cannot be read. A secret that is no longer what was recorded counts as forgotten.
        """
        wanted = {
            name: default
            for name, default in self.defaults(skill).items()
            if name in names and code in (None, default.code)
        }
        config = {name: default.value for name, default in wanted.items() if default.value is not None}
        stored = {name: default.secret for name, default in wanted.items() if default.secret}
        secrets, _ = await self._read(credential.service(DEFAULTS, skill), stored)
        return Values(secrets, config)

    async def adopt(self, scope: str, skill: str, code: str, names: Collection[str], cause: Cause) -> None:
        """Without a person: take over what was given, under this name, to this very code elsewhere. Raises Refusal."""
        values = await self.remembered(skill, names, code)
        if values:
            adopted = dict.fromkeys((*values.secrets, *values.config), code)
            await self.give(scope, skill, code, values, cause, mirror=False, adopted=adopted)

    async def needed(self, spec: SidecarSpec, harness: str) -> dict[str, Hidden]:
        """The secrets that a start needs, each as it was recorded. Raises SecretsMissing."""
        place = Place(spec.workdir, harness)
        wanted = {
            name: Stored(fingerprint, store)
            for store, names in spec.stored.items()
            for name, fingerprint in names.items()
        }
        try:
            found, changed = await self._read(credential.service(place.scope, spec.skill), wanted)
        except Refusal as refusal:
            raise SecretsMissing(wanted, refusal.message, refusal.fix) from None
        if absent := wanted.keys() - found.keys():
            names = sorted(absent)
            how = "no longer what was recorded" if changed else "no longer there"
            fix = [f"omac secrets set {spec.skill} {name} {place.flags}" for name in names]
            raise SecretsMissing(names, f"{', '.join(names)}: what the {wanted[names[0]].store} holds is {how}", fix)
        return found

    async def _read(self, service: str, wanted: Mapping[str, Stored]) -> tuple[dict[str, Hidden], bool]:
        """Of the wanted secrets those whose value is the recorded one; and whether another value was found."""
        found: dict[str, Hidden] = {}
        changed = False
        for store, names in _by_store(wanted, wanted).items():
            for name, value in (await self._secrets.read(store, service, names)).items():
                if name not in wanted:
                    continue
                if credential.fingerprint(self._key, service, name, value) == wanted[name].fingerprint:
                    found[name] = value
                else:
                    changed = True
        return found, changed

    async def _mirror(self, store: str, skill: str, code: str, values: Values, cause: Cause) -> None:
        service = credential.service(DEFAULTS, skill)
        sealed = self._sealed(store, service, values.secrets)
        stream = self._stream(DEFAULTS, skill)
        if values.secrets:
            await self._ledger.execute(stream, RequestSecrets(sealed), cause)
            await self._secrets.write(store, service, values.secrets)
        defaults = {name: Default(code, value) for name, value in values.config.items()}
        defaults |= {name: Default(code, None, one) for name, one in sealed.items()}
        await self._ledger.execute(stream, Mirror(defaults), cause)

    def _sealed(self, store: str, service: str, secrets: Mapping[str, Hidden]) -> dict[str, Stored]:
        return {
            name: Stored(credential.fingerprint(self._key, service, name, value), store)
            for name, value in secrets.items()
        }

    def _stream(self, scope: str, skill: str) -> StreamId:
        return ids.credential_stream(self._host, scope, skill)


def _by_store(names: Collection[str], stored: Mapping[str, Stored]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in names:
        if name in stored:
            found.setdefault(stored[name].store, []).append(name)
    return found
