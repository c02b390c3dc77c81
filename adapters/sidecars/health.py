"""Asking a sidecar whether it is ready, and making sure that it is the sidecar who answers."""

import errno
import os
import re
import socket
import struct
from collections.abc import Callable, Collection

import msgspec
import trio

from omac.adapters.linux import process
from omac.adapters.linux.listeners import answering, listeners
from omac.domain.skills.meta import Health
from omac.services.ports import ProbeFailed

BY_A_DAEMON = "the skill's own program has to listen there, not a daemon in its place (as for docker run -p)"
TRY_S = 1.0
ANSWER_BYTES_MAX = 8 * 1024
_PAUSE_MIN_S = 0.002
_PAUSE_SHARE = 0.025  # of the time waited so far: what a pause may add to it
_FAREWELL_S = 0.02
_PATH = re.compile(r"/[!-~]*")
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: [^\r\n]*)?")


class _Probed(msgspec.Struct, frozen=True):
    """The result of one try: `text` describes it for a person, `healthy` means a 2xx, `listened` that a process
    listened."""

    text: str
    healthy: bool = False
    listened: bool = True


async def probe(health: Health, port: int, own: Callable[[], Collection[int]]) -> None:
    """Return once `GET health.path` on 127.0.0.1:`port` is answered 2xx by one of the pids that `own` lists.

    `timeout_ms` bounds the whole, the initial delay included. The first pauses are of a few milliseconds and grow
    up to `interval_ms`: a sidecar that is ready at once is seen at once. Raises ProbeFailed.
    """
    if not _PATH.fullmatch(health.path):
        raise ProbeFailed(f"sidecar.health.path {health.path!r} is not a path; it must start with / and have no blanks")
    seen = _Probed(f"initial_delay_ms {health.initial_delay_ms} leaves no time within timeout_ms {health.timeout_ms}")
    with trio.move_on_after(health.timeout_ms / 1000):
        await trio.sleep(health.initial_delay_ms / 1000)
        seen = _Probed(f"no answer to GET {health.path} within {min(TRY_S * 1000, health.timeout_ms):g} ms")
        began = trio.current_time()
        while True:
            seen = await _ask(health.path, port)
            if seen.healthy:
                break
            pause = max(_PAUSE_MIN_S, (trio.current_time() - began) * _PAUSE_SHARE)
            await trio.sleep(min(pause, health.interval_ms / 1000))
    if not seen.healthy:
        raise ProbeFailed(_explain(seen, health, port, own()))
    # Twice: a worker that took over the listener between the two readings of /proc is not a stranger.
    if not process.owns_listener(own(), port) and not process.owns_listener(own(), port):
        raise ProbeFailed(f"{_held(port)}; {BY_A_DAEMON}")


def _explain(seen: _Probed, health: Health, port: int, pids: Collection[int]) -> str:
    reached = answering(port)
    if reached and not process.owns_listener(pids, port):
        return f"{_held(port)}; {seen.text}; {BY_A_DAEMON}"
    text = f"{seen.text}, for {health.timeout_ms} ms (sidecar.health.timeout_ms)"
    if seen.listened:
        return text
    inodes = process.socket_inodes(pids)
    elsewhere = sorted(
        {str(listener) for listener in listeners() if listener.inode in inodes and listener not in reached}
    )
    if elsewhere:
        text += f"; it listens on {', '.join(elsewhere)} instead"
    return f"{text}; the sidecar must listen on 127.0.0.1 and the port in SIDECAR_PORT"


def _held(port: int) -> str:
    return f"port {port} is held by another process"


async def _ask(path: str, port: int) -> _Probed:
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    # On loopback a refusal comes at once: most tries end here, for a twentieth of what a stream would cost.
    if connection.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED:
        connection.close()
        return _nothing_listens(port)
    with trio.move_on_after(TRY_S), trio.socket.from_stdlib_socket(connection) as conversation:
        try:
            await trio.lowlevel.wait_writable(conversation)
            if error := conversation.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(error, os.strerror(error))
            if conversation.getsockname() == conversation.getpeername():
                return _self_connected(conversation, port)
            return await _exchange(trio.SocketStream(conversation), path, port)
        except ConnectionRefusedError:
            return _nothing_listens(port)
        except (OSError, trio.BrokenResourceError) as problem:
            return _Probed(f"GET {path} broke off: {problem.__cause__ or problem}")
    return _Probed(f"no answer to GET {path} within {TRY_S:g} s")


async def _exchange(stream: trio.SocketStream, path: str, port: int) -> _Probed:
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    await stream.send_all(request.encode("ascii"))
    answer = b""
    while b"\n" not in answer and len(answer) < ANSWER_BYTES_MAX:
        piece = await stream.receive_some(ANSWER_BYTES_MAX - len(answer))
        if not piece:
            break
        answer += piece
    line, end, _ = answer.partition(b"\r\n")
    status = _STATUS_LINE.fullmatch(line)
    if not status or not end:
        problem = "did not speak HTTP" if answer else "closed the connection without an answer"
        return _Probed(f"127.0.0.1:{port} {problem}")
    code = int(status[1])
    await _take_leave(stream, ANSWER_BYTES_MAX - len(answer))
    is_healthy = 200 <= code < 300
    says = f"GET {path} answered {code}" if is_healthy else f"GET {path} (sidecar.health.path) answered {code}, not 2xx"
    return _Probed(says, healthy=is_healthy)


async def _take_leave(stream: trio.SocketStream, bytes_max: int) -> None:
    """Let the sidecar finish its sentence: closing with unread bytes resets, and many servers log a traceback then."""
    with trio.move_on_after(_FAREWELL_S):
        while bytes_max > 0 and (piece := await stream.receive_some(bytes_max)):
            bytes_max -= len(piece)


def _self_connected(connection: trio.socket.SocketType, port: int) -> _Probed:
    """On loopback a connection to a free port can meet itself (RFC 9293 section 3.5, simultaneous open).

    It must vanish at once, without TIME_WAIT: it holds the very port that the sidecar is about to bind.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return _nothing_listens(port)


def _nothing_listens(port: int) -> _Probed:
    return _Probed(f"nothing listens on 127.0.0.1:{port}", listened=False)
