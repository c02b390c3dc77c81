"""Behaviour of the facade that is the same in the poller and in a task, and while one hands over to the other."""

import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from omac.adapters.facade.limits import FacadeLimits
from omac.adapters.facade.polled import PATIENCE_S
from omac.adapters.facade.proxy import UNANSWERED
from omac.adapters.facade.server import Facade, FacadeListener
from omac.adapters.http.slots import SlotLimits
from omac.adapters.linux import listen
from omac.domain.directories.events import CallLimits
from omac.domain.kernel.refusal import Refusal
from omac.services.access.recorder import RECORD_S

Build = Callable[..., Awaitable[Any]]

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.mark.parametrize("more", [b"\r\n", b"GET / HTTP/1.1\r\n\r\n", b"x" * 60_000])
async def test_what_comes_behind_the_last_request_resets_nothing(build: Build, read_request: Any, more: bytes) -> None:
    """Bytes behind a client's last request are neither answered nor forwarded. The client gets its answer with an
    orderly end."""
    heads: list[bytes] = []
    may_answer = trio.Event()

    async def upstream(stream: trio.SocketStream) -> None:
        heads.append((await read_request(stream))[0])
        await may_answer.wait()
        await stream.send_all(OK)
        heads.append((await read_request(stream))[0])

    house = await build(upstream)
    client = await house.client()
    await client.ask("GET", "/last", "Connection: close")
    await house.gate.until("admit")
    await trio.testing.wait_all_tasks_blocked(0.01)
    await client.send(more)
    await trio.testing.wait_all_tasks_blocked(0.01)
    may_answer.set()
    assert await client.rest() == OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    await house.gate.until("completed")
    await house.upstream_ended.wait()
    assert [head.partition(b" HTTP")[0] for head in heads] == [b"GET /last", b""]
    assert [entry[0] for entry in house.gate.transcript] == ["admit", "completed"]


@pytest.mark.parametrize("together", [True, False])
async def test_an_empty_line_behind_a_body_begins_no_request(
    build: Build, replies: Any, mock_clock: trio.testing.MockClock, together: bool
) -> None:
    """An empty line behind a body, as old clients send it, does not shorten how long the connection may rest."""
    mock_clock.rate = 1
    requests: list[tuple[bytes, bytes]] = []
    house = await build(replies(OK, requests), head_timeout_s=15, idle_timeout_s=300)
    client = await house.client()
    await client.ask("POST", "/1", "Content-Length: 2", body=b"hi\r\n" if together else b"hi")
    await client.until(b"ok")
    await house.gate.until("completed")
    if not together:
        await client.send(b"\r\n")
    for _ in range(3):
        await trio.testing.wait_all_tasks_blocked(0.01)
        mock_clock.jump(90)
    await trio.testing.wait_all_tasks_blocked(0.01)
    await client.ask("GET", "/2")
    await client.until(b"ok")
    await house.gate.until("completed", 2)
    assert [(head.split()[1], body) for head, body in requests] == [(b"/1", b"hi"), (b"/2", b"")]


async def test_a_record_is_waited_for_as_long_as_the_recorder_lets_a_task(
    build: Build, replies: Any, mock_clock: trio.testing.MockClock, polling: bool
) -> None:
    """A caller whose request is not recorded within RECORD_S gets a 503, with or without a body. A late record forwards
    nothing."""
    mock_clock.rate = 1
    requests: list[tuple[bytes, bytes]] = []
    house = await build(replies(OK, requests))
    house.gate.durable = trio.Event()
    clients = [await house.client() for _ in range(2)]
    await clients[0].ask()
    await clients[1].ask("POST", "/", "Content-Length: 2", body=b"hi")
    await house.gate.until("admit", 2)
    await trio.testing.wait_all_tasks_blocked(0.01)
    mock_clock.jump(RECORD_S + 0.3)  # the poller looks four times a second
    for client in clients:
        with trio.fail_after(1):
            assert (await client.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 503 ")
    await clients[0].stream.aclose()  # it has its answer
    await trio.testing.wait_all_tasks_blocked(0.01)
    house.gate.durable.set()
    await trio.testing.wait_all_tasks_blocked(0.01)
    assert requests == []
    assert "completed" not in [entry[0] for entry in house.gate.transcript]
    if polling:  # in a task it is the recorder that notes this
        assert (await house.gate.until("aborted"))[2:] == (503, 0, 0, "journal-slow")


async def test_a_skill_that_ends_with_its_answer_is_down(
    build: Build, nursery: trio.Nursery, read_request: Any
) -> None:
    """A connection whose end comes with an answer has ended: the facade sends no other request on it."""
    heads: list[bytes] = []

    async def answer_once(listener: trio.SocketListener) -> None:
        stream = await listener.accept()
        await listener.aclose()
        heads.append((await read_request(stream))[0])
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)  # the answer goes with the end
        await stream.send_all(OK)
        await stream.aclose()

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    house = await build(None)
    house.gate.target = msgspec.structs.replace(house.gate.target, port=listener.socket.getsockname()[1])
    nursery.start_soon(answer_once, listener)
    client = await house.client()
    await client.ask("GET", "/1")
    await client.until(b"ok")
    await client.ask("GET", "/2")
    assert b"\r\nX-Omac-Reason: sidecar-down\r\n" in await client.until(b"\r\n\r\n")
    assert [head.split()[1] for head in heads] == [b"/1"]
    assert (await house.gate.until("aborted"))[2::3] == (503, "sidecar-down")


@pytest.mark.parametrize("limits", [CallLimits(total_s=1), CallLimits(idle_s=1)])
async def test_the_shortest_limit_of_a_call(build: Build, read_request: Any, limits: CallLimits) -> None:
    """A limit of one second holds exactly: an answer that comes a moment later is a time-out."""
    heads: list[bytes] = []

    async def upstream(stream: trio.SocketStream) -> None:
        heads.append((await read_request(stream))[0])
        await trio.sleep(1.05)
        await stream.send_all(OK)

    house = await build(upstream)
    house.gate.target = msgspec.structs.replace(house.gate.target, limits=limits)
    answer = b""
    while not answer.startswith(b"HTTP/1.1 504 ") and len(heads) < 3:  # whom the machine held up notices both at once
        client = await house.client()
        await trio.sleep(0.1)  # behind the poller's last look at what is late before the second is over
        await client.ask()
        answer = await client.until(b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 504 ")
    assert (await house.gate.until("aborted"))[2::3] == (504, "timeout")


@pytest.mark.parametrize("limits", [CallLimits(total_s=2), CallLimits(idle_s=2)])
async def test_the_time_of_the_record_is_not_the_skills(
    build: Build, read_request: Any, mock_clock: trio.testing.MockClock, limits: CallLimits
) -> None:
    """The limits of a call run from its way to the skill on, however long the journal takes for its record."""
    mock_clock.rate = 1
    may_answer = trio.Event()

    async def upstream(stream: trio.SocketStream) -> None:
        await read_request(stream)
        await may_answer.wait()
        await stream.send_all(OK)

    house = await build(upstream)
    house.gate.target = msgspec.structs.replace(house.gate.target, limits=limits)
    house.gate.durable = trio.Event()
    client = await house.client()
    await client.ask()
    await house.gate.until("admit")
    for happens in (house.gate.durable.set, may_answer.set):
        await trio.testing.wait_all_tasks_blocked(0.01)
        mock_clock.jump(1.4)
        await trio.testing.wait_all_tasks_blocked(0.01)
        happens()
    assert (await client.until(b"ok")).startswith(b"HTTP/1.1 200 ")
    await house.gate.until("completed")


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_what_a_skill_sent_before_it_reset_is_its_answer(
    build: Build, read_request: Any, method: str, whole: bool
) -> None:
    """The client gets the bytes that a skill sent before it reset, and a reset of its own if the answer is not
    whole."""

    async def upstream(stream: trio.SocketStream) -> None:
        await read_request(stream)
        await trio.testing.wait_all_tasks_blocked(0.01)
        with socket.socket(fileno=stream.socket.detach()) as sock:
            sock.send(OK if whole else OK[:-1])
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    house = await build(upstream)
    client = await house.client()
    await client.ask(
        method, "/", *(["Content-Length: 2"] if method == "POST" else []), body=b"hi"[: 2 * (method == "POST")]
    )
    assert await client.until(b"\r\n\r\no") == OK[:-1]
    if whole:
        assert await client.exactly(1) == b"k"
        assert (await house.gate.until("completed"))[2] == 200
    else:
        with pytest.raises(trio.BrokenResourceError):
            await client.rest()
        assert (await house.gate.until("aborted"))[2::3] == (200, "upstream-error")


@pytest.mark.parametrize("forwarded", [True, False])
async def test_a_route_that_ends_ends_the_call_whatever_follows(
    build: Build, read_request: Any, *, forwarded: bool
) -> None:
    """A call whose route has ended is refused for that reason, even if the route is open again by the time a task
    looks, as behind a revocation that an approval follows at once. Nothing more of it reaches the skill."""
    heads: list[bytes] = []

    async def upstream(stream: trio.SocketStream) -> None:
        heads.append((await read_request(stream))[0])
        await trio.sleep_forever()

    house = await build(upstream)
    watch, revoked = house.gate.watch, Refusal("revoked", "its approval ended", skill="fast")

    def watch_and_cut(route: Any, cut: Callable[[Refusal], None]) -> None:
        watch(route, cut)
        house.gate.watch = watch
        cut(revoked)

    if not forwarded:
        house.gate.watch = watch_and_cut
    client = await house.client()
    await client.ask()
    if forwarded:
        await house.gate.until("admit")
        await trio.testing.wait_all_tasks_blocked(0.01)
        (cut,) = house.gate.cuts
        cut(revoked)
    assert (await client.until(b"\r\n")) == b"HTTP/1.1 403 Forbidden\r\n"
    assert (await house.gate.until("aborted"))[2::3] == (403, "revoked")
    assert [head for head in heads if head] == heads[: int(forwarded)]


@pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200 OK\r\n"])
async def test_a_skill_that_resets_before_its_answer(build: Build, read_request: Any, begun: bytes) -> None:
    """A skill that resets the connection where an answer is due is reported like one that closes it."""

    async def upstream(stream: trio.SocketStream) -> None:
        await read_request(stream)
        if begun:
            await stream.send_all(begun)
            await trio.sleep(0.05)  # until the facade has read it
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await stream.aclose()

    client = await (await build(upstream)).client()
    await client.ask()
    assert UNANSWERED.encode() in await client.until(b"]}\n")


async def test_an_answer_of_bare_line_feeds(build: Build, read_request: Any) -> None:
    """The head of an answer that can no longer become valid is refused at once."""

    async def upstream(stream: trio.SocketStream) -> None:
        await read_request(stream)
        await stream.send_all(b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok")
        await trio.sleep_forever()

    client = await (await build(upstream)).client()
    await client.ask()
    with trio.fail_after(PATIENCE_S / 2):
        assert b"does not end in CRLF" in await client.until(b"]}\n")


async def test_a_fault_at_the_end_holds_no_answer_back(make_gate: Callable[[int], Any]) -> None:
    """A facade whose end fails leaves the journal's answers to Trio again: tasks elsewhere may wait for them. It closes
    the connection that failed."""
    (back,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    gate, front = make_gate(back.socket.getsockname()[1]), listen.tcp("127.0.0.1", 0, "")
    gate.aborted_error = ValueError("wrong")
    async with back, await trio.open_tcp_stream(*front.getsockname()) as client:
        with pytest.RaisesGroup(ValueError, flatten_subgroups=True):
            async with trio.open_nursery() as tasks:
                await tasks.start(Facade(gate, FacadeLimits()).serve, [FacadeListener(front, SlotLimits())])
                await client.send_all(b"GET /T/fast/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                with trio.fail_after(5):
                    skill = await back.accept()
                    await skill.receive_some()
                tasks.cancel_scope.cancel()
        with trio.fail_after(5):
            assert await client.receive_some() == b""
        await skill.aclose()
    assert gate.answers_by[-1] is None
