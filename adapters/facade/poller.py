"""One task that owns an edge-triggered epoll: sockets in numbers, without a task for each (epoll(7)).

While that task lives, the loop waits in that epoll, for its own events, too (`trio_wait`). So their owners are notified
without a pass of the loop.

A socket that is read must be read to its end, or forgotten here and left to a task: no second event comes for what was
there at the first.

Of what one poll returns, events that end something come before those that begin something, and what these put off comes
last. So the requests of one poll are sent in a row, with nothing between: a send wakes its reader, which costs half of
it, and the next finds the reader awake.
"""

import logging
import os
import select
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from typing import Protocol

import trio

from omac.adapters.facade.trio_wait import TrioWait
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


class Watchable(Protocol):
    """A socket, or something else that epoll watches."""

    def fileno(self) -> int: ...


class Poller:
    """The sockets that are watched in one loop. Each user has it `of_loop`, and closes it in the end.

    `seen` holds, by descriptors, the events that no owner has got yet. `polls` counts the polls that returned all
    events: not those where EVENTS_MAX were not enough.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._watched: dict[int, Polled] = {}
        self._put_off: list[tuple[Polled, Callable[[], None]]] | None = None  # while events are delivered
        self._trio = TrioWait(self._wait)
        self._context = copy_context()  # callbacks have that of who polls, as in a task
        self._is_trio_ready = False
        self._fault: BaseException | None = None  # that nobody's connection has, and the loop must not have
        self._failed = trio.Event()
        self._users = self._runs = 0
        self._wakeup = Wakeup(self)
        self.call_soon = self._wakeup.call_soon
        self.polls = 0
        self.seen: dict[int, int] = {}

    @classmethod
    def of_loop(cls) -> "Poller":
        """Return the poller of the Trio loop that runs, which has one while anybody uses it."""
        poller = _OF_LOOP.get(None)
        if poller is None:
            poller = cls()
            _OF_LOOP.set(poller)
        poller._users += 1
        return poller

    def watch(self, sock: Watchable, owner: Polled) -> None:
        """Notify `owner` of events on a socket, those that have happened already included. Raises OSError where the
        system has no room for more."""
        self._epoll.register(sock, _WATCHED)
        self._watched[sock.fileno()] = owner

    def forget(self, sock: Watchable) -> None:
        """Watch a socket no longer. May be called twice, and for one that is closed."""
        number = sock.fileno()
        if self._watched.pop(number, None) is not None:
            self.seen.pop(number, None)  # the next socket may get the same number
            self._epoll.unregister(sock)

    async def run(self) -> None:
        """Poll and notify the owners, until cancelled. Raises the fault that made it impossible to go on."""
        if not self._runs:
            self._epoll.register(self._trio.descriptor, select.EPOLLIN)
            self._trio.enter()
        self._runs += 1
        try:
            await self._failed.wait()
        finally:
            self._runs -= 1
            if not self._runs:
                self._trio.leave()
                self._epoll.unregister(self._trio.descriptor)
        if self._fault is not None:
            raise self._fault

    def poll(self) -> None:
        """Poll for events now; their owners are notified when the loop waits next. Callers in the Trio loop use it to
        be ahead of that."""
        self._poll(0)

    def _wait(self, timeout: float) -> bool | None:
        """Poll and notify the owners until Trio has something to do; see TrioWait."""
        self._is_trio_ready = False
        has_any = self._poll(timeout)
        if has_any:
            try:
                self._context.run(self._handle, timeout)
            except BaseException as fault:
                # a task raises it: from here it would end the loop, and no task in its order
                self._fault = fault
                self._failed.set()
        return True if self._is_trio_ready else False if has_any else None

    def _handle(self, timeout: float) -> None:
        """Notify the owners and poll again, until Trio has something to do, or nothing has come for `timeout`."""
        while True:
            self._turn()
            left_s = 0 if self._is_trio_ready else self._trio.may_wait_s(timeout)
            if not left_s or not self._poll(left_s):
                break

    def _turn(self) -> None:
        """Notify the owners, and those of events that come meanwhile."""
        for _ in range(POLLS):
            is_busy = len(self.seen) >= BUSY
            self._notify()
            if not is_busy or not self._poll(0):
                break

    def _poll(self, timeout: float) -> bool:
        """Poll for events, for no time where some are at hand; return whether any are to be delivered."""
        events = self._epoll.poll(0 if self.seen else timeout, EVENTS_MAX)
        if len(events) < EVENTS_MAX:
            self.polls += 1
        if self.seen:
            for number, what in events:
                self.seen[number] = self.seen.get(number, 0) | what
        else:
            self.seen = dict(events)
        if self.seen.pop(self._trio.descriptor, 0):
            self._is_trio_ready = True
        return bool(self.seen)

    def close(self) -> None:
        """Use it no longer; what this user has had watched is forgotten by then."""
        self._users -= 1
        if not self._users:
            _OF_LOOP.set(None)
            self._wakeup.close()
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
        watched = self._watched
        for number in tuple(self.seen):
            owner = watched.get(number)
            if owner is not None and owner.begins:
                begin.append(number)
            else:
                self._deliver(number, owner)
        for number in begin:
            self._deliver(number, watched.get(number))
        self._put_off = None
        for owner, happens in put_off:
            guarded(owner, happens)

    def _deliver(self, number: int, owner: Polled | None) -> None:
        what = self.seen.pop(number, 0)
        if not what or owner is None:
            return
        try:
            owner.ready(what)
        except Exception as error:
            log_failure(_log, error)
            owner.fail()


class Wakeup:
    """The way into a poller's loop for other threads, by an eventfd(2) that the poller watches."""

    begins = True

    def __init__(self, poller: Poller) -> None:
        self._poller = poller
        self._due: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()  # a descriptor that is closed may be another's at once
        self._is_open = True
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        poller.watch(self, self)

    def fileno(self) -> int:
        return self._descriptor

    def call_soon(self, happens: Callable[[], None]) -> None:
        """Have something happen in the loop, in the order of these calls; nothing does once this is closed. Any thread
        may call it."""
        with self._lock:
            if self._is_open:
                self._due.append(happens)
                os.eventfd_write(self._descriptor, 1)

    def ready(self, _events: int) -> None:
        """Implement Polled."""
        os.eventfd_read(self._descriptor)
        while self._due:
            guarded(self, self._due.popleft())

    def fail(self) -> None:
        """Implement Polled: what failed is over, and the others happen."""

    def close(self) -> None:
        self._poller.forget(self)
        with self._lock:
            self._is_open = False
            os.close(self._descriptor)


_OF_LOOP: trio.lowlevel.RunVar[Poller | None] = trio.lowlevel.RunVar("poller")


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
