"""Requests through a running facade: the bytes that reach the skill and the client, and the record."""

import contextlib
import json
import logging
import os
import select
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from omac.adapters.http import slots
from omac.adapters.http.pacing import BEGUN_AT_ONCE
from omac.adapters.http.slots import SlotLimits
from omac.domain.kernel.refusal import Refusal

Build = Callable[..., Awaitable[Any]]
Replies = Callable[..., Any]

STRANGER = b"GET /elsewhere/fast/ HTTP/1.1\r\nHost: localhost\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
HELD_UP_S = 0.03  # shorter than the 40 ms for which Linux puts off an acknowledgement (RFC 1122 section 4.2.3.2)


async def passes(clock: trio.testing.MockClock, seconds: float) -> None:
    """Let everything come to rest, advance the clock, and let everything come to rest again."""
    await trio.testing.wait_all_tasks_blocked(0.01)
    clock.jump(seconds)
    await trio.testing.wait_all_tasks_blocked(0.01)


def hears_nothing(client: Any) -> bool:
    """Return whether the facade has neither sent to this client nor closed its connection."""
    return not select.select([client.stream.socket], [], [], 0)[0]


async def test_a_request_is_admitted_forwarded_and_completed(build: Build, replies: Replies, token: str) -> None:
    """A skill gets its own path without the token. The transcript has one admission and one outcome."""
    requests: list[tuple[bytes, bytes]] = []
    house = await build(replies(OK, requests))
    client = await house.client()
    await client.ask("POST", "/a%2Fb?q=1", "Content-Length: 3", f"Referer: http://x/{token}/fast/", body=b"abc")
    assert (await client.until(b"\r\n\r\nok")).startswith(b"HTTP/1.1 200 OK\r\n")
    await house.gate.until("completed")
    assert house.gate.transcript == [("admit", "POST", "/a%2Fb"), ("completed", 1, 200, 3, 2)]
    assert requests[0][0].startswith(b"POST /a%2Fb?q=1 HTTP/1.1\r\nHost: 127.0.0.1:")
    assert token.encode() not in requests[0][0]
    assert requests[0][1] == b"abc"


async def test_nothing_is_forwarded_before_it_is_recorded(build: Build, replies: Replies) -> None:
    """Until the admission is durable, the skill gets no connection and the client no 100 Continue."""
    connected: list[bool] = []

    async def upstream(stream: trio.SocketStream) -> None:
        connected.append(True)
        await replies(OK)(stream)

    house = await build(upstream)
    house.gate.durable = trio.Event()
    client = await house.client()
    await client.ask("POST", "/", "Content-Length: 3", "Expect: 100-continue")
    with trio.move_on_after(0.1) as waited:
        await client.exactly(1)
    assert waited.cancelled_caught
    assert not connected
    house.gate.durable.set()
    assert await client.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    await client.send(b"abc")
    assert (await client.until(b"ok")).startswith(b"HTTP/1.1 200")
    assert (await house.gate.until("completed"))[3:] == (3, 2)


async def test_an_admission_that_fails_is_the_answer(build: Build, replies: Replies) -> None:
    """A request that cannot be recorded is not forwarded, and gets no outcome. The client gets the refusal."""
    requests: list[tuple[bytes, bytes]] = []
    house = await build(replies(OK, requests))
    house.gate.admit_error = Refusal("journal-unavailable", "The disk is full.", fix=["df -h"])
    client = await house.client()
    await client.ask("POST", "/", "Content-Length: 3", body=b"abc")
    answer = await client.rest()
    assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\nX-Omac-Reason: journal-unavailable\r\n")
    assert msgspec.json.decode(answer.partition(b"\r\n\r\n")[2])["fix"] == ["df -h"]
    assert not requests
    assert house.gate.transcript == [("admit", "POST", "/")]


async def test_no_answer_follows_one_that_was_cut_off(build: Build) -> None:
    """The connection of a client that does not read its refusals ends behind the first that it did not take."""
    house = await build(None, head_timeout_s=0.1)
    house.gate.resolve_error = Refusal("skill-broken", "x" * 1_000_000)
    client = await house.client()
    client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    for _ in range(12):
        await client.ask("GET", "/")
    await trio.sleep(1)
    with contextlib.suppress(trio.BrokenResourceError):  # its requests were not read to their end
        client.buffer = await client.rest()
    *whole, last = client.buffer.split(b"HTTP/1.1 ")
    assert all(len(answer) > 1_000_000 for answer in whole[1:])
    assert len(last) < 1_000_000


async def test_keep_alive_and_pipelining_keep_the_order(build: Build, read_request: Any) -> None:
    """Requests sent at once are answered one after the other, bodies and refusals included."""
    all_sent = trio.Event()

    async def upstream(stream: trio.SocketStream) -> None:
        head, body = await read_request(stream)
        if b"/slow" in head:
            await all_sent.wait()
        answer = head.split(b" ")[1] + b"=" + body
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(answer), answer))

    house = await build(upstream)
    client = await house.client()
    await client.ask("GET", "/slow")
    await client.ask("POST", "/length", "Content-Length: 3", body=b"abc\r\n")
    await client.ask("POST", "/chunked", "Transfer-Encoding: chunked", body=b"3\r\nxyz\r\n0\r\nT: x\r\n\r\n")
    await client.ask("GET", "/last")
    await client.send(b"GET /elsewhere HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await trio.testing.wait_all_tasks_blocked(0.01)
    assert house.gate.transcript == [("admit", "GET", "/slow")]
    all_sent.set()
    await client.until(b"/slow=")
    await client.until(b"/length=abc")
    assert b"3\r\nxyz\r\n0\r\n\r\n" in await client.until(b"0\r\n\r\n")
    await client.until(b"/last=")
    assert b"404 Not Found" in await client.until(b"unknown-mount\r\n")
    await house.gate.until("refused")
    kinds = [entry[:3] if entry[0] == "admit" else entry[:2] for entry in house.gate.transcript]
    assert kinds == [
        ("admit", "GET", "/slow"),
        ("completed", 1),
        ("admit", "POST", "/length"),
        ("completed", 2),
        ("admit", "POST", "/chunked"),
        ("completed", 3),
        ("admit", "GET", "/last"),
        ("completed", 4),
        ("refused", ""),
    ]


async def test_both_directions_stream_at_once(build: Build) -> None:
    """An echo that answers while it still reads is relayed chunk by chunk; its connection serves no other request."""

    async def echo(stream: trio.SocketStream) -> None:
        data = b""
        while b"\r\n\r\n" not in data:
            data += await stream.receive_some(65536)
        data = data.partition(b"\r\n\r\n")[2]
        await stream.send_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            await stream.send_all(data)
            if data.endswith(b"0\r\n\r\n"):
                return
            data = await stream.receive_some(65536)

    house = await build(echo)
    client = await house.client()
    await client.ask("POST", "/", "Transfer-Encoding: chunked")
    await client.until(b"\r\n\r\n")
    for word in (b"5\r\nhello\r\n", b"5\r\nagain\r\n"):
        await client.send(word)
        assert await client.until(word) == word
    await client.send(b"0\r\n\r\n")
    assert await client.until(b"0\r\n\r\n") == b"0\r\n\r\n"
    assert (await house.gate.until("completed"))[1:] == (1, 200, 10, 10)
    assert await client.rest() == b""
    client = await house.client()
    await client.ask("POST", "/", "Transfer-Encoding: chunked", body=b"0\r\n\r\n")
    await client.until(b"0\r\n\r\n")
    assert (await house.gate.until("completed", 2))[1:] == (2, 200, 0, 0)


async def test_a_body_behind_its_head_is_not_held_up(build: Build, replies: Any) -> None:
    """A client that sends head and body on their own, with the delay of RFC 896, does not wait between the two."""
    house = await build(replies(OK))
    client = await house.client()
    client.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
    took_s = []
    for _ in range(12):
        began = trio.current_time()
        await client.ask("POST", "/", "Content-Length: 5")
        await client.send(b"hello")
        await client.until(b"\r\n\r\nok")
        took_s.append(trio.current_time() - began)
    assert min(took_s[1:]) < HELD_UP_S, took_s  # a busy machine delays some, this delay all but the first


async def test_backpressure_reaches_the_skill(build: Build, read_request: Any) -> None:
    """A client that does not read stops the skill from sending, instead of filling memory."""
    sent = 0

    async def upstream(stream: trio.SocketStream) -> None:
        nonlocal sent
        await read_request(stream)
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 200000000\r\n\r\n")
        for _ in range(5000):
            await stream.send_all(b"x" * 40_000)
            sent += 40_000

    house = await build(upstream)
    client = await house.client()
    await client.ask()
    await client.until(b"\r\n\r\n")
    await trio.testing.wait_all_tasks_blocked(0.05)
    assert 0 < sent < 100_000_000
    client.stream.socket.close()
    assert (await house.gate.until("aborted"))[-1] == "client-gone"


REFUSALS = [
    (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, "unknown-mount", ("", "", "GET", "")),
    (b"GET /T/none/x HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, "unknown-mount", ("T", "none", "GET", "/x")),
    (b"GET /T/fast/T?T HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421, "misdirected-host", ("T", "fast", "GET", "/*")),
    (
        b"POST /T/fast/x HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\n\r\n",
        403,
        "foreign-origin",
        ("T", "fast", "POST", "/x"),
    ),
    (b"GET /T/fast/../x HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "bad-request", ("", "", "GET", "")),
    (b"\r\n\r\nGET /T/fast/x HTTP/1.1\nHost: localhost\n\n", 400, "bad-request", ("", "", "", "")),
    (b"\x16\x03\x01\r\n\r\n", 400, "bad-request", ("", "", "", "")),
    (b"GET /T/fast/x HTTP/1.1\r\nX: " + b"a" * 70000, 431, "head-too-large", ("T", "fast", "GET", "/x")),
    (
        b"POST /T/fast/x HTTP/1.1\r\nHost: ::\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
        "bad-request",
        ("T", "fast", "POST", "/x"),
    ),
]


@pytest.mark.parametrize(("raw", "status", "reason", "recorded"), REFUSALS)
async def test_refusals_are_recorded_and_answered(
    build: Build, replies: Replies, token: str, raw: bytes, status: int, reason: str, recorded: tuple[str, ...]
) -> None:
    """The facade records each refused request with its reason, answers the client, and forwards nothing."""
    requests: list[tuple[bytes, bytes]] = []
    house = await build(replies(OK, requests))
    client = await house.client()
    await client.send(raw.replace(b"T/", token.encode() + b"/").replace(b"/T?T", f"/{token}?{token}".encode()))
    answer = await client.until(b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert b"X-Omac-Reason: %b\r\n" % reason.encode() in answer
    body = msgspec.json.decode(await client.exactly(int(answer.partition(b"Content-Length: ")[2].split(b"\r\n")[0])))
    assert body["error"] == reason
    assert token not in str(body)
    expected = tuple(token if part == "T" else part for part in recorded)
    assert house.gate.transcript == [("refused", *expected, status, reason)]
    assert not requests


async def test_a_refused_request_leaves_the_connection_usable_unless_a_body_follows(build: Build, token: str) -> None:
    """The next request is served behind a refused one without body. Behind one with a body the connection closes,
    without a reset."""
    house = await build(None)
    house.gate.resolve_error = Refusal("skill-broken", "its code is not approved")
    client = await house.client()
    for _ in range(2):
        await client.send(b"HEAD /x/y HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"Connection: close" not in await client.until(b"\r\n\r\n")
    await client.send(b"POST /x/y HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500000\r\n\r\n" + b"x" * 500000)
    assert b"Connection: close" in await client.rest()


async def test_who_knows_no_token_keeps_no_connection(build: Build) -> None:
    """A stranger on loopback cannot hold a place that a skill's client needs."""
    house = await build(None)
    client = await house.client()
    await client.send(b"HEAD /x/y HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b"Connection: close" in await client.rest()


async def test_a_refusal_that_cannot_be_recorded_says_so(build: Build) -> None:
    """The answer to a refused request names the journal if recording the refusal fails."""
    house = await build(None)
    house.gate.refused_error = Refusal("journal-unavailable", "The disk is full.")
    client = await house.client()
    await client.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b"journal-unavailable" in await client.until(b"\r\n\r\n")


async def test_an_announced_body_over_the_limit_is_refused_before_it_is_sent(build: Build, replies: Replies) -> None:
    """A body announced over the limit is a 413 at once: no admission, no 100 Continue, nothing forwarded."""
    house = await build(replies(OK), max_body_bytes=10)
    client = await house.client()
    await client.ask("POST", "/", "Content-Length: 11", "Expect: 100-continue")
    answer = await client.rest()
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["skill"] == "fast"
    assert [entry[0] for entry in house.gate.transcript] == ["refused"]
    assert house.gate.last[-2:] == (413, "body-too-large")


async def test_a_chunked_body_that_crosses_the_limit_is_cut(build: Build, read_request: Any) -> None:
    """The skill never gets the end of a chunked body over the limit. The client reads its 413, the record names the
    reason."""
    house = await build(read_request, max_body_bytes=100_000)
    client = await house.client()
    await client.ask("POST", "/", "Transfer-Encoding: chunked")
    for _ in range(3):
        await client.send(b"c350\r\n" + b"x" * 50_000 + b"\r\n")
    assert (await client.rest()).startswith(b"HTTP/1.1 413 ")
    entry = await house.gate.until("aborted")
    assert (entry[2], entry[5]) == (413, "body-too-large")
    assert entry[3] > 100_000


async def test_a_malformed_chunked_body_is_cut(build: Build, read_request: Any) -> None:
    """A body that breaks HTTP is a 400, and the access ends as aborted."""
    house = await build(read_request)
    client = await house.client()
    await client.ask("POST", "/", "Transfer-Encoding: chunked", body=b"3\r\nabc\r\nnonsense\r\n")
    assert (await client.rest()).startswith(b"HTTP/1.1 400 ")
    assert (await house.gate.until("aborted"))[2::3] == (400, "bad-request")


UPSTREAM_FAILURES = {
    "closed": b"",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-",
    "not HTTP": b"hello\r\n\r\n",
    "bad status": b"HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "both framings": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    "101": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    "chunks that are none": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nnonsense\r\n",
    "endless interim": b"HTTP/1.1 100 Continue\r\n\r\n" * 20 + OK,
    "endless head": b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70000,
}


@pytest.mark.parametrize("answer", UPSTREAM_FAILURES.values(), ids=UPSTREAM_FAILURES.keys())
async def test_a_skill_that_breaks_http_is_a_502(build: Build, replies: Replies, answer: bytes) -> None:
    """The facade relays no answer that it cannot trust. Its 502 names the skill as the cause."""
    house = await build(replies(answer))
    client = await house.client()
    await client.ask("GET", "/", "Upgrade: websocket", "Connection: upgrade")
    head = await client.until(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 502 ")
    assert b"X-Omac-Reason: upstream-error\r\n" in head
    assert b'"fix":["omac logs ' in await client.until(b"]}")
    assert (await house.gate.until("aborted"))[1:] == (1, 502, 0, 0, "upstream-error")


async def test_a_skill_that_is_not_listening_is_a_503(build: Build) -> None:
    """A refused connection is `sidecar-down`, and the answer names the skill."""
    house = await build(None)
    client = await house.client()
    await client.ask()
    answer = await client.rest()
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert msgspec.json.decode(answer.partition(b"\r\n\r\n")[2])["skill"] == "fast"
    assert (await house.gate.until("aborted"))[1:] == (1, 503, 0, 0, "sidecar-down")


async def test_a_skill_that_does_not_accept_is_a_504(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time to connect is bounded by connect_timeout_s."""
    house = await build(None, connect_timeout_s=0.05)
    with socket.socket() as full, contextlib.ExitStack() as waiting:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):  # more than its queue holds: the kernel drops what comes next
            sock = waiting.enter_context(socket.socket())
            sock.setblocking(False)
            sock.connect_ex(full.getsockname())
        house.gate.target = msgspec.structs.replace(house.gate.target, port=full.getsockname()[1])
        client = await house.client()
        await client.ask()
        assert (await client.rest()).startswith(b"HTTP/1.1 504 ")
    assert (await house.gate.until("aborted"))[1:] == (1, 504, 0, 0, "timeout")


async def test_a_skill_that_does_not_answer_is_a_504(build: Build, mock_clock: trio.testing.MockClock) -> None:
    """The wait for an answer's head is bounded, and counted from the end of the request's body."""
    mock_clock.rate = 1
    whole = trio.Event()

    async def upstream(stream: trio.SocketStream) -> None:
        data = b""
        while more := await stream.receive_some(65536):
            data += more
            if data.endswith(b"\r\n\r\nabcd"):
                whole.set()

    house = await build(upstream, response_head_timeout_s=30, client_idle_timeout_s=300)
    client = await house.client()
    await client.ask("POST", "/", "Content-Length: 4", body=b"ab")
    await passes(mock_clock, 290)
    await client.send(b"cd")
    with trio.fail_after(5):
        await whole.wait()
    await passes(mock_clock, 25)
    assert house.gate.last[0] == "admit"
    await passes(mock_clock, 10)
    answer = await client.rest()
    assert answer.startswith(b"HTTP/1.1 504 ")
    document = msgspec.json.decode(answer.partition(b"\r\n\r\n")[2])
    assert document["detail"] == "the skill did not begin its answer within 30 s, the default limit"
    assert "sidecar.limits.idle_timeout_secs of its omac.yaml" in document["fix"][0]
    assert document["fix"][1].startswith("omac logs ")
    assert (await house.gate.until("aborted"))[1:] == (1, 504, 4, 0, "timeout")


async def test_a_body_that_stalls_is_given_up(
    build: Build, read_request: Any, mock_clock: trio.testing.MockClock
) -> None:
    """A client's body that stalls for client_idle_timeout_s is a 408. A skill's answer that stalls for
    body_idle_timeout_s is cut."""
    mock_clock.rate = 1
    house = await build(read_request, client_idle_timeout_s=60, response_head_timeout_s=30)
    client = await house.client()
    await client.ask("POST", "/", "Content-Length: 4", body=b"a")
    await passes(mock_clock, 50)
    await client.send(b"b")
    await passes(mock_clock, 50)
    assert house.gate.last[0] == "admit"
    await passes(mock_clock, 20)
    assert (await client.rest()).startswith(b"HTTP/1.1 408 ")
    assert (await house.gate.until("aborted"))[1:] == (1, 408, 2, 0, "client-timeout")
    more = trio.Event()

    async def stalls(stream: trio.SocketStream) -> None:
        await read_request(stream)
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")
        await more.wait()
        await stream.send_all(b"d")
        await stream.receive_some(1)

    house = await build(stalls, body_idle_timeout_s=300, response_head_timeout_s=30)
    client = await house.client()
    await client.ask()
    await client.until(b"abc")
    await passes(mock_clock, 290)
    more.set()
    await client.until(b"d")
    await passes(mock_clock, 290)
    assert house.gate.last[0] == "admit"
    await passes(mock_clock, 20)
    with pytest.raises(trio.BrokenResourceError):
        await client.rest()
    assert (await house.gate.until("aborted"))[1:] == (1, 200, 0, 4, "timeout")


async def test_slow_heads_and_idle_connections_are_closed(
    build: Build, replies: Replies, mock_clock: trio.testing.MockClock
) -> None:
    """A head may take head_timeout_s, a pause between requests idle_timeout_s. A head that has begun is a 408."""
    mock_clock.rate = 1
    house = await build(replies(OK), head_timeout_s=15, idle_timeout_s=300)
    silent, slow, idle = [await house.client() for _ in range(3)]
    await slow.send(b"GET / HTTP/1.1\r\nHo")
    await idle.ask()
    await idle.until(b"ok")
    await passes(mock_clock, 10)
    assert all(hears_nothing(client) for client in (silent, slow, idle))
    await passes(mock_clock, 10)
    assert await silent.rest() == b""
    assert (await slow.rest()).startswith(b"HTTP/1.1 408 Request Timeout\r\nX-Omac-Reason: client-timeout\r\n")
    await passes(mock_clock, 270)
    assert hears_nothing(idle)
    await passes(mock_clock, 20)
    assert await idle.rest() == b""
    assert [entry[0] for entry in house.gate.transcript] == ["admit", "completed", "refused"]
    assert house.gate.last == ("refused", "", "", "GET", "", 408, "client-timeout")


async def test_a_client_that_does_not_read_is_given_up(
    build: Build, read_request: Any, mock_clock: trio.testing.MockClock
) -> None:
    """A client that takes no part of its answer for client_idle_timeout_s loses its connection, and the skill its
    own."""
    mock_clock.rate = 1

    async def upstream(stream: trio.SocketStream) -> None:
        await read_request(stream)
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 200000000\r\n\r\n")
        for _ in range(5000):
            await stream.send_all(b"x" * 40_000)

    house = await build(upstream, client_idle_timeout_s=60)
    client = await house.client()
    await client.ask()
    await client.until(b"\r\n\r\n")
    await passes(mock_clock, 50)
    assert house.gate.last[0] == "admit"
    for _ in range(20):  # the client's system takes a little more for some time, without being read
        await passes(mock_clock, 70)
        if house.gate.last[0] == "aborted":
            break
        await trio.sleep(0.1)
    assert (await house.gate.until("aborted"))[2::3] == (200, "client-timeout")
    with trio.fail_after(2):
        await house.upstream_ended.wait()


CUT_ANSWERS = {
    "length": b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
    "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    "in a chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc",
    "in the trailers": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: y\r\n",
}


@pytest.mark.parametrize("minor", [0, 1])
@pytest.mark.parametrize("answer", CUT_ANSWERS.values(), ids=CUT_ANSWERS.keys())
async def test_an_answer_that_breaks_off_never_looks_whole(
    build: Build, replies: Replies, answer: bytes, minor: int
) -> None:
    """A client of a broken answer is reset: no final chunk, no orderly end, even if its body ends with the
    connection."""
    house = await build(replies(answer))
    client = await house.client()
    await client.ask(minor=minor)
    with pytest.raises(trio.BrokenResourceError):
        await client.rest()
    assert not client.buffer.endswith(b"0\r\n\r\n")
    entry = await house.gate.until("aborted")
    assert (entry[2], entry[5]) == (200, "upstream-error")


async def test_a_reset_ends_no_body(build: Build, read_request: Any) -> None:
    """A reset does not end a body without length: only the orderly end of the connection does."""
    arrived = trio.Event()

    async def upstream(stream: trio.SocketStream) -> None:
        await read_request(stream)
        await stream.send_all(b"HTTP/1.1 200 OK\r\n\r\nabc")
        await arrived.wait()
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    house = await build(upstream)
    client = await house.client()
    await client.ask()
    await client.until(b"abc")
    arrived.set()
    with pytest.raises(trio.BrokenResourceError):
        await client.rest()
    assert (await house.gate.until("aborted"))[-1] == "upstream-error"


async def test_an_answer_without_length_is_chunked_for_new_clients_and_closed_for_old(
    build: Build, replies: Replies
) -> None:
    """HTTP/1.1 clients keep their connection; HTTP/1.0 clients read to its end."""
    house = await build(replies(b"HTTP/1.0 200 OK\r\n\r\nhello"))
    client = await house.client()
    for count in (1, 2):
        await client.ask()
        assert b"\r\n\r\n5\r\nhello\r\n0\r\n\r\n" in await client.until(b"0\r\n\r\n")
        assert (await house.gate.until("completed", count))[2:] == (200, 0, 5)
    await client.ask(minor=0)
    assert (await client.rest()).endswith(b"Connection: close\r\n\r\nhello")
    await house.gate.until("completed", 3)


async def test_head_and_no_content_have_no_body(build: Build, read_request: Any) -> None:
    """Bytes that a skill sends behind an answer without body never reach the next request on the connection."""

    async def upstream(stream: trio.SocketStream) -> None:
        head, _ = await read_request(stream)
        status = b"204 No Content" if b"/none" in head else b"200 OK"
        await stream.send_all(b"HTTP/1.1 %b\r\nContent-Length: 5\r\n\r\nHTTP/1.1 200 evil\r\n\r\n" % status)

    house = await build(upstream)
    client = await house.client()
    await client.ask("HEAD")
    assert await client.until(b"\r\n\r\n") == b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
    await client.ask("GET", "/none")
    assert await client.until(b"\r\n\r\n") == b"HTTP/1.1 204 No Content\r\n\r\n"
    await client.ask("GET", "/", "Connection: close")
    assert await client.rest() == b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nHTTP/"
    await house.gate.until("completed", 3)


async def test_interim_answers_are_not_passed_on(build: Build, replies: Replies) -> None:
    """The facade drops a skill's interim answers, because it sends the client's 100 Continue itself."""
    house = await build(replies(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK))
    client = await house.client()
    await client.ask()
    assert (await client.until(b"ok")).startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n"])
async def test_a_client_that_leaves_cancels_its_request(build: Build, read_request: Any, sent: bytes) -> None:
    """The facade closes the skill's connection at once when the client leaves, before and behind the answer's head."""

    async def upstream(stream: trio.SocketStream) -> None:
        await read_request(stream)
        await stream.send_all(sent) if sent else None
        assert await stream.receive_some(1) == b""

    house = await build(upstream)
    client = await house.client()
    await client.ask()
    if sent:
        await client.until(b"data: 1\n\n")
    else:
        await house.gate.until("admit")
    await client.stream.aclose()
    entry = await house.gate.until("aborted")
    assert (entry[2], entry[5]) == (200 if sent else None, "client-gone")
    with trio.fail_after(2):
        await house.upstream_ended.wait()


async def test_a_client_that_leaves_in_its_body_is_gone(build: Build) -> None:
    """A skill never gets half a body as a whole one."""
    received = trio.Event()

    async def upstream(stream: trio.SocketStream) -> None:
        data = b""
        while not data.endswith(b"half"):
            data += await stream.receive_some()
        received.set()
        assert await stream.receive_some() == b""

    house = await build(upstream)
    client = await house.client()
    await client.ask("POST", "/", "Content-Length: 10", body=b"half")
    await received.wait()
    await client.stream.send_eof()
    assert await client.rest() == b""
    assert (await house.gate.until("aborted"))[1:] == (1, None, 4, 0, "client-gone")


async def test_an_early_answer_reaches_a_client_that_still_sends(build: Build) -> None:
    """A skill may answer before it reads the body. The client reads that answer, and that its connection cannot be
    used again: a request that it sent there next would get no answer."""

    async def upstream(stream: trio.SocketStream) -> None:
        await stream.receive_some(1000)
        await stream.send_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
        await stream.receive_some(1)

    house = await build(upstream)
    client = await house.client()
    await client.ask("POST", "/", "Content-Length: 900000", body=b"x" * 100)
    assert b"\r\nConnection: close\r\n" in await client.until(b"\r\n\r\nno")
    await client.send(b"x" * 500_000)
    assert await client.rest() == b""
    entry = await house.gate.until("completed")
    assert (entry[2], entry[4]) == (403, 2)


@pytest.mark.parametrize("framing", ["Content-Length: 40000000", "Transfer-Encoding: chunked"])
@pytest.mark.parametrize("max_body_bytes", [1000, 1 << 30])
async def test_a_client_that_reads_behind_its_body_gets_its_answer(
    build: Build, framing: str, max_body_bytes: int
) -> None:
    """Many clients, such as Python's urllib, read nothing before they have sent all. They get a refusal, too, and the
    answer of a skill that does not read the body."""

    async def upstream(stream: trio.SocketStream) -> None:
        await stream.receive_some(1000)
        await stream.send_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")

    house = await build(upstream, max_body_bytes=max_body_bytes)
    client = await house.client()
    await client.ask("POST", "/", framing)
    body = b"x" * 40_000_000
    with trio.fail_after(5):
        await client.send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if "chunked" in framing else body)
    assert b"HTTP/1.1 413" in await client.until(b"\r\n\r\n")


async def test_the_body_of_a_stranger_is_not_drained(build: Build) -> None:
    """A caller who knows no token cannot have omac read for long."""
    house = await build(None)
    client = await house.client()
    await client.send(b"POST /0/fast/ HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 40000000\r\n\r\n")
    with pytest.raises(trio.BrokenResourceError), trio.fail_after(5):
        await client.send(b"x" * 40_000_000)


async def test_an_early_answer_of_a_skill_that_hangs_up_still_counts(build: Build) -> None:
    """The answer of a skill that stops taking the body is relayed."""
    relayed = trio.Event()

    async def upstream(stream: trio.SocketStream) -> None:
        await stream.send_all(OK)
        await stream.send_eof()
        await relayed.wait()

    house = await build(upstream)
    client = await house.client()
    await client.ask("POST", "/", "Transfer-Encoding: chunked")
    await client.until(b"\r\n\r\nok")
    assert (await house.gate.until("completed"))[2] == 200
    relayed.set()


async def test_stopping_aborts_what_is_open(build: Build, read_request: Any) -> None:
    """A cancelled facade records each open access as stopping, closes its connections and stops listening."""

    async def upstream(stream: trio.SocketStream) -> None:
        head, _ = await read_request(stream)
        if b"/begun" in head:
            await stream.send_all(b"HTTP/1.1 200 OK\r\n\r\nabc")
        await stream.receive_some(1)

    house = await build(upstream)
    waiting, begun, idle = [await house.client() for _ in range(3)]
    await waiting.ask("GET", "/waiting")
    await house.gate.until("admit", 1)
    await begun.ask("GET", "/begun")
    await begun.until(b"abc")
    house.facade_scope.cancel()
    await house.gate.until("aborted", 2)
    fates = {entry[2:] for entry in house.gate.transcript if entry[0] == "aborted"}
    assert fates == {(200, 0, 3, "stopping"), (None, 0, 0, "stopping")}
    assert await waiting.rest() == b""
    assert await idle.rest() == b""
    with pytest.raises(trio.BrokenResourceError):
        await begun.rest()
    with pytest.raises(OSError, match="connect"):
        await house.client()


async def test_every_access_has_exactly_one_outcome(
    build: Build, read_request: Any, autojump_clock: trio.testing.MockClock
) -> None:
    """Each admission has one outcome, for all behaviour of clients and skills, even if omac stops meanwhile."""
    random = Random(20)
    answers = [OK, OK, b"", b"HTTP/1.1 200 OK\r\n\r\nhello", *list(CUT_ANSWERS.values())[:3], b"nonsense\r\n\r\n"]

    async def upstream(stream: trio.SocketStream) -> None:
        if random.random() < 0.9:
            await read_request(stream)
        await trio.sleep(random.choice([0, 0, 0.01, 0.2]))
        await stream.send_all(random.choice(answers))

    house = await build(upstream, max_body_bytes=1000, body_idle_timeout_s=0.05, response_head_timeout_s=0.1)

    def outcomes() -> list[int]:
        return [entry[1] for entry in house.gate.transcript if entry[0] in ("completed", "aborted")]

    async def visit() -> None:
        with contextlib.suppress(AssertionError, OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            client = await house.client()
            for _ in range(3):
                fields, body = random.choice(
                    [
                        ((), b""),
                        (("Content-Length: 9",), b"x" * random.choice([5, 9])),
                        (
                            ("Transfer-Encoding: chunked",),
                            random.choice([b"1\r\nx\r\n0\r\n\r\n", b"3\r\nxxxx", b"5\r\nx"]),
                        ),
                        (("Transfer-Encoding: chunked",), b"400\r\n" + b"x" * 1024),
                    ]
                )
                await client.ask("POST", "/", *fields, body=body)
                with trio.move_on_after(random.choice([0, 0.01, 1])):
                    await client.until(b"\r\n\r\n")
            client.stream.socket.close()

    async with trio.open_nursery() as visitors:
        for _ in range(60):
            visitors.start_soon(visit)
    async with trio.open_nursery() as visitors:
        for _ in range(60):
            visitors.start_soon(visit)
        await house.gate.until_holds(lambda: house.gate.admitted - len(outcomes()) >= 5)  # they are open when it ends
        house.facade_scope.cancel()
    await house.gate.until_holds(lambda: len(outcomes()) >= house.gate.admitted)
    await trio.testing.wait_all_tasks_blocked(0.02)
    assert sorted(outcomes()) == list(range(1, house.gate.admitted + 1))
    reasons = {entry[-1] for entry in house.gate.transcript if entry[0] == "aborted"}
    assert reasons == {"client-gone", "upstream-error", "body-too-large", "bad-request", "timeout", "stopping"}


async def test_a_stop_during_the_admission_loses_no_outcome(build: Build, replies: Replies) -> None:
    """The facade waits for a pending admission even while it stops, so every recorded admission has an outcome."""
    house = await build(replies(OK))
    house.gate.durable = trio.Event()
    client = await house.client()
    await client.ask()
    await house.gate.until("admit")
    house.facade_scope.cancel()
    await trio.testing.wait_all_tasks_blocked(0.02)
    house.gate.durable.set()
    assert (await house.gate.until("aborted"))[1:] == (1, None, 0, 0, "stopping")
    assert len(house.gate.transcript) == 2


async def test_a_fault_in_one_connection_is_reported_and_no_more(
    build: Build, replies: Replies, token: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug ends its own exchange, the log omits the text that it quotes, and the next client is served."""
    house = await build(replies(OK))

    def fault(*_: object, **_named: object) -> None:
        raise KeyError(f"/{token}/fast")

    client = await house.client()
    with monkeypatch.context() as broken, caplog.at_level(logging.ERROR, logger="omac.facade"):
        for module in ("proxy", "ordinary"):
            broken.setattr(f"omac.adapters.facade.{module}.client_head", fault)
        await client.ask()
        assert await client.rest() == b""
    assert (await house.gate.until("aborted"))[-1] == "upstream-error"
    house.gate.resolve_error = RuntimeError(token)
    client = await house.client()
    await client.ask()
    assert await client.rest() == b""
    house.gate.resolve_error = None
    await trio.testing.wait_all_tasks_blocked()
    assert "KeyError in fault" in caplog.text
    assert "RuntimeError in resolve" in caplog.text
    assert token not in caplog.text
    client = await house.client()
    await client.ask()
    await client.until(b"ok")


async def test_connections_over_the_limit_wait_their_turn(build: Build, replies: Replies) -> None:
    """Only connections_max connections are served at once. The next one gets the place of a connection that comes to
    rest."""
    served = trio.Event()

    async def upstream(stream: trio.SocketStream) -> None:
        if not served.is_set():
            await served.wait()
        await replies(OK)(stream)

    house = await build(upstream, slots=SlotLimits(connections_max=1, strangers_max=1))
    first = await house.client()
    await first.ask()
    await house.gate.until("admit")
    second = await house.client()
    await second.ask()
    await trio.testing.wait_all_tasks_blocked(0.05)
    assert len(house.gate.transcript) == 1
    served.set()
    await first.until(b"ok")
    await second.until(b"ok")
    assert await first.rest() == b""


async def test_strangers_make_room_for_who_knows_a_token(build: Build, replies: Replies) -> None:
    """Connections that never send a request are closed, oldest first, when more come. Calls are served."""
    house = await build(replies(OK), slots=SlotLimits(connections_max=8, strangers_max=4))
    idle = [await house.client() for _ in range(20)]
    client = await house.client()
    await client.ask()
    await client.until(b"ok")
    for stranger in idle[:16]:
        assert await stranger.rest() == b""
    await client.ask()
    await client.until(b"ok")


async def test_clients_that_come_at_once_do_not_displace_one_another(
    build: Build, replies: Replies, token: str
) -> None:
    """Every client of a burst gets its answer, even where a few connections fill the listener."""
    house = await build(replies(OK), slots=SlotLimits(connections_max=8, strangers_max=4))
    clients = [socket.create_connection(("127.0.0.1", house.address)) for _ in range(48)]
    for client in clients:
        client.sendall(f"GET /{token}/fast/ HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
    for client in clients:
        async with trio.SocketStream(trio.socket.from_stdlib_socket(client)) as stream:
            with trio.fail_after(5):
                assert (await stream.receive_some(65536)).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("is_always_late", [False, True])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("rest", ["\r\n", "Content-Length: 1\r\n\r\nx", f"X: {'x' * 5_000}\r\n\r\n"], ids=len)
async def test_one_that_has_spoken_gives_way_to_nobody(
    build: Build,
    read_request: Any,
    token: str,
    known: bool,
    rest: str,
    is_always_late: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A request that the facade has had no time to read is answered, though others need the place of its connection,
    and though each turn of the loop may take longer than a connection has to speak, as on an overloaded host."""
    monkeypatch.setattr(slots, "PATIENCE_S", 0.005)

    async def upstream(stream: trio.SocketStream) -> None:
        while (await read_request(stream))[0]:
            await stream.send_all(OK)

    async def be_late() -> None:
        while is_always_late:
            time.sleep(slots.PATIENCE_S * 2)
            await trio.lowlevel.checkpoint()

    request = f"POST /{token}/fast/ HTTP/1.1\r\nHost: 127.0.0.1\r\n{rest}".encode()
    for _ in range(5):  # Trio chooses the order
        house = await build(upstream, slots=SlotLimits(connections_max=2, strangers_max=2))
        clients = [await house.client() for _ in range(2)]
        if known:
            for client in clients:
                await client.send(request)
                await client.until(b"ok")
        await trio.testing.wait_all_tasks_blocked(0.01)
        for client in clients:
            os.write(client.stream.socket.fileno(), request)
        with socket.create_connection(("127.0.0.1", house.address)):
            time.sleep(slots.PATIENCE_S * 2)  # nobody has a turn
            async with trio.open_nursery() as nursery:
                nursery.start_soon(be_late)
                for client in clients:
                    await client.until(b"ok")
                nursery.cancel_scope.cancel()


@pytest.mark.parametrize("where", ["stranger", "request", "answer"])
async def test_large_heads_leave_others_their_turns(build: Build, read_request: Any, token: str, where: str) -> None:
    """Of large heads that come together only a few are read from one turn of others to the next, and all are
    answered."""
    field = b"X: " + b"x" * 5_000 + b"\r\n"
    waiting: list[trio.SocketStream] = []

    async def upstream(stream: trio.SocketStream) -> None:
        await read_request(stream)
        waiting.append(stream)
        await trio.sleep_forever()

    house = await build(upstream)
    path = f"/{'none' if where == 'stranger' else token}/fast/"
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n".encode() + (b"" if where == "answer" else field) + b"\r\n"
    kind = {"stranger": "refused", "request": "admit", "answer": "completed"}[where]
    read = most = 0
    with contextlib.ExitStack() as ends:
        for _ in range(100):
            client = ends.enter_context(socket.create_connection(("127.0.0.1", house.address)))
            client.sendall(head)
        with trio.fail_after(5):
            if where == "answer":
                while len(waiting) < 100:
                    await trio.lowlevel.checkpoint()
                for stream in waiting:
                    os.write(stream.socket.fileno(), OK.replace(b"\r\n", b"\r\n" + field, 1))
            while read < 100:
                before = read
                await trio.lowlevel.checkpoint()
                read = sum(entry[0] == kind for entry in house.gate.transcript)
                most = max(most, read - before)
    assert most <= 3 * BEGUN_AT_ONCE  # Trio may give one task two turns in a row, and an exchange ends in one or two


async def test_strangers_are_refused_at_a_bounded_rate(build: Build, replies: Replies) -> None:
    """Callers without a token are cut above the rate, unanswered and unrecorded. Callers with a token are served."""
    house = await build(replies(OK), slots=SlotLimits(refusals_per_s=0.1, refusals_burst=3))
    answers = []
    for _ in range(10):
        stranger = await house.client()
        await stranger.send(STRANGER)
        answers.append((await stranger.rest())[:12])
    assert answers == [b"HTTP/1.1 404"] * 3 + [b""] * 7
    assert len(house.gate.transcript) == 3
    client = await house.client()
    await client.ask()
    await client.until(b"ok")


@pytest.mark.parametrize("known", [True, False])
async def test_a_record_that_hangs_is_answered_within_a_bound(build: Build, replies: Replies, known: bool) -> None:
    """A stalled journal is a 503, for callers with a token and without. No request is forwarded."""
    requests: list[tuple[bytes, bytes]] = []
    house = await build(replies(OK, requests), record_timeout_s=0.05)
    house.gate.durable = trio.Event()
    client = await house.client()
    await client.ask("GET", "/", "Connection: close") if known else await client.send(STRANGER)
    answer = await client.rest()
    assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\nX-Omac-Reason: journal-unavailable\r\n")
    assert not requests


async def test_recorded_paths_are_bounded_and_without_token(build: Build, replies: Replies, token: str) -> None:
    """The recorder gets at most 2048 characters of a path, without the query. A token in the path is replaced."""
    house = await build(replies(OK))
    client = await house.client()
    await client.ask("GET", "/" + "a" * 3000 + "?secret=1")
    await client.until(b"ok")
    await client.ask("GET", f"/x/{token}/y")
    await client.until(b"ok")
    paths = [entry[2] for entry in house.gate.transcript if entry[0] == "admit"]
    assert paths == ["/" + "a" * 2047, "/x/*/y"]
