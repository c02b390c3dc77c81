"""A connected socket, with the bytes that arrived on it ahead of their turn."""

import contextlib
import fcntl
import math
import re
import select
import socket
import struct
import sys
import termios
from collections.abc import Callable

import trio

from omac.adapters.http.bodies import UpstreamError
from omac.adapters.http.http1 import head_end

HEAD_READ_BYTES = 65536
BODY_READ_BYTES = 262144
AHEAD_BYTES_MAX = 65536
LINGER_BYTES_MAX = 1_048_576
LINGER_S = 1.0
WHOLE_BODY_BYTES_MAX = 1 << 30  # the same for the body of a known caller, as long as it keeps coming
WHOLE_BODY_S = 10.0
QUEUE_CHECK_S = 0.05  # between two checks of how much a peer has read, at least
QUEUE_CHECKS = 4  # each comes when such a part of the time is over that the peer still has
DRAIN_READS_MAX = 16  # of HEAD_READ_BYTES each
# events of epoll(7) and poll(2): the peer is lost, has finished sending, or sends urgent data, which HTTP knows nothing
# of: a read ends at its mark
LOST = select.EPOLLHUP | select.EPOLLERR
FINISHED = select.EPOLLRDHUP
UNUSUAL = LOST | FINISHED | select.EPOLLPRI

_CR = 0x0D
_EMPTY_LINES = re.compile(rb"(?:\r\n)*")
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class ClientGone(Exception):
    """The client closed or reset its connection."""


def leaving(sock: socket.socket) -> int:
    """Return the events that say that a client has left. One that has finished sending may still read; only a Unix
    socket distinguishes the two."""
    return LOST if sock.family == socket.AF_UNIX else LOST | FINISHED


def drain(sock: socket.socket) -> None:
    """Read what has come, up to a bound: who closes with bytes unread resets, and the answer may be lost."""
    with contextlib.suppress(OSError):
        for _ in range(DRAIN_READS_MAX):
            if not sock.recv(HEAD_READ_BYTES):
                break


def acknowledge(sock: socket.socket) -> None:
    """Acknowledge at once what has come of a message, where the rest of it is missing. A peer that sends head and body
    on their own, as Python's http.server does, waits for that between the two (RFC 896): on Linux, 40 ms."""
    with contextlib.suppress(OSError, AttributeError):  # no TCP, or a system without this
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


class Wire:
    """One side of a proxied exchange; `gone` is raised when the system reports that the peer is lost.

    `ahead` is what arrived before its turn; of what is sent next, the first `gone_ahead` bytes went before.
    """

    def __init__(self, sock: socket.socket, gone: type[ClientGone | UpstreamError], ahead: bytes = b"") -> None:
        self.socket = sock
        self._sock = trio.socket.from_stdlib_socket(sock)
        self._gone = gone
        self.ahead = bytearray(ahead)
        self.gone_ahead = 0
        self.finished = False  # the peer has finished sending

    async def receive(self, bytes_max: int = BODY_READ_BYTES) -> bytes:
        """Return the bytes that arrived ahead, or else the next bytes; empty when the peer has finished sending."""
        return self.take_ahead() or await self._receive(bytes_max)

    def take_ahead(self) -> bytes:
        """Return the bytes that arrived ahead, and forget them; empty when none did."""
        data = bytes(self.ahead)
        self.ahead.clear()
        return data

    async def receive_ahead(self) -> bool:
        """Wait for more bytes without taking them; False when the peer has finished sending."""
        data = await self._receive(HEAD_READ_BYTES)
        self.ahead += data
        self.finished = not data
        return bool(data)

    async def next_head(self, wait_s: float, head_s: float, bytes_max: int) -> bytes | None:
        """The next head as it came, begun within `wait_s` and whole within `head_s`; None when there is none. Of one
        that took too long `ahead` holds what came."""
        with trio.move_on_after(wait_s) as scope:
            # empty lines ahead of a request are skipped (RFC 9112 section 2.2), as many as one read has at once
            skipped = 0
            while not self.ahead or self.ahead[0] == _CR:
                end = _empty_lines_end(self.ahead)
                skipped += end
                if end and skipped <= bytes_max:
                    del self.ahead[:end]
                elif len(self.ahead) > 1:
                    break  # a lone CR, or too many of them: the parser refuses them
                elif not await self.receive_ahead():
                    return None
            scope.deadline = trio.current_time() + head_s
            return await self.receive_head(bytes_max)
        return None

    async def receive_head(self, bytes_max: int) -> bytes | None:
        """Take a head off the wire; None when the peer finished before the head did.

        What is too long, or not made of CRLF lines, is returned as far as it came: the parser says what is wrong.
        """
        searched = 0
        while (end := head_end(self.ahead, searched)) < 0:
            searched = len(self.ahead)
            if searched > bytes_max:
                end = searched
                break
            if not await self.receive_ahead():
                return None
        head = bytes(self.ahead[:end])
        del self.ahead[:end]
        return head

    async def send(self, data: bytes, stall_s: float = math.inf, moved: Callable[[], object] | None = None) -> None:
        """Send all of it; waits while the peer does not read, and calls `moved` whenever it has read. Raises
        trio.TooSlowError when the peer reads nothing for `stall_s`.

        The system reports room for more long after the peer has begun to read, so that its queue is checked: the more
        often, the sooner the caller's deadline ends this.

        No checkpoint where the system takes all of it at once: a pass of the loop for each piece of a large body costs
        a third of the time that its bytes take.
        """
        view = memoryview(data)
        sent = min(self.gone_ahead, len(data))
        self.gone_ahead -= sent
        try:
            sent += self._send_at_once(view[sent:])
            if sent == len(data):
                return
            stalled_at = trio.current_time() + stall_s
            queued = self._queued()
            while True:
                now = trio.current_time()
                left_s = min(stalled_at, trio.current_effective_deadline()) - now
                with trio.move_on_at(min(stalled_at, now + max(QUEUE_CHECK_S, left_s / QUEUE_CHECKS))) as wait:
                    sent += await self._sock.send(view[sent:])
                    if sent == len(data):
                        return
                before, queued = queued, self._queued()
                if not wait.cancelled_caught or queued < before:
                    stalled_at = trio.current_time() + stall_s
                    if moved is not None:
                        moved()
                elif trio.current_time() >= stalled_at:
                    raise trio.TooSlowError
        except OSError as error:
            raise self._gone("the connection was lost") from error

    def _send_at_once(self, view: memoryview) -> int:
        """Return how many bytes the system takes without waiting: none where the caller was cancelled. Raises
        OSError."""
        if trio.current_effective_deadline() == -math.inf:
            return 0
        try:
            return self.socket.send(view)
        except BlockingIOError:
            return 0

    def _queued(self) -> int:
        """Return the number of sent bytes that the peer's side has not taken yet (SIOCOUTQ of tcp(7) and unix(7)).
        Raises OSError."""
        return int.from_bytes(fcntl.ioctl(self.socket, termios.TIOCOUTQ, bytes(4)), sys.byteorder)

    def has_left(self, *, may_finish: bool = False) -> bool:
        """Return whether the peer has left. `may_finish`: the end of what it sends does not say so."""
        look = select.poll()
        look.register(self.socket, LOST if may_finish else leaving(self.socket))
        return bool(look.poll(0))

    async def left(self, *, may_finish: bool = False) -> None:
        """Wait until `has_left`, whatever is still to be read. Where the system has no descriptor left for that, this
        waits for ever: sending will tell."""
        try:
            look = select.epoll()
        except OSError:
            await trio.sleep_forever()
        with look:
            look.register(self.socket, LOST if may_finish else leaving(self.socket))
            await trio.lowlevel.wait_readable(look.fileno())

    def finish(self) -> None:
        """Finish sending; what the peer sends still arrives."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)

    async def linger(self, *, whole_body: bool = False) -> None:
        """Finish sending and drain what still comes, so that a reset does not overtake the answer on its way.
        `whole_body`: that of a caller who may be here, since many clients read nothing before they have sent theirs."""
        self.finish()
        left, longest_s = (WHOLE_BODY_BYTES_MAX, WHOLE_BODY_S) if whole_body else (LINGER_BYTES_MAX, LINGER_S)
        until, more = trio.current_time() + longest_s, True
        with contextlib.suppress(ClientGone, UpstreamError):
            while more and left > 0:
                more = False
                with trio.move_on_at(min(until, trio.current_time() + LINGER_S)):
                    data = await self._receive(HEAD_READ_BYTES)
                    left -= len(data)
                    more = bool(data)

    def cut(self) -> None:
        """Close with a reset, so that nothing sent so far can be taken for complete (no effect on Unix sockets)."""
        with contextlib.suppress(OSError):
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.close()

    def close(self) -> None:
        """Close at once; what was sent is still delivered. May be called twice."""
        self._sock.close()

    async def _receive(self, bytes_max: int) -> bytes:
        try:
            return await self._sock.recv(bytes_max)
        except OSError as error:
            raise self._gone("the connection was lost") from error


def _empty_lines_end(buffer: bytearray) -> int:
    lines = _EMPTY_LINES.match(buffer)
    return lines.end() if lines else 0
