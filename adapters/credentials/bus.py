"""A connection to a session bus (D-Bus specification) that keeps a deadline and shows no prompt unless it may.

secretstorage takes it in place of jeepney's connection, whose time-outs are those of single calls and whose greeting
has none.
"""

import os
import time
from collections.abc import Mapping
from typing import Any

from jeepney import HeaderFields, Message, MessageFlag
from jeepney.bus import get_connectable_addresses
from jeepney.io.blocking import DBusConnection, prep_socket, unwrap_read
from secretstorage.exceptions import LockedException
from secretstorage.util import PROMPT_IFACE

from omac.adapters.credentials import refusals

MESSAGE_BYTES_MAX = 16 * 1024 * 1024
READ_BYTES = 64 * 1024


class BoundedConnection(DBusConnection):  # type: ignore[misc]  # jeepney has no types
    """A connection that raises TimeoutError once `deadline` (time.monotonic()) has passed.

    Every message carries NO_AUTO_START, because a daemon that starts may ask for a password. secretstorage shows each
    prompt that it is handed; without `prompting` the connection raises LockedException instead.
    """

    def __init__(self, sock: Any, deadline: float, *, prompting: bool = False) -> None:  # Any: as in the library
        self._deadline = deadline
        self._prompting = prompting
        try:
            super().__init__(sock)
        except BaseException:
            self.close()
            raise

    def send(self, message: Message, serial: int | None = None) -> None:
        """Send a message. Raises TimeoutError, LockedException."""
        if message.header.fields.get(HeaderFields.interface) == PROMPT_IFACE and not self._prompting:
            raise LockedException("a prompt is not shown")
        message.header.flags |= MessageFlag.no_auto_start
        self.sock.settimeout(_seconds_until(self._deadline))
        super().send(message, serial)

    send_message = send  # the name by which the library calls it

    def receive(self, *, timeout: float | None = None) -> Message:
        """Return the next message. Raises TimeoutError, and ValueError for more than MESSAGE_BYTES_MAX."""
        deadline = self._deadline if timeout is None else min(self._deadline, time.monotonic() + timeout)
        while (message := self.parser.get_next_message()) is None:
            if self.parser.bytes_desired() > MESSAGE_BYTES_MAX:
                raise ValueError("a message is too large")
            self.sock.settimeout(_seconds_until(deadline))
            self.parser.add_data(unwrap_read(self.sock.recv(READ_BYTES)))
        return message


def connect(environment: Mapping[str, str], deadline: float, *, prompting: bool) -> BoundedConnection:
    """Connect to the bus of $DBUS_SESSION_BUS_ADDRESS, else $XDG_RUNTIME_DIR/bus. Raises Refusal
    (keychain-unavailable), TimeoutError."""
    address = _socket_address(environment)
    try:
        sock = prep_socket(address, timeout=_seconds_until(deadline))
        return BoundedConnection(sock, deadline, prompting=prompting)
    except TimeoutError:
        raise
    except (OSError, ValueError) as error:
        shown = "@" + address[1:] if address.startswith("\0") else address
        raise refusals.unavailable(f"no session bus answers at {shown} ({type(error).__name__})") from None


def _seconds_until(deadline: float) -> float:
    """Return the seconds left, never 0: a socket takes that for "do not wait". Raises TimeoutError."""
    if (seconds := deadline - time.monotonic()) <= 0:
        raise TimeoutError
    return seconds


def _socket_address(environment: Mapping[str, str]) -> str:
    """Return the path of the bus's socket; an abstract one begins with NUL. Raises Refusal (keychain-unavailable)."""
    address, runtime = environment.get("DBUS_SESSION_BUS_ADDRESS"), environment.get("XDG_RUNTIME_DIR")
    if address:
        try:
            return str(next(get_connectable_addresses(address)))
        except (ValueError, RuntimeError, StopIteration):
            why = f"DBUS_SESSION_BUS_ADDRESS={address} is not an address that omac can use"
            raise refusals.unavailable(why) from None
    if runtime and os.path.exists(os.path.join(runtime, "bus")):
        return os.path.join(runtime, "bus")
    raise refusals.unavailable("no session bus: DBUS_SESSION_BUS_ADDRESS is not set")
