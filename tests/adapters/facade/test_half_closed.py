"""Clients that finish sending and still read: on Unix sockets the system distinguishes them from those that have left.

On TCP both send the same, the end of their stream (RFC 9293 section 3.6). The facade, like nginx, then takes the client
for gone.
"""

import array
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

Build = Callable[..., Awaitable[Any]]

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
GET = b"GET /T/fast/%d HTTP/1.1\r\nHost: localhost\r\n\r\n"
SENT = {
    "one": [GET % 1],
    "pipelined": [GET % 1, GET % 2, GET % 3],
    "a body": [b"POST /T/fast/1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000\r\n\r\n" + b"x" * 200_000],
    "chunks": [b"POST /T/fast/1 HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"],
    "behind a body": [b"POST /T/fast/1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nhi", GET % 2, GET % 3],
    "before a body": [GET % 1, b"POST /T/fast/2 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nhi"],
    "the last": [b"GET /T/fast/1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"],
    "more than is read ahead": [(GET % number)[:-2] + b"X: " + b"x" * 4_000 + b"\r\n\r\n" for number in range(1, 31)],
}
STEPS = ("together", "behind", "later")  # when the end follows the requests


def answering(read_request: Any, paths: list[bytes], may_answer: trio.Event) -> Callable[..., Awaitable[None]]:
    async def skill(stream: trio.SocketStream) -> None:
        while head := (await read_request(stream))[0]:
            paths.append(head.split()[1])
            await may_answer.wait()
            await stream.send_all(OK)

    return skill


async def send(sock: Any, data: bytes) -> None:
    while data:
        data = data[await sock.send(data) :]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("sent", SENT.values(), ids=SENT.keys())
async def test_a_half_closed_client_on_a_unix_socket_is_answered(
    build: Build, read_request: Any, token: str, tmp_path: Path, sent: list[bytes], step: str
) -> None:
    """A client that finishes sending gets the answers to all its requests, and then an end of the stream."""
    paths: list[bytes] = []
    may_answer = trio.Event()
    house = await build(answering(read_request, paths, may_answer), path=str(tmp_path / "facade.sock"))
    client = await house.client()
    data = b"".join(sent).replace(b"/T/", b"/%b/" % token.encode())
    async with trio.open_nursery() as nursery:
        if step == "later":
            nursery.start_soon(client.send, data)
            await house.gate.until("admit")
            await trio.testing.wait_all_tasks_blocked(0.01)
            may_answer.set()
            await house.gate.until("completed", len(sent))
        else:
            await send(client.stream.socket, data[:100_000])
            if step == "behind":
                await trio.testing.wait_all_tasks_blocked(0.01)
            may_answer.set()
            await client.send(data[100_000:])
        client.stream.socket.shutdown(socket.SHUT_WR)
        answers = await client.rest()
    assert answers.count(OK[:15]) == len(sent)
    await house.gate.until("completed", len(sent))
    assert [entry[0] for entry in house.gate.transcript] == ["admit", "completed"] * len(sent)
    assert [int(path[1:]) for path in paths] == list(range(1, len(sent) + 1))


@pytest.mark.parametrize("sent", SENT.values(), ids=SENT.keys())
async def test_a_client_on_tcp_that_finishes_has_left(
    build: Build, read_request: Any, token: str, sent: list[bytes]
) -> None:
    """A client on TCP that finishes sending counts as gone: its request under way is cancelled, and no other begins."""
    paths: list[bytes] = []

    async def skill(stream: trio.SocketStream) -> None:
        paths.append((await read_request(stream))[0].split()[1])
        assert await stream.receive_some(1) == b""

    house = await build(skill)
    client = await house.client()
    data = b"".join(sent).replace(b"/T/", b"/%b/" % token.encode())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.send, data)
        await house.gate.until("admit")
        await trio.testing.wait_all_tasks_blocked(0.01)
        client.stream.socket.shutdown(socket.SHUT_WR)
        assert (await house.gate.until("aborted"))[1:3] == (1, None)
        assert house.gate.last[-1] == "client-gone"
        with trio.fail_after(2):
            await house.upstream_ended.wait()
    assert [entry[0] for entry in house.gate.transcript] == ["admit", "aborted"]
    assert paths == [b"/1"]


@pytest.mark.parametrize("name", [name for name in SENT if len(b"".join(SENT[name])) < 10_000])
async def test_a_client_on_tcp_that_finishes_with_its_request_has_left(
    build: Build, read_request: Any, token: str, name: str
) -> None:
    """A request whose sender finishes at once never reaches the skill, and is recorded as aborted."""
    paths: list[bytes] = []
    house = await build(answering(read_request, paths, trio.Event()))
    client = await house.client()
    data = b"".join(SENT[name]).replace(b"/T/", b"/%b/" % token.encode())
    with socket.socket(fileno=client.stream.socket.detach()) as sock:
        assert sock.send(data) == len(data)
        sock.shutdown(socket.SHUT_WR)
        assert (await house.gate.until("aborted"))[1:] == (1, None, 0, 0, "client-gone")
    await trio.testing.wait_all_tasks_blocked(0.01)
    assert [entry[0] for entry in house.gate.transcript] == ["admit", "aborted"]
    assert paths == []


@pytest.mark.parametrize("how", ["close", "shut both", "reset"])
@pytest.mark.parametrize("sent", SENT.values(), ids=SENT.keys())
async def test_a_half_closed_client_that_leaves_cancels_its_request(
    build: Build, read_request: Any, token: str, tmp_path: Path, sent: list[bytes], how: str
) -> None:
    """A half-closed client that leaves cancels its request in time, also behind an answer that it has not read."""
    paths: list[bytes] = []

    async def skill(stream: trio.SocketStream) -> None:
        paths.append((await read_request(stream))[0].split()[1])
        if how == "reset":
            await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        assert await stream.receive_some(1) == b""

    house = await build(skill, path=str(tmp_path / "facade.sock"))
    client = await house.client()
    data = b"".join(sent).replace(b"/T/", b"/%b/" % token.encode())
    await client.send(data)
    client.stream.socket.shutdown(socket.SHUT_WR)
    await house.gate.until("admit")
    await trio.testing.wait_all_tasks_blocked(0.02)
    assert house.gate.transcript == [("admit", house.gate.transcript[0][1], "/1")]
    if how == "shut both":
        client.stream.socket.shutdown(socket.SHUT_RDWR)
    else:
        client.stream.socket.close()
    assert (await house.gate.until("aborted"))[-1] == "client-gone"
    with trio.fail_after(2):
        await house.upstream_ended.wait()
    assert paths == [b"/1"]


async def test_a_half_body_is_no_body(build: Build, read_request: Any, token: str, tmp_path: Path) -> None:
    """A client that finishes inside its body gets no answer, even on a Unix socket."""
    house = await build(answering(read_request, [], trio.Event()), path=str(tmp_path / "facade.sock"))
    client = await house.client()
    await client.ask("POST", "/", "Content-Length: 10", body=b"half")
    await client.stream.send_eof()
    assert await client.rest() == b""
    assert (await house.gate.until("aborted"))[1:] == (1, None, 4, 0, "client-gone")


@pytest.mark.parametrize("at", [(1,), (2,), (1, 2, 3), (3,)])
@pytest.mark.parametrize("closes", [True, False])
async def test_descriptors_hold_no_request_back(
    build: Build, read_request: Any, token: str, tmp_path: Path, at: tuple[int, ...], closes: bool
) -> None:
    """The facade drops descriptors that come with a request. The bytes behind that message are read nevertheless."""
    paths: list[bytes] = []
    may_answer = trio.Event()
    house = await build(answering(read_request, paths, may_answer), path=str(tmp_path / "facade.sock"))
    client = await house.client()
    requests = [GET.replace(b"/T/", b"/%b/" % token.encode()) % number for number in (1, 2, 3)]
    if closes:
        requests[-1] = requests[-1].replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0]))
    with socket.socket(fileno=client.stream.socket.detach()) as sock:
        for number, request in enumerate(requests, 1):
            sock.sendmsg([request], [rights] if number in at else [])
        may_answer.set()
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(sock.dup()))
    client.stream = stream
    async with stream:
        await house.gate.until("completed", 3)
        await client.until(b"ok")
        await client.until(b"ok")
        await client.until(b"ok")
        if closes:
            assert await client.rest() == b""
    assert paths == [b"/1", b"/2", b"/3"]
