"""Connections to skills that rest between two requests.

Rules

1. A connection rests here only after an answer that was whole, said nothing against it, and had no byte behind it. One
   on which anything arrives while it rests is closed.
2. It rests for `REST_S` at most, which is less than any skill's patience, and long enough while calls follow one
   another: a skill that serves one connection after the other is soon free for the next.
3. Where an answer is late (`late`), no connection to that skill rests: the call may be waiting behind one.
4. The one that came last goes out first, so that the others time out when they are not needed.
5. One goes out when the poller has polled since it came, and saw nothing on it. For a request that must not be sent
   twice it is asked at that moment, and where the poller cannot see all at once.
6. A new one is made here where the system makes it at once, as it does on loopback while the skill accepts any. All
   others are a task's, which can wait. It has reached the sidecar, and not who took its port, before a byte is sent.
7. No connection rests to a skill that has sent what nobody asked for: what it sends late, behind one answer, would be
   taken for the answer to the next call. So that happens to one call at most.
8. As many rest as clients may be connected, to all skills together: each client has the descriptors for one.
"""

import contextlib
import math
import socket
from collections.abc import Callable, Iterator

import trio

from omac.adapters.facade.poller import Poller
from omac.adapters.http.wire import acknowledge
from omac.adapters.linux.tcp import hasten

REST_S = 0.5
RESTING_MAX = 512  # to one skill, as far as there is room for it


class SkillConnection:
    """A connection to a skill that the poller watches. `answered` is called with the events of an answer; None: it
    rests. `is_new`: it has had no request before. `sent_more`: the skill sent more than the answer."""

    __slots__ = ("_pool", "answered", "is_new", "number", "polls", "port", "sent_more", "since", "socket")
    begins = False

    def __init__(self, pool: "SkillConnections", sock: socket.socket, port: int) -> None:
        self._pool = pool
        self.socket = sock
        self.number = sock.fileno()
        self.port = port
        self.is_new = self.sent_more = False
        self.since = 0.0
        self.polls = 0  # those of the poller before it came to rest
        self.answered: Callable[[int], None] | None = None

    def ready(self, events: int) -> None:
        """Implement Polled: pass the events of an answer on, or drop a connection at rest on which anything arrived."""
        if self.answered is not None:
            self.answered(events)
        elif _arrived(self.socket) is not None:
            self._pool.drop(self)

    def fail(self) -> None:
        """Implement Polled: drop the connection."""
        self._pool.drop(self)

    def send(self, request: bytes) -> bytes:
        """Send a request, as much of it as goes at once, and return the rest. Raises OSError where none has gone."""
        try:
            return request[self.socket.send(request) :]
        except BlockingIOError:
            return request

    def acknowledge(self) -> None:
        """Acknowledge at once what has come of an answer, where the rest of it is missing."""
        acknowledge(self.socket)


class SkillConnections:
    """The connections at rest, by the ports of their skills; `resting_max` bounds their number. `reaches` as of a
    Facade."""

    def __init__(self, poller: Poller, resting_max: int, reaches: Callable[[socket.socket], bool]) -> None:
        self._poller = poller
        self._reaches = reaches
        self._resting_max = resting_max
        self._resting: dict[int, list[SkillConnection]] = {}
        self._count = 0  # of them: to count them at each rest takes the longer the more skills are called
        self._late: dict[int, int] = {}
        self._unasked: set[int] = set()  # ports of skills that have sent what nobody asked for
        self._closed = False

    def __len__(self) -> int:
        return self._count

    def take(self, port: int, *, repeatable: bool) -> SkillConnection | None:
        """A connection to a skill that is still open; None where none rests. `repeatable`: see rule 5."""
        resting, poller = self._resting.get(port), self._poller
        while resting:
            connection = resting.pop()
            self._count -= 1
            if connection.polls == poller.polls:
                poller.poll()
            is_known = repeatable and connection.polls != poller.polls
            if connection.number not in poller.seen and (is_known or _arrived(connection.socket) is None):
                return connection
            self.drop(connection)
        return None

    def make(self, port: int) -> SkillConnection | None:
        """A new connection to a skill; None where it takes time, or cannot be had."""
        try:
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError:
            return None
        try:
            sock.connect_ex(("127.0.0.1", port))  # is made behind this call, which does not wait for that
            if sock.getpeername() == sock.getsockname():
                raise ConnectionRefusedError  # it met itself: see Exchange
            if not self._reaches(sock):
                raise ConnectionRefusedError  # which a task reports
            hasten(sock)
            connection = SkillConnection(self, sock, port)
            self._poller.watch(sock, connection)
        except OSError:
            sock.close()
            return None
        connection.is_new = True
        return connection

    def rest(self, connection: SkillConnection, now: float) -> None:
        """Keep a connection whose answer is whole, for the next request."""
        resting = self._resting.get(connection.port)
        if resting is None:
            resting = self._resting[connection.port] = []
        connection.answered, connection.is_new = None, False
        is_full = len(resting) >= RESTING_MAX or self._count >= self._resting_max
        if self._closed or connection.port in self._late or connection.port in self._unasked or is_full:
            self.drop(connection)
            return
        connection.since, connection.polls = now, self._poller.polls
        resting.append(connection)
        self._count += 1

    def rest_of_task(self, sock: socket.socket, port: int) -> None:
        """Keep a connection that a task had."""
        if self._closed:
            sock.close()
            return
        connection = SkillConnection(self, sock, port)
        try:
            self._poller.watch(sock, connection)
        except OSError:  # the system has no room for more
            self.drop(connection)
        else:
            self.rest(connection, trio.current_time())

    def drop(self, connection: SkillConnection) -> None:
        """Close a connection, at rest or not, and note whether the skill has sent what nobody asked for."""
        if connection.sent_more or (connection.answered is None and _arrived(connection.socket)):
            self.distrust(connection.port)
        with contextlib.suppress(KeyError, ValueError):
            self._resting[connection.port].remove(connection)
            self._count -= 1
        self._poller.forget(connection.socket)
        connection.socket.close()

    def distrust(self, port: int) -> None:
        """Let no connection to a skill rest from now on: it has sent what nobody asked for."""
        self._unasked.add(port)

    def hand_over(self, connection: SkillConnection) -> socket.socket:
        """The socket of a connection that was taken, for a task."""
        self._poller.forget(connection.socket)
        connection.acknowledge()
        return connection.socket

    @contextlib.contextmanager
    def late(self, port: int) -> Iterator[None]:
        """Yield while an answer of this skill is late: no connection to the skill rests meanwhile."""
        self._late[port] = self._late.get(port, 0) + 1
        for connection in tuple(self._resting.get(port, ())):
            self.drop(connection)
        try:
            yield
        finally:
            self._late[port] -= 1
            if not self._late[port]:
                del self._late[port]

    def close(self) -> None:
        """Close all that rest, and those that would."""
        self._closed = True
        self.sweep(math.inf)

    def sweep(self, until: float) -> None:
        """Close what has rested since before `until`."""
        for port, resting in tuple(self._resting.items()):
            for connection in [each for each in resting if each.since < until]:
                self.drop(connection)
            if not resting:
                del self._resting[port]


def _arrived(sock: socket.socket) -> bytes | None:
    """Return the beginning of what the skill has sent and nobody asked for; empty where it has closed the connection,
    None where nothing has arrived."""
    try:
        return sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return None
    except OSError:
        return b""
