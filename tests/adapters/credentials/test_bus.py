"""A connection to a session bus that is slow, floods, or sends too much."""

import socket
import time
from collections.abc import Iterator

import pytest
from jeepney import DBusAddress, MessageFlag, Parser, new_method_call, new_method_return, new_signal
from jeepney.bus_messages import message_bus
from secretstorage.exceptions import LockedException

from omac.adapters.credentials.bus import MESSAGE_BYTES_MAX, BoundedConnection

PROMPT = DBusAddress("/prompt", "org.freedesktop.secrets", "org.freedesktop.Secret.Prompt")
SIGNAL = new_signal(PROMPT, "Completed", "s", ("x" * 1000,)).serialise(serial=7)
Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """Yield the two ends of a connection: ours, and that of a bus."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def greeted(ends: Ends, seconds: float, *, prompting: bool = False) -> BoundedConnection:
    """Return a connection whose greeting the bus has answered."""
    hello = message_bus.Hello()
    hello.header.serial = 1
    ends[1].sendall(new_method_return(hello, "s", (":1.1",)).serialise(serial=1))
    return BoundedConnection(ends[0], time.monotonic() + seconds, prompting=prompting)


def test_a_greeting_without_an_answer(ends: Ends) -> None:
    """The connection gives up at the deadline and leaves no socket open."""
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        BoundedConnection(ends[0], begun + 0.1)
    assert 0.1 <= time.monotonic() - begun < 5
    assert ends[0].fileno() == -1


def test_a_flood_ends_at_the_deadline(ends: Ends) -> None:
    """Messages that are ready do not extend the deadline."""

    def flood() -> None:
        begun = time.monotonic()
        while time.monotonic() < begun + 5:
            ends[1].sendall(SIGNAL)
            connection.receive()

    with greeted(ends, 0.2) as connection, pytest.raises(TimeoutError):
        flood()


def test_a_message_of_which_the_end_does_not_come(ends: Ends) -> None:
    """A connection waits for the rest of a message until its deadline, or until the caller's own time-out."""
    with greeted(ends, 0.3) as connection:
        ends[1].sendall(SIGNAL[:-1])
        for timeout, least in ((0.1, 0.1), (10, 0.15)):
            begun = time.monotonic()
            with pytest.raises(TimeoutError):
                connection.receive(timeout=timeout)
            assert least <= time.monotonic() - begun < 5


def test_a_message_that_nobody_reads(ends: Ends) -> None:
    """Sending ends at the deadline too."""
    message = new_method_call(message_bus, "Hello", "ay", (bytes(MESSAGE_BYTES_MAX),))
    with greeted(ends, 0.2) as connection, pytest.raises(TimeoutError):
        connection.send(message)


def test_a_message_that_is_too_large(ends: Ends) -> None:
    """The connection refuses a message that is too large by its header, before it reads the body."""
    header = bytearray(SIGNAL[:16])
    header[4:8] = MESSAGE_BYTES_MAX.to_bytes(4, "little")
    with greeted(ends, 5) as connection:
        ends[1].sendall(header)
        with pytest.raises(ValueError, match="too large"):
            connection.receive()


def test_a_prompt_is_shown_only_on_request(ends: Ends) -> None:
    """A connection that may not prompt sends no call that would, by either of the library's names for sending."""
    prompt = new_method_call(PROMPT, "Prompt", "s", ("",))
    with greeted(ends, 5) as connection:
        ends[1].recv(4096)
        for send in (connection.send, connection.send_message, connection.send_and_get_reply):
            with pytest.raises(LockedException):
                send(prompt)
        ends[1].setblocking(False)
        with pytest.raises(BlockingIOError):
            ends[1].recv(1)


def test_no_message_starts_a_daemon(ends: Ends) -> None:
    """Every message carries the flag that forbids the bus to start a daemon, prompts included."""
    with greeted(ends, 5, prompting=True) as connection:
        connection.send(new_method_call(PROMPT, "Prompt", "s", ("",)))
        messages = Parser().feed(ends[1].recv(4096))
    assert [message.header.flags for message in messages] == [MessageFlag.no_auto_start] * 2
