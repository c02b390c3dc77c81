"""One task that owns an edge-triggered epoll: sockets in numbers, without a task for each (epoll(7)).

A socket that is read must be read to its end, or forgotten here and left to a task: no second event comes for what was
there at the first.

Of what one poll returns, events that end something come before those that begin something, and what these put off comes
last. So the requests of one poll are sent in a row, with nothing between: a send wakes its reader, which costs half of
it, and the next finds the reader awake.
"""

import logging
import select
import socket
from collections.abc import Callable
from typing import Protocol

import trio

from omac.adapters.http.accepting import log_failure

EVENTS_MAX = 512  # of one poll
POLLS = 4  # before others have their turn, if there is more each time
BUSY = 4  # events of one poll, behind which others have come meanwhile
READ_BYTES = 132_096  # more than what is ordinary, so that one read shows that nothing is left

_WATCHED = select.EPOLLIN | select.EPOLLPRI | select.EPOLLRDHUP | select.EPOLLET
_log = logging.getLogger("omac.facade")
_buffer = memoryview(bytearray(READ_BYTES))  # of the one thread that polls: so much memory for each read takes longer


class Polled(Protocol):
    """The owner of a socket that is watched. `begins`: its events begin something, and those of others come first."""

    begins: bool

    def ready(self, events: int) -> None:
        """Handle events on the socket: a mask as of epoll(7)."""

    def fail(self) -> None:
        """Close the socket: `ready` failed, by a fault of omac."""


class Poller:
    """The sockets that are watched. Made where Trio runs; `close` it when nothing is watched any more.

    `seen` holds, by descriptors, the events that no owner has got yet. `polls` counts the polls that returned all
    events: not those where EVENTS_MAX were not enough.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._watched: dict[int, Polled] = {}
        self._trio = trio.lowlevel.current_trio_token()
        self._put_off: list[tuple[Polled, Callable[[], None]]] | None = None  # while events are delivered
        self.polls = 0
        self.seen: dict[int, int] = {}

    def watch(self, sock: socket.socket, owner: Polled) -> None:
        """Notify `owner` of events on a socket, those that have happened already included. Raises OSError where the
        system has no room for more."""
        self._epoll.register(sock, _WATCHED)
        self._watched[sock.fileno()] = owner

    def forget(self, sock: socket.socket) -> None:
        """Watch a socket no longer. May be called twice, and for one that is closed."""
        number = sock.fileno()
        if self._watched.pop(number, None) is not None:
            self.seen.pop(number, None)  # the next socket may get the same number
            self._epoll.unregister(sock)

    def poll(self) -> None:
        """Poll for events now, and have their owners notified. Callers in the Trio loop use it to be ahead of `run`."""
        if self._poll():
            self._trio.run_sync_soon(self._notify, idempotent=True)

    async def run(self) -> None:
        """Poll and notify the owners, until cancelled."""
        while True:
            await trio.lowlevel.wait_readable(self._epoll.fileno())
            for _ in range(POLLS):
                if not self._poll():
                    break
                is_busy = len(self.seen) >= BUSY
                self._notify()
                if not is_busy:
                    break

    def _poll(self) -> bool:
        """Poll for events, and return whether any are to be delivered."""
        events = self._epoll.poll(0, EVENTS_MAX)
        if len(events) < EVENTS_MAX:
            self.polls += 1
        if self.seen:
            for number, what in events:
                self.seen[number] = self.seen.get(number, 0) | what
        else:
            self.seen = dict(events)
        return bool(self.seen)

    def close(self) -> None:
        self._epoll.close()

    def put_off(self, owner: Polled, happens: Callable[[], None]) -> None:
        """Let something happen when all events at hand are delivered; at once, if none are."""
        if self._put_off is None:
            guarded(owner, happens)
        else:
            self._put_off.append((owner, happens))

    def _notify(self) -> None:
        begin = []
        put_off = self._put_off = []
        for number in tuple(self.seen):
            owner = self._watched.get(number)
            if owner is not None and owner.begins:
                begin.append(number)
            else:
                self._deliver(number)
        for number in begin:
            self._deliver(number)
        self._put_off = None
        for owner, happens in put_off:
            guarded(owner, happens)

    def _deliver(self, number: int) -> None:
        what, owner = self.seen.pop(number, 0), self._watched.get(number)
        if not what or owner is None:
            return
        try:
            owner.ready(what)
        except Exception as error:
            log_failure(_log, error)
            owner.fail()


def guarded(owner: Polled, happens: Callable[[], None]) -> None:
    """Let something happen to the owner of a socket; a fault of omac there ends that one, and no other."""
    try:
        happens()
    except Exception as error:
        log_failure(_log, error)
        owner.fail()


def read(sock: socket.socket) -> bytes:
    """Return what a socket has received, READ_BYTES at most. Raises OSError."""
    return _buffer[: sock.recv_into(_buffer)].tobytes()


def read_message(sock: socket.socket) -> tuple[bytes, bool]:
    """Return the same of a Unix socket, and whether descriptors came with it, which are dropped: behind them more may
    be there, since a read ends there. Raises OSError."""
    count, _, flags, _ = sock.recvmsg_into([_buffer])
    return _buffer[:count].tobytes(), bool(flags & socket.MSG_CTRUNC)
