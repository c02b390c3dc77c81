"""A session bus, spoken to within a deadline (D-Bus specification; Secret Service API 0.2).

Only the one service is called, and no call starts it: every message carries NO_AUTO_START, as a daemon that starts may
ask somebody for a password. `start` is the exception, for who wants just that. jeepney has no types: what it returns is
converted to the form that the caller states, which also tells a service that answers nonsense.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import msgspec
from jeepney import (  # type: ignore[import-untyped]
    DBusAddress,
    HeaderFields,
    MatchRule,
    Message,
    MessageFlag,
    MessageType,
    new_method_call,
)
from jeepney.bus import get_connectable_addresses  # type: ignore[import-untyped]
from jeepney.bus_messages import message_bus  # type: ignore[import-untyped]
from jeepney.io.blocking import DBusConnection, prep_socket  # type: ignore[import-untyped]

SECRETS = "org.freedesktop.secrets"
PROPERTIES = "org.freedesktop.DBus.Properties"
PROMPT = "org.freedesktop.Secret.Prompt"
IN_FLIGHT_MAX = 64  # calls sent before their answers are read

T = TypeVar("T")


class NoBus(Exception):
    """There is no session bus to speak to; the text says why."""


class CallFailed(Exception):
    """The service answered with an error of this name. Its text is dropped: a value may be in it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Call(NamedTuple):
    """A method of an object of the service."""

    path: str
    interface: str
    method: str
    signature: str = ""
    body: tuple[object, ...] = ()


class Bus:
    """A connection. Whatever takes longer than until the deadline raises TimeoutError."""

    def __init__(self, connection: DBusConnection) -> None:
        self._connection = connection
        self._completed: set[str] = set()  # the prompts that are done

    def has_owner(self) -> bool:
        """Whether the service runs."""
        return self._answered(message_bus.NameHasOwner(SECRETS), tuple[bool])[0]

    def can_start(self) -> bool:
        """Whether the bus would start the service for who calls it."""
        return SECRETS in self._answered(message_bus.ListActivatableNames(), tuple[list[str]])[0]

    def start(self) -> None:
        """Have the bus start the service. Raises CallFailed."""
        self._answered(message_bus.StartServiceByName(SECRETS), tuple[int])

    def call(self, call: Call, form: type[T]) -> T:
        """What the service answers. Raises CallFailed, msgspec.ValidationError when it is not of this form."""
        return self._answered(_message(call), form)

    def calls(self, calls: Sequence[Call], form: type[T]) -> list[T | CallFailed]:
        """What the service answers to each of these, asked together."""
        found: list[T | CallFailed] = []
        for at in range(0, len(calls), IN_FLIGHT_MAX):
            serials = [self._send(_message(call)) for call in calls[at : at + IN_FLIGHT_MAX]]
            answers = self._receive(serials)
            found += [_converted(answers[serial], form) for serial in serials]
        return found

    def prompt(self, path: str) -> None:
        """Have the service show a prompt, and return when the person is done with it. Raises CallFailed.

        Anybody on the bus can say that they are: look what has become of it.
        """
        rule = MatchRule(type="signal", sender=SECRETS, interface=PROMPT, member="Completed", path=path)
        self._answered(message_bus.AddMatch(rule), tuple[()])
        self.call(Call(path, PROMPT, "Prompt", "s", ("",)), tuple[()])
        while path not in self._completed:
            self._note(self._connection.receive())

    def _answered(self, message: Message, form: type[T]) -> T:
        serial = self._send(message)
        found = _converted(self._receive([serial])[serial], form)
        if isinstance(found, CallFailed):
            raise found
        return found

    def _send(self, message: Message) -> int:
        serial = next(self._connection.outgoing_serial)
        message.header.flags |= MessageFlag.no_auto_start
        self._connection.send(message, serial=serial)
        return int(serial)

    def _receive(self, serials: Sequence[int]) -> dict[int, Message]:
        found: dict[int, Message] = {}
        while len(found) < len(serials):
            message = self._connection.receive()
            serial = message.header.fields.get(HeaderFields.reply_serial)
            if serial in serials:
                found[serial] = message
            else:
                self._note(message)
        return found

    def _note(self, message: Message) -> None:
        fields = message.header.fields
        if message.header.message_type == MessageType.signal and fields.get(HeaderFields.member) == "Completed":
            self._completed.add(str(fields.get(HeaderFields.path)))


@contextmanager
def connected(environment: Mapping[str, str], deadline: float) -> Iterator[Bus]:
    """The session bus of $DBUS_SESSION_BUS_ADDRESS, else $XDG_RUNTIME_DIR/bus, until `deadline` (time.monotonic()).

    Raises NoBus, TimeoutError.
    """
    place = _place(environment)
    try:
        connection = _Bounded(prep_socket(place, timeout=max(0.001, deadline - time.monotonic())), deadline)
    except TimeoutError:
        raise
    except (OSError, ValueError) as error:
        raise NoBus(f"no session bus answers at {_shown(place)} ({type(error).__name__})") from None
    with connection:
        yield Bus(connection)


class _Bounded(DBusConnection):  # type: ignore[misc]  # jeepney has no types
    """jeepney's own time-outs are those of single calls, and its greeting has none."""

    def __init__(self, sock: Any, deadline: float) -> None:  # Any: as in the library
        self._deadline = deadline
        sock.settimeout(max(0.001, deadline - time.monotonic()))
        super().__init__(sock)

    def receive(self, *, timeout: float | None = None) -> Message:
        """The next message. Raises TimeoutError."""
        left = max(0.0, self._deadline - time.monotonic())
        return super().receive(timeout=left if timeout is None else min(left, timeout))


def _place(environment: Mapping[str, str]) -> str:
    """Where the bus's socket is; an abstract one begins with NUL."""
    address, runtime = environment.get("DBUS_SESSION_BUS_ADDRESS"), environment.get("XDG_RUNTIME_DIR")
    if address:
        try:
            return str(next(get_connectable_addresses(address)))
        except (ValueError, RuntimeError, StopIteration):
            raise NoBus(f"DBUS_SESSION_BUS_ADDRESS={address} is no address that omac can use") from None
    if runtime and os.path.exists(os.path.join(runtime, "bus")):
        return os.path.join(runtime, "bus")
    raise NoBus("there is no session bus: DBUS_SESSION_BUS_ADDRESS is not set")


def _shown(place: str) -> str:
    return "@" + place[1:] if place.startswith("\0") else place


def _message(call: Call) -> Message:
    return new_method_call(
        DBusAddress(call.path, SECRETS, call.interface), call.method, call.signature or None, call.body
    )


def _converted(message: Message, form: type[T]) -> T | CallFailed:
    if message.header.message_type == MessageType.error:
        return CallFailed(str(message.header.fields.get(HeaderFields.error_name)))
    return msgspec.convert(message.body, form)
