"""Connections to skills that serve several requests: when they rest, when they end, and which calls they never
delay."""

import contextlib
import http.server
import math
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec
import pytest
import trio

from omac.adapters.facade import ordinary, plane, polled, poller, pool, proxy
from omac.adapters.facade.addressing import address
from omac.adapters.facade.connection import BegunRequest, FacadeConnection, Surroundings
from omac.adapters.facade.limits import FacadeLimits
from omac.adapters.facade.poller import READ_BYTES
from omac.adapters.http.bodies import UpstreamError
from omac.adapters.http.http1 import parse_request_head
from omac.adapters.http.slots import SlotLimits, Slots
from omac.adapters.http.wire import ClientGone, Wire
from omac.domain.kernel.refusal import Refusal

Build = Callable[..., Awaitable[Any]]

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
HELD_UP_S = 0.03  # shorter than the 40 ms for which Linux puts off an acknowledgement (RFC 1122 section 4.2.3.2)
LATE_ANSWERS = 12  # together more than the system holds for a Unix socket


@pytest.fixture(params=["polled", pytest.param("ahead", marks=pytest.mark.full)])
def way(request: pytest.FixtureRequest) -> str:
    """Return how connections are served: those of tasks alone do not rest."""
    return str(request.param)


class Skill:
    """A skill that answers each request with `answer`, and counts its connections and requests."""

    def __init__(self, read_request: Any, answer: bytes = OK, closes_behind: int = 0) -> None:
        self._read = read_request
        self._answer = answer
        self._closes_behind = closes_behind
        self.connections = self.open = self.most = 0  # since it began, now, and at once
        self.requests: list[bytes] = []

    async def __call__(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        self.open += 1
        self.most = max(self.most, self.open)
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
    """A connection to a skill serves one client after the other. A request with a body is its last: the skill could
    take an unread rest of the body for a request."""
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


async def test_an_answer_that_nobody_asked_for_reaches_one_call_at_most(build: Build, read_request: Any) -> None:
    """A skill that answers twice answers the next call by the way once: no connection to it rests from then on."""
    calls = 8

    async def skill(stream: trio.SocketStream) -> None:
        while (request := await read_request(stream))[0]:
            answer = OK[:-2] + request[0].split(b" ")[1][-2:]
            await stream.send_all(answer)
            await trio.sleep(0.02)
            await stream.send_all(answer)

    house = await build(skill)
    client = await house.client()
    wrong = 0
    for number in range(10, 10 + calls):
        await client.ask("GET", f"/{number}")
        await client.until(b"\r\n\r\n")
        wrong += await client.exactly(2) != str(number).encode()
    assert wrong <= 1


async def test_a_connection_rests_for_a_moment(build: Build, read_request: Any) -> None:
    """A connection rests only for a moment: a skill that serves one connection after the other is soon free."""
    skill = Skill(read_request)
    house = await build(skill)
    client = await house.client()
    await client.ask()
    await client.until(b"ok")
    assert skill.open == 1
    with trio.fail_after(pool.REST_S + 1):
        while skill.open:
            await trio.sleep(0.05)


async def test_it_rests_no_longer_when_nobody_else_calls(build: Build, read_request: Any, token: str) -> None:
    """A connection still rests only for a moment when a task has the only client, which leaves behind its answer."""
    skill = Skill(read_request)
    house = await build(skill)
    client = await house.client()
    await client.send(b"GET ")
    await trio.sleep(2 * plane.SWEEP_S)
    await client.send(f"/{token}/fast/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    assert (await client.rest()).endswith(b"ok")
    with trio.fail_after(pool.REST_S + 1):
        while skill.open:
            await trio.sleep(0.05)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_skill_that_ends_a_resting_connection_at_the_next_request(
    build: Build, read_request: Any, method: str
) -> None:
    """A request on a connection that the skill ends is sent again if that is safe, unnoticed by the client. An unsafe
    one is sent once and is a 502."""
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


async def test_a_skill_that_ends_a_new_connection_gets_the_request_once(build: Build, read_request: Any) -> None:
    """A request that ends a connection on which it is the first has reached the skill: it is not sent again."""
    heads: list[bytes] = []

    async def end_at_once(stream: trio.SocketStream) -> None:
        heads.append((await read_request(stream))[0])

    house = await build(end_at_once)
    client = await house.client()
    await client.ask()
    assert (await client.rest()).startswith(b"HTTP/1.1 502")
    assert len(heads) == 1
    assert (await house.gate.until("aborted"))[2::3] == (502, "upstream-error")


async def test_a_client_that_reads_late_gets_whole_answers(build: Build, read_request: Any, tmp_path: Path) -> None:
    """Answers that the system does not take at once reach the client byte for byte, in their order."""
    body = os.urandom(ordinary.ANSWER_MAX)
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    house = await build(Skill(read_request, answer), path=str(tmp_path / "s"))
    client = await house.client()
    for _ in range(LATE_ANSWERS):
        await client.ask()
        await trio.sleep(0.005)
    assert await client.exactly(len(answer) * LATE_ANSWERS) == answer * LATE_ANSWERS


@pytest.mark.parametrize("surplus", [b"x", OK], ids=["a byte", "an answer"])
@pytest.mark.parametrize("pause_s", [0.0, 0.05])
async def test_what_a_skill_says_unasked_reaches_nobody(
    build: Build, read_request: Any, surplus: bytes, pause_s: float
) -> None:
    """Bytes behind an answer, with it or a little later, reach no client. The connection ends, and the next request
    gets a new one."""
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


@pytest.mark.parametrize(
    ("method", "head"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"),
        ("GET", b"HTTP/1.1 204 No Content\r\nContent-Length: %d\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: %d\r\n\r\n"),
    ],
)
async def test_a_body_that_must_not_be_sent_is_not_the_next_answer(
    build: Build, read_request: Any, method: str, head: bytes
) -> None:
    """A body that a skill must not send never becomes the next answer, even if it comes behind the next request."""
    evil = OK.replace(b"ok", b"no")
    asked_again = trio.Event()

    async def skill(stream: trio.SocketStream) -> None:
        request, _ = await read_request(stream)
        if b" /first " not in request:
            asked_again.set()
            await stream.send_all(OK)
            return
        await stream.send_all(head % len(evil))
        if not (await read_request(stream))[0]:
            return
        asked_again.set()
        await stream.send_all(evil)

    house = await build(skill)
    client = await house.client()
    await client.ask(method, "/first")
    await client.until(b"\r\n\r\n")
    await client.ask()
    await client.until(b"\r\n\r\nok")
    assert asked_again.is_set()


async def test_a_head_without_end_is_refused_soon(
    build: Build, read_request: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer's head that grows too large is a 502 at once, not only at the time-out: omac stops reading."""
    monkeypatch.setattr(polled, "PATIENCE_S", 3600.0)

    async def skill(stream: trio.SocketStream) -> None:
        await read_request(stream)
        await stream.send_all(b"HTTP/1.1 200 OK\r\nX: ")
        for _ in range(3):
            await stream.send_all(b"x" * 30_000)
            await trio.sleep(0.01)
        await trio.sleep_forever()

    house = await build(skill)
    client = await house.client()
    await client.ask()
    assert (await client.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 502")


async def test_a_poller_that_cannot_see_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resting connection is not reused when one poll cannot return all events: the connection may not be quiet."""
    monkeypatch.setattr(poller, "EVENTS_MAX", 1)
    watching = poller.Poller.of_loop()
    connections = pool.SkillConnections(watching, 2, bool)
    skills = []
    for _ in range(2):
        here, skill = socket.socketpair()
        here.setblocking(False)
        skills.append(skill)
        connections.rest_of_task(here, 80)
    for skill in skills:
        skill.sendall(OK)
    assert connections.take(80, repeatable=True) is None
    for skill in skills:
        skill.close()
    connections.close()
    watching.close()


@pytest.mark.parametrize("before", ["taken", "ended", "late", "swept"])
async def test_a_bounded_number_rests(before: Literal["taken", "ended", "late", "swept"]) -> None:
    """Two connections rest and no third, to all skills together, however those before them ended."""
    watching = poller.Poller.of_loop()
    connections = pool.SkillConnections(watching, 2, bool)
    skills: list[socket.socket] = []

    def rest(*ports: int) -> None:
        for port in ports:
            here, skill = socket.socketpair()
            here.setblocking(False)
            skills.append(skill)
            connections.rest_of_task(here, port)

    rest(80, 80)
    match before:
        case "taken":
            for _ in range(2):
                taken = connections.take(80, repeatable=False)
                assert taken is not None
                connections.drop(taken)
        case "ended":
            for skill in skills:
                skill.close()
            assert connections.take(80, repeatable=False) is None
        case "late":
            with connections.late(80):
                rest(80)
        case "swept":
            connections.sweep(math.inf)
    rest(80, 81, 81)
    for port, rests in (80, True), (81, True), (81, False):
        taken = connections.take(port, repeatable=False)
        assert (taken is not None) is rests
        if taken is not None:
            connections.drop(taken)
    for skill in skills:
        skill.close()
    watching.close()


async def test_an_answer_that_has_begun_is_followed_by_no_refusal(make_gate: Any) -> None:
    """A route that ends while a slow client has a part of the answer adds no refusal to it."""
    here, peer = socket.socketpair()
    upstream, skill = socket.socketpair()
    client = Wire(here, ClientGone)
    client.gone_ahead = 10
    gate = make_gate(1)
    gate.watch = lambda _, cut: cut(Refusal("revoked", "the token has ended"))
    head = parse_request_head(b"GET /T/fast/ HTTP/1.1\r\nHost: localhost\r\n\r\n")
    forwarded = proxy.Forwarded(Wire(upstream, UpstreamError, OK), b"", 0.0)
    begun = BegunRequest(address(head, gate, flat=False), trio.current_time(), 1, forwarded=forwarded)
    slot = await Slots(SlotLimits()).enter(here)
    with peer, skill:
        await FacadeConnection(client, slot, Surroundings(gate, FacadeLimits(), trio.current_time, bool)).run(begun)
        assert peer.recv(1000) == b""
    assert gate.last == ("aborted", 1, None, 0, 0, "revoked")


def test_one_read_shows_that_nothing_is_left() -> None:
    """A single read holds more than the largest ordinary answer: the system reports no second event for a rest."""
    assert FacadeLimits().answer_head_bytes_max + ordinary.ANSWER_MAX < READ_BYTES


class OneAtATime(http.server.BaseHTTPRequestHandler):
    """A server of Python's library that keeps connections open, and serves one of them at a time."""

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
    """Yield the port of a skill that serves one connection at a time."""
    with http.server.HTTPServer(("127.0.0.1", 0), OneAtATime) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.mark.full
async def test_a_skill_that_serves_one_connection_at_a_time(
    build: Build, one_at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simultaneous clients, some with chunked answers, never wait for a connection that only rests."""
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


async def test_how_late_an_answer_may_be_while_another_client_calls(
    build: Build, read_request: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that waits behind the connection of another client waits no longer than LATE_S, the poller's wait
    included."""
    late_s = 1.0
    for module, name in ((polled, "PATIENCE_S"), (proxy, "LATE_S")):
        monkeypatch.setattr(module, name, late_s)
    monkeypatch.setattr(plane, "SWEEP_S", 0.02)
    turn, has_begun, requests = trio.Lock(), trio.Event(), []

    async def upstream(stream: trio.SocketStream) -> None:
        async with turn:
            while head := (await read_request(stream))[0]:
                requests.append(head.partition(b" HTTP")[0])
                has_begun.set()
                await trio.sleep(0.02)
                await stream.send_all(OK)

    house = await build(upstream)
    busy, waiting = await house.client(), await house.client()
    await busy.ask("GET", "/busy")
    await has_begun.wait()
    await waiting.ask("GET", "/waiting")
    began = trio.current_time()

    async def call_on() -> None:
        while True:
            await busy.until(b"ok")
            await busy.ask("GET", "/busy")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call_on)
        await waiting.until(b"ok")
        nursery.cancel_scope.cancel()
    assert 0.8 * late_s < trio.current_time() - began < 1.8 * late_s
    assert requests.count(b"GET /waiting") == 1


@pytest.mark.parametrize(
    ("field", "body"), [(b"Content-Length: 2", b"ok"), (b"Transfer-Encoding: chunked", b"2\r\nok\r\n0\r\n\r\n")]
)
async def test_an_answer_in_two_parts_is_not_held_up(
    build: Build, read_request: Any, field: bytes, body: bytes
) -> None:
    """A skill that sends its head and its body on their own, with the delay of RFC 896 as by default, is as soon read
    on a connection that has served others as on a new one."""

    async def upstream(stream: trio.SocketStream) -> None:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
        while (await read_request(stream))[0]:
            await stream.send_all(b"HTTP/1.1 200 OK\r\n%b\r\n\r\n" % field)
            await stream.send_all(body)

    house = await build(upstream)
    client = await house.client()
    took_s = []
    for _ in range(12):
        began = trio.current_time()
        await client.ask()
        await client.until(b"\r\n\r\n")
        await client.until(body)
        took_s.append(trio.current_time() - began)
    assert min(took_s[1:]) < HELD_UP_S, took_s  # a busy machine delays some, this delay all but the first


@pytest.mark.full
async def test_a_burst_leaves_a_bounded_number_of_connections(build: Build, read_request: Any) -> None:
    """A burst opens at most one connection for each simultaneous request, and leaves none open."""
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
    assert skill.most <= 30
    with trio.fail_after(2):
        while skill.open:
            await trio.sleep(0.05)


async def test_a_client_that_leaves_cancels_what_the_skill_does(build: Build, read_request: Any) -> None:
    """A client that leaves ends its request on a reused connection: the skill sees the end, and the outcome names the
    reason."""
    requested, closed = trio.Event(), trio.Event()

    async def skill(stream: trio.SocketStream) -> None:
        await read_request(stream)
        await stream.send_all(OK)
        await read_request(stream)
        requested.set()
        with contextlib.suppress(trio.BrokenResourceError):
            await stream.receive_some(1)
        closed.set()

    house = await build(skill)
    client = await house.client()
    await client.ask()
    await client.until(b"ok")
    await client.ask()
    await requested.wait()
    await client.stream.aclose()
    with trio.fail_after(2):
        await closed.wait()
    assert (await house.gate.until("aborted"))[2:] == (None, 0, 0, "client-gone")


async def test_a_request_that_ended_before_it_was_sent(
    build: Build, read_request: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that waits to be sent with those of its poll, and whose client leaves meanwhile, does not go."""
    held: list[Callable[[], None]] = []

    def hold(_poller: object, _owner: object, happens: Callable[[], None]) -> None:
        held.append(happens)

    monkeypatch.setattr(poller.Poller, "put_off", hold)
    skill = Skill(read_request)
    house = await build(skill)
    client = await house.client()
    await client.ask("GET", "/gone")
    await house.gate.until_holds(lambda: bool(held))
    await client.stream.aclose()
    assert (await house.gate.until("aborted"))[2:] == (None, 0, 0, "client-gone")
    held.pop()()
    other = await house.client()
    await other.ask("GET", "/next")
    await house.gate.until_holds(lambda: bool(held))
    held.pop()()
    await other.until(b"ok")
    assert skill.requests == [b"GET /next"]


class Unread(http.server.BaseHTTPRequestHandler):
    """A server that answers without reading the body, and then would read the body as requests."""

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
    """A skill gets no request that the journal does not record, even if it leaves a body unread."""
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


def send_with_urgent_data(stream: trio.SocketStream, before: bytes, behind: bytes) -> None:
    """Send some bytes, an urgent one and more in one turn."""
    with socket.socket(fileno=os.dup(stream.socket.fileno())) as sock:
        sock.send(before)
        sock.send(b"!", socket.MSG_OOB)
        sock.send(behind)


async def test_what_follows_urgent_data_of_a_skill_is_no_answer(build: Build, read_request: Any) -> None:
    """A connection whose skill sends urgent data serves no other request: a read stops before that data, and hides the
    bytes behind it."""
    connections: list[list[bytes]] = []

    async def upstream(stream: trio.SocketStream) -> None:
        connections.append(requests := [])
        while head := (await read_request(stream))[0]:
            requests.append(head.split()[1])
            send_with_urgent_data(stream, OK, OK.replace(b"ok", b"no"))

    house = await build(upstream)
    client = await house.client()
    for number in (1, 2):
        await client.ask("GET", f"/{number}")
        assert await client.until(b"\r\n\r\n") + await client.exactly(2) == OK
    await house.gate.until("completed", 2)
    assert connections == [[b"/1"], [b"/2"]]


@pytest.mark.parametrize("later", [True, False])
async def test_urgent_data_of_a_client_is_passed_over(build: Build, read_request: Any, token: str, later: bool) -> None:
    """The facade skips a client's urgent data: it serves the next request behind it, and a call under way goes on."""
    may_answer = trio.Event()
    paths: list[bytes] = []

    async def skill(stream: trio.SocketStream) -> None:
        while head := (await read_request(stream))[0]:
            paths.append(head.split()[1])
            await may_answer.wait()
            await stream.send_all(OK)

    house = await build(skill)
    client = await house.client()
    requests = [f"GET /{token}/fast/{number} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() for number in (1, 2, 3)]
    if later:
        await client.send(requests.pop(0))
        await house.gate.until("admit")
        await trio.testing.wait_all_tasks_blocked(0.01)
    send_with_urgent_data(client.stream, requests.pop(0), b"".join(requests))
    await trio.testing.wait_all_tasks_blocked(0.01)
    may_answer.set()
    for _ in range(3):
        await client.until(b"ok")
    await house.gate.until("completed", 3)
    assert paths == [b"/1", b"/2", b"/3"]
