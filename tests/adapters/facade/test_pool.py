"""Connections to skills that serve several requests: when they rest, when they end, and whom they must not hold up."""

import contextlib
import http.server
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, ClassVar

import msgspec
import pytest
import trio

from omac.adapters.facade import pool, proxy

Build = Callable[..., Awaitable[Any]]

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture
def polling() -> bool:
    """Connections of tasks alone do not rest."""
    return True


class Skill:
    """Answers each request with `answer`, and counts its connections and requests."""

    def __init__(self, read_request: Any, answer: bytes = OK, closes_behind: int = 0) -> None:
        self._read = read_request
        self._answer = answer
        self._closes_behind = closes_behind
        self.connections = self.open = 0
        self.requests: list[bytes] = []

    async def __call__(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        self.open += 1
        served = 0
        try:
            while (request := await self._read(stream))[0]:
                self.requests.append(request[0].partition(b" HTTP")[0])
                served += 1
                if served - 1 == self._closes_behind > 0:
                    return
                await stream.send_all(self._answer)
        finally:
            self.open -= 1


async def test_one_connection_serves_one_client_after_the_other(build: Build, read_request: Any) -> None:
    """But a body is the last that goes over a connection: what a skill did not read of it would be a request to it."""
    skill = Skill(read_request)
    house = await build(skill)
    for _ in range(2):
        client = await house.client()
        await client.ask()
        await client.until(b"ok")
        await client.ask("POST", "/b", "Content-Length: 0")
        await client.until(b"ok")
        await client.ask("PUT", "/c", "Content-Length: 4", body=b"body")
        await client.until(b"ok")
    assert skill.connections == 1 + 2
    assert skill.requests == [b"GET /", b"POST /b", b"PUT /c"] * 2
    await house.gate.until("completed", 6)
    assert [entry[3:] for entry in house.gate.transcript if entry[0] == "completed"] == [(0, 2), (0, 2), (4, 2)] * 2


async def test_a_connection_rests_for_a_moment(
    build: Build, read_request: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A skill that serves one connection after the other is soon free, and nothing is left open."""
    skill = Skill(read_request)
    house = await build(skill)
    client = await house.client()
    await client.ask()
    await client.until(b"ok")
    assert skill.open == 1
    with trio.fail_after(pool.REST_S + 1):
        while skill.open:
            await trio.sleep(0.05)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_skill_that_ends_a_resting_connection_at_the_next_request(
    build: Build, read_request: Any, method: str
) -> None:
    """Safe to repeat, it is sent again, and the client notices nothing; else the client is told, and it went once."""
    skill = Skill(read_request, closes_behind=1)
    house = await build(skill)
    client = await house.client()
    await client.ask()
    await client.until(b"ok")
    await client.ask(method, "/2", "Content-Length: 0")
    if method == "GET":
        assert (await client.until(b"ok")).startswith(b"HTTP/1.1 200")
        assert skill.requests == [b"GET /", b"GET /2", b"GET /2"]
        assert (await house.gate.until("completed", 2))[:3] == ("completed", 2, 200)
    else:
        assert (await client.rest()).startswith(b"HTTP/1.1 502")
        assert skill.requests == [b"GET /", b"POST /2"]
        assert (await house.gate.until("aborted"))[2::3] == (502, "upstream-error")


@pytest.mark.parametrize("surplus", [b"x", OK], ids=["a byte", "an answer"])
@pytest.mark.parametrize("pause_s", [0.0, 0.05])
async def test_what_a_skill_says_unasked_reaches_nobody(
    build: Build, read_request: Any, surplus: bytes, pause_s: float
) -> None:
    """Behind an answer, with it or a little later: the connection ends, and the next request has a new one."""
    evil = surplus.replace(b"ok", b"no")

    async def skill(stream: trio.SocketStream) -> None:
        await read_request(stream)
        await stream.send_all(OK if pause_s else OK + evil)
        await trio.sleep(pause_s)
        if pause_s:
            await stream.send_all(evil)
        await trio.sleep(1)

    house = await build(skill)
    client = await house.client()
    for _ in range(3):
        await client.ask()
        assert (await client.until(b"ok")).endswith(b"\r\n\r\nok")
        await trio.sleep(2 * pause_s)
    assert b"no" not in client.buffer


class OneAtATime(http.server.BaseHTTPRequestHandler):
    """A server of Python that keeps its connections, and serves one of them at a time."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = b"ok"
        self.send_response(200)
        if self.path == "/chunks":
            self.send_header("Transfer-Encoding", "chunked")
            body = b"2\r\nok\r\n0\r\n\r\n"
        else:
            self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def one_at_a_time() -> Iterator[int]:
    """The port of a skill that serves one connection at a time."""
    with http.server.HTTPServer(("127.0.0.1", 0), OneAtATime) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


async def test_a_skill_that_serves_one_connection_at_a_time(
    build: Build, one_at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients at once, some of whose answers come in chunks: nobody waits for a connection that only rests."""
    monkeypatch.setattr(proxy, "LATE_S", 0.1)
    house = await build(None)
    house.gate.target = msgspec.structs.replace(house.gate.target, port=one_at_a_time)
    answered = 0

    async def client(path: str) -> None:
        nonlocal answered
        caller = await house.client()
        for _ in range(5):
            await caller.ask("GET", path)
            await caller.until(b"ok")
            answered += 1

    with trio.fail_after(20):
        async with trio.open_nursery() as clients:
            for number in range(4):
                clients.start_soon(client, "/chunks" if number % 2 else "/")
    assert answered == 20


async def test_a_burst_leaves_a_bounded_number_of_connections(build: Build, read_request: Any) -> None:
    """One for each request that was under way at once, and none behind them."""
    skill = Skill(read_request)
    house = await build(skill)

    async def client() -> None:
        caller = await house.client()
        for _ in range(10):
            await caller.ask()
            await caller.until(b"ok")

    async with trio.open_nursery() as clients:
        for _ in range(30):
            clients.start_soon(client)
    assert len(skill.requests) == 300
    assert skill.connections <= 30
    with trio.fail_after(2):
        while skill.open:
            await trio.sleep(0.05)


async def test_a_client_that_leaves_cancels_what_the_skill_does(build: Build, read_request: Any) -> None:
    """On a connection that was used before: the skill sees its end, and the outcome says why."""
    asked, left = trio.Event(), trio.Event()

    async def skill(stream: trio.SocketStream) -> None:
        await read_request(stream)
        await stream.send_all(OK)
        await read_request(stream)
        asked.set()
        with contextlib.suppress(trio.BrokenResourceError):
            await stream.receive_some(1)
        left.set()

    house = await build(skill)
    client = await house.client()
    await client.ask()
    await client.until(b"ok")
    await client.ask()
    await asked.wait()
    await client.stream.aclose()
    with trio.fail_after(2):
        await left.wait()
    assert (await house.gate.until("aborted"))[2:] == (None, 0, 0, "client-gone")


class Unread(http.server.BaseHTTPRequestHandler):
    """A server that answers without reading the body, and then would read it as requests."""

    protocol_version = "HTTP/1.1"
    came: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.came.append(self.requestline)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


async def test_a_body_that_is_not_read_is_no_request(build: Build) -> None:
    """What the journal does not know the skill does not get."""
    Unread.came.clear()
    smuggled = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Unread) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        house = await build(None)
        house.gate.target = msgspec.structs.replace(house.gate.target, port=server.server_address[1])
        for _ in range(3):
            client = await house.client()
            await client.ask()
            await client.until(b"ok")
            await client.ask("POST", "/", f"Content-Length: {len(smuggled)}", body=smuggled)
            await client.until(b"ok")
        server.shutdown()
        await trio.to_thread.run_sync(thread.join)
    assert Unread.came == ["GET / HTTP/1.1", "POST / HTTP/1.1"] * 3
