"""A real Secret Service, and the behaviour of omac when the service is locked, gone, slow or lying."""

import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import pytest
import secretstorage
import trio
from jeepney import DBusErrorResponse, Message
from jeepney.io.blocking import DBusConnection, open_dbus_connection
from polling import until
from programs import program_at
from real_keyring import PASSWORD, PrivateKeyring, private_bus

from omac.adapters.credentials.bus import connect
from omac.adapters.credentials.stores import SecretStores
from omac.domain.kernel.hidden import Hidden
from omac.domain.kernel.refusal import Refusal

SERVICE = "omac/slack"
NAME = "SLACK_TOKEN"
SECRET = "xoxb-only-for-the-skill"
Refused = Callable[[Awaitable[object]], Awaitable[Refusal]]
VALUES = {
    "plain": SECRET,
    "newlines": "-----BEGIN KEY-----\nab\r\ncd\n\n",
    "non-ascii": "Zürich 東京 🗝 \u0301",
    "large": "0123456789abcdef" * 6400 + "é",
    "empty": "",
    "blanks": "  a b\t",
}


def entries(keyring: PrivateKeyring, service: str = SERVICE) -> dict[str, str]:
    """Return the entries that any other program finds in the keyring."""
    with open_dbus_connection(keyring["DBUS_SESSION_BUS_ADDRESS"]) as connection:
        items = list(secretstorage.search_items(connection, {"service": service}))
        values = {item.get_attributes()["username"]: item.get_secret().decode() for item in items}
    assert len(values) == len(items), "an entry is there twice"
    return values


def write_elsewhere(keyring: PrivateKeyring, attributes: dict[str, str], value: bytes, collection: str = "") -> None:
    """Write an entry as another program does."""
    with open_dbus_connection(keyring["DBUS_SESSION_BUS_ADDRESS"]) as connection:
        secretstorage.Collection(connection, collection or keyring.collection).create_item("x", attributes, value, True)


async def test_values_come_back_as_they_were(stores: SecretStores, keyring: PrivateKeyring) -> None:
    """Line ends, blanks, any Unicode and 100 KiB survive. Other programs find the same values, each once."""
    assert await stores.chosen() == "keychain"
    await stores.write("keychain", SERVICE, {name: Hidden(value) for name, value in VALUES.items()})
    values = await stores.read("keychain", SERVICE, [*VALUES, "absent"])
    assert {name: value.reveal() for name, value in values.items()} == VALUES
    assert entries(keyring) == VALUES


async def test_services_are_apart(stores: SecretStores) -> None:
    """A name in two services holds two values. Removing one value leaves the others."""
    await stores.write("keychain", SERVICE, {NAME: Hidden("a"), "OTHER": Hidden("b")})
    await stores.write("keychain", "omac/slack2", {NAME: Hidden("c")})
    await stores.write("keychain", SERVICE, {NAME: Hidden("d")})
    await stores.remove("keychain", SERVICE, ["OTHER", "absent"])
    assert await stores.read("keychain", SERVICE, [NAME, "OTHER"]) == {NAME: Hidden("d")}
    assert await stores.read("keychain", "omac/slack2", [NAME]) == {NAME: Hidden("c")}
    assert await stores.read("keychain", "omac", [NAME]) == {}


@pytest.mark.parametrize(
    "attributes",
    [
        pytest.param({}, id="go-keyring"),
        pytest.param({"application": "Python keyring library"}, id="keyring"),
        pytest.param({"application": "another", "note": "y"}, id="more"),
    ],
)
async def test_entries_of_other_programs(
    stores: SecretStores, keyring: PrivateKeyring, attributes: dict[str, str]
) -> None:
    """The stores read entries of other programs, change them in place, and remove them."""
    write_elsewhere(keyring, {"service": SERVICE, "username": NAME, **attributes}, b"theirs")
    assert await stores.read("keychain", SERVICE, [NAME]) == {NAME: Hidden("theirs")}
    await stores.write("keychain", SERVICE, {NAME: Hidden("ours")})
    assert entries(keyring) == {NAME: "ours"}
    await stores.remove("keychain", SERVICE, [NAME])
    assert entries(keyring) == {}


@pytest.mark.full
async def test_entries_that_are_there_twice(stores: SecretStores, keyring: PrivateKeyring) -> None:
    """Two programs may store a value under the same name: omac reads the later one, and writing leaves one entry."""
    attributes = {"service": SERVICE, "username": NAME}
    write_elsewhere(keyring, attributes, b"earlier")
    written_s = int(time.time())
    await until(lambda: int(time.time()) > written_s)  # the keyring's clock counts seconds
    write_elsewhere(keyring, {**attributes, "application": "Python keyring library"}, b"later")
    assert await stores.read("keychain", SERVICE, [NAME]) == {NAME: Hidden("later")}
    await stores.write("keychain", SERVICE, {NAME: Hidden("ours")})
    assert entries(keyring) == {NAME: "ours"}


async def test_entries_in_another_collection(stores: SecretStores, keyring: PrivateKeyring) -> None:
    """The stores read entries in other collections too. An entry in the default collection takes precedence. Removing
    removes all of them."""
    session = "/org/freedesktop/secrets/collection/session"
    write_elsewhere(keyring, {"service": SERVICE, "username": NAME}, b"elsewhere", session)
    assert await stores.read("keychain", SERVICE, [NAME]) == {NAME: Hidden("elsewhere")}
    await stores.write("keychain", SERVICE, {NAME: Hidden("here")})
    assert await stores.read("keychain", SERVICE, [NAME]) == {NAME: Hidden("here")}
    await stores.remove("keychain", SERVICE, [NAME])
    assert await stores.read("keychain", SERVICE, [NAME]) == {}


async def test_a_locked_keychain(stores: SecretStores, keyring: PrivateKeyring, refused: Refused) -> None:
    """A locked keychain stays the chosen store. Calls are refused without a prompt, and name the command that unlocks
    it. Its values are there once it is open."""
    await stores.write("keychain", SERVICE, {NAME: Hidden(SECRET)})
    keyring.lock()
    assert await stores.chosen() == "keychain"
    for call in (
        stores.read("keychain", SERVICE, [NAME]),
        stores.read("keychain", SERVICE, ["absent"]),
        stores.write("keychain", SERVICE, {NAME: Hidden(SECRET)}),
        stores.remove("keychain", SERVICE, [NAME]),
    ):
        refusal = await refused(call)
        assert (refusal.reason, refusal.fix) == ("keychain-locked", ("omac unlock",))
    refusal = await refused(stores.unlock("keychain"))
    assert refusal.reason == "keychain-locked"
    assert "gnome-keyring-daemon" in refusal.fix[0]
    argv = ["sh", "-c", refusal.fix[0]]
    subprocess.run(argv, input=f"{PASSWORD}\n".encode(), env=keyring, check=True, capture_output=True)
    await until(keyring.has_secret_service)
    await stores.unlock("keychain")
    assert await stores.read("keychain", SERVICE, [NAME]) == {NAME: Hidden(SECRET)}


async def test_no_bus(state: Path, tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a session bus omac reports no keychain and offers the vault. The bus of omac's own process does not
    count."""
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere")
    for address in (None, f"unix:path={tmp_path}/gone", "tcp:host=localhost,port=1", "nonsense", "unix:tmpdir=/tmp"):
        environment = {"XDG_RUNTIME_DIR": str(tmp_path)} | ({"DBUS_SESSION_BUS_ADDRESS": address} if address else {})
        refusal = await refused(SecretStores(str(state), environment).chosen())
        assert refusal.reason == "keychain-unavailable"
        assert refusal.fix == ("omac vault init",)


async def test_a_bus_without_a_daemon(state: Path, tmp_path: Path, refused: Refused) -> None:
    """A session bus without a Secret Service has no keychain: every call is refused, and the vault is offered."""
    with private_bus(tmp_path) as bus:
        stores = SecretStores(str(state), bus)
        for call in (stores.chosen(), stores.read("keychain", SERVICE, [NAME]), stores.unlock("keychain")):
            refusal = await refused(call)
            assert (refusal.reason, refusal.fix) == ("keychain-unavailable", ("omac vault init",))


async def test_a_daemon_is_started_by_nobody_but_unlock(state: Path, tmp_path: Path, refused: Refused) -> None:
    """Only `omac unlock` lets the bus start a daemon that it can start on demand."""
    daemon = program_at(tmp_path / "daemon", f"#!/bin/sh\ntouch {tmp_path}/started\nexit 1\n")
    with private_bus(tmp_path, activatable=str(daemon)) as bus:
        stores = SecretStores(str(state), bus)
        for call in (stores.chosen(), stores.read("keychain", SERVICE, [NAME])):
            refusal = await refused(call)
            assert (refusal.reason, refusal.fix) == ("keychain-unavailable", ("omac unlock", "omac vault init"))
        with connect(bus, time.monotonic() + 5, prompting=False) as talk, pytest.raises(DBusErrorResponse):
            secretstorage.get_collection_by_alias(talk, "default")  # the daemon may end after omac has seen it run
        assert not (tmp_path / "started").exists()
        assert (await refused(stores.unlock("keychain"))).reason == "keychain-unavailable"
        assert (tmp_path / "started").exists()


async def test_a_daemon_without_a_default_keyring(state: Path, tmp_path: Path, refused: Refused) -> None:
    """A daemon without a default keyring stores nothing: creating a keyring would prompt for its password."""
    with private_bus(
        tmp_path, activatable="/usr/bin/gnome-keyring-daemon --start --foreground --components=secrets"
    ) as bus:
        stores = SecretStores(str(state), bus)
        assert (await refused(stores.unlock("keychain"))).reason == "keychain-unavailable"
        assert bus.has_secret_service()
        refusal = await refused(stores.chosen())
        assert refusal.reason == "keychain-unavailable"
        assert refusal.fix[-1] == "omac vault init"


async def test_a_daemon_that_ends(stores: SecretStores, keyring: PrivateKeyring, refused: Refused) -> None:
    """The values of a daemon that has ended are unavailable, not absent."""
    await stores.write("keychain", SERVICE, {NAME: Hidden(SECRET)})
    keyring.stop()
    refusal = await refused(stores.read("keychain", SERVICE, [NAME]))
    assert refusal.reason == "keychain-unavailable"


async def test_a_slow_keychain(stores: SecretStores, keyring: PrivateKeyring, state: Path, refused: Refused) -> None:
    """A call to a slow keychain ends at its time-out or when cancelled, and holds no other task up. The next call works
    once the daemon does."""
    hurried = SecretStores(str(state), keyring, timeout_s=0.2)
    await stores.write("keychain", SERVICE, {NAME: Hidden(SECRET)})
    keyring.pause()
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            await trio.sleep(0.01)
            turns += 1

    begun = time.monotonic()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(take_turns)
        for call in (hurried.chosen(), hurried.read("keychain", SERVICE, [NAME])):
            turns_before = turns
            refusal = await refused(call)
            assert refusal.reason == "keychain-timeout"
            assert "0.2 s" in refusal.message
            assert turns > turns_before + 2
        nursery.cancel_scope.cancel()
    assert time.monotonic() - begun < 1.5
    with trio.move_on_after(0.05):
        await stores.read("keychain", SERVICE, [NAME])
    keyring.resume()
    assert await stores.read("keychain", SERVICE, [NAME]) == {NAME: Hidden(SECRET)}


KEYRING_CALLS = """\
import keyring.backends.SecretService as backend
from jeepney.io.blocking import DBusConnection
sent, send = [], DBusConnection.send
def counted(*arguments, **named):
    sent.append(arguments)
    return send(*arguments, **named)
DBusConnection.send = DBusConnection.send_message = counted
backend.Keyring().get_password("omac/slack", "N3")
print(len(sent))
"""


async def test_many_values_cost_little_more_than_one(
    stores: SecretStores, keyring: PrivateKeyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading ten values takes at most twice as many messages as keyring sends for one: 18 and 11."""
    names = [f"N{number}" for number in range(10)]
    await stores.write("keychain", SERVICE, {name: Hidden(name) for name in names})
    argv = [sys.executable, "-c", KEYRING_CALLS]
    calls_of_one = int(subprocess.run(argv, env=keyring, check=True, capture_output=True).stdout)
    sent: list[object] = []
    send = DBusConnection.send

    def counted(connection: DBusConnection, message: Message, serial: int | None = None) -> None:
        sent.append(message)
        send(connection, message, serial)

    monkeypatch.setattr(DBusConnection, "send", counted)
    assert len(await stores.read("keychain", SERVICE, names)) == 10
    assert 0 < len(sent) <= 2 * calls_of_one


@pytest.mark.parametrize("value", ["\udcff", "x" * (128 * 1024 + 1), "é" * (64 * 1024 + 1)])
@pytest.mark.parametrize("store", ["keychain", "vault"])
async def test_values_that_are_not_taken(state: Path, store: str, value: str, refused: Refused) -> None:
    """Both stores refuse a value that is not Unicode or too large before they write anything."""
    refusal = await refused(SecretStores(str(state), {}).write(store, SERVICE, {NAME: Hidden(value)}))
    assert refusal.reason == "value-refused"
    assert NAME in refusal.message


async def test_an_entry_that_is_no_text(stores: SecretStores, keyring: PrivateKeyring, refused: Refused) -> None:
    """An entry of another program that is no text cannot be a value: reading it fails."""
    write_elsewhere(keyring, {"service": SERVICE, "username": NAME}, b"\xff\xfe")
    assert (await refused(stores.read("keychain", SERVICE, [NAME]))).reason == "keychain-failed"


class Lying:
    """A keychain that lies as the test specifies."""

    def __init__(self, adds: str = "", *, forgets: bool = True) -> None:
        self.kept: dict[str, Hidden] = {}
        self.adds, self.forgets = adds, forgets

    def check(self) -> None:
        """Do nothing: it is there."""

    def unlock(self) -> None:
        """Do nothing: it is open."""

    def read(self, service: str, names: Sequence[str]) -> dict[str, Hidden]:
        return {name: self.kept[name] for name in names if name in self.kept}

    def write(self, service: str, values: Mapping[str, Hidden]) -> None:
        self.kept |= {name: Hidden(value.reveal() + self.adds) for name, value in values.items()}

    def remove(self, service: str, names: Sequence[str]) -> None:
        if self.forgets:
            self.kept.clear()


async def test_a_keychain_that_stores_another_value(state: Path, refused: Refused) -> None:
    """Writing fails when the value does not read back."""
    stores = SecretStores(str(state), {}, keychain=Lying("!"))
    assert (await refused(stores.write("keychain", SERVICE, {NAME: Hidden(SECRET)}))).reason == "keychain-failed"


async def test_a_keychain_that_only_says_it_forgot(state: Path, refused: Refused) -> None:
    """Removing fails when the value is still there afterwards."""
    stores = SecretStores(str(state), {}, keychain=Lying(forgets=False))
    await stores.write("keychain", SERVICE, {NAME: Hidden(SECRET)})
    refusal = await refused(stores.remove("keychain", SERVICE, [NAME]))
    assert refusal.reason == "keychain-failed"
    assert NAME in refusal.message
