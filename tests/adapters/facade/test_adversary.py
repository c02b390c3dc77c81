"""Hostile and unusual requests, byte for byte: the client's answers, the skill's requests, and the record."""

import os
import re
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio
import trio.testing

Build = Callable[..., Awaitable[Any]]

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
PLAIN = b"Host: localhost\r\nConnection: close\r\n"


class Case(NamedTuple):
    """Bytes that a client sends, and what follows from them; `/T/` stands for the token.

    `answers` are the statuses that the client gets. `received` are the requests that reach the skill, each on a
    connection of its own. `recorded` are the entries of the record by kind, status and reason. With `any_host` the
    facade accepts the request's Host on a Unix socket. With `eof` the client finishes sending behind the bytes.
    """

    sent: bytes
    answers: tuple[int, ...]
    received: tuple[bytes, ...] = ()
    recorded: tuple[tuple[Any, ...], ...] = ()
    any_host: bool = False
    eof: bool = False


def get(fields: bytes = b"", path: bytes = b"/", method: bytes = b"GET", version: bytes = b"HTTP/1.1") -> bytes:
    """Return a request that is good but for its `fields`."""
    return method + b" /T/fast" + path + b" " + version + b"\r\n" + PLAIN + fields + b"\r\n"


def post(fields: bytes, body: bytes = b"") -> bytes:
    return get(fields, method=b"POST") + body


def got(fields: bytes = b"", path: bytes = b"/", method: bytes = b"GET", body: bytes = b"") -> bytes:
    """Return a request as the skill gets it; PORT stands for the skill's own."""
    head = b"%b %b HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nX-Forwarded-Prefix: /fast\r\n"
    close = b"Connection: close\r\n" if re.search(b"chunked|Length: 0*[1-9]", fields) else b""  # behind a body
    return head % (method, path) + close + fields + b"\r\n" + body


def refused(sent: bytes, status: int = 400, reason: str = "bad-request") -> Case:
    """Return a case whose request does not reach the skill; the record names the reason."""
    return Case(sent, (status,), (), (("refused", status, reason),))


def passed(sent: bytes, *received: bytes) -> Case:
    """Return a case whose requests are all forwarded and answered."""
    count = len(received)
    return Case(sent, (200,) * count, received, (("completed", 200),) * count)


def cut(sent: bytes, received: bytes, status: int = 400, reason: str = "bad-request") -> Case:
    """Return a case whose request is admitted and ends in its body; the part before the fault is forwarded."""
    return Case(sent, (status,), (received,), (("aborted", status, reason),))


CHUNKED = b"Transfer-Encoding: chunked\r\n"
SMUGGLED = b"GET /T/fast/smuggled HTTP/1.1\r\n" + PLAIN + b"\r\n"

FRAMING = {
    "length and chunks": refused(post(b"Content-Length: 5\r\n" + CHUNKED, b"0\r\n\r\n" + SMUGGLED)),
    "chunks and length": refused(post(CHUNKED + b"Content-Length: 5\r\n", b"0\r\n\r\n" + SMUGGLED)),
    "two lengths": refused(post(b"Content-Length: 3\r\nContent-Length: 4\r\n", b"abcd")),
    "the same length twice": refused(post(b"Content-Length: 3\r\nContent-Length: 3\r\n", b"abc")),
    "a list of lengths": refused(post(b"Content-Length: 3, 3\r\n", b"abc")),
    "a signed length": refused(post(b"Content-Length: +3\r\n", b"abc")),
    "a negative length": refused(post(b"Content-Length: -3\r\n", b"abc")),
    "a hexadecimal length": refused(post(b"Content-Length: 0x3\r\n", b"abc")),
    "an empty length": refused(post(b"Content-Length: \r\n", b"abc")),
    "a length beyond 64 bits": refused(post(b"Content-Length: 18446744073709551619\r\n", b"abc")),
    "a length with an underscore": refused(post(b"Content-Length: 1_0\r\n", b"abc")),
    "a length over the limit": refused(post(b"Content-Length: 100001\r\n"), 413, "body-too-large"),
    "chunked twice": refused(post(CHUNKED + CHUNKED, b"0\r\n\r\n")),
    "chunked, chunked": refused(post(b"Transfer-Encoding: chunked, chunked\r\n", b"0\r\n\r\n")),
    "gzip, chunked": refused(post(b"Transfer-Encoding: gzip, chunked\r\n", b"0\r\n\r\n")),
    "identity": refused(post(b"Transfer-Encoding: identity\r\n")),
    "xchunked": refused(post(b"Transfer-Encoding: xchunked\r\n", b"0\r\n\r\n")),
    "quoted chunked": refused(post(b'Transfer-Encoding: "chunked"\r\n', b"0\r\n\r\n")),
    "chunked with a parameter": refused(post(b"Transfer-Encoding: chunked;q=1\r\n", b"0\r\n\r\n")),
    "vertical tab before chunked": refused(post(b"Transfer-Encoding: \x0bchunked\r\n", b"0\r\n\r\n")),
    "blank before the colon": refused(post(b"Transfer-Encoding : chunked\r\n", b"0\r\n\r\n")),
    "blank before the colon of a length": refused(post(b"Content-Length : 3\r\n", b"abc")),
    "chunks in HTTP/1.0": refused(b"POST /T/fast/ HTTP/1.0\r\n" + PLAIN + CHUNKED + b"\r\n0\r\n\r\n"),
    "chunked in capitals": passed(
        post(b"Transfer-Encoding: CHUNKED\r\n", b"2\r\nhi\r\n0\r\n\r\n"),
        got(CHUNKED, method=b"POST", body=b"2\r\nhi\r\n0\r\n\r\n"),
    ),
    "an underscored length is not one": passed(post(b"Content_Length: 5\r\n"), got(method=b"POST")),
    "an underscored coding is not one": passed(post(b"Transfer_Encoding: chunked\r\n"), got(method=b"POST")),
}

BODIES = {
    "chunk extensions and trailers are dropped": passed(
        post(CHUNKED + b"Trailer: X-Late\r\n", b'2;a="b";c\r\nhi\r\n0;z\r\nX-Late: 1\r\nHost: evil\r\n\r\n'),
        got(CHUNKED, method=b"POST", body=b"2\r\nhi\r\n0\r\n\r\n"),
    ),
    "leading zeros of a chunk size": passed(
        post(CHUNKED, b"0002\r\nhi\r\n000\r\n\r\n"), got(CHUNKED, method=b"POST", body=b"2\r\nhi\r\n0\r\n\r\n")
    ),
    "a chunk size with 0x": cut(post(CHUNKED, b"0x2\r\nhi\r\n0\r\n\r\n"), got(CHUNKED, method=b"POST")),
    "a signed chunk size": cut(post(CHUNKED, b"+2\r\nhi\r\n0\r\n\r\n"), got(CHUNKED, method=b"POST")),
    "a chunk size beyond 64 bits": cut(post(CHUNKED, b"10000000000000002\r\nhi\r\n"), got(CHUNKED, method=b"POST")),
    "an empty chunk size": cut(post(CHUNKED, b"\r\nhi\r\n0\r\n\r\n"), got(CHUNKED, method=b"POST")),
    "a bare LF behind a chunk size": cut(post(CHUNKED, b"2\nhi\r\n0\r\n\r\n"), got(CHUNKED, method=b"POST")),
    "a bare LF in an extension": cut(post(CHUNKED, b"2;a\nb\r\nhi\r\n0\r\n\r\n"), got(CHUNKED, method=b"POST")),
    "a chunk longer than its size": cut(post(CHUNKED, b"2\r\nhix\r\n0\r\n\r\n"), got(CHUNKED, method=b"POST")),
    "a folded trailer": cut(post(CHUNKED, b"0\r\nA: b\r\n c\r\n\r\n"), got(CHUNKED, method=b"POST")),
    "an endless extension": cut(post(CHUNKED, b"2;" + b"a" * 5000), got(CHUNKED, method=b"POST")),
    "too many trailers": cut(post(CHUNKED, b"0\r\n" + b"A: b\r\n" * 3000 + b"\r\n"), got(CHUNKED, method=b"POST")),
    "a body behind GET": passed(get(b"Content-Length: 3\r\n") + b"abc", got(b"Content-Length: 3\r\n", body=b"abc")),
    "a body cut short": Case(
        post(b"Content-Length: 9\r\n", b"half"),
        (),
        (got(b"Content-Length: 9\r\n", method=b"POST", body=b"half"),),
        (("aborted", None, "client-gone"),),
        eof=True,
    ),
    "chunks cut short": Case(
        post(CHUNKED, b"4\r\nhalf\r\n"),
        (),
        (got(CHUNKED, method=b"POST", body=b"4\r\nhalf\r\n"),),
        (("aborted", None, "client-gone"),),
        eof=True,
    ),
    "Expect: 100-continue": Case(
        post(b"Expect: 100-continue\r\nContent-Length: 2\r\n", b"hi"),
        (100, 200),
        (got(b"Content-Length: 2\r\n", method=b"POST", body=b"hi"),),
        (("completed", 200),),
    ),
    "Expect without a body": passed(get(b"Expect: 100-continue\r\n"), got()),
}

LINES = {
    "a folded field": refused(get(b"X: a\r\n b\r\n")),
    "a field folded with a tab": refused(get(b"X: a\r\n\tContent-Length: 3\r\n")),
    "a folded first field": refused(b"GET /T/fast/ HTTP/1.1\r\n Host: x\r\n" + PLAIN + b"\r\n"),
    "a bare CR in a value": refused(get(b"X: a\rContent-Length: 3\r\n")),
    "a bare LF in a value": refused(get(b"X: a\nContent-Length: 3\r\n")),
    "lines that end in LF": refused(get().replace(b"\r\n", b"\n")),
    "NUL in a value": refused(get(b"X: a\0b\r\n")),
    "NUL in a name": refused(get(b"X\0: a\r\n")),
    "DEL in a value": refused(get(b"X: a\x7f\r\n")),
    "a field without a colon": refused(get(b"nonsense\r\n")),
    "a field without a name": refused(get(b": x\r\n")),
    "a name with a blank": refused(get(b"X y: z\r\n")),
    "a name outside ASCII": refused(get(b"X\xff: z\r\n")),
    "too long a head": refused(get(b"X: " + b"a" * 70000 + b"\r\n"), 431, "head-too-large"),
    "too many fields": refused(get(b"X: y\r\n" * 101), 431, "head-too-large"),
    "too many options": refused(get(b"Connection: " + b"," * 100 + b"\r\n"), 431, "head-too-large"),
    "too many expectations": refused(get(b"Expect: " + b"x," * 100 + b"\r\n"), 431, "head-too-large"),
    "a hundred options": passed(get(b"Connection: x" + b"," * 99 + b"\r\n"), got()),
    "a hundred fields": passed(get(b"X: y\r\n" * 98), got(b"X: y\r\n" * 98)),
    "a request without a version": refused(b"GET /T/fast/\r\n\r\n"),
    "HTTP/0.9": refused(get(version=b"HTTP/0.9")),
    "HTTP/2.0": refused(get(version=b"HTTP/2.0")),
    "HTTP/1.2": refused(get(version=b"HTTP/1.2")),
    "HTTP/1.10": refused(get(version=b"HTTP/1.10")),
    "http/1.1": refused(get(version=b"http/1.1")),
    "the preface of HTTP/2": refused(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"),
    "a TLS hello": refused(b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03\r\n\r\n"),
    "two blanks": refused(get().replace(b"GET ", b"GET  ")),
    "a tab for a blank": refused(get().replace(b"GET ", b"GET\t")),
    "a method in small letters": refused(get(method=b"get")),
    "an unknown method": refused(get(method=b"FROBNICATE")),
    "an empty line first": passed(b"\r\n" + get(), got()),
    "many empty lines first": passed(b"\r\n" * 30_000 + get(), got()),
    "more empty lines than a head may have bytes": refused(b"\r\n" * 70_000 + get()),
}

TARGETS = {
    "CONNECT": refused(b"CONNECT example.com:443 HTTP/1.1\r\n" + PLAIN + b"\r\n"),
    "CONNECT to a path": refused(get(method=b"CONNECT")),
    "absolute-form": refused(b"GET http://localhost/T/fast/ HTTP/1.1\r\n" + PLAIN + b"\r\n"),
    "asterisk-form": refused(b"OPTIONS * HTTP/1.1\r\n" + PLAIN + b"\r\n"),
    "a fragment": refused(get(path=b"/a#b")),
    "a dot segment": refused(get(path=b"/../x")),
    "an encoded dot segment": refused(get(path=b"/%2e%2E/x")),
    "half an encoded dot segment": refused(get(path=b"/.%2e/x")),
    "a single dot": refused(get(path=b"/./x")),
    "a dot segment at the end": refused(get(path=b"/x/..")),
    "a dot segment before the mount": refused(b"GET /T/other/../fast/ HTTP/1.1\r\n" + PLAIN + b"\r\n"),
    "an encoded mount": refused(b"GET /T/%66ast/ HTTP/1.1\r\n" + PLAIN + b"\r\n"),
    "an encoded slash behind the token": refused(
        b"GET /T%2Ffast/ HTTP/1.1\r\n" + PLAIN + b"\r\n", 404, "unknown-mount"
    ),
    "an encoded slash below": passed(get(path=b"/a%2Fb"), got(path=b"/a%2Fb")),
    "slashes in a row": passed(get(path=b"//a///b"), got(path=b"/a/b")),
    "a backslash": refused(get(path=b"/a\\b")),
    "an encoded backslash": passed(get(path=b"/a%5Cb"), got(path=b"/a%5Cb")),
    "%00": refused(get(path=b"/a%00b")),
    "percent-encoding that is none": refused(get(path=b"/a%zzb")),
    "half of percent-encoding": refused(get(path=b"/a%2")),
    "a byte outside ASCII": refused(get(path=b"/a\xffb")),
    "a mount in capitals": refused(b"GET /T/FAST/ HTTP/1.1\r\n" + PLAIN + b"\r\n", 404, "unknown-mount"),
    "another token": refused(b"GET /" + b"f" * 32 + b"/fast/ HTTP/1.1\r\n" + PLAIN + b"\r\n", 404, "unknown-mount"),
    "dots in a query": passed(get(path=b"/a?b=/../c"), got(path=b"/a?b=/../c")),
}

CALLERS = {
    "no Host": refused(b"GET /T/fast/ HTTP/1.1\r\n\r\n"),
    "no Host in HTTP/1.0": refused(b"GET /T/fast/ HTTP/1.0\r\n\r\n"),
    "two Hosts": refused(get(b"Host: localhost\r\n")),
    "a foreign Host": refused(get().replace(b"localhost", b"evil.example"), 421, "misdirected-host")._replace(
        any_host=True
    ),
    "userinfo in Host": refused(get().replace(b"localhost", b"localhost@evil"), 421, "misdirected-host")._replace(
        any_host=True
    ),
    "an empty Host": refused(get().replace(b"localhost", b""), 421, "misdirected-host")._replace(any_host=True),
    "a list in Host": refused(get().replace(b"localhost", b"localhost, evil"), 421, "misdirected-host")._replace(
        any_host=True
    ),
    "a foreign Origin": refused(get(b"Origin: http://evil.example\r\n"), 403, "foreign-origin"),
    "an Origin of null": refused(get(b"Origin: null\r\n"), 403, "foreign-origin"),
    "an Origin that begins like ours": refused(
        get(b"Origin: http://localhost.evil.example\r\n"), 403, "foreign-origin"
    ),
    "our Origin and another": refused(
        get(b"Origin: http://localhost\r\nOrigin: http://evil.example\r\n"), 403, "foreign-origin"
    ),
    "a page of another site": refused(get(b"Sec-Fetch-Site: cross-site\r\n"), 403, "foreign-origin"),
}

FIELDS = {
    "hop-by-hop fields": passed(
        get(
            b"Keep-Alive: 5\r\nProxy-Connection: x\r\nProxy-Authorization: x\r\nTE: trailers\r\nTrailer: X\r\n"
            b"HTTP2-Settings: x\r\nX-Kept: 1\r\n"
        ),
        got(b"X-Kept: 1\r\n"),
    ),
    "fields named in Connection": passed(
        get(b"Connection: X-Mine, x-forwarded-prefix, host, content-length\r\nX-Mine: 1\r\nX-Kept: 1\r\n"),
        got(b"X-Kept: 1\r\n"),
    ),
    "a length named in Connection": passed(
        post(b"Connection: content-length\r\nContent-Length: 2\r\n", b"hi"),
        got(b"Content-Length: 2\r\n", method=b"POST", body=b"hi"),
    ),
    "claims about the way here": passed(
        get(b"X-Forwarded-For: 1.2.3.4\r\nX_Forwarded_Prefix: /x\r\nForwarded: for=x\r\n"), got()
    ),
    "the token in Referer": passed(
        get(b"Referer: http://localhost/T/fast/x\r\n"), got(b"Referer: http://localhost/fast/x\r\n")
    ),
    "h2c": passed(get(b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"), got()),
}

TWO = b"GET /T/fast/1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
SEQUENCES = {
    "pipelined": passed(TWO + get(path=b"/2"), got(path=b"/1"), got(path=b"/2")),
    "pipelined behind a body": passed(
        b"POST /T/fast/1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nhi" + get(path=b"/2"),
        got(b"Content-Length: 2\r\n", b"/1", b"POST", b"hi"),
        got(path=b"/2"),
    ),
    "pipelined behind chunks": passed(
        b"POST /T/fast/1 HTTP/1.1\r\nHost: localhost\r\n" + CHUNKED + b"\r\n2\r\nhi\r\n0\r\n\r\n" + get(path=b"/2"),
        got(CHUNKED, b"/1", b"POST", b"2\r\nhi\r\n0\r\n\r\n"),
        got(path=b"/2"),
    ),
    "a bad one behind a good one": Case(
        TWO + get(b"X: a\0\r\n") + SMUGGLED,
        (200, 400),
        (got(path=b"/1"),),
        (("completed", 200), ("refused", 400, "bad-request")),
    ),
    "one behind the last": passed(get(path=b"/1") + SMUGGLED, got(path=b"/1")),
    "HTTP/1.0 asks once": passed(
        b"GET /T/fast/1 HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n" + SMUGGLED, got(path=b"/1")
    ),
    "half a head": Case(get()[:-4], (), eof=True),
}

CASES = {**FRAMING, **BODIES, **LINES, **TARGETS, **CALLERS, **FIELDS, **SEQUENCES}


def statuses(data: bytes) -> tuple[int, ...]:
    """Return the statuses of the answers in `data`, whose bodies hold no status lines."""
    return tuple(map(int, re.findall(rb"HTTP/1\.1 ([0-9]{3}) ", data)))


@pytest.mark.parametrize("where", ["tcp", "unix"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_what_is_sent_what_is_forwarded_and_what_is_recorded(
    build: Build, token: str, tmp_path: Path, case: Case, where: str
) -> None:
    """The client gets the expected answers, exactly the expected bytes reach the skill, and the record has an entry for
    each request."""
    received: list[bytearray] = []

    async def upstream(stream: trio.SocketStream) -> None:
        data = bytearray()
        while more := await stream.receive_some(65536):
            if not data:  # what follows an answer is a request, or a fault of the facade
                received.append(data)
            data += more
            if whole(bytes(data)):
                data = bytearray()
                await stream.send_all(OK)

    path = str(tmp_path / "facade.sock") if where == "unix" else None
    house = await build(upstream, max_body_bytes=100_000, path=path)
    if case.any_host and where == "unix":
        case = passed(case.sent, got())
    client = await house.client()
    sent = case.sent.replace(b"/T/", f"/{token}/".encode()).replace(b"/T%", f"/{token}%".encode())
    if case.eof:
        with socket.socket(fileno=os.dup(client.stream.socket.fileno())) as sock:
            sock.send(sent)
            sock.shutdown(socket.SHUT_WR)  # before the facade has its turn
    else:
        await client.send(sent)
    assert statuses(await client.rest()) == case.answers
    outcomes = await outcomes_of(house.gate, len(case.recorded))
    assert outcomes == list(case.recorded)
    port = b"%d" % house.gate.target.port
    has_left = case.eof and where == "tcp"  # before anything was forwarded
    assert list(map(bytes, received)) == (
        [] if has_left else [request.replace(b"PORT", port) for request in case.received]
    )
    admitted = [entry for entry in house.gate.transcript if entry[0] == "admit"]
    assert len(admitted) == len(case.received), "what reached the skill was recorded before"


async def outcomes_of(gate: Any, count: int) -> list[tuple[Any, ...]]:
    """Return the outcomes of requests by kind, status and reason, once there are `count` of them."""

    def entries() -> list[tuple[Any, ...]]:
        return [entry for entry in gate.transcript if entry[0] != "admit"]

    await gate.until_holds(lambda: len(entries()) >= count)
    await trio.testing.wait_all_tasks_blocked(0.005)
    fields = {"completed": slice(2, 3), "aborted": slice(2, 6, 3), "refused": slice(5, 7)}
    return [(entry[0], *entry[fields[entry[0]]]) for entry in entries()]


def whole(data: bytes) -> bool:
    """Return whether `data` is a request with all its body."""
    head, end, body = data.partition(b"\r\n\r\n")
    if CHUNKED.strip() in head:
        return body.endswith(b"0\r\n\r\n")
    length = head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0]
    return bool(end) and len(body) >= int(length or 0)
