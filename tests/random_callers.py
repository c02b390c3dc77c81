"""Clients that call the counting skill, and leave at every moment of a call: in one loop on raw sockets.

Each client has one connection at a time. It draws its behaviour (`MANNERS`), and sends one request or several at once.
It compares every whole answer with the skill's answer to that number: an answer of another call would be found.
"""

import contextlib
import heapq
import itertools
import math
import random
import re
import select
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable

from counting_skill import whole

PATIENCE_S = 30.0  # for an answer, or the end of the connection
REFUSED_S = 0.25  # after an answer that says to try again
AWAY_S = 0.01  # after a connection that could not be made
TICK_S = 0.02
SWEEP_S = 0.25
# How often each comes, of all: most stay until they are answered.
MANNERS = {
    "one call": 10,
    "several calls": 6,  # pipelined
    "half-closed": 2,
    "leaves in mid-request": 2,
    "leaves at once": 2,
    "leaves soon": 2,
    "leaves in mid-answer": 2,
    "leaves with more sent": 2,  # whole requests and part of another
}
BODIES = (0, 0, 0, 5, 3_000)
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing resets the connection
LENGTH = re.compile(rb"\r\nContent-Length: (\d+)\r\n", re.IGNORECASE)
CLOSES = re.compile(rb"\r\nConnection: close\r\n", re.IGNORECASE)


_NAMES = tuple(MANNERS)
_WEIGHTS = tuple(itertools.accumulate(MANNERS.values()))


class Callers:
    """A number of clients, which make calls number by number. `url` is that of the skill."""

    def __init__(self, url: str, numbers: range, seed: object, clients: int = 64) -> None:
        host, _, path = url.removeprefix("http://").partition("/")
        self.address = ("127.0.0.1", int(host.rpartition(":")[2]))
        self.chance = random.Random(str(seed))
        self.answered = 0
        self.seen: Counter[str] = Counter()  # what else became of calls
        self._numbers = iter(numbers)
        self._start = b" /%b/%%d HTTP/1.1\r\nHost: %b\r\n" % (path.rstrip("/").encode(), host.encode())
        self._epoll = select.epoll()
        self._watched: dict[int, _Client] = {}
        self._timers: list[tuple[float, int, _Client, int]] = []  # when, a number to sort by, whose, of which turn
        self._order = itertools.count()
        self._sweep_at = 0.0
        self._clients = [_Client(self) for _ in range(clients)]
        self._busy = clients

    def run(self, until: Callable[[], bool] = bool) -> None:
        """Make all calls, or call until `until` holds; then calls are still under way. Raises AssertionError for an
        answer that is not that of its call."""
        for client in self._clients:
            client.begin()
        while self._busy and not until():
            wait_s = min(TICK_S, max(0.0, self._timers[0][0] - time.monotonic())) if self._timers else TICK_S
            for file, events in self._epoll.poll(wait_s):
                if file in self._watched:
                    self._watched[file].ready(events)
            self._pass(time.monotonic())

    def _pass(self, now: float) -> None:
        """Run all actions that are due by now."""
        while self._timers and self._timers[0][0] <= now:
            _, _, client, turn = heapq.heappop(self._timers)
            client.due(turn)
        if now >= self._sweep_at:
            self._sweep_at = now + SWEEP_S
            for client in self._clients:
                client.look(now)

    def close(self) -> None:
        """Close all connections."""
        for client in self._clients:
            client.drop()
        self._epoll.close()

    def take(self, count: int) -> list[int]:
        """Return up to so many numbers of calls; none when all are made."""
        numbers = list(itertools.islice(self._numbers, count))
        self._busy -= not numbers
        return numbers

    def request(self, number: int) -> bytes:
        """Return a request, with a body or without."""
        length = self.chance.choice(BODIES)
        start = self._start % number
        return (
            b"POST%bContent-Length: %d\r\n\r\n%b" % (start, length, b"x" * length) if length else b"GET%b\r\n" % start
        )

    def watch(self, client: "_Client", sock: socket.socket) -> None:
        """Have `ready` called for events of a new connection."""
        self._watched[sock.fileno()] = client
        self._epoll.register(sock, select.EPOLLIN)

    def watch_for(self, sock: socket.socket, events: int) -> None:
        """Have `ready` called for these events."""
        self._epoll.modify(sock, events)

    def forget(self, sock: socket.socket) -> None:
        """Forget a connection that is about to be closed."""
        self._watched.pop(sock.fileno(), None)

    def wake(self, client: "_Client", turn: int, seconds: float) -> None:
        """Have `due` called."""
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._order), client, turn))


class _Client:
    """A client, from turn to turn. Its turns are counted: actions that belong to a turn that is over are dropped."""

    def __init__(self, callers: Callers) -> None:
        self._callers = callers
        self._sock: socket.socket | None = None
        self._turn = 0
        self._late_at = math.inf
        self._manner = ""
        self._expected: list[int] = []  # calls that are not answered yet
        self._unsent = self._came = b""
        self._blocked = False  # by a full socket

    def begin(self) -> None:
        """Begin a turn, and others until one takes time."""
        while self._begin():
            pass

    def ready(self, events: int) -> None:
        """Use the connection, which is ready again."""
        over = bool(events & select.EPOLLOUT) and self._send()
        if not over and self._sock is not None and events & ~select.EPOLLOUT:
            over = self._receive()
        if over:
            self.begin()

    def due(self, turn: int) -> None:
        """Go on after a pause."""
        if turn == self._turn:
            self._leave()
            self.begin()

    def look(self, now: float) -> None:
        """Give up a call that takes too long."""
        if now > self._late_at:
            self._callers.seen["no answer in time"] += 1
            self._leave()
            self.begin()

    def drop(self) -> None:
        """Close the connection."""
        if self._sock is not None:
            self._callers.forget(self._sock)
            self._sock.close()
            self._sock = None

    def _begin(self) -> bool:
        """Begin a turn; return whether it is over at once."""
        chance = self._callers.chance
        self._turn += 1
        self._manner = chance.choices(_NAMES, cum_weights=_WEIGHTS)[0]
        several = self._manner in ("several calls", "leaves with more sent")
        self._expected = self._callers.take(chance.randrange(2, 5) if several else 1)
        if not self._expected:
            self._late_at = math.inf
            self.drop()
            return False
        sock = self._connected()
        if sock is None:
            return self._pause(AWAY_S)
        requests = [self._callers.request(number) for number in self._expected]
        if self._manner in ("leaves in mid-request", "leaves with more sent"):
            self._expected.pop()
            requests[-1] = requests[-1][: chance.randrange(len(requests[-1]))]
        self._late_at = time.monotonic() + PATIENCE_S
        self._unsent, self._came = b"".join(requests), b""
        return self._send()

    def _connected(self) -> socket.socket | None:
        """Return the connection, or a new one; None when none can be made."""
        if self._sock is None:
            sock = socket.socket()
            try:
                sock.settimeout(PATIENCE_S)
                sock.connect(self._callers.address)
            except OSError:
                sock.close()
                return None
            sock.setblocking(False)
            self._sock, self._blocked = sock, False
            self._callers.watch(self, sock)
        return self._sock

    def _send(self) -> bool:
        """Send the unsent rest; return whether the turn is over."""
        assert self._sock is not None
        try:
            self._unsent = self._unsent[self._sock.send(self._unsent) :] if self._unsent else b""
        except BlockingIOError:
            pass
        except OSError:
            return self._leave()
        blocked, was_blocked = bool(self._unsent), self._blocked
        self._blocked = blocked
        if blocked != was_blocked:
            self._callers.watch_for(self._sock, select.EPOLLIN | (select.EPOLLOUT if blocked else 0))
        return not blocked and self._sent()

    def _sent(self) -> bool:
        """Wait for answers, or leave, after all is sent; return whether the turn is over."""
        assert self._sock is not None
        if self._manner == "leaves at once" or not self._expected:
            return self._leave()
        if self._manner == "leaves soon":
            self._callers.wake(self, self._turn, self._callers.chance.random() / 100)
        elif self._manner == "half-closed":
            with contextlib.suppress(OSError):  # it may be reset already
                self._sock.shutdown(socket.SHUT_WR)
        return False

    def _receive(self) -> bool:
        """Read the bytes of answers; return whether the turn is over."""
        assert self._sock is not None
        leaves = self._manner == "leaves in mid-answer"
        try:
            data = self._sock.recv(1 if leaves else 262_144)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data or leaves:
            self._callers.seen["left in mid-answer" if data else "cut off"] += 1
            return self._leave()
        self._came += data
        while self._expected and (parts := whole_answer(self._came)):
            head, body, self._came = parts
            if not self._judge(int(head[9:12]), body, self._expected.pop(0)):
                self._leave()
                return self._pause(REFUSED_S)
            if CLOSES.search(head):
                return self._leave()
        if self._expected:
            return False
        if self._manner not in ("one call", "several calls"):
            return self._leave()
        assert not self._came, f"behind all answers: {self._came[:60]!r}"
        return True

    def _judge(self, status: int, body: bytes, number: int) -> bool:
        """Compare an answer with its call; return False for one that asks to try again later."""
        if status != 200:
            # 403: it was under way when omac gave the sidecar up, or when a reload took its route away
            allowed = status in (502, 503) or (status == 403 and b'"revoked"' in body)
            assert allowed, f"call {number} was answered {status}: {body[:200]!r}"
            self._callers.seen[str(status)] += 1
            return status != 503
        assert body == whole(number), f"call {number} was answered {body[:60]!r}"
        self._callers.answered += 1
        return True

    def _leave(self) -> bool:
        """Close the connection, one time in two by a reset; return that the turn is over."""
        if self._sock is not None and self._callers.chance.random() < 0.5:
            with contextlib.suppress(OSError):
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.drop()
        return True

    def _pause(self, seconds: float) -> bool:
        """Begin the next turn later; return whether the turn is over."""
        self._turn += 1
        self._late_at = math.inf
        self._callers.wake(self, self._turn, seconds)
        return False


def whole_answer(data: bytes) -> tuple[bytes, bytes, bytes] | None:
    """Return head and body of the answer at the front of `data`, and the bytes behind; None while it is not whole."""
    at = data.find(b"\r\n\r\n")
    if at < 0:
        return None
    head, rest = data[: at + 2], data[at + 4 :]
    if length := LENGTH.search(head):
        end = int(length[1])
        return (head, rest[:end], rest[end:]) if len(rest) >= end else None
    body = b""
    while rest.find(b"\r\n") >= 0:  # chunks
        line, _, rest = rest.partition(b"\r\n")
        size = int(line, 16)
        if len(rest) < size + 2:
            return None
        body, rest = body + rest[:size], rest[size + 2 :]
        if size == 0:
            return head, body, rest
    return None
