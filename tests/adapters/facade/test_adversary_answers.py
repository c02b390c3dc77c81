"""Hostile and unusual answers of a skill, byte for byte: the parts that the client gets, and the record."""

import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio

Build = Callable[..., Awaitable[Any]]


class Answered(NamedTuple):
    """Bytes that a skill sends, before it closes, as its answer to a request of `method`.

    `relayed` are all bytes that the client gets; None stands for a 502 of the facade. `status` and `reason` are those
    of the record; a completed request has no reason.
    """

    sent: bytes
    relayed: bytes | None
    status: int = 200
    reason: str | None = None
    method: str = "GET"


def ok(fields: bytes, body: bytes = b"", status: bytes = b"200 OK") -> bytes:
    """Return an answer with these fields."""
    return b"HTTP/1.1 " + status + b"\r\n" + fields + b"\r\n" + body


def untrusted(sent: bytes) -> Answered:
    """Return a case whose answer is not relayed at all."""
    return Answered(sent, None, 502, "upstream-error")


def broken(sent: bytes, relayed: bytes) -> Answered:
    """Return a case whose answer is relayed in part, and does not look whole."""
    return Answered(sent, relayed, 200, "upstream-error")


LENGTH = b"Content-Length: 2\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
CLOSE = b"Connection: close\r\n"
WHOLE = ok(LENGTH + CLOSE, b"ok")
CHUNKS = ok(CHUNKED + CLOSE, b"2\r\nok\r\n0\r\n\r\n")
EVIL = ok(LENGTH, b"no")
BEGUN = ok(CHUNKED + CLOSE, b"2\r\nok\r\n")

ANSWERS = {
    # framing
    "two lengths": untrusted(ok(b"Content-Length: 2\r\nContent-Length: 3\r\n", b"ok")),
    "the same length twice": untrusted(ok(LENGTH + LENGTH, b"ok")),
    "a list of lengths": untrusted(ok(b"Content-Length: 2, 2\r\n", b"ok")),
    "a signed length": untrusted(ok(b"Content-Length: +2\r\n", b"ok")),
    "a length beyond 64 bits": untrusted(ok(b"Content-Length: 18446744073709551618\r\n", b"ok")),
    "length and chunks": untrusted(ok(LENGTH + CHUNKED, b"2\r\nok\r\n0\r\n\r\n")),
    "gzip, chunked": untrusted(ok(b"Transfer-Encoding: gzip, chunked\r\n", b"0\r\n\r\n")),
    "identity": untrusted(ok(b"Transfer-Encoding: identity\r\n", b"ok")),
    "chunks in HTTP/1.0": untrusted(ok(CHUNKED, b"2\r\nok\r\n0\r\n\r\n").replace(b"1.1", b"1.0", 1)),
    "surplus behind a length": Answered(ok(LENGTH, b"ok" + EVIL), WHOLE),
    "surplus behind chunks": Answered(ok(CHUNKED, b"2\r\nok\r\n0\r\n\r\n" + EVIL), CHUNKS),
    "surplus behind 304": Answered(ok(b"", EVIL, b"304 Not Modified"), ok(CLOSE, status=b"304 Not Modified"), 304),
    "surplus behind 204": Answered(ok(b"", EVIL, b"204 No Content"), ok(CLOSE, status=b"204 No Content"), 204),
    "a length on 204": Answered(ok(LENGTH, b"no", b"204 No Content"), ok(CLOSE, status=b"204 No Content"), 204),
    "a length on 304": Answered(
        ok(LENGTH, b"", b"304 Not Modified"), ok(LENGTH + CLOSE, status=b"304 Not Modified"), 304
    ),
    "chunks on 304": Answered(
        ok(CHUNKED, b"0\r\n\r\n", b"304 Not Modified"), ok(CLOSE, status=b"304 Not Modified"), 304
    ),
    "HEAD with a body": Answered(ok(LENGTH, b"no"), ok(LENGTH + CLOSE), method="HEAD"),
    "HEAD with chunks": Answered(ok(CHUNKED, b"2\r\nno\r\n0\r\n\r\n"), ok(CLOSE), method="HEAD"),
    "no framing": Answered(ok(b"", b"ok"), CHUNKS),
    "extensions and trailers": Answered(ok(CHUNKED, b"2;a=b\r\nok\r\n0;c\r\nX-Omac-Reason: x\r\n\r\n"), CHUNKS),
    # bodies that break off
    "a length cut short": broken(ok(b"Content-Length: 9\r\n", b"ok"), ok(b"Content-Length: 9\r\n" + CLOSE, b"ok")),
    "chunks cut short": broken(ok(CHUNKED, b"2\r\nok\r\n"), BEGUN),
    "a chunk cut short": broken(ok(CHUNKED, b"9\r\nok"), BEGUN),
    "trailers cut short": broken(ok(CHUNKED, b"2\r\nok\r\n0\r\nA: b\r\n"), BEGUN),
    # heads
    "nothing": untrusted(b""),
    "half a head": untrusted(b"HTTP/1.1 200 OK\r\nContent-Le"),
    "HTTP/0.9": untrusted(b"<html>ok</html>"),
    "HTTP/2.0": untrusted(ok(LENGTH, b"ok").replace(b"1.1", b"2.0", 1)),
    "ICY": untrusted(ok(LENGTH, b"ok").replace(b"HTTP/1.1", b"ICY", 1)),
    "a status of two digits": untrusted(ok(LENGTH, b"ok", b"20 OK")),
    "a status of four digits": untrusted(ok(LENGTH, b"ok", b"2000 OK")),
    "a status of 600": untrusted(ok(LENGTH, b"ok", b"600 No")),
    "a status of 000": untrusted(ok(LENGTH, b"ok", b"000 No")),
    "no reason phrase": Answered(ok(LENGTH, b"ok", b"200"), ok(LENGTH + CLOSE, b"ok", b"200 ")),
    "a folded field": untrusted(ok(b"X: a\r\n b\r\n" + LENGTH, b"ok")),
    "a bare LF": untrusted(ok(b"X: a\nY: b\r\n" + LENGTH, b"ok")),
    "a bare CR": untrusted(ok(b"X: a\rY: b\r\n" + LENGTH, b"ok")),
    "NUL": untrusted(ok(b"X: a\0b\r\n" + LENGTH, b"ok")),
    "a blank before the colon": untrusted(ok(b"Content-Length : 2\r\n", b"ok")),
    "too many fields": untrusted(ok(b"X: y\r\n" * 101 + LENGTH, b"ok")),
    "too many options": untrusted(ok(b"Connection: " + b"x," * 100 + b"\r\n" + LENGTH, b"ok")),
    "too long a head": untrusted(ok(b"X: " + b"a" * 70_000 + b"\r\n" + LENGTH, b"ok")),
    # interim answers
    "100 and 103 first": Answered(
        ok(b"", status=b"100 Continue") + ok(b"Link: x\r\n", status=b"103 X") + ok(LENGTH, b"ok"), WHOLE
    ),
    "100 with a length": Answered(ok(LENGTH, status=b"100 Continue") + ok(LENGTH, b"ok"), WHOLE),
    "interim answers only": untrusted(ok(b"", status=b"102 Processing") * 3),
    "endless interim answers": untrusted(ok(b"", status=b"102 Processing") * 20 + ok(LENGTH, b"ok")),
    "101 that nobody asked for": untrusted(
        ok(b"Connection: Upgrade\r\nUpgrade: x\r\n", status=b"101 Switching Protocols")
    ),
    # fields
    "hop-by-hop fields": Answered(
        ok(
            b"Connection: keep-alive, X-Mine\r\nKeep-Alive: 5\r\nProxy-Authenticate: x\r\nTE: x\r\nTrailer: X\r\n"
            b"Upgrade: h2c\r\nProxy-Connection: x\r\nX-Mine: 1\r\nX-Kept: 1\r\n" + LENGTH,
            b"ok",
        ),
        ok(b"X-Kept: 1\r\n" + LENGTH + CLOSE, b"ok"),
    ),
    "a length named in Connection": Answered(ok(b"Connection: content-length\r\n" + LENGTH, b"ok"), WHOLE),
    "words of omac's own": Answered(ok(b"X-Omac-Reason: revoked\r\nX_Omac_Reason: x\r\n" + LENGTH, b"ok"), WHOLE),
}


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("where", ["tcp", "unix"])
@pytest.mark.parametrize("case", ANSWERS.values(), ids=ANSWERS.keys())
async def test_what_a_skill_sends_and_what_its_client_gets(
    build: Build, read_request: Any, tmp_path: Path, case: Answered, where: str, again: bool
) -> None:
    """The client gets the expected bytes, and the record has one outcome. A broken answer never has an orderly end on
    TCP. The same holds on a connection to the skill that has served another request."""
    answers = [ok(LENGTH, b"ok")] if again else []

    async def upstream(stream: trio.SocketStream) -> None:
        while answers:
            await read_request(stream)
            await stream.send_all(answers.pop())
        await read_request(stream)
        await stream.send_all(case.sent)

    house = await build(upstream, path=str(tmp_path / "facade.sock") if where == "unix" else None)
    client = await house.client()
    if again:
        await client.ask()
        await client.until(b"ok")
        await house.gate.until("completed")
        house.gate.transcript.clear()
    await client.ask(case.method, "/", "Connection: close")
    resets = case.reason is not None and case.relayed is not None and where == "tcp"
    with pytest.raises(trio.BrokenResourceError) if resets else contextlib.nullcontext():
        client.buffer = await client.rest()
    if case.relayed is None:
        assert client.buffer.startswith(b"HTTP/1.1 502 Bad Gateway\r\nX-Omac-Reason: upstream-error\r\n")
        assert client.buffer.count(b"HTTP/1.1 ") == 1
    elif resets:  # a reset may overtake what was sent before it
        assert case.relayed.startswith(client.buffer)
    else:
        assert client.buffer == case.relayed
    kind = "completed" if case.reason is None else "aborted"
    entry = await house.gate.until(kind)
    assert (entry[2], entry[5:]) == (case.status, (case.reason,) if case.reason else ())
    assert [entry[0] for entry in house.gate.transcript] == ["admit", kind]
