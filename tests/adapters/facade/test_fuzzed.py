"""Mutated requests against a strict model of the requests that may be forwarded: no other reaches the skill."""

import contextlib
import os
import re
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from omac.adapters.facade.connection import FacadeConnection, Surroundings
from omac.adapters.facade.limits import FacadeLimits
from omac.adapters.facade.plane import DataPlane
from omac.adapters.http.slots import SlotLimits, Slots
from omac.adapters.http.wire import ClientGone, Wire

CLIENTS = 50  # of one example
REQUESTS = int(os.environ.get("OMAC_SOAK_EXAMPLES") or 5_000)
EXAMPLES = REQUESTS // CLIENTS  # not made smaller when one fails: that would take minutes
PATIENCE_S = 0.05

BASES = [
    b"GET /T/fast/a HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"POST /T/fast/b?c=d HTTP/1.1\r\nHost: 127.0.0.1:80\r\nContent-Length: 5\r\n\r\nhello",
    b"POST /T/fast/e HTTP/1.1\r\nHost: [::1]\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: y\r\n\r\n",
    b"HEAD /T/fast/%2F HTTP/1.0\r\nHost: localhost\r\nConnection: X-Mine\r\nX-Mine: 1\r\n\r\n",
    b"PUT /T/fast/ HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
]
LAST = b"GET /T/fast/last HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
PIECES = [
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b"\t",
    b":",
    b",",
    b";",
    b"/",
    b"\\",
    b"#",
    b"?",
    b"%00",
    b"%2e",
    b"..",
    b"/../",
    b"0",
    b"5",
    b"-1",
    b"0x",
    b"\xff",
    b"\x0b",
    b"HTTP/1.0",
    b"HTTP/2.0",
    b"chunked",
    b"identity",
    b"Content-Length: 0\r\n",
    b"Content-Length: 7\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: x\r\n",
    b"Transfer_Encoding: chunked\r\n",
    b"Content-Length : 3\r\n",
    b"Host: localhost\r\n",
    b"Host: evil\r\n",
    b"Connection: close\r\n",
    b" folded\r\n",
    b"Connection: content-length, host\r\n",
    b"Upgrade: h2c\r\n",
    b"X-Forwarded-Prefix: /evil\r\n",
    b"0\r\n\r\n",
    b"Origin: http://evil\r\n",
    b"http://localhost",
    b"GET /T/fast/in HTTP/1.1\r\nHost: localhost\r\n\r\n",
]

HEAD = re.compile(
    rb"([A-Z]{1,20}) (/[!-~]*) HTTP/1\.([01])\r\n((?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*\r\n)*)\r\n"
)
TARGET = re.compile(rb"/+T/+fast((?:/[^?#\\]*)?)(\?[^#]*)?")
HOST = re.compile(rb"(?i:localhost|127(?:\.[0-9]{1,3}){3}|\[::1\])(?::[0-9]*)?")
CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?\r\n")
TRAILERS = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*\r\n)*\r\n")
OWN_CHUNKS = re.compile(rb"[0-9a-f]+\r\n")
FORBIDDEN = re.compile(
    rb"(?im)^(keep-alive|te|trailer|proxy-[a-z]+|http2-settings|expect|upgrade|[a-z-]*_[^:]*forwarded[^:]*):"
)


class Forwarded(NamedTuple):
    """A request that may reach the skill: with all its body if `whole`, else with at most this part of it."""

    line: bytes
    body: bytes
    whole: bool


def model(data: bytes) -> list[Forwarded]:
    """Return the requests that may be forwarded of a connection's bytes: none behind the first fault."""
    forwardable: list[Forwarded] = []
    while (head := HEAD.match(data.lstrip(b"\r\n"))) is not None:
        data = data.lstrip(b"\r\n")[head.end() :]
        parts = [line.partition(b":") for line in head[4].split(b"\r\n")[:-1]]
        fields = [(name.lower(), value.strip(b" \t")) for name, _, value in parts]
        target = TARGET.fullmatch(head[2])
        hosts, lengths, codings, origins = ([v for n, v in fields if n == name] for name in NAMES)
        good = len(hosts) == 1 and HOST.fullmatch(hosts[0]) and len(lengths) + len(codings) <= 1 and not origins
        if not good or target is None or (codings and (codings[0].lower() != b"chunked" or head[3] == b"0")):
            break
        if lengths and not re.fullmatch(rb"[0-9]{1,18}", lengths[0]):
            break
        path = re.sub(rb"/{2,}", b"/", target[1] or b"/") + (target[2] or b"")
        if codings:
            body, whole, data = chunks(data)
        else:
            length = int(lengths[0]) if lengths else 0
            body, whole, data = data[:length], len(data) >= length, data[length:]
        forwardable.append(Forwarded(head[1] + b" " + path + b" HTTP/1.1", body, whole))
        options = b",".join(value for name, value in fields if name == b"connection").lower().split(b",")
        if not whole or head[3] == b"0" or b"close" in [option.strip() for option in options]:
            break
    return forwardable


NAMES = (b"host", b"content-length", b"transfer-encoding", b"origin")


def chunks(data: bytes) -> tuple[bytes, bool, bytes]:
    """Return the chunked body at the front of `data`, whether it is whole, and the bytes behind it."""
    body = b""
    while (line := CHUNK.match(data)) is not None:
        size, data = int(line[1], 16), data[line.end() :]
        if size == 0:
            end = TRAILERS.match(data)
            return body, end is not None, data[end.end() :] if end else b""
        body += data[:size]
        if data[size : size + 2] != b"\r\n":
            break
        data = data[size + 2 :]
    return body, False, b""


def read(data: bytes) -> Forwarded:
    """Parse a request as it reached the skill, with no bytes behind it."""
    head, end, rest = data.partition(b"\r\n\r\n")
    assert end
    line, _, fields = head.partition(b"\r\n")
    assert not FORBIDDEN.search(fields), fields
    names = [field.partition(b":")[0].lower() for field in fields.split(b"\r\n")]
    assert [names.count(name) for name in (b"host", b"x-forwarded-prefix")] == [1, 1], fields
    has_body = b"transfer-encoding" in names or re.search(rb"(?m)^Content-Length: 0*[1-9]", fields)
    assert (b"Connection: close" in fields.split(b"\r\n")) == (b"connection" in names) == bool(has_body), fields
    if b"transfer-encoding" in names:
        assert b"content-length" not in names
        body = b""
        while (size := OWN_CHUNKS.match(rest)) is not None:
            count, rest = int(size[0], 16), rest[size.end() :]
            if count == 0:
                assert rest == b"\r\n"
                return Forwarded(line, body, True)
            body += rest[:count]
            rest = rest[count + 2 :]
        return Forwarded(line, body, False)
    lengths = [int(field[16:]) for field in fields.split(b"\r\n") if field.startswith(b"Content-Length: ")]
    assert len(lengths) == names.count(b"content-length") <= 1
    length = lengths[0] if lengths else 0
    assert len(rest) <= length
    return Forwarded(line, rest, len(rest) == length)


edits = st.lists(
    st.tuples(st.integers(0, 400), st.sampled_from([0, 0, 0, 1, 2, 9]), st.sampled_from([b"", *PIECES])), max_size=4
)


@st.composite
def connections(draw: st.DrawFn) -> bytes:
    """Draw all bytes that a client sends: good requests with a few changes, and a last one."""
    data = b"".join(draw(st.lists(st.sampled_from(BASES), min_size=1, max_size=3)))
    for at, cut, piece in draw(edits):
        at %= len(data) + 1
        data = data[:at] + piece + data[at + cut :]
    return data + LAST


@settings(
    max_examples=EXAMPLES,
    phases=[Phase.generate],
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(connections(), min_size=CLIENTS, max_size=CLIENTS), st.sampled_from([True, True, False]), st.booleans())
def test_nothing_reaches_the_skill_that_the_model_does_not_forward(
    make_gate: Callable[[int], Any], sent: list[bytes], polled: bool, apart: bool
) -> None:
    """Requests reach the skill one at a time, as the model reads them, and each has an entry in the record."""
    received, gates = trio.run(partial(forwarded, make_gate, sent, polled=polled, apart=apart))
    for data, requests, gate in zip(sent, received, gates, strict=True):
        expected = model(data)
        assert len(requests) <= len(expected), (data, requests)
        for raw, may in zip(requests, expected, strict=False):
            request = read(raw)
            assert request.line == may.line, data
            assert request.body == may.body if request.whole else may.body.startswith(request.body), data
            assert may.whole or not request.whole, data
        kinds = [entry[0] for entry in gate.transcript]
        assert kinds.count("admit") == kinds.count("completed") + kinds.count("aborted") >= len(requests), data


@pytest.mark.parametrize("polled", [True, False])
@pytest.mark.parametrize("apart", [True, False])
def test_the_model_forwards_what_is_good(make_gate: Callable[[int], Any], polled: bool, apart: bool) -> None:
    """Unchanged requests all arrive, and whole: the model and the facade also agree on good requests."""
    sent = [base + LAST for base in BASES] + [BASES[0] + BASES[1] + BASES[2] + LAST]
    patient = partial(forwarded, make_gate, sent, polled=polled, apart=apart, patience_s=5.0)  # nothing good is late
    received, _ = trio.run(patient)
    for data, requests in zip(sent, received, strict=True):
        assert [read(raw) for raw in requests] == model(data)


async def forwarded(
    make_gate: Callable[[int], Any],
    sent: Sequence[bytes],
    *,
    polled: bool,
    apart: bool,
    patience_s: float = PATIENCE_S,
) -> tuple[list[list[bytes]], list[Any]]:
    """Return the requests that reached the skill for each client, and the clients' recorders. With `polled` the poller
    has the connections; with `apart` heads and bodies are sent one after the other."""
    received: list[list[bytes]] = [[] for _ in sent]
    limits = FacadeLimits(head_timeout_s=patience_s, idle_timeout_s=patience_s, client_idle_timeout_s=patience_s)
    (back,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    gates = []

    async def skill(stream: trio.SocketStream) -> None:
        data = b""
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while more := await stream.receive_some(65536):
                if not data:  # one request is in one piece until its body
                    received[int(re.findall(rb"X-Forwarded-Prefix: /m(\d+)\r\n", more)[0])].append(b"")
                data += more
                number = int(re.findall(rb"X-Forwarded-Prefix: /m(\d+)\r\n", data)[0])
                received[number][-1] = data
                if read(data).whole:
                    data = b""
                    await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    async def client(number: int, data: bytes, slots: Slots) -> None:
        gate = make_gate(back.socket.getsockname()[1])
        gate.target = msgspec.structs.replace(gate.target, mount=f"m{number}")
        gates.append((number, gate))
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        surroundings = msgspec.structs.replace(plane.surroundings, recorder=gate)
        if polled:
            plane.begin(surroundings, theirs, await slots.enter(theirs))
        else:
            nursery.start_soon(FacadeConnection(Wire(theirs, ClientGone), await slots.enter(theirs), surroundings).run)
        async with trio.open_nursery() as both, trio.SocketStream(trio.socket.from_stdlib_socket(ours)) as stream:
            both.start_soon(send, stream, data)
            with contextlib.suppress(trio.BrokenResourceError):
                while await stream.receive_some(65536):
                    pass
            both.cancel_scope.cancel()

    async def send(stream: trio.SocketStream, data: bytes) -> None:
        with contextlib.suppress(trio.BrokenResourceError):
            for part in re.split(rb"(?<=\r\n\r\n)", data) if apart else [data]:
                await stream.send_all(part)
                await trio.sleep(0.002)

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, skill, [back])
            plane = DataPlane(nursery, Surroundings(make_gate(0), limits, trio.current_time, bool), 64)
            nursery.start_soon(plane.run)
            slots = Slots(SlotLimits())
            async with trio.open_nursery() as clients:
                for number, data in enumerate(sent):
                    clients.start_soon(client, number, data, slots)
            await trio.testing.wait_all_tasks_blocked(0.001)
            nursery.cancel_scope.cancel()
    return received, [gate for _, gate in sorted(gates, key=lambda each: each[0])]
