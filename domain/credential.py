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
"""

import hashlib
import hmac
from typing import TypeVar, assert_never

import msgspec
from msgspec.structs import replace

from omac.domain.hidden import Hidden
from omac.domain.ids import GLOBAL
from omac.domain.recorded import Event

DEFAULTS = "__defaults__"  # the scope of remembered values
FINGERPRINT_DIGITS = 16

Value = TypeVar("Value")


class SecretWriteRequested(Event, frozen=True):
    """A value is about to be put into `store`."""

    name: str
    fingerprint: str
    store: str


class SecretWritten(Event, frozen=True):
    """The value is in `store`."""

    name: str
    fingerprint: str
    store: str


class SecretRemoved(Event, frozen=True):
    """The secret is no longer given to the skill."""

    name: str


class ConfigWritten(Event, frozen=True):
    """A setting has this value."""

    name: str
    value: str


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
    """By name: secrets, those on their way to a store, settings, and (in the scope of defaults) remembered values.

    `taken` names what a person took back: it is not adopted again.
    """

    secrets: dict[str, Stored] = {}
    writing: dict[str, Stored] = {}
    config: dict[str, str] = {}
    defaults: dict[str, Default] = {}
    taken: tuple[str, ...] = ()


class RequestSecrets(msgspec.Struct, frozen=True):
    """Command: these are about to be put into a store."""

    secrets: dict[str, Stored]


class GiveValues(msgspec.Struct, frozen=True):
    """Command: these secrets are in their stores, these settings shall hold; `adopted` maps names to the code
    that their default was given to."""

    secrets: dict[str, Stored] = {}
    config: dict[str, str] = {}
    adopted: dict[str, str] = {}


class TakeValues(msgspec.Struct, frozen=True):
    """Command: these secrets and settings are no longer given."""

    names: tuple[str, ...]


class Mirror(msgspec.Struct, frozen=True):
    """Command, in the scope of defaults: remember these."""

    defaults: dict[str, Default]


class Purge(msgspec.Struct, frozen=True):
    """Command, in the scope of defaults: forget these; () means all."""

    names: tuple[str, ...] = ()


Command = RequestSecrets | GiveValues | TakeValues | Mirror | Purge


def decide(command: Command, state: Credential) -> list[Event]:
    """The events that `command` means in `state`; none when nothing is new."""
    events: list[Event] = []
    match command:
        case RequestSecrets(secrets):
            return [SecretWriteRequested(name, one.fingerprint, one.store) for name, one in secrets.items()]
        case GiveValues(secrets, config, adopted):
            for name, code in adopted.items():
                events.append(DefaultAdopted(name, code))
            for name, one in secrets.items():
                if state.secrets.get(name) != one or name in state.writing:
                    events.append(SecretWritten(name, one.fingerprint, one.store))
            events += [ConfigWritten(name, value) for name, value in config.items() if state.config.get(name) != value]
            return events
        case TakeValues(names):
            for name in dict.fromkeys(names):
                events += [SecretRemoved(name)] if name in state.secrets or name in state.writing else []
                events += [ConfigRemoved(name)] if name in state.config else []
            return events
        case Mirror(defaults):
            for name, default in defaults.items():
                if state.defaults.get(name) != default or name in state.writing:
                    kept = default.secret or Stored("", "")
                    events.append(DefaultMirrored(name, default.code, default.value, kept.fingerprint, kept.store))
            return events
        case Purge(names):
            known = state.defaults | state.writing
            return [DefaultPurged(name) for name in dict.fromkeys(names or known) if name in known]
        case _:
            assert_never(command)


def evolve(state: Credential, event: Event) -> Credential:
    """The state after `event`. Any of its events may follow any other."""
    match event:
        case SecretWriteRequested(name, fingerprint, store):
            return replace(state, writing={**state.writing, name: Stored(fingerprint, store)})
        case SecretWritten(name, fingerprint, store):
            written = {**state.secrets, name: Stored(fingerprint, store)}
            return replace(state, secrets=written, writing=_without(state.writing, name), taken=_except(state, name))
        case SecretRemoved(name):
            left, writing = _without(state.secrets, name), _without(state.writing, name)
            return replace(state, secrets=left, writing=writing, taken=(*_except(state, name), name))
        case ConfigWritten(name, value):
            return replace(state, config={**state.config, name: value}, taken=_except(state, name))
        case ConfigRemoved(name):
            return replace(state, config=_without(state.config, name), taken=(*_except(state, name), name))
        case DefaultMirrored(name, code, value, fingerprint, store):
            default = Default(code, value, Stored(fingerprint, store) if value is None else None)
            mirrored = {**state.defaults, name: default}
            return replace(state, defaults=mirrored, writing=_without(state.writing, name))
        case DefaultPurged(name):
            return replace(state, defaults=_without(state.defaults, name), writing=_without(state.writing, name))
        case DefaultAdopted():
            return state
        case _:
            raise KeyError(type(event).__name__)


def _without(values: dict[str, Value], name: str) -> dict[str, Value]:
    return {other: value for other, value in values.items() if other != name}


def _except(state: Credential, name: str) -> tuple[str, ...]:
    return tuple(other for other in state.taken if other != name)


def service(scope: str, skill: str) -> str:
    """Under which name a store keeps a skill's secrets: `scope` is a workdir id, GLOBAL or DEFAULTS."""
    return f"omac/{skill}" if scope == GLOBAL else f"omac/{scope}/{skill}"


def fingerprint(key: bytes, service: str, name: str, value: Hidden) -> str:
    """HMAC-SHA256 (RFC 2104) of where a secret is and what it is, under this host's key: 16 hex digits.

    It tells whether a store still holds what was recorded. Without the key nobody can test a guess, and the same value
    elsewhere has another fingerprint.
    """
    text = b"\0".join(part.encode("utf-8", "surrogatepass") for part in (service, name, value.reveal()))
    return "hmac:" + hmac.new(key, text, hashlib.sha256).hexdigest()[:FINGERPRINT_DIGITS]


EVENTS: tuple[type[Event], ...] = (
    SecretWriteRequested,
    SecretWritten,
    SecretRemoved,
    ConfigWritten,
    ConfigRemoved,
    DefaultMirrored,
    DefaultAdopted,
    DefaultPurged,
)
