"""Two thousand idle connections: others are served, and every descriptor comes back."""

import os
import resource
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import trio
import trio.testing

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
