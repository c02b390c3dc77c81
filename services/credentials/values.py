"""Credentials: giving values to skills and taking them back, remembering defaults, and reading what a start needs.

The same use cases serve a command line, which writes to the journal itself, and a server.
Secrets go from whoever gives them to a store, and from there into a sidecar; the journal sees names and fingerprints.
A change of credentials is the only one from the request to the last record: what a store holds in the end
is what was recorded in the end.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import msgspec

from omac.domain.credentials import credential
from omac.domain.credentials.credential import DEFAULTS, Credential, Default, GiveValues, Mirror, RequestSecrets, Stored
from omac.domain.kernel import ids
from omac.domain.kernel.event import Cause
from omac.domain.kernel.hidden import Hidden
from omac.domain.kernel.ids import GLOBAL, StreamId
from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.sidecars.sidecar import SidecarSpec
from omac.domain.skills.scope import SkillScope
from omac.services.kernel.execution import Execution
from omac.services.ports import Secrets

Value = TypeVar("Value")

# Reasons of a store that may be gone for good: its values can be entered again, into another one.
UNREACHABLE = ("keychain-unavailable", "keychain-failed", "vault-damaged")


class Values(msgspec.Struct, frozen=True):
    """Values by name: secrets, and settings in the spelling that a sidecar sees."""

    secrets: dict[str, Hidden] = {}
    config: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self.secrets or self.config)

    def without(self, names: Collection[str]) -> "Values":
        """Return the values of all other names."""
        return Values(_but(names, self.secrets), _but(names, self.config))


class SecretsMissing(Exception):
    """A start lacks secrets: which, why, and the commands that mend it."""

    def __init__(self, names: Collection[str], detail: str, fix: Collection[str]) -> None:
        super().__init__(detail)
        self.names = tuple(names)
        self.fix = tuple(fix)


class SetResult(NamedTuple):
    """The result of setting values: the store that has the secrets ("" for none), and the problems after all of them
    counted."""

    store: str
    problems: tuple[Refusal, ...]


Changing = Callable[[], AbstractAsyncContextManager[None]]


@dataclass(eq=False, repr=False)
class Credentials:
    """The use cases. `key` is this host's key of fingerprints.

    `changing` is entered for every change, and lets one in at a time on this host. Raises Refusal (contention).
    """

    _execution: Execution
    _secrets: Secrets
    _key: bytes
    _changing: Changing = nullcontext

    def values_of(self, scope: str, skill: str, base: str | None = None) -> Credential:
        """Return the values given to the skill in the base folder `base`; None: to any skill of that name."""
        return self._state(self._stream(scope, skill)).of(base)

    def defaults(self, skill: str) -> dict[str, Default]:
        """The values remembered for skills of that name."""
        return self._state(self._stream(DEFAULTS, skill)).defaults

    async def give(
        self,
        scope: str,
        skill: str,
        code: str,
        values: Values,
        cause: Cause,
        *,
        base: str = "",
        mirror: bool = True,
        adopted: Mapping[str, str] | None = None,
    ) -> SetResult:
        """Keep values given to the code `code` of the skill in `base`, and remember them as defaults (not of shared
        skills). `adopted` maps names to the code that their default was given to. Raises Refusal; then nothing counts
        as given."""
        async with self._changing():
            store = await self._give(scope, skill, values, cause, base, adopted or {})
            problems: list[Refusal] = []
            if mirror and scope != GLOBAL:
                mirroring = self._mirror(store, skill, code, values, cause)
                if not (problem := await _problem(mirroring, "stored, but saving it as a default failed")):
                    problem = await self._tidy(DEFAULTS, skill, values, cause)
                problems += problem
            return SetResult(store, (*problems, *await self._tidy(scope, skill, values, cause)))

    async def remember(self, skill: str, code: str, values: Values, cause: Cause) -> tuple[Refusal, ...]:
        """Keep values as the defaults of a skill's name, and give them to none. Raises Refusal; then nothing is
        remembered. Returns what failed once all of it was."""
        async with self._changing():
            store = await self._secrets.chosen() if values.secrets else ""
            await self._mirror(store, skill, code, values, cause)
            return await self._tidy(DEFAULTS, skill, values, cause)

    async def take(self, scope: str, skill: str, names: Collection[str], cause: Cause, base: str | None = None) -> None:
        """Forget values of the skill in `base` (None: whichever): at once for whatever starts from now on, then in the
        stores, also what is left there of earlier values. Raises Refusal: when a store failed, what it could not forget
        is left for the next time."""
        async with self._changing():
            await self._execute(self._stream(scope, skill), credential.TakeValues(tuple(names), base), cause)
            await self._erase(scope, skill, names, cause)

    async def purge(self, skill: str, cause: Cause) -> None:
        """Forget the defaults of a skill's name, as `take` does."""
        async with self._changing():
            await self._execute(self._stream(DEFAULTS, skill), credential.Purge(), cause)
            await self._erase(DEFAULTS, skill, list(self.values_of(DEFAULTS, skill).left), cause)

    async def remembered(self, skill: str, names: Collection[str], code: str | None = None) -> Values:
        """The defaults of these names, as far as there are any; only those given to `code`, if one is given. Raises
        Refusal when a store cannot be read. A secret that is no longer what was recorded counts as forgotten."""
        wanted = {
            name: default
            for name, default in self.defaults(skill).items()
            if name in names and code in (None, default.code)
        }
        config = {name: default.value for name, default in wanted.items() if default.value is not None}
        stored = {name: default.secret for name, default in wanted.items() if default.secret}
        secrets, _ = await self._read(credential.service(DEFAULTS, skill), stored)
        return Values(secrets, config)

    async def adopt(
        self, scope: str, skill: str, code: str, names: Collection[str], cause: Cause, base: str = ""
    ) -> None:
        """Adopt, without a person, the defaults of this name that were given to this very code elsewhere. Values that
        another base was given stay, and those that a person gave or revoked meanwhile. Raises Refusal."""
        defaults = await self.remembered(skill, names, code)
        if not defaults:
            return
        async with self._changing():
            whole = self.values_of(scope, skill)
            known = {*whole.secrets, *whole.config, *whole.of(base).taken}
            values = defaults.without(known)
            if values:
                adopted = dict.fromkeys((*values.secrets, *values.config), code)
                await self._give(scope, skill, values, cause, base, adopted)

    async def needed(self, spec: SidecarSpec, harness: str) -> dict[str, Hidden]:
        """The secrets that a start needs, each as it was recorded and still is. Raises SecretsMissing."""
        skill_scope = SkillScope(spec.workdir, harness)
        wanted = {
            name: Stored(fingerprint, store)
            for store, names in spec.stored.items()
            for name, fingerprint in names.items()
        }
        values: dict[str, Hidden] = {}
        changed, left = False, dict(wanted)
        scopes = (skill_scope.scope, spec.repository) if spec.repository else (skill_scope.scope,)
        for scope in scopes if wanted else ():
            recorded = self.values_of(scope, spec.skill).secrets
            here = {name: stored for name, stored in left.items() if recorded.get(name) == stored}
            left = _but(here, left)
            try:
                read, differs = await self._read(credential.service(scope, spec.skill), here)
            except Refusal as refusal:
                again = _set_commands(spec, skill_scope, sorted(wanted)) if refusal.reason in UNREACHABLE else []
                raise SecretsMissing(wanted, refusal.message, [*refusal.fix, *again]) from None
            values |= read
            changed |= differs
        if left:
            raise _missing(spec, skill_scope, sorted(left), "revoked or replaced since the start was planned")
        if absent := sorted(wanted.keys() - values.keys()):
            how = "is not the recorded value" if changed else "is missing"
            raise _missing(spec, skill_scope, absent, f"the entry in the {wanted[absent[0]].store} {how}")
        return values

    async def _read(self, service: str, wanted: Mapping[str, Stored]) -> tuple[dict[str, Hidden], bool]:
        """Return those of the wanted secrets whose value is the recorded one, and whether another value was found."""
        values: dict[str, Hidden] = {}
        changed = False
        for store, names in _by_store({name: [stored.store] for name, stored in wanted.items()}).items():
            for name, value in (await self._secrets.read(store, service, names)).items():
                if name not in wanted:
                    continue
                if credential.fingerprint(self._key, service, name, value) == wanted[name].fingerprint:
                    values[name] = value
                else:
                    changed = True
        return values, changed

    async def _give(
        self, scope: str, skill: str, values: Values, cause: Cause, base: str, adopted: Mapping[str, str]
    ) -> str:
        """Write the secrets to the store that takes new values, have all values count, and return that store. Raises
        Refusal."""
        stream, service = self._stream(scope, skill), credential.service(scope, skill)
        store = await self._secrets.chosen() if values.secrets else ""
        stored = self._sealed(store, service, values.secrets)
        if values.secrets:
            await self._execute(stream, RequestSecrets(stored, base), cause)
            try:
                await self._secrets.write(store, service, values.secrets)
            except Refusal as refusal:
                message = f"{', '.join(values.secrets)}: not given to {skill}: {refusal.message}"
                raise Refusal(refusal.reason, message, fix=refusal.fix) from None
        await self._execute(stream, GiveValues(stored, values.config, dict(adopted), base), cause)
        return store

    async def _mirror(self, store: str, skill: str, code: str, values: Values, cause: Cause) -> None:
        service = credential.service(DEFAULTS, skill)
        sealed = self._sealed(store, service, values.secrets)
        stream = self._stream(DEFAULTS, skill)
        if values.secrets:
            await self._execute(stream, RequestSecrets(sealed), cause)
            await self._secrets.write(store, service, values.secrets)
        defaults = {name: Default(code, value) for name, value in values.config.items()}
        defaults |= {name: Default(code, None, stored) for name, stored in sealed.items()}
        await self._execute(stream, Mirror(defaults), cause)

    async def _tidy(self, scope: str, skill: str, values: Values, cause: Cause) -> tuple[Refusal, ...]:
        """Have the stores forget what these values replaced; returns what failed."""
        problem = "stored, but deleting an earlier value failed"
        return await _problem(self._erase(scope, skill, values.secrets, cause), problem)

    async def _erase(self, scope: str, skill: str, names: Collection[str], cause: Cause) -> None:
        """Have every store forget what counts no longer of these names. Raises Refusal once all were asked."""
        stream, service = self._stream(scope, skill), credential.service(scope, skill)
        left = self._state(stream).left
        refusals: list[Refusal] = []
        for store, kept in _by_store({name: left[name] for name in names if name in left}).items():
            try:
                await self._secrets.remove(store, service, kept)
                await self._execute(stream, credential.Erased(store, tuple(kept)), cause)
            except Refusal as refusal:
                refusals.append(refusal)
        if refusals:
            raise refusals[0]

    def _sealed(self, store: str, service: str, secrets: Mapping[str, Hidden]) -> dict[str, Stored]:
        return {
            name: Stored(credential.fingerprint(self._key, service, name, value), store)
            for name, value in secrets.items()
        }

    def _state(self, stream: StreamId) -> Credential:
        return self._execution.entry(credential.AGGREGATE, stream).state

    async def _execute(self, stream: StreamId, command: credential.Command, cause: Cause) -> None:
        await self._execution.execute(credential.AGGREGATE, stream, command, cause)

    def _stream(self, scope: str, skill: str) -> StreamId:
        return ids.credential_stream(self._execution.host, scope, skill)


def _by_store(stores: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    by_store: dict[str, list[str]] = {}
    for name, of_name in stores.items():
        for store in of_name:
            by_store.setdefault(store, []).append(name)
    return by_store


def _but(known: Collection[str], values: Mapping[str, Value]) -> dict[str, Value]:
    return {name: value for name, value in values.items() if name not in known}


async def _problem(work: Awaitable[None], failure: str) -> tuple[Refusal, ...]:
    """Do what nothing depends on any more; returns how it failed, if it did."""
    try:
        await work
    except Refusal as refusal:
        return (Refusal(refusal.reason, f"{failure}: {refusal.message}", fix=refusal.fix),)
    return ()


def _missing(spec: SidecarSpec, skill_scope: SkillScope, names: Sequence[str], how: str) -> SecretsMissing:
    return SecretsMissing(names, f"{', '.join(names)}: {how}", _set_commands(spec, skill_scope, names))


def _set_commands(spec: SidecarSpec, skill_scope: SkillScope, names: Sequence[str]) -> list[str]:
    return [f"omac secrets set {quoted(spec.skill)} {name} {skill_scope.flags}" for name in names]
