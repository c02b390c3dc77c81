"""A skill that writes down each request that reaches it, and gives every kind of answer: tests count calls by it.

The program `counting_skill.py LOG` is the sidecar: one loop, since a million calls shall not wait for it. A request to
`/N` is a line N in the file LOG before anything else can happen to it. N determines the answer, and is in its body
(`whole`).
"""

import os
import re
import select
import socket
import sys
import time

META = """\
name: counting
sidecar:
  command: [python3, -S, -E, sidecar.py, LOG]
  health: {path: /health}
"""
LARGE = 300_000  # bytes of an answer that no socket takes at once
PAUSE_S = 0.02
LENGTH = re.compile(rb"\r\nContent-Length: (\d+)\r\n")


def broken(number: int) -> bool:
    """Return whether the connection is closed without a byte of an answer: a GET may come once more."""
    return number % 29 == 0


def halved(number: int) -> bool:
    """Return whether the connection is closed in the middle of an answer."""
    return not broken(number) and number % 31 == 0


def whole(number: int) -> bytes:
    """Return the body of the answer to a request, where that is whole."""
    return b"%d" % number + b" " * (LARGE if number % 101 == 0 else 0) + b"ok"


def answer(number: int) -> bytes:
    """Return all bytes of an answer; the connection is closed behind an answer that is `broken` or `halved`."""
    if broken(number):
        return b""
    body = whole(number)
    if halved(number):
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body[: len(body) // 2]
    if number % 7 == 0:
        return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


class Connection:
    """A connection with the request that has come so far, and the unsent rest of an answer."""

    def __init__(self, sock: socket.socket, log: int) -> None:
        self.sock = sock
        self._log = log
        self._came = b""
        self._left = b""
        self._body = -1  # bytes that the body still owes; -1: the head is not whole
        self._number = 0
        self.answers_at = 0.0  # 0: at once

    def readable(self) -> bool:
        """Read the bytes that have come; return False when the connection is to be closed."""
        try:
            data = self.sock.recv(65536)
        except OSError:
            return False
        if not data:
            return False
        self._came += data
        if self._body < 0 and not self._begin():
            return True
        if len(self._came) < self._body:
            return True
        if self._number % 13 == 0 and self._number:
            self.answers_at = time.monotonic() + PAUSE_S
            return True
        return self.answer()

    def _begin(self) -> bool:
        """Read a head, and write the request down; return False when the head is not whole."""
        head, end, rest = self._came.partition(b"\r\n\r\n")
        if not end:
            return False
        path = head.split(b" ", 2)[1]
        self._number = 0 if path == b"/health" else int(path[1:])
        if self._number:
            os.write(self._log, b"%d\n" % self._number)
        length = LENGTH.search(head + b"\r\n")
        self._came, self._body = rest, int(length[1]) if length else 0
        return True

    def answer(self) -> bool:
        """Answer a request that is whole."""
        self.answers_at = 0.0
        self._came, self._body = b"", -1
        self._left = answer(self._number) if self._number else b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        return self.writable()

    def writable(self) -> bool:
        """Send on; return False when the connection is to be closed."""
        try:
            self._left = self._left[self.sock.send(self._left) :] if self._left else b""
        except BlockingIOError:
            return True
        except OSError:
            return False
        return bool(self._left) or not (self._number and (broken(self._number) or halved(self._number)))

    @property
    def waits_for(self) -> int:
        """Return the events that the connection can use now."""
        return select.EPOLLOUT if self._left else 0 if self.answers_at else select.EPOLLIN


class Sidecar:
    """All connections of the sidecar."""

    def __init__(self, port: int, log: str) -> None:
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._listener = socket.create_server(("127.0.0.1", port), backlog=512)
        self._listener.setblocking(False)
        self._epoll = select.epoll()
        self._epoll.register(self._listener, select.EPOLLIN)
        self._connections: dict[int, Connection] = {}
        self._pausing: list[Connection] = []

    def serve(self) -> None:
        """Serve until killed."""
        while True:
            for file, events in self._epoll.poll(PAUSE_S / 4 if self._pausing else None):
                if file == self._listener.fileno():
                    self._accept()
                    continue
                connection = self._connections[file]
                going = connection.writable() if events & select.EPOLLOUT else connection.readable()
                if connection.answers_at:
                    self._pausing.append(connection)
                self._watch(connection, going=going)
            now = time.monotonic()
            due = [each for each in self._pausing if each.answers_at <= now]
            self._pausing = [each for each in self._pausing if each.answers_at > now]
            for connection in due:
                if connection.sock.fileno() >= 0:  # the other side has not reset it meanwhile
                    self._watch(connection, going=connection.answer())

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        sock.setblocking(False)
        self._connections[sock.fileno()] = Connection(sock, self._log)
        self._epoll.register(sock, select.EPOLLIN)

    def _watch(self, connection: Connection, *, going: bool) -> None:
        file = connection.sock.fileno()
        if going:
            self._epoll.modify(file, connection.waits_for)
        else:
            del self._connections[file]
            connection.sock.close()


if __name__ == "__main__":
    Sidecar(int(os.environ["SIDECAR_PORT"]), sys.argv[1]).serve()
