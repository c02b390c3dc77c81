"""What is the same whether the poller has a connection or a task, and while one leaves it to the other."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

Build = Callable[..., Awaitable[Any]]

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.mark.parametrize("more", [b"\r\n", b"GET / HTTP/1.1\r\n\r\n", b"x" * 60_000])
async def test_what_comes_behind_the_last_request_resets_nothing(build: Build, read_request: Any, more: bytes) -> None:
    """It is neither answered nor forwarded, and the client gets its answer with an orderly end."""
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
