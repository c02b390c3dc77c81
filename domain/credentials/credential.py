"""A credential: the values given to one skill in one scope. Settings are here whole, secrets by name and fingerprint.

Rules

1. A secret's value lives in a store; the journal has its name, a keyed fingerprint, and which store. What a store
   holds counts only if its fingerprint is the recorded one.
2. Writing a secret is requested before the store is touched and recorded afterwards. A request without an outcome
   leaves the earlier value in force until the store says otherwise: then the secret is missing, and can be given again.
3. Whatever is given to a skill of a project is mirrored to the defaults of that skill's name, with the code it was
   given to: the digest of its approved copy, else its bundle hash. Defaults are a scope of their own; nothing that runs
   reads them.
4. A default is adopted by a person (`register --defaults`), by name; without a person only where the very code it was
   given to is approved. What is adopted becomes the scope's own value.
5. A value counts for the base folder (such as "agents") whose skill it was given to, and for no other skill of that
   name; one without a base counts for all. A name has one value: given to another base, it is no longer the first's.
6. A value given by repository (`domain/skills/repository.py`) counts in each worktree whose code is approved by
   repository, unless the skill there has a value of its own, or a person took it back there.
7. Taking back counts at once. A store that may hold what counts no longer is remembered until it has forgotten it.
"""

import hashlib
import hmac
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from omac.domain.kernel.aggregate import Aggregate
from omac.domain.kernel.event import Event
from omac.domain.kernel.hidden import Hidden
from omac.domain.kernel.ids import GLOBAL

DEFAULTS = "__defaults__"  # the scope of remembered values
FINGERPRINT_DIGITS = 16

Value = TypeVar("Value")


class SecretWriteRequested(Event, frozen=True):
    """A value is about to be put into `store`, for the skill in the base folder `base` ("" any)."""

    name: str
    fingerprint: str
    store: str
    base: str = ""


class SecretWritten(Event, frozen=True):
    """The value is in `store`, given to the skill in `base`."""

    name: str
    fingerprint: str
    store: str
    base: str = ""


class SecretRemoved(Event, frozen=True):
    """The secret is no longer given to the skill; where it was kept, its value may still be."""

    name: str


class SecretErased(Event, frozen=True):
    """`store` has forgotten a value that counted no longer."""

    name: str
    store: str


class ConfigWritten(Event, frozen=True):
    """A setting of the skill in `base` has this value."""

    name: str
    value: str
    base: str = ""


class ConfigRemoved(Event, frozen=True):
    """A setting has no value of its own any more."""

    name: str


class DefaultMirrored(Event, frozen=True):
    """A value given to `code` is remembered: `value`, or a secret in `store`."""

    name: str
    code: str
    value: str | None = None
    fingerprint: str = ""
    store: str = ""


class DefaultAdopted(Event, frozen=True):
    """A remembered value, given to `code`, becomes this scope's own."""

    name: str
    code: str


class DefaultPurged(Event, frozen=True):
    """A remembered value is forgotten."""

    name: str


class Stored(msgspec.Struct, frozen=True, array_like=True):
    """A secret that was put into `store`."""

    fingerprint: str
    store: str


class Default(msgspec.Struct, frozen=True):
    """A remembered value: of a setting (`value`), or of a secret (`secret`)."""

    code: str
    value: str | None = None
    secret: Stored | None = None


class Credential(msgspec.Struct, frozen=True):
    """The values of a skill in one scope, by name: secrets, those on their way to a store, settings, and (in the scope
    of defaults) remembered values.

    `taken` names the values that a person removed: they are not adopted again. `bases` has the base folder that each
    name was given to last, `held` the stores that may hold a value of it.
    """

    secrets: dict[str, Stored] = {}
    writing: dict[str, Stored] = {}
    config: dict[str, str] = {}
    defaults: dict[str, Default] = {}
    taken: tuple[str, ...] = ()
    bases: dict[str, str] = {}
    held: dict[str, tuple[str, ...]] = {}

    def of(self, base: str | None) -> "Credential":
        """Return the values in force for the skill in the folder `base`, and of others only the stores that may hold a
        leftover. None means all bases."""
        if base is None:
            return self
        others = {name for name, owner in self.bases.items() if owner != base}
        return replace(
            self,
            held=_without(self.held, *others) | {name: left for name, left in self.left.items() if name in others},
            secrets=_without(self.secrets, *others),
            writing=_without(self.writing, *others),
            config=_without(self.config, *others),
            taken=tuple(name for name in self.taken if name not in others),
        )

    def over(self, wider: "Credential") -> "Credential":
        """Return these values, and those of a wider scope for names that have none and were not removed here (rule
        6)."""
        own = {*self.secrets, *self.config, *self.taken}
        return replace(
            self,
            secrets=_without(wider.secrets, *own) | self.secrets,
            config=_without(wider.config, *own) | self.config,
            taken=(*self.taken, *(name for name in wider.taken if name not in own)),
        )

    def is_used(self, name: str, store: str) -> bool:
        """Return whether `store` has the value in force: the secret of this name, or the remembered one."""
        default = self.defaults.get(name)
        return any(secret and secret.store == store for secret in (self.secrets.get(name), default and default.secret))

    @property
    def left(self) -> dict[str, tuple[str, ...]]:
        """The stores, by name, that may still hold a value which is no longer in force or never was."""
        left = {
            name: tuple(store for store in stores if not self.is_used(name, store))
            for name, stores in self.held.items()
        }
        return {name: stores for name, stores in left.items() if stores}


class RequestSecrets(msgspec.Struct, frozen=True):
    """Command: these are about to be put into a store."""

    secrets: dict[str, Stored]
    base: str = ""


class GiveValues(msgspec.Struct, frozen=True):
    """Command: these secrets are in their stores, these settings shall hold; `adopted` maps names to the code
    that their default was given to."""

    secrets: dict[str, Stored] = {}
    config: dict[str, str] = {}
    adopted: dict[str, str] = {}
    base: str = ""


class TakeValues(msgspec.Struct, frozen=True):
    """Command: these secrets and settings are no longer given to the skill in `base`; None means whichever."""

    names: tuple[str, ...]
    base: str | None = None


class Erased(msgspec.Struct, frozen=True):
    """Command: `store` has forgotten what it held of these."""

    store: str
    names: tuple[str, ...]


class Mirror(msgspec.Struct, frozen=True):
    """Command, in the scope of defaults: remember these."""

    defaults: dict[str, Default]


class Purge(msgspec.Struct, frozen=True):
    """Command, in the scope of defaults: forget these; () means all."""

    names: tuple[str, ...] = ()


Command = RequestSecrets | GiveValues | TakeValues | Erased | Mirror | Purge


def decide(command: Command, state: Credential) -> list[Event]:
    """The events that `command` means in `state`; none when nothing is new."""
    match command:
        case RequestSecrets(secrets, base):
            return [
                SecretWriteRequested(name, secret.fingerprint, secret.store, base) for name, secret in secrets.items()
            ]
        case GiveValues():
            return _give(command, state)
        case TakeValues(names, base):
            return _take(names, state.of(base))
        case Erased(store, names):
            return [SecretErased(name, store) for name in dict.fromkeys(names) if store in state.left.get(name, ())]
        case Mirror(defaults):
            return _mirror(defaults, state)
        case Purge(names):
            known = state.defaults | state.writing
            return [DefaultPurged(name) for name in dict.fromkeys(names or known) if name in known]


def _give(command: GiveValues, state: Credential) -> list[Event]:
    base = command.base
    events: list[Event] = [DefaultAdopted(name, code) for name, code in command.adopted.items()]
    moved = {name for name in (*command.secrets, *command.config) if state.bases.get(name, "") != base}
    for name, secret in command.secrets.items():
        if state.secrets.get(name) != secret or name in state.writing or name in moved:
            events.append(SecretWritten(name, secret.fingerprint, secret.store, base))
    for name, value in command.config.items():
        if state.config.get(name) != value or name in moved:
            events.append(ConfigWritten(name, value, base))
    return events


def _take(names: tuple[str, ...], own: Credential) -> list[Event]:
    events: list[Event] = []
    for name in dict.fromkeys(names):
        events += [SecretRemoved(name)] if name in own.secrets or name in own.writing else []
        events += [ConfigRemoved(name)] if name in own.config else []
    return events


def _mirror(defaults: dict[str, Default], state: Credential) -> list[Event]:
    events: list[Event] = []
    for name, default in defaults.items():
        if state.defaults.get(name) != default or name in state.writing:
            kept = default.secret or Stored("", "")
            events.append(DefaultMirrored(name, default.code, default.value, kept.fingerprint, kept.store))
    return events


def evolve(state: Credential, event: Event) -> Credential:
    """The state after `event`. Any of its events may follow any other."""
    match event:
        case SecretWriteRequested(name, fingerprint, store, base):
            known = name in state.secrets or name in state.config or name in state.taken
            bases = state.bases if known else _based(state, name, base)
            writing = {**state.writing, name: Stored(fingerprint, store)}
            return replace(state, writing=writing, bases=bases, held=_holding(state, name, store))
        case SecretWritten(name, fingerprint, store, base):
            state = _moved(state, name, base)
            written = {**state.secrets, name: Stored(fingerprint, store)}
            writing, held = _without(state.writing, name), _holding(state, name, store)
            return replace(state, secrets=written, writing=writing, taken=_except(state, name), held=held)
        case SecretRemoved(name):
            left, writing = _without(state.secrets, name), _without(state.writing, name)
            return replace(state, secrets=left, writing=writing, taken=(*_except(state, name), name))
        case SecretErased(name, store):
            return _erased(state, name, store)
        case ConfigWritten(name, value, base):
            state = _moved(state, name, base)
            return replace(state, config={**state.config, name: value}, taken=_except(state, name))
        case ConfigRemoved(name):
            return replace(state, config=_without(state.config, name), taken=(*_except(state, name), name))
        case DefaultMirrored(name, code, value, fingerprint, store):
            default = Default(code, value, Stored(fingerprint, store) if value is None else None)
            mirrored = {**state.defaults, name: default}
            held = _holding(state, name, store) if default.secret else state.held
            return replace(state, defaults=mirrored, writing=_without(state.writing, name), held=held)
        case DefaultPurged(name):
            return replace(state, defaults=_without(state.defaults, name), writing=_without(state.writing, name))
        case DefaultAdopted():
            return state
        case _:
            raise KeyError(type(event).__name__)


def _moved(state: Credential, name: str, base: str) -> Credential:
    """The name is that of `base` from now on; what another base was given under it, a secret or a setting, is not."""
    bases = _based(state, name, base)
    if state.bases.get(name, "") in ("", base):
        return replace(state, bases=bases)
    return replace(state, bases=bases, secrets=_without(state.secrets, name), config=_without(state.config, name))


def _based(state: Credential, name: str, base: str) -> dict[str, str]:
    return {**state.bases, name: base} if base else _without(state.bases, name)


def _holding(state: Credential, name: str, store: str) -> dict[str, tuple[str, ...]]:
    return {**state.held, name: tuple(dict.fromkeys((*state.held.get(name, ()), store)))}


def _erased(state: Credential, name: str, store: str) -> Credential:
    if state.is_used(name, store):
        return state
    stores = tuple(other for other in state.held.get(name, ()) if other != store)
    held = {**state.held, name: stores} if stores else _without(state.held, name)
    requested = state.writing.get(name)
    writing = _without(state.writing, name) if requested and requested.store == store else state.writing
    return replace(state, held=held, writing=writing)


def _without(values: dict[str, Value], *names: str) -> dict[str, Value]:
    return {name: value for name, value in values.items() if name not in names}


def _except(state: Credential, name: str) -> tuple[str, ...]:
    return tuple(other for other in state.taken if other != name)


def service(scope: str, skill: str) -> str:
    """Return the name under which a store keeps a skill's secrets: `scope` is a workdir id, GLOBAL or DEFAULTS."""
    return f"omac/{skill}" if scope == GLOBAL else f"omac/{scope}/{skill}"


def fingerprint(key: bytes, service: str, name: str, value: Hidden) -> str:
    """HMAC-SHA256 (RFC 2104) of where a secret is and what it is, under this host's key: 16 hex digits.

    It tells whether a store still holds what was recorded. Without the key nobody can test a guess, and the same value
    elsewhere has another fingerprint.
    """
    text = b"\0".join(part.encode("utf-8", "surrogatepass") for part in (service, name, value.reveal()))
    return "hmac:" + hmac.new(key, text, hashlib.sha256).hexdigest()[:FINGERPRINT_DIGITS]


EVENTS: tuple[type[Event], ...] = (
    SecretWriteRequested, SecretWritten, SecretRemoved, SecretErased, ConfigWritten, ConfigRemoved, DefaultMirrored,
    DefaultAdopted, DefaultPurged,
)  # fmt: skip
AGGREGATE = Aggregate("credential", Credential(), decide, evolve, EVENTS)
