"""Calls whose clients and sidecar end at random: nothing is forwarded that is not recorded, and each has one outcome.

OMAC_SOAK_CALLS is how many there are, OMAC_SOAK_SEED which. The skill writes down each request that reaches it.
"""

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from polling import eventually
from real_omac import Omac, Serving
from tiers import everything

from omac.domain.access.access import AccessAborted, AccessCompleted, AccessRequested
from omac.domain.sidecars.sidecar import Started

CALLS = int(os.environ.get("OMAC_SOAK_CALLS") or (20_000 if everything() else 2_000))
SEED = int(os.environ.get("OMAC_SOAK_SEED", time.time_ns()))  # a failure says it, and is nearly the same again with it
CLIENTS = 24
PATIENCE_S = 5.0

META = """\
name: counting
sidecar:
  command: [python3, sidecar.py, LOG]
  health: {path: /health}
"""
PROGRAM = """\
import os, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/health":
            return self.answer()
        os.write(log, (self.path + "\\n").encode())  # before anything else can happen to it
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        number = int(self.path[1:])
        if number % 13 == 0:
            time.sleep(0.02)
        if number % 29 == 0:
            self.close_connection = True  # without a byte of an answer
        elif number % 31 == 0:
            self.wfile.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 9\\r\\n\\r\\nhalf")
            self.close_connection = True
        elif number % 7 == 0:
            self.wfile.write(b"HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n2\\r\\nok\\r\\n0\\r\\n\\r\\n")
        else:
            self.answer()

    do_POST = do_GET

    def answer(self):
        self.wfile.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")

    def log_message(self, *_):
        pass

class Server(ThreadingHTTPServer):
    request_queue_size = 128

    def handle_error(self, *_):
        pass

Server(("127.0.0.1", int(os.environ["SIDECAR_PORT"])), Handler).serve_forever()
"""


class Callers:
    """Clients that call, and leave at every moment of a call."""

    def __init__(self, url: str, numbers: range) -> None:
        host, _, path = url.removeprefix("http://").partition("/")
        self._host = host
        self._path = path.rstrip("/")
        self._port = int(host.rpartition(":")[2])
        self._numbers = iter(numbers)
        self.answered = 0

    async def call_all(self) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(CLIENTS):
                nursery.start_soon(self._client, random.Random(f"{SEED} {number}"))

    async def _client(self, chance: random.Random) -> None:
        stream: trio.SocketStream | None = None
        for number in self._numbers:
            keep = False
            try:
                stream = stream or await trio.open_tcp_stream("127.0.0.1", self._port)
                keep = await self._call(stream, number, chance)
            except (OSError, trio.BrokenResourceError, trio.TooSlowError):
                await trio.sleep(0.01)
            finally:
                if stream is not None and not keep:
                    await trio.aclose_forcefully(stream)
                    stream = None
        if stream is not None:
            await stream.aclose()

    async def _call(self, stream: trio.SocketStream, number: int, chance: random.Random) -> bool:
        """Call once; whether the connection can be used again."""
        body = b"x" * chance.choice((0, 0, 0, 5, 3_000))
        method, length = (b"POST", b"Content-Length: %d\r\n" % len(body)) if body else (b"GET", b"")
        line = b"%b /%b/%d HTTP/1.1\r\nHost: %b\r\n%b\r\n"
        request = line % (method, self._path.encode(), number, self._host.encode(), length) + body
        leaves_at = chance.choice(("", "", "", "", "", "half a request", "at once", "soon", "half-closed"))
        if leaves_at == "half a request":
            await stream.send_all(request[: chance.randrange(len(request))])
            return False
        await stream.send_all(request)
        if leaves_at == "half-closed":
            await stream.send_eof()
        elif leaves_at == "soon":
            await trio.sleep(chance.random() / 100)
        if leaves_at in ("at once", "soon"):
            return False
        with trio.fail_after(PATIENCE_S):
            answer = b""
            while not answer.endswith((b"\r\n\r\nok", b"0\r\n\r\n")):
                more = await stream.receive_some(65536)
                if not more:
                    return False
                answer += more
        self.answered += 1
        return leaves_at == ""


def counting(omac: Omac) -> tuple[Path, Callable[[], list[str]]]:
    """A project with the skill, and what reached that so far."""
    log = omac.folder / "forwarded"
    project = omac.root / "shop"
    omac.skill(project, "counting", META.replace("LOG", str(log)), PROGRAM)
    omac.approve(project, "counting")
    return project, lambda: log.read_text().split() if log.exists() else []


def check(omac: Omac, forwarded: list[str], *, settled: bool = True) -> Counter[str]:
    """Hold what reached the skill to the journal; how many calls ended how."""
    requested = {one.position: one.event.path for one in omac.events(AccessRequested)}
    assert len(set(requested.values())) == len(requested), "each call is recorded once"
    assert not set(forwarded) - set(requested.values()), f"forwarded, and not recorded (seed {SEED})"
    outcomes = [one.event for one in (*omac.events(AccessCompleted), *omac.events(AccessAborted))]
    per_call = Counter(event.request for event in outcomes)
    assert not {request for request, count in per_call.items() if count > 1 or request not in requested}
    if settled:
        assert set(per_call) == set(requested), f"each call has its outcome (seed {SEED})"
    repeated = {path for path, count in Counter(forwarded).items() if count > 1}
    assert all(int(path[1:]) % 29 == 0 for path in repeated), "what was answered is not asked again"
    return Counter(getattr(event, "reason", "completed") for event in outcomes)


def is_settled(omac: Omac) -> bool:
    """Whether nothing is under way."""
    outcomes = len(omac.events(AccessCompleted)) + len(omac.events(AccessAborted))
    return outcomes >= len(omac.events(AccessRequested))


def test_clients_and_sidecar_end_at_random(omac: Omac) -> None:
    """All calls are answered for, and no descriptor is left behind."""
    project, forwarded = counting(omac)
    serving = omac.serve()
    url = serving.skill(project, "counting")["base"]
    idle = serving.descriptors()

    async def calls() -> Callers:
        callers = Callers(url, range(1, CALLS + 1))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kill_sidecars, omac)
            await callers.call_all()
            nursery.cancel_scope.cancel()
        return callers

    callers = trio.run(calls)
    eventually(lambda: is_settled(omac), 10.0, "the last outcomes")
    ended = check(omac, forwarded())
    assert callers.answered > CALLS / 10, ended
    assert ended["completed"] > CALLS / 10, ended
    assert ended["client-gone"], ended
    assert ended["upstream-error"], ended
    eventually(lambda: serving.descriptors() <= idle + 1, 5.0, "the end of all connections")
    assert serving.end() == 0


async def kill_sidecars(omac: Omac) -> None:
    """Kill the sidecar now and then."""
    for pause_s in (0.3, 0.7, 2.0, 5.0, 10.0):
        await trio.sleep(pause_s)
        births = await trio.to_thread.run_sync(omac.events, Started)
        with contextlib.suppress(ProcessLookupError):
            os.kill(births[-1].event.birth.pid, signal.SIGKILL)


@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_killed_server_forwarded_nothing_unrecorded(omac: Omac, after: int) -> None:
    """Killed in the middle of calls: what reached the skill is in the journal, and the next start settles the rest."""
    project, forwarded = counting(omac)
    serving = omac.serve()
    url = serving.skill(project, "counting")["base"]

    async def calls() -> None:
        with trio.move_on_after(30):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(Callers(url, range(1, CALLS + 1)).call_all)
                while len(forwarded()) < 100 * after:
                    await trio.sleep(0.01)
                serving.process.kill()
                nursery.cancel_scope.cancel()

    trio.run(calls)
    assert serving.process.wait(10) == -signal.SIGKILL
    time.sleep(0.2)  # what the kernel had for the skill
    reached = forwarded()
    assert len(reached) >= 100 * after
    check(omac, reached, settled=False)
    again: Serving = omac.serve()
    check(omac, reached)
    assert again.end() == 0
