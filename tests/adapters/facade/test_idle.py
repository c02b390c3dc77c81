"""Two thousand idle connections: the facade serves other clients, and every descriptor comes back. A slow call is not
idle."""

import contextlib
import os
import resource
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from omac.adapters.http.slots import SlotLimits

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
IDLE = 2_000
SLOW_BYTES = 600_000
SLOW_READ = 6_000  # bytes each SLOW_S: within the limit not even half of what the facade reads at once
SLOW_S = 0.02
SLOWLY_S = 1.5  # that somebody reads slowly, longer than one who is silent may be
UPLOAD_BYTES = 8_000_000  # more than the system holds of it
STALLED = 10


@pytest.fixture
def descriptors() -> Iterator[None]:
    """Raise the limit of descriptors, for both ends of all connections in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 3 * IDLE)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.full
@pytest.mark.parametrize("known", [True, False])
async def test_idle_connections_starve_nobody(
    build: Callable[..., Awaitable[Any]], replies: Any, descriptors: None, known: bool
) -> None:
    """The longest idle connection makes room for a new one, whether its client has called a skill or sent nothing."""
    house = await build(replies(OK))
    before = len(os.listdir("/proc/self/fd"))
    idle = []
    for _ in range(IDLE):
        client = await house.client()
        idle.append(client)
        if known:
            await client.ask()
            await client.until(b"ok")
    newcomer = await house.client()
    with trio.fail_after(2):
        await newcomer.ask()
        await newcomer.until(b"ok")
    assert len(os.listdir("/proc/self/fd")) - before <= IDLE + 1 + 1024 + 2
    house.close()
    await trio.testing.wait_all_tasks_blocked(0.05)
    assert len(os.listdir("/proc/self/fd")) <= before + 1


@pytest.mark.full
async def test_one_that_begins_to_speak_as_it_must_make_room(
    build: Callable[..., Awaitable[Any]], replies: Any, token: str, tmp_path: Path
) -> None:
    """A client that needs a place is served at once, even if the idle client sends half a head at that moment. The new
    client does not wait until that head is late."""
    requests: list[tuple[bytes, bytes]] = []
    slots = SlotLimits(connections_max=1, strangers_max=0)
    house = await build(replies(OK, requests), path=str(tmp_path / "f.sock"), slots=slots)
    for number in range(12):  # Trio chooses the order
        with contextlib.ExitStack() as ends:
            idle, newcomer = (ends.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2))
            idle.connect(house.address)
            await trio.testing.wait_all_tasks_blocked(0.01)
            idle.send(b"GET ")
            newcomer.connect(house.address)
            newcomer.send(f"GET /{token}/fast/{number} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            stream = trio.socket.from_stdlib_socket(newcomer)
            with trio.fail_after(1):
                assert (await stream.recv(999)).endswith(b"ok")
    assert [head.split()[1] for head, _ in requests] == [b"/%d" % number for number in range(12)]
    await house.gate.until("completed", 12)
    assert [entry[0] for entry in house.gate.transcript] == ["admit", "completed"] * 12


async def read_slowly(sock: trio.socket.SocketType, mark: bytes) -> bytes:
    """Return the bytes up to `mark`, from a peer that may not end the connection before."""
    begun, content = trio.current_time(), bytearray()
    while not content.endswith(mark):
        data = await sock.recv(SLOW_READ)
        assert data, f"cut after {len(content)} bytes"
        content += data
        if trio.current_time() - begun < SLOWLY_S:
            await trio.sleep(SLOW_S)
    return bytes(content)


def narrow(sock: trio.socket.SocketType) -> trio.socket.SocketType:
    """Let a socket receive little ahead."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
    return sock


@pytest.mark.full
@pytest.mark.parametrize("where", ["tcp", "unix"])
async def test_a_slow_reader_is_not_silent(
    build: Callable[..., Awaitable[Any]], replies: Any, token: str, where: str, tmp_path: Path
) -> None:
    """A call whose client reads all the time is not cut as silent, however long a part of the answer takes."""
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % SLOW_BYTES
    path = str(tmp_path / "facade.sock") if where == "unix" else None
    house = await build(replies(head + bytes(SLOW_BYTES - 1) + b"!"), body_idle_timeout_s=0.4, path=path)
    with narrow(trio.socket.socket(socket.AF_UNIX if path else socket.AF_INET)) as sock:
        await sock.connect(path or ("127.0.0.1", house.address))
        await sock.send(f"GET /{token}/fast/ HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        content = await read_slowly(sock, b"!")
    assert len(content) == len(head) + SLOW_BYTES
    await house.gate.until("completed")


@pytest.mark.full
async def test_a_slow_skill_is_not_silent(build: Callable[..., Awaitable[Any]], token: str) -> None:
    """An upload that a skill reads all the time is not cut as silent, though the system holds megabytes of it before it
    reports room for more."""

    async def read_upload(stream: trio.SocketStream) -> None:
        narrow(stream.socket)
        begun, count = trio.current_time(), 0
        while count < UPLOAD_BYTES and (data := await stream.receive_some(SLOW_READ)):
            count += len(data)
            if trio.current_time() - begun < SLOWLY_S:
                await trio.sleep(SLOW_S)
        await stream.send_all(OK)

    house = await build(read_upload, body_idle_timeout_s=0.6)
    client = await house.client()
    head = f"POST /{token}/fast/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: {UPLOAD_BYTES}\r\n\r\n"
    await client.send(head.encode() + bytes(UPLOAD_BYTES))
    assert (await client.until(b"ok")).startswith(b"HTTP/1.1 200 ")
    await house.gate.until("completed")


class Steps(trio.abc.Instrument):
    """Counts the steps of all tasks."""

    count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1


async def test_clients_that_read_nothing_take_no_turns(
    build: Callable[..., Awaitable[Any]], replies: Any, token: str
) -> None:
    """Downloads whose clients read nothing leave the loop to others: each is looked at a few times until it is late."""
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % UPLOAD_BYTES
    house = await build(replies(head + bytes(UPLOAD_BYTES)))
    steps = Steps()
    with contextlib.ExitStack() as ends:
        for _ in range(STALLED):
            sock = ends.enter_context(narrow(trio.socket.socket()))
            await sock.connect(("127.0.0.1", house.address))
            await sock.send(f"GET /{token}/fast/ HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        await trio.testing.wait_all_tasks_blocked(0.1)
        trio.lowlevel.add_instrument(steps)
        await trio.sleep(0.7)
        trio.lowlevel.remove_instrument(steps)
    assert steps.count < 2 * STALLED
