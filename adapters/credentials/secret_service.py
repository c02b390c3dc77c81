"""The keychain of a Linux desktop: the Secret Service (freedesktop.org, Secret Service API 0.2) on the session bus.

keyring's own backend asks once for each value, on the bus of os.environ, and lets the desktop prompt. Here all the
values of a service are one conversation on the given bus, and only `unlock` starts a daemon or lets it prompt.

Items carry the attributes "service" and "username", as those of keyring and go-keyring do. What was written by either
is found in any collection that is open, first in the default one, there the one that was changed last. New items go to
the default collection.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from omac.adapters.credentials import refusals
from omac.adapters.credentials.bus import PROPERTIES, Bus, Call, CallFailed, NoBus, connected
from omac.domain.kernel.hidden import Hidden

if TYPE_CHECKING:
    from secretstorage.dhcrypto import Session

ROOT = "/org/freedesktop/secrets"
NOTHING = "/"  # the path that stands for no object
SERVICE = "org.freedesktop.Secret.Service"
COLLECTION = "org.freedesktop.Secret.Collection"
ITEM = "org.freedesktop.Secret.Item"
LOCKED = "org.freedesktop.Secret.Error.IsLocked"
GONE = ("org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.NameHasNoOwner")
DIFFIE_HELLMAN = "dh-ietf1024-sha256-aes128-cbc-pkcs7"
APPLICATION = "Python keyring library"  # keyring replaces only what bears its name
ITEMS_MAX = 1000  # of one service

Sealed = tuple[str, bytes, bytes, str]  # session, parameters, value, content type: the API's (oayays)


class _Item(NamedTuple):
    path: str
    name: str
    locked: bool
    rank: tuple[bool, int]  # in the default collection; when it was changed, in seconds since the epoch


class SecretService:
    """The Keychain on the session bus that `environment` names."""

    def __init__(self, environment: Mapping[str, str], *, timeout_s: float, prompt_timeout_s: float) -> None:
        self._environment = environment
        self._timeout_s = timeout_s
        self._prompt_timeout_s = prompt_timeout_s

    def check(self) -> None:
        """Nothing, if there is one that has a default collection, locked or not."""
        with self._talk() as bus:
            _default(bus)

    def read(self, service: str, names: Sequence[str]) -> dict[str, Hidden]:
        """As in Keychain."""
        with self._talk() as bus:
            default = _open_default(bus)
            best = {item.name: item for item in sorted(_items(bus, default, service, names), key=_preference)}
            if any(item.locked for item in best.values()):
                raise refusals.locked()
            return _values(bus, best) if best else {}

    def write(self, service: str, values: Mapping[str, Hidden]) -> None:
        """As in Keychain. What others wrote under the same attributes is changed in place, and left once."""
        with self._talk() as bus:
            default = _open_default(bus)
            session = _session(bus)
            found = _items(bus, default, service, list(values))
            for name, value in values.items():
                here = sorted((item for item in found if item.name == name and item.rank[0]), key=_preference)
                if here:
                    bus.call(Call(here[-1].path, ITEM, "SetSecret", "(oayays)", (_sealed(session, value),)), tuple[()])
                    _delete(bus, here[:-1])
                else:
                    _create(bus, default, service, name, _sealed(session, value))

    def remove(self, service: str, names: Sequence[str]) -> None:
        """As in Keychain: from all collections."""
        with self._talk() as bus:
            found = _items(bus, _open_default(bus), service, names)
            if any(item.locked for item in found):
                raise refusals.locked()
            _delete(bus, found)

    def unlock(self) -> None:
        """As in Keychain: the default collection; starts the service where it does not run."""
        with self._talk(prompting=True) as bus:
            default = _default(bus)
            if not _locked(bus, default):
                return
            _, prompt = bus.call(Call(ROOT, SERVICE, "Unlock", "ao", ([default],)), tuple[list[str], str])
            if prompt != NOTHING:
                bus.prompt(prompt)
            if _locked(bus, default):
                raise refusals.still_locked(refusals.UNLOCK_BY_HAND)

    @contextmanager
    def _talk(self, *, prompting: bool = False) -> Iterator[Bus]:
        """A connection, and what goes wrong on it in omac's words."""
        seconds = self._prompt_timeout_s if prompting else self._timeout_s
        try:
            with connected(self._environment, time.monotonic() + seconds) as bus:
                _require_service(bus, may_start=prompting)
                yield bus
        except NoBus as error:
            raise refusals.unavailable(str(error)) from None
        except TimeoutError:
            raise refusals.timed_out(seconds) from None
        except CallFailed as error:
            if error.name == LOCKED:
                raise refusals.locked() from None
            if error.name in GONE:
                raise refusals.unavailable("its daemon ended") from None
            raise refusals.failed("it answered with an error") from None
        except msgspec.ValidationError:
            raise refusals.failed("its answer is not in the form of the Secret Service API") from None
        except OSError as error:
            raise refusals.unavailable(f"the session bus hung up ({type(error).__name__})") from None


def _require_service(bus: Bus, *, may_start: bool) -> None:
    """A daemon that runs. One that the bus could start is left alone: starting, it may prompt."""
    if bus.has_owner():
        return
    if not bus.can_start():
        raise refusals.unavailable("no Secret Service daemon is on the session bus")
    if not may_start:
        raise refusals.unavailable("its daemon does not run", "omac unlock")
    try:
        bus.start()
    except CallFailed:
        raise refusals.unavailable("its daemon does not start", refusals.UNLOCK_BY_HAND) from None


def _default(bus: Bus) -> str:
    (path,) = bus.call(Call(ROOT, SERVICE, "ReadAlias", "s", ("default",)), tuple[str])
    if path == NOTHING:
        raise refusals.unavailable("it has no default keyring", refusals.UNLOCK_BY_HAND)
    return path


def _open_default(bus: Bus) -> str:
    path = _default(bus)
    if _locked(bus, path):
        raise refusals.locked()
    return path


def _locked(bus: Bus, collection: str) -> bool:
    call = Call(collection, PROPERTIES, "Get", "ss", (COLLECTION, "Locked"))
    return bus.call(call, tuple[tuple[str, bool]])[0][1]


def _items(bus: Bus, default: str, service: str, names: Sequence[str]) -> list[_Item]:
    search = Call(ROOT, SERVICE, "SearchItems", "a{ss}", ({"service": service},))
    unlocked, locked = bus.call(search, tuple[list[str], list[str]])
    paths = [*unlocked, *locked]
    if len(paths) > ITEMS_MAX:
        raise refusals.failed(f"it holds more than {ITEMS_MAX} items of {service}")
    calls = [Call(path, PROPERTIES, "GetAll", "s", (ITEM,)) for path in paths]
    answers = bus.calls(calls, tuple[dict[str, tuple[str, object]]])
    found = []
    for path, answer in zip(paths, answers, strict=True):
        if not isinstance(answer, CallFailed):  # otherwise somebody has just removed it
            properties = msgspec.convert({key: value for key, (_, value) in answer[0].items()}, _Properties)
            attributes = properties.attributes
            if attributes.get("service") == service and attributes.get("username") in names:
                rank = (path.startswith(default + "/"), properties.modified)
                found.append(_Item(path, attributes["username"], properties.locked, rank))
    return found


class _Properties(msgspec.Struct, rename="pascal"):
    attributes: dict[str, str]
    locked: bool
    modified: int = 0


def _preference(item: _Item) -> tuple[bool, tuple[bool, int], str]:
    """Orders items, the one to read last."""
    return (not item.locked, item.rank, item.path)


def _values(bus: Bus, items: Mapping[str, _Item]) -> dict[str, Hidden]:
    session = _session(bus)
    paths = [item.path for item in items.values()]
    call = Call(ROOT, SERVICE, "GetSecrets", "aoo", (paths, session.object_path))
    (answers,) = bus.call(call, tuple[dict[str, Sealed]])
    found = {name: _opened(session, answers[item.path]) for name, item in items.items() if item.path in answers}
    if len(found) < len(items):  # the API leaves out what has been locked meanwhile
        raise refusals.locked()
    values = {name: value for name, value in found.items() if value is not None}
    if len(values) < len(found):
        raise refusals.failed(f"what it holds is no text: {', '.join(sorted(found.keys() - values.keys()))}")
    return values


def _create(bus: Bus, collection: str, service: str, name: str, sealed: Sealed) -> None:
    properties = {
        f"{ITEM}.Label": ("s", f"{name} of {service}"),
        f"{ITEM}.Attributes": ("a{ss}", {"service": service, "username": name, "application": APPLICATION}),
    }
    call = Call(collection, COLLECTION, "CreateItem", "a{sv}(oayays)b", (properties, sealed, True))
    _require_no_prompt(bus.call(call, tuple[str, str])[1])


def _delete(bus: Bus, items: Sequence[_Item]) -> None:
    for item in items:
        _require_no_prompt(bus.call(Call(item.path, ITEM, "Delete"), tuple[str])[0])


def _require_no_prompt(path: str) -> None:
    """A prompt that nobody asked to be shown is not shown, and ends with the connection."""
    if path != NOTHING:
        raise refusals.locked()


def _session(bus: Bus) -> "Session":
    """Values cross the bus encrypted: whoever may watch it sees none."""
    from secretstorage.dhcrypto import Session

    session = Session()
    public = ("ay", session.my_public_key.to_bytes(128, "big"))
    call = Call(ROOT, SERVICE, "OpenSession", "sv", (DIFFIE_HELLMAN, public))
    (_, theirs), session.object_path = bus.call(call, tuple[tuple[str, bytes], str])
    session.set_server_public_key(int.from_bytes(theirs, "big"))
    return session


def _sealed(session: "Session", value: Hidden) -> Sealed:
    from secretstorage.util import format_secret

    return format_secret(session, value.reveal().encode(), "text/plain")


def _opened(session: "Session", sealed: Sealed) -> Hidden | None:
    """None for what is no text."""
    from cryptography.hazmat.primitives import padding
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    assert session.aes_key is not None
    try:
        decryptor = Cipher(algorithms.AES(session.aes_key), modes.CBC(sealed[1])).decryptor()
        unpadder = padding.PKCS7(128).unpadder()
        padded = decryptor.update(sealed[2]) + decryptor.finalize()
        return Hidden((unpadder.update(padded) + unpadder.finalize()).decode())
    except ValueError:
        return None
