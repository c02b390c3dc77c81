"""Daemons other than gnome-keyring: some prompt for everything, some do not encrypt, some answer nonsense."""

import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from jeepney import DBusAddress, HeaderFields, Message, MessageType, new_error, new_method_return, new_signal
from jeepney.bus_messages import message_bus
from jeepney.io.blocking import DBusConnection, Proxy, open_dbus_connection
from real_keyring import NAME as BUS_NAME
from real_keyring import PrivateBus, private_bus

from omac.adapters.credentials.stores import SecretStores
from omac.domain.kernel.hidden import Hidden
from omac.domain.kernel.refusal import Refusal

SERVICE, NAME = "omac/slack", "SLACK_TOKEN"
VALUES = {NAME: Hidden("xoxb-only-for-the-skill")}
ITEM = "/org/freedesktop/secrets/collection/login/1"
PROMPT = "/org/freedesktop/secrets/prompt/1"
DISMISSED = new_signal(
    DBusAddress(PROMPT, BUS_NAME, "org.freedesktop.Secret.Prompt"), "Completed", "bv", (True, ("s", ""))
)
Answer = tuple[str, tuple[object, ...]]
Refused = Callable[[Awaitable[object]], Awaitable[Refusal]]

OPEN: dict[str, Answer] = {
    "ReadAlias": ("o", ("/org/freedesktop/secrets/collection/login",)),
    "Get": ("v", (("b", False),)),
    "GetAll": (
        "a{sv}",
        ({"Attributes": ("a{ss}", {"service": SERVICE, "username": NAME}), "Locked": ("b", False)},),
    ),
    "SearchItems": ("aoao", ([], [])),
    "OpenSession": ("vo", (("ay", bytes([*bytes(127), 5])), "/session")),
    "CreateItem": ("oo", ("/", PROMPT)),
    "Delete": ("o", (PROMPT,)),
    "GetSecrets": ("a{o(oayays)}", ({ITEM: ("/session", b"", b"xoxb", "text/plain")},)),
}
ONE_ITEM: dict[str, Answer] = {"SearchItems": ("aoao", ([ITEM], []))}


class Daemon(PrivateBus):
    """The environment of programs on a bus whose Secret Service gives these answers, besides those of OPEN."""

    def __init__(self, bus: PrivateBus, answers: dict[str, Answer]) -> None:
        super().__init__(bus)
        self.answers = OPEN | answers
        self.before: dict[str, list[Answer]] = {}  # what it answers first, in turn
        self.calls: list[str] = []

    def serve(self, connection: DBusConnection) -> None:
        """Answer calls until the bus ends."""
        with connection, suppress(ConnectionError):
            while True:
                call = connection.receive()
                if call.header.message_type is MessageType.method_call:
                    self.calls.append(call.header.fields[HeaderFields.member])
                    connection.send(self._reply(call))
                    if self.calls[-1] == "Prompt":
                        connection.send(DISMISSED)

    def _reply(self, call: Message) -> Message:
        if self.calls[-1] == "OpenSession" and call.body[0] == "plain":
            return new_method_return(call, "vo", (("s", ""), "/session"))
        if self.calls[-1] not in self.answers:
            return new_error(call, "org.freedesktop.DBus.Error.NotSupported")
        before = self.before.get(self.calls[-1])
        return new_method_return(call, *(before.pop(0) if before else self.answers[self.calls[-1]]))


@contextmanager
def daemon(folder: Path, answers: dict[str, Answer]) -> Iterator[Daemon]:
    """Start a Secret Service that gives these answers, and yield it."""
    with private_bus(folder) as bus:
        service = Daemon(bus, answers)
        connection = open_dbus_connection(bus["DBUS_SESSION_BUS_ADDRESS"])
        Proxy(message_bus, connection).RequestName(BUS_NAME)
        thread = threading.Thread(target=service.serve, args=[connection])
        thread.start()
        yield service
    thread.join(5)
    assert not thread.is_alive()


async def test_no_prompt_is_shown(state: Path, tmp_path: Path, refused: Refused) -> None:
    """A daemon that wants to prompt before it creates or deletes an item gets no prompt, and the call is refused."""
    with daemon(tmp_path, {}) as asking:
        stores = SecretStores(str(state), asking)
        refusal = await refused(stores.write("keychain", SERVICE, VALUES))
        assert (refusal.reason, asking.calls[-1]) == ("keychain-locked", "CreateItem")
        asking.answers |= ONE_ITEM
        refusal = await refused(stores.remove("keychain", SERVICE, [NAME]))
        assert (refusal.reason, asking.calls[-1]) == ("keychain-locked", "Delete")


async def test_a_daemon_that_does_not_encrypt(state: Path, tmp_path: Path, refused: Refused) -> None:
    """The stores neither read nor write over an unencrypted session, so no value crosses the bus in plain text."""
    with daemon(tmp_path, ONE_ITEM) as plain:
        del plain.answers["OpenSession"]
        stores = SecretStores(str(state), plain)
        for call in (stores.read("keychain", SERVICE, [NAME]), stores.write("keychain", SERVICE, VALUES)):
            refusal = await refused(call)
            assert (refusal.reason, refusal.fix) == ("keychain-failed", ("omac vault init",))
        assert not {"GetSecrets", "SetSecret", "CreateItem"} & set(plain.calls)


async def test_a_dismissed_prompt(state: Path, tmp_path: Path, refused: Refused) -> None:
    """A prompt's result may have any form: unlocking succeeds only if the keychain is open afterwards."""
    locked: dict[str, Answer] = {"Get": ("v", (("b", True),)), "Unlock": ("aoo", ([], PROMPT)), "Prompt": ("", ())}
    with daemon(tmp_path, locked) as dismissing:
        refusal = await refused(SecretStores(str(state), dismissing).unlock("keychain"))
    assert refusal.reason == "keychain-locked"
    assert "still locked" in refusal.message
    assert "Prompt" in dismissing.calls


NONE: Answer = ("o", ("/",))  # no collection has that alias


async def test_a_daemon_that_forgets_its_default(state: Path, tmp_path: Path, refused: Refused) -> None:
    """gnome-keyring 42 may deny once to a new client that it has a default collection. The stores ask again before they
    report that the default keyring is missing."""
    with daemon(tmp_path, {}) as forgetful:
        stores = SecretStores(str(state), forgetful)
        forgetful.before["ReadAlias"] = [NONE, NONE]
        assert await stores.read("keychain", SERVICE, [NAME]) == {}
        forgetful.before["ReadAlias"] = [NONE] * 3
        refusal = await refused(stores.read("keychain", SERVICE, [NAME]))
    assert (refusal.reason, "no default keyring" in refusal.message) == ("keychain-unavailable", True)


async def test_items_of_other_names(state: Path, tmp_path: Path) -> None:
    """An item that a daemon matches by other rules, such as regardless of case, is another item."""
    with daemon(tmp_path, ONE_ITEM) as lenient:
        stores = SecretStores(str(state), lenient)
        assert await stores.read("keychain", SERVICE, [NAME.lower()]) == {}
        assert await stores.read("keychain", SERVICE.upper(), [NAME]) == {}


@pytest.mark.parametrize(
    "nonsense",
    [
        {"ReadAlias": ("u", (5,))},
        {"ReadAlias": ("", ())},
        {"Get": ("s", ("no variant",))},
        {"SearchItems": ("ao", ([],))},
        {"SearchItems": ("asas", (["no path"], []))},
        {"GetAll": ("s", ("xoxb",))},
        {"GetAll": ("a{sv}", ({"Locked": ("s", "xoxb")},))},
        {"OpenSession": ("s", ("xoxb",))},
        {"GetSecrets": ("a{os}", ({ITEM: "xoxb"},))},
        {"GetSecrets": ("a{o(oayays)}", ({ITEM: ("/session", b"", b"xoxb", "")},))},
    ],
)
async def test_nonsense(state: Path, tmp_path: Path, nonsense: dict[str, Answer], refused: Refused) -> None:
    """The stores take no value from an answer in another form than the API's, and do not quote the answer."""
    with daemon(tmp_path, ONE_ITEM | nonsense) as lying:
        refusal = await refused(SecretStores(str(state), lying).read("keychain", SERVICE, [NAME]))
    assert (refusal.reason, refusal.fix) == ("keychain-failed", ("omac vault init",))


async def test_too_many_items(state: Path, tmp_path: Path, refused: Refused) -> None:
    """The stores count the items of a service before they request any of them."""
    paths = [f"{ITEM}{number}" for number in range(600)]
    with daemon(tmp_path, {"SearchItems": ("aoao", (paths, paths))}) as full:
        refusal = await refused(SecretStores(str(state), full).read("keychain", SERVICE, [NAME]))
        assert (refusal.reason, full.calls[-1]) == ("keychain-failed", "SearchItems")
