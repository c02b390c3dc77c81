"""The facade with curl, a client that does not come from this project."""

import hashlib
import os
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from omac.adapters.facade.limits import FacadeLimits
from omac.adapters.facade.server import Facade, FacadeListener
from omac.adapters.http.slots import SlotLimits
from omac.adapters.linux import listen

Build = Callable[..., Awaitable[Any]]


async def curl(*args: str) -> bytes:
    with trio.fail_after(20):
        done = await trio.run_process(
            ["curl", "-q", "-sS", "--noproxy", "*", *args], capture_stdout=True, stderr=subprocess.STDOUT, check=False
        )
    assert done.returncode == 0, done.stdout
    return bytes(done.stdout)


def url(house: Any, token: str, path: str) -> str:
    return f"http://127.0.0.1:{house.address}/{token}/fast{path}"


@pytest.mark.full
async def test_an_upload_of_50_mib_with_expect(build: Build, token: str, tmp_path: Path, read_request: Any) -> None:
    """curl waits for 100 Continue, sends 50 MiB, and gets them back unchanged, by length and in chunks."""
    block = os.urandom(1 << 20)
    (tmp_path / "body").write_bytes(block * 50)
    digest = hashlib.sha256(block * 50).hexdigest()

    async def upstream(stream: trio.SocketStream) -> None:
        head, body = b"", bytearray()
        while b"\r\n\r\n" not in head:
            head += await stream.receive_some(65536)
        head, _, rest = head.partition(b"\r\n\r\n")
        body += rest
        if b"Content-Length: 52428800" in head:
            while len(body) < 52428800:
                body += await stream.receive_some(1 << 20)
            await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 52428800\r\n\r\n")
        else:
            while not body.endswith(b"\r\n0\r\n\r\n"):
                body += await stream.receive_some(1 << 20)
            await stream.send_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await stream.send_all(body)

    house = await build(upstream)
    for count, field in enumerate(("Expect: 100-continue", "Transfer-Encoding: chunked"), 1):
        out = tmp_path / "out"
        await curl(
            *("-T", str(tmp_path / "body"), "-H", field, "--expect100-timeout", "10", "-o", str(out), "--fail"),
            url(house, token, "/up"),
        )
        assert hashlib.sha256(out.read_bytes()).hexdigest() == digest
        assert (await house.gate.until("completed", count))[2:] == (200, 52428800, 52428800)


async def test_an_upload_over_the_limit_is_a_413(build: Build, token: str, tmp_path: Path, read_request: Any) -> None:
    """curl reads the refusal although it has more to send."""
    (tmp_path / "body").write_bytes(b"x" * 1_000_000)
    house = await build(read_request, max_body_bytes=1000)
    for field in ("Expect:", "Expect: 100-continue", "Transfer-Encoding: chunked"):
        out = await curl("-T", str(tmp_path / "body"), "-H", field, "-w", "%{http_code}", url(house, token, "/"))
        assert out.endswith(b"413")
        assert b"body-too-large" in out


async def test_events_arrive_as_they_are_sent(build: Build, token: str, read_request: Any) -> None:
    """Each event reaches curl before the next one is sent."""
    go = trio.Event()

    async def upstream(stream: trio.SocketStream) -> None:
        await read_request(stream)
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
        await go.wait()
        await stream.send_all(b"data: 2\n\n")

    house = await build(upstream)
    command = ["curl", "-q", "-sSNi", "--noproxy", "*", url(house, token, "/events")]
    async with trio.open_nursery() as nursery:
        process = await nursery.start(lambda task_status: trio.run_process(command, stdout=-1, task_status=task_status))
        output = b""
        with trio.fail_after(5):
            async with process.stdout as stdout:
                async for data in stdout:
                    output += data
                    if b"data: 1\n\n" in output:
                        go.set()
    assert output.endswith(b"data: 1\n\ndata: 2\n\n")
    assert b"X-Accel-Buffering: no\r\n" in output
    await house.gate.until("completed")


async def test_the_unix_socket_serves_the_same(build: Build, tmp_path: Path, nursery: trio.Nursery) -> None:
    """A facade listens on several sockets. The private one carries refusals as well."""
    facade = Facade((await build(None)).gate, FacadeLimits())
    path = str(tmp_path / "facade.sock")
    tcp = FacadeListener(listen.tcp("127.0.0.1", 0, ""), SlotLimits())
    await nursery.start(facade.serve, [tcp, FacadeListener(listen.unix(path), SlotLimits(), unix=True)])
    out = await curl("-i", "--unix-socket", path, "http://x/nowhere/fast/")
    assert out.startswith(b"HTTP/1.1 404 Not Found\r\nX-Omac-Reason: unknown-mount\r\n")


async def test_the_socket_of_one_directory_takes_flat_paths(
    build: Build, token: str, tmp_path: Path, replies: Any, nursery: trio.Nursery
) -> None:
    """A skill gets the same request by a flat path as by one with a token, except for a Referer, which is dropped on a
    flat path. A dead token counts as an unknown mount."""
    requests: list[tuple[bytes, bytes]] = []
    house = await build(replies(b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1; Path=/\r\nContent-Length: 0\r\n\r\n", requests))
    path = str(tmp_path / "facade.sock")
    listener = FacadeListener(listen.unix(path), SlotLimits(), unix=True, flat=True)
    await nursery.start(Facade(house.gate, FacadeLimits()).serve, [listener])
    by_socket = ("-i", "--unix-socket", path, "-e", f"http://x/{token}/fast/page")
    flat = await curl(*by_socket, "http://x//fast//a?b=//")
    assert b"Set-Cookie: a=1; Path=/fast\r\n" in flat
    by_token = await curl(*by_socket, f"http://x/{token}/fast/a?b=//")
    assert f"Set-Cookie: a=1; Path=/{token}/fast\r\n".encode() in by_token
    heads = [head.split(b"\r\n") for head, _ in requests]
    assert heads[0][0] == b"GET /a?b=// HTTP/1.1"
    assert [line for line in heads[1] if line not in heads[0]] == [b"Referer: http://x/fast/page"]
    await curl(*by_socket, "http://x/0000/fast/secret")
    assert house.gate.last == ("refused", None, "0000", "GET", "/fast/secret", 404, "unknown-mount")
    await curl(*by_socket, f"http://x/{token}/slow/")
    assert house.gate.last == ("refused", token, "slow", "GET", "/", 404, "unknown-mount")


async def test_head_of_a_large_answer(build: Build, token: str, replies: Any) -> None:
    """curl -I gets the length at once and no body."""
    house = await build(replies(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\nETag: x\r\n\r\n"))
    out = await curl("-I", url(house, token, "/big"), url(house, token, "/big"))
    assert out.count(b"Content-Length: 1000000\r\n") == 2
    assert (await house.gate.until("completed", 2))[2:] == (200, 0, 0)


async def test_a_cookie_goes_to_no_other_skill(build: Build, token: str, replies: Any, tmp_path: Path) -> None:
    """A skill that sets a cookie for the whole host gets it back, and its neighbour does not."""
    requests: list[tuple[bytes, bytes]] = []
    answer = b"HTTP/1.1 200 OK\r\nSet-Cookie: sid=1; Path=/; Domain=127.0.0.1\r\nContent-Length: 0\r\n\r\n"
    house = await build(replies(answer, requests))
    jar = ("--cookie-jar", str(tmp_path / "jar"), "--cookie", str(tmp_path / "jar"), "--noproxy", "*")
    await curl(*jar, url(house, token, "/login"))
    await curl(*jar, url(house, token, "/page"))
    assert b"Cookie: sid=1\r\n" in requests[1][0]
    trace = await curl(*jar, "--trace-ascii", "-", url(house, token, "/page").replace("/fast/", "/other/"))
    assert b"/other/page" in trace
    assert b"Cookie: sid" not in trace
