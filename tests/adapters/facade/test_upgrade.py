"""Switches of protocols through the facade: both streams are joined unchanged and counted, and no other HTTP passes."""

import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
import trio_websocket

from omac.domain.directories.events import CallLimits
from omac.domain.kernel.refusal import Refusal
from omac.domain.settings.owner_limits import SkillBounds

Build = Callable[..., Awaitable[Any]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
ASKS = ("Connection: keep-alive, Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\nX-Kept: 1\r\n\r\n"
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nX-Kept: 1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


async def read_head(stream: trio.SocketStream) -> tuple[bytes, bytes]:
    """Return the head of a request, and the bytes behind it."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = await stream.receive_some(65536)
        assert more
        data += more
    head, end, rest = data.partition(b"\r\n\r\n")
    return head + end, rest


async def read_all(stream: trio.SocketStream) -> bytes:
    """Return all bytes until the peer has finished."""
    data = bytearray()
    while more := await stream.receive_some(65536):
        data += more
    return bytes(data)


@pytest.mark.parametrize("where", ["tcp", "unix"])
async def test_both_streams_are_joined_and_end_on_their_own(
    build: Build, token: str, tmp_path: Path, where: str
) -> None:
    """Early frames in the heads' segments, random bytes in both directions and each half-close arrive unchanged."""
    random = Random(8)
    up, down = random.randbytes(3_000_000), random.randbytes(2_000_000)
    heads: list[bytes] = []
    uploaded: list[bytes] = []

    async def upstream(stream: trio.SocketStream) -> None:
        head, early = await read_head(stream)
        heads.append(head)
        assert early == b""  # nothing before the switch
        await stream.send_all(SWITCH + down[:100])
        uploaded.append(await read_all(stream))
        await stream.send_all(down[100:])  # behind the client's half-close

    house = await build(upstream, path=str(tmp_path / "f.sock") if where == "unix" else None)
    client = await house.client()
    await client.ask("GET", "/ws?x=1", *ASKS, f"Referer: http://localhost/{token}/fast/", body=up[:100])
    assert await client.until(b"\r\n\r\n") == SWITCHED
    assert await client.exactly(100) == down[:100]
    await client.send(up[100:])
    await client.stream.send_eof()
    assert await client.rest() == down[100:]
    assert uploaded == [up]
    port = house.gate.target.port
    assert heads[0] == (
        b"GET /ws?x=1 HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nX-Forwarded-Prefix: /fast\r\n" % port
        + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        + b"Referer: http://localhost/fast/\r\n\r\n"
    )
    await house.gate.until("completed")
    assert house.gate.transcript == [("admit", "GET", "/ws"), ("completed", 1, 101, len(up), len(down))]


async def test_the_skill_may_finish_first(build: Build) -> None:
    """A skill's half-close reaches a client that goes on sending."""
    uploaded: list[bytes] = []

    async def upstream(stream: trio.SocketStream) -> None:
        await read_head(stream)
        await stream.send_all(SWITCH + b"bye")
        await stream.send_eof()
        uploaded.append(await read_all(stream))

    house = await build(upstream)
    client = await house.client()
    await client.ask("GET", "/", *ASKS)
    assert await client.rest() == SWITCHED + b"bye"
    await client.send(b"still here")
    await client.stream.send_eof()
    assert (await house.gate.until("completed"))[1:] == (1, 101, 10, 3)
    assert uploaded == [b"still here"]


async def test_a_client_that_finishes_before_the_switch(build: Build) -> None:
    """A half-close in the segment of the head arrives behind the early frame, once the skill has switched."""
    uploaded: list[bytes] = []

    async def upstream(stream: trio.SocketStream) -> None:
        await read_head(stream)
        await trio.testing.wait_all_tasks_blocked(0.01)
        await stream.send_all(SWITCH)
        uploaded.append(await read_all(stream))
        await stream.send_all(b"bye")

    house = await build(upstream)
    client = await house.client()
    await client.ask("GET", "/", *ASKS, body=b"early" * 20_000)
    await client.stream.send_eof()
    assert await client.rest() == SWITCHED + b"bye"
    assert uploaded == [b"early" * 20_000]


async def test_another_answer_is_an_ordinary_one(build: Build, read_request: Any) -> None:
    """The answer of a skill that does not switch is relayed as usual, and the connection is used again."""

    async def upstream(stream: trio.SocketStream) -> None:
        await read_request(stream)
        await stream.send_all(OK)

    house = await build(upstream)
    client = await house.client()
    for count in (1, 2):
        await client.ask("GET", "/", *ASKS)
        assert await client.until(b"ok") == OK
        await house.gate.until("completed", count)


@pytest.mark.parametrize("early", [False, True])
async def test_a_client_that_leaves_behind_another_answer(build: Build, early: bool) -> None:
    """A client that finishes sending to a skill that has not switched counts as gone, as any other client does."""
    answered = trio.Event()

    async def upstream(stream: trio.SocketStream) -> None:
        await read_head(stream)
        await answered.wait()
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nsilence")
        await read_all(stream)

    house = await build(upstream)
    client = await house.client()
    await client.ask("GET", "/", *ASKS)
    if not early:
        answered.set()
        await client.until(b"silence")
    await client.stream.send_eof()
    await trio.testing.wait_all_tasks_blocked(0.01)
    answered.set()
    assert (await house.gate.until("aborted"))[-1] == "client-gone"
    await house.upstream_ended.wait()


NOT_FORWARDED = {
    "h2c": ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"),
    "H2C": ("Connection: Upgrade", "Upgrade: H2C"),
    "HTTP/2.0": ("Connection: Upgrade", "Upgrade: HTTP/2.0"),
    "TLS/1.2": ("Connection: Upgrade", "Upgrade: TLS/1.2"),
    "a list": ("Connection: Upgrade", "Upgrade: websocket, h2c"),
    "two fields": ("Connection: Upgrade", "Upgrade: websocket", "Upgrade: h2c"),
    "not named in Connection": ("Upgrade: websocket",),
    "a body": ("Connection: Upgrade", "Upgrade: websocket", "Content-Length: 0002"),
}


@pytest.mark.parametrize("fields", NOT_FORWARDED.values(), ids=NOT_FORWARDED.keys())
async def test_an_upgrade_that_cannot_be_judged_is_no_upgrade(
    build: Build, read_request: Any, fields: tuple[str, ...]
) -> None:
    """The facade does not forward an upgrade that it cannot judge. A skill that switches nevertheless is a 502."""
    heads: list[bytes] = []

    async def upstream(stream: trio.SocketStream) -> None:
        heads.append((await read_request(stream))[0])
        await stream.send_all(SWITCH)

    house = await build(upstream)
    client = await house.client()
    await client.ask("GET", "/", *fields, body=b"hi" if "Length" in fields[-1] else b"")
    assert (await client.rest()).startswith(b"HTTP/1.1 502 ")
    assert b"upgrade" not in heads[0].lower()
    assert (b"\r\nConnection:" in heads[0]) is (b"\r\nConnection: close\r\n" in heads[0]) is ("Length" in fields[-1])
    assert (await house.gate.until("aborted"))[2::3] == (502, "upstream-error")


@pytest.mark.parametrize(
    "switch",
    [
        b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
        b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\n\r\n",
        b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\n\r\n",
    ],
)
async def test_a_switch_to_something_else_is_a_502(build: Build, switch: bytes) -> None:
    """The facade joins the streams only for the protocol that the client has requested."""

    async def upstream(stream: trio.SocketStream) -> None:
        await read_head(stream)
        await stream.send_all(switch)

    house = await build(upstream)
    client = await house.client()
    await client.ask("GET", "/", *ASKS)
    assert (await client.rest()).startswith(b"HTTP/1.1 502 ")
    await house.gate.until("aborted")


async def joined(
    build: Build, *, own_s: int | None = None, owners_s: int | None = None, **limits: Any
) -> tuple[Any, Any, trio.Event]:
    """Return a facade, a client joined to a skill that only listens, and an event for the end of the skill's side.
    `own_s` and `owners_s` are the idle limits of the skill's omac.yaml and of the owner's settings."""
    ended = trio.Event()

    async def upstream(stream: trio.SocketStream) -> None:
        await read_head(stream)
        await stream.send_all(SWITCH)
        try:
            await read_all(stream)
        finally:
            ended.set()
        await trio.sleep_forever()

    house = await build(upstream, **limits)
    route = msgspec.structs.replace(house.gate.target, limits=CallLimits(idle_s=own_s))
    house.gate.target = route.within(SkillBounds(idle_s=owners_s))
    client = await house.client()
    await client.ask("GET", "/", *ASKS)
    await client.until(b"\r\n\r\n")
    return house, client, ended


async def test_an_idle_limit_of_its_own(build: Build, mock_clock: trio.testing.MockClock) -> None:
    """A joined connection outlives the limits of bodies, and ends at its own idle limit."""
    mock_clock.rate = 1
    house, client, ended = await joined(build, body_idle_timeout_s=300, joined_idle_timeout_s=3600)
    for _ in range(2):
        await trio.testing.wait_all_tasks_blocked(0.01)
        mock_clock.jump(3500)
        await client.send(b"x")
    await trio.testing.wait_all_tasks_blocked(0.01)
    assert house.gate.last[0] == "admit"
    mock_clock.jump(3700)
    assert (await house.gate.until("aborted"))[1:] == (1, 101, 2, 0, "timeout")
    with pytest.raises(trio.BrokenResourceError):
        await client.rest()
    await ended.wait()


@pytest.mark.parametrize(
    ("own_s", "owners_s", "holds_s"),
    [(120, None, 120), (7200, None, 7200), (None, 60, 60), (120, 60, 60), (60, 120, 60), (None, 7200, 3600)],
)
async def test_a_limit_that_was_set_holds_for_it(
    build: Build, mock_clock: trio.testing.MockClock, own_s: int | None, owners_s: int | None, holds_s: int
) -> None:
    """The idle limit of the skill's omac.yaml replaces the default of an hour. The owner's settings can only narrow
    it."""
    mock_clock.rate = 1
    house, client, ended = await joined(build, own_s=own_s, owners_s=owners_s, joined_idle_timeout_s=3600)
    for _ in range(2):
        await trio.testing.wait_all_tasks_blocked(0.01)
        mock_clock.jump(holds_s - 10)
        await client.send(b"x")
    await trio.testing.wait_all_tasks_blocked(0.01)
    assert house.gate.last[0] == "admit"
    mock_clock.jump(holds_s + 10)
    assert (await house.gate.until("aborted"))[1:] == (1, 101, 2, 0, "timeout")
    await ended.wait()


async def test_a_revoked_route_ends_it(build: Build) -> None:
    """A client whose token is revoked loses the joined connection."""
    house, client, ended = await joined(build)
    house.gate.cuts[0](Refusal("revoked", "its token ended"))
    assert (await house.gate.until("aborted"))[1:] == (1, 101, 0, 0, "revoked")
    with pytest.raises(trio.BrokenResourceError):
        await client.rest()
    await ended.wait()


async def test_omac_stops_while_they_are_joined(build: Build) -> None:
    """A stop of omac ends a joined connection with one outcome, `stopping`."""
    house, _client, ended = await joined(build)
    house.facade_scope.cancel()
    assert (await house.gate.until("aborted"))[-1] == "stopping"
    await ended.wait()


async def test_a_client_that_resets(build: Build) -> None:
    """A client's reset is no orderly end, and ends the skill's side too."""
    house, client, ended = await joined(build)
    client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.stream.socket.close()
    assert (await house.gate.until("aborted"))[-1] == "client-gone"
    await ended.wait()


async def test_a_websocket_client_and_server_interoperate(build: Build, nursery: trio.Nursery, token: str) -> None:
    """A real WebSocket client and server exchange messages of all sizes and a closing handshake through the facade."""

    async def echo(request: trio_websocket.WebSocketRequest) -> None:
        connection = await request.accept(subprotocol="echo")
        try:
            while True:
                await connection.send_message(await connection.get_message())
        except trio_websocket.ConnectionClosed:
            pass

    server = await nursery.start(trio_websocket.serve_websocket, echo, "127.0.0.1", 0, None)
    house = await build(None)
    house.gate.target = msgspec.structs.replace(house.gate.target, port=server.port)
    url = f"ws://127.0.0.1:{house.address}/{token}/fast/chat"
    random = Random(3)
    with trio.fail_after(10):
        async with trio_websocket.open_websocket_url(url, subprotocols=["echo"]) as talk:
            assert talk.subprotocol == "echo"
            for size in (0, 1, 125, 126, 65535, 65536, 500_000):
                message = random.randbytes(size)
                await talk.send_message(message)
                assert await talk.get_message() == message
            await talk.send_message("grüße")
            assert await talk.get_message() == "grüße"
    entry = await house.gate.until("completed")
    assert entry[2] == 101
    assert min(entry[3:]) > 600_000
    nursery.cancel_scope.cancel()
