"""A connected socket, with the bytes that arrived on it ahead of their turn."""

import contextlib
import socket
import struct

import trio

from omac.adapters.http.bodies import UpstreamError
from omac.adapters.http.http1 import head_end

HEAD_READ_BYTES = 65536
BODY_READ_BYTES = 262144
AHEAD_BYTES_MAX = 65536
LINGER_BYTES_MAX = 1_048_576
LINGER_S = 1.0

_CR = 0x0D
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class ClientGone(Exception):
    """The client closed or reset its connection."""


class Wire:
    """One side of a proxied exchange; `gone` is raised when the system reports that the peer is lost."""

    def __init__(self, sock: trio.socket.SocketType, gone: type[ClientGone | UpstreamError]) -> None:
        self._sock = sock
        self._gone = gone
        self.ahead = bytearray()

    async def receive(self, bytes_max: int = BODY_READ_BYTES) -> bytes:
        """What came ahead, else what comes next; empty when the peer has finished sending."""
        return self.take_ahead() or await self._receive(bytes_max)

    def take_ahead(self) -> bytes:
        """What came ahead, empty when nothing did."""
        data = bytes(self.ahead)
        self.ahead.clear()
        return data

    async def receive_ahead(self) -> bool:
        """Wait for more bytes without taking them; False when the peer has finished sending."""
        data = await self._receive(HEAD_READ_BYTES)
        self.ahead += data
        return bool(data)

    async def next_head(self, wait_s: float, head_s: float, bytes_max: int) -> bytes | None:
        """The next head as it came, begun within `wait_s` and whole within `head_s`; None when there is none."""
        with trio.move_on_after(wait_s) as scope:
            # empty lines ahead of a request are skipped (RFC 9112 section 2.2)
            while not self.ahead or self.ahead[0] == _CR:
                if self.ahead.startswith(b"\r\n"):
                    del self.ahead[:2]
                elif len(self.ahead) > 1:
                    break  # a lone CR, which the parser refuses
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

    async def send(self, data: bytes) -> None:
        """Send all of it; waits as long as the peer does not read."""
        try:
            sent = await self._sock.send(data)
            if sent < len(data):
                view = memoryview(data)
                while sent < len(data):
                    sent += await self._sock.send(view[sent:])
        except OSError as error:
            raise self._gone("the connection was lost") from error

    async def linger(self) -> None:
        """Finish sending and drain what still comes, so that a reset does not overtake the answer on its way."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)
        drained = 0
        with trio.move_on_after(LINGER_S), contextlib.suppress(ClientGone, UpstreamError):
            while drained < LINGER_BYTES_MAX and (data := await self._receive(HEAD_READ_BYTES)):
                drained += len(data)

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
