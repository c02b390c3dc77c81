"""Two thousand idle connections: others are served, and every descriptor comes back."""

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


@pytest.fixture
def descriptors() -> Iterator[None]:
    """Room for both ends of all connections in this one process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 3 * IDLE)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.full
@pytest.mark.parametrize("known", [True, False])
async def test_idle_connections_starve_nobody(
    build: Callable[..., Awaitable[Any]], replies: Any, descriptors: None, known: bool
) -> None:
    """Whether they have called a skill and rest, or say nothing: one that waits longest makes room for a new one."""
    house = await build(replies(OK))
    before = len(os.listdir("/proc/self/fd"))
    idle = []
    for _ in range(IDLE):
        client = await house.client()
        idle.append(client)
        if known:
            await client.ask()
            await client.until(b"ok")
    other = await house.client()
    with trio.fail_after(2):
        await other.ask()
        await other.until(b"ok")
    assert len(os.listdir("/proc/self/fd")) - before <= IDLE + 1 + 1024 + 2
    house.close()
    await trio.testing.wait_all_tasks_blocked(0.05)
    assert len(os.listdir("/proc/self/fd")) <= before + 1


async def test_one_that_begins_to_speak_as_it_must_make_room(
    build: Callable[..., Awaitable[Any]], read_request: Any, token: str, tmp_path: Path
) -> None:
    """The half of a head comes with the connection that needs its place: that one is served, whichever is seen first,
    and does not wait for the head to be late."""
    seen: list[tuple[bytes, bytes]] = []

    async def upstream(stream: trio.SocketStream) -> None:
        seen.append(await read_request(stream))
        await stream.send_all(OK)

    house = await build(upstream, path=str(tmp_path / "f.sock"), slots=SlotLimits(connections_max=1, strangers_max=0))
    for number in range(12):  # Trio chooses the order
        with contextlib.ExitStack() as ends:
            idle, other = (ends.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2))
            idle.connect(house.address)
            await trio.testing.wait_all_tasks_blocked(0.01)
            idle.send(b"GET ")
            other.connect(house.address)
            other.send(f"GET /{token}/fast/{number} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            stream = trio.socket.from_stdlib_socket(other)
            with trio.fail_after(1):
                assert (await stream.recv(999)).endswith(b"ok")
    assert [head.split()[1] for head, _ in seen] == [b"/%d" % number for number in range(12)]
    await house.gate.until("completed", 12)
    assert [entry[0] for entry in house.gate.transcript] == ["admit", "completed"] * 12
