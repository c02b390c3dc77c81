"""The keychain of a Linux desktop: the Secret Service (freedesktop.org, Secret Service API 0.2), through secretstorage.

keyring's own backend asks once for each value, on the bus of os.environ, and lets the desktop prompt. Here all the
values of a service are one conversation on the given bus, and only `unlock` starts a daemon or lets it prompt.
secretstorage spends six calls on reading an item; the items of a service and their values are therefore asked for here.

Items carry the attributes "service" and "username", as those of keyring and go-keyring do. Items written by either
are found in any collection that is open, first in the default one, there the one that was changed last. New items go to
the default collection.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import msgspec
import secretstorage
from cryptography.hazmat.primitives import padding
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from jeepney import DBusErrorResponse, Properties
from jeepney.bus_messages import message_bus
from jeepney.io.blocking import Proxy
from secretstorage.defines import SS_PATH
from secretstorage.dhcrypto import Session
from secretstorage.exceptions import (
    ItemNotFoundException,
    LockedException,
    SecretServiceNotAvailableException,
    SecretStorageException,
)
from secretstorage.item import ITEM_IFACE, Item
from secretstorage.util import BUS_NAME, SERVICE_IFACE, DBusAddressWrapper, add_match_rules, open_session

from omac.adapters.credentials import refusals
from omac.adapters.credentials.bus import BoundedConnection, connect
from omac.domain.kernel.hidden import Hidden
from omac.domain.kernel.refusal import Refusal

APPLICATION = "Python keyring library"  # keyring replaces only what bears its name
ITEMS_MAX = 1000  # of one service
ASK_AGAIN_S = (0.02, 0.2)  # after these times, for a default collection that the daemon does not name at first
MISSHAPEN = (AssertionError, AttributeError, LookupError, TypeError, ValueError)  # secretstorage checks no answer

EncryptedValue = tuple[str, bytes, bytes, str]  # session, parameters, value, content type: the API's (oayays)


class _Entry(msgspec.Struct, rename="pascal"):
    """An item's properties, by the names of the API, and its place."""

    path: str
    in_default: bool
    attributes: dict[str, str]
    locked: bool
    modified: int = 0  # seconds since the epoch

    @property
    def name(self) -> str:
        return self.attributes["username"]


class SecretService:
    """The Keychain on the session bus that `environment` names."""

    def __init__(self, environment: Mapping[str, str], *, timeout_s: float, prompt_timeout_s: float) -> None:
        self._environment = environment
        self._timeout_s = timeout_s
        self._prompt_timeout_s = prompt_timeout_s

    def check(self) -> None:
        """Require a default collection, locked or not."""
        with self._conversation() as bus:
            _default(bus)

    def read(self, service: str, names: Sequence[str]) -> dict[str, Hidden]:
        with self._conversation() as bus:
            best = {entry.name: entry for entry in _entries(bus, _open_default(bus), service, names)}
            _require_open(best.values())
            return _values(bus, best) if best else {}

    def write(self, service: str, values: Mapping[str, Hidden]) -> None:
        """Write as in Keychain. An item of another program is changed in place, and its duplicates are deleted."""
        with self._conversation() as bus:
            default = _open_default(bus)
            default.session = _session(bus)
            entries = [entry for entry in _entries(bus, default, service, list(values)) if entry.in_default]
            for name, value in values.items():
                items = [Item(bus, entry.path, default.session) for entry in entries if entry.name == name]
                if items:
                    items.pop().set_secret(value.reveal().encode())
                    for duplicate in items:
                        duplicate.delete()
                else:
                    attributes = {"service": service, "username": name, "application": APPLICATION}
                    default.create_item(f"{name} of {service}", attributes, value.reveal().encode(), replace=True)

    def remove(self, service: str, names: Sequence[str]) -> None:
        """Remove as in Keychain, from all collections."""
        with self._conversation() as bus:
            entries = _entries(bus, _open_default(bus), service, names)
            _require_open(entries)
            for entry in entries:
                Item(bus, entry.path).delete()

    def unlock(self) -> None:
        """Unlock the default collection as in Keychain; starts the service where it does not run."""
        with self._conversation(prompting=True) as bus:
            add_match_rules(bus)
            default = _default(bus)
            if default.is_locked():
                with suppress(*MISSHAPEN):  # daemons differ in the result of a prompt that was dismissed
                    default.unlock()
                if default.is_locked():
                    raise refusals.still_locked()

    @contextmanager
    def _conversation(self, *, prompting: bool = False) -> Iterator[BoundedConnection]:
        """Connect to a daemon that runs, and turn every error into a Refusal."""
        seconds = self._prompt_timeout_s if prompting else self._timeout_s
        try:
            with connect(self._environment, time.monotonic() + seconds, prompting=prompting) as bus:
                _require_service(bus, may_start=prompting)
                yield bus
        except (OSError, DBusErrorResponse, SecretStorageException, *MISSHAPEN) as error:
            raise _refusal(error, seconds) from None


def _refusal(error: Exception, seconds: float) -> Refusal:
    """Return the refusal for an error. Its text is dropped: a value may be in it."""
    match error:
        case TimeoutError():
            return refusals.timed_out(seconds)
        case OSError():
            return refusals.unavailable(f"the session bus hung up ({type(error).__name__})")
        case LockedException() | DBusErrorResponse(name="org.freedesktop.Secret.Error.IsLocked"):
            return refusals.locked()
        case SecretServiceNotAvailableException() | DBusErrorResponse(name="org.freedesktop.DBus.Error.NameHasNoOwner"):
            return refusals.unavailable("its daemon ended")
        case SecretStorageException() | DBusErrorResponse():
            return refusals.failed("it answered with an error")
        case _:
            return refusals.failed("its answer is not in the form of the Secret Service API")


def _require_service(bus: BoundedConnection, *, may_start: bool) -> None:
    """Require a daemon that runs. One that the bus could start is left alone: starting, it may prompt."""
    daemon = Proxy(message_bus, bus)
    if daemon.NameHasOwner(BUS_NAME)[0]:
        return
    if BUS_NAME not in daemon.ListActivatableNames()[0]:
        raise refusals.unavailable("no Secret Service daemon is on the session bus")
    if not may_start:
        raise refusals.unavailable("its daemon does not run", "omac unlock")
    try:
        daemon.StartServiceByName(BUS_NAME)
    except DBusErrorResponse:
        raise refusals.unavailable("its daemon does not start", refusals.UNLOCK_BY_HAND) from None


def _default(bus: BoundedConnection) -> secretstorage.Collection:
    """Return the default collection. gnome-keyring 42 answers some first questions, one of 10,000, before it knows the
    client that asks: then that it has none. So it is asked again."""
    for pause_s in (*ASK_AGAIN_S, None):
        try:
            return secretstorage.get_collection_by_alias(bus, "default")
        except ItemNotFoundException:
            if pause_s is not None:
                time.sleep(pause_s)
    raise refusals.unavailable("it has no default keyring", refusals.UNLOCK_BY_HAND)


def _open_default(bus: BoundedConnection) -> secretstorage.Collection:
    default = _default(bus)
    default.ensure_not_locked()
    return default


def _session(bus: BoundedConnection) -> Session:
    """Open an encrypted session, or none: a program that watches the bus sees no value."""
    session = open_session(bus)
    if not session.encrypted:  # secretstorage falls back to a plain one
        raise refusals.failed("it does not encrypt the values that it sends")
    return session


def _entries(
    bus: BoundedConnection, default: secretstorage.Collection, service: str, names: Sequence[str]
) -> list[_Entry]:
    """Return the items of these names, ordered: the last of a name is the one to read."""
    answer = DBusAddressWrapper(SS_PATH, SERVICE_IFACE, bus).call("SearchItems", "a{ss}", {"service": service})
    unlocked, locked = msgspec.convert(answer, tuple[list[str], list[str]])
    if len(unlocked) + len(locked) > ITEMS_MAX:
        raise refusals.failed(f"it holds more than {ITEMS_MAX} items of {service}")
    entries = []
    for path in (*unlocked, *locked):
        with suppress(ItemNotFoundException):  # another program has just removed it
            entry = _entry(bus, path, in_default=path.startswith(default.collection_path + "/"))
            if entry.attributes.get("service") == service and entry.attributes.get("username") in names:
                entries.append(entry)
    return sorted(entries, key=lambda each: (not each.locked, each.in_default, each.modified, each.path))


def _entry(bus: BoundedConnection, path: str, *, in_default: bool) -> _Entry:
    item = DBusAddressWrapper(path, ITEM_IFACE, bus)
    (properties,) = item.send_and_get_reply(Properties(item).get_all())
    plain = {name: value for name, (_, value) in properties.items()}
    return msgspec.convert({**plain, "Path": path, "InDefault": in_default}, _Entry)


def _require_open(entries: Iterable[_Entry]) -> None:
    if any(entry.locked for entry in entries):
        raise refusals.locked()


def _values(bus: BoundedConnection, entries: Mapping[str, _Entry]) -> dict[str, Hidden]:
    """Return the values of these items, asked for together."""
    session = _session(bus)
    paths = [entry.path for entry in entries.values()]
    answer = DBusAddressWrapper(SS_PATH, SERVICE_IFACE, bus).call("GetSecrets", "aoo", paths, session.object_path)
    (encrypted,) = msgspec.convert(answer, tuple[dict[str, EncryptedValue]])
    if not encrypted.keys() >= set(paths):  # the API leaves out items that have been locked meanwhile
        raise refusals.locked()
    decrypted = {name: _decrypted(session, encrypted[entry.path]) for name, entry in entries.items()}
    values = {name: value for name, value in decrypted.items() if value is not None}
    if len(values) < len(decrypted):
        names = ", ".join(sorted(decrypted.keys() - values.keys()))
        raise refusals.failed(f"its values are not text: {names}")
    return values


def _decrypted(session: Session, encrypted: EncryptedValue) -> Hidden | None:
    """Return the value, None if it is not text."""
    assert session.aes_key is not None
    try:
        decryptor = Cipher(algorithms.AES(session.aes_key), modes.CBC(encrypted[1])).decryptor()
        unpadder = padding.PKCS7(128).unpadder()
        padded = decryptor.update(encrypted[2]) + decryptor.finalize()
        return Hidden((unpadder.update(padded) + unpadder.finalize()).decode())
    except ValueError:
        return None
