"""The poller serves a connection as a task does: client, skill and record show no difference."""

import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from scripted_connections import CUSHION_S, End, Gate, Part, Script, play_all
from tiers import everything

SCRIPTS = 25  # of one example, played at once
EXAMPLES = int(os.environ.get("OMAC_SOAK_EXAMPLES") or (12 if everything() else 2))
PATIENT_S = 0.03  # the cushion of a second look
LONG_S = 1.3  # until what the poller has is a task's, and a skill is late
PAUSES = st.one_of(*[st.just((0, 0.0))] * 23, st.tuples(st.integers(1, 8), st.just(LONG_S)))

HOST = b"Host: localhost\r\n"
FIELDS = [b"", b"", b"", b"Connection: close\r\n", b"X: y\r\n", b"X: " + b"y" * 3_000 + b"\r\n", b"Connection: x\r\n"]
WRONG = [
    b"GET /T/none/ HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /T/fast/../0 HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /T/fast/0 HTTP/1.1\r\n\r\n",
    b"POST /T/fast/0 HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    b"\r\n",
    b"\x16\x03\x01",
]
INTERIM = [b"", b"", b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 2]
HEADS = [b"200 OK", b"200 OK", b"404 Not Found", b"204 No Content", b"304 Not Modified", b"500 Oops"]
ANSWER_FIELDS = [
    b"",
    b"",
    b"Connection: close\r\n",
    b"Set-Cookie: a=b\r\n",
    b"Location: /x\r\n",
    b"Content-Type: text/event-stream\r\n",
    b"X: " + b"y" * 3_000 + b"\r\n",
]
BROKEN = [b"", b"HTTP", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", b"HTTP/1.1 99 X\r\n\r\n"]
SIZES = [0, 1, 10, 3_000, 70_000, 150_000]
READ_MAX = 60_000  # bytes that have surely been read before a reset loses the others
SEEN_MAX = 100_000  # bytes behind which the system may not show an end yet
UPGRADE = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\n" + UPGRADE + b"\r\n"


def split(draw: st.DrawFn, data: bytes, end: End) -> list[Part]:
    """Cut `data` anywhere into parts; the end comes with the last one or behind it."""
    if end == "resets" and len(data) > READ_MAX:
        end = "closes"
    near = st.one_of(st.integers(0, len(data)), st.integers(max(0, len(data) - 4), len(data)))
    cuts = sorted(draw(st.lists(near, max_size=3)))
    parts = [Part(data[start:stop]) for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    if end == "stays" or draw(st.booleans()):
        return [*parts[:-1], parts[-1]._replace(end=end)]
    return [*parts, Part(b"", end)]


def joined(parts: list[Part]) -> list[Part]:
    """Return an answer sent at once, and its end: the poller holds back a part of an ordinary answer, a task does
    not."""
    end = [part for part in parts[1:] if part.end != "stays" and not part.data]
    rest = parts[: len(parts) - len(end)]
    return [Part(b"".join(part.data for part in rest), rest[-1].end), *end]


def chunked(body: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (body[:7], body[7:]) if piece) + b"0\r\n\r\n"


@st.composite
def requests(draw: st.DrawFn, number: int) -> tuple[bytes, str, bool]:
    """Draw a request, its method and whether it has a body."""
    kind = draw(st.sampled_from(["plain"] * 6 + ["body", "body", "chunks", "upgrade", "old", "wrong"]))
    method = draw(st.sampled_from([b"GET", b"GET", b"GET", b"HEAD", b"POST", b"OPTIONS"]))
    fields, version, body = draw(st.sampled_from(FIELDS)), b"HTTP/1.1", b""
    content = b"x" * draw(st.sampled_from(SIZES))
    match kind:
        case "wrong":
            return draw(st.sampled_from(WRONG)), "GET", False
        case "body":
            method, fields = b"POST", fields + b"Content-Length: %d\r\n" % len(content)
            body = content
        case "chunks":
            method, fields = b"POST", fields + b"Transfer-Encoding: chunked\r\n"
            body = chunked(content)
        case "upgrade":
            method, fields = b"GET", UPGRADE
        case "old":
            version = b"HTTP/1.0"
        case _:
            pass
    if kind in ("body", "chunks") and draw(st.sampled_from([False, False, True])):
        fields += b"Expect: 100-continue\r\n"
    head = b"%b /T/fast/%d %b\r\n%b%b\r\n" % (method, number, version, HOST, fields)
    return head + body, kind if kind == "upgrade" else method.decode(), bool(body)


@st.composite
def answers(draw: st.DrawFn, number: int, method: str, has_body: bool) -> tuple[bool, list[Part]]:
    """Draw whether an answer comes before the body, and the parts that the skill sends."""
    early = has_body and draw(st.sampled_from([False, False, True]))
    end: End = draw(st.sampled_from(["stays", "stays", "stays", "finishes", "closes", "resets"]))
    if method == "upgrade" and draw(st.booleans()):
        end = "stays" if end == "stays" else "finishes"  # a reset may overtake what the client sends, in both ways
        return early, split(draw, SWITCH + b"d" * draw(st.sampled_from(SIZES)), end)
    kind = draw(st.sampled_from(["length"] * 6 + ["chunks", "chunks", "open", "broken", "short"]))
    status, fields = draw(st.sampled_from(HEADS)), draw(st.sampled_from(ANSWER_FIELDS))
    body = b"d" * draw(st.sampled_from(SIZES))
    bodiless = method == "HEAD" or status[:3] in (b"204", b"304")
    head = draw(st.sampled_from(INTERIM)) + b"HTTP/1.1 " + status + b"\r\n" + fields
    match kind:
        case "broken":
            data = draw(st.sampled_from(BROKEN))
            if not data and method in ("GET", "HEAD", "OPTIONS", "upgrade") and number:
                data = b"H"  # without a byte it is sent again where the connection was at rest, and only there
            return early, split(draw, data, "closes" if end == "stays" else end)
        case "chunks":
            head, body = head + b"Transfer-Encoding: chunked\r\n\r\n", chunked(body)
        case "open":
            head, end = head + b"\r\n", "closes" if end == "stays" else end
        case _:
            head += b"Content-Length: %d\r\n\r\n" % len(body)
    if kind == "short" and not bodiless:
        return early, split(draw, head + body[:-1], "closes" if end == "stays" else end)
    parts = split(draw, head if bodiless else head + body, end)
    surplus = draw(st.sampled_from([b""] * 6 + [b"\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", body]))
    if kind != "open" and len(parts[-1].data) > 0:
        parts[-1] = parts[-1]._replace(data=parts[-1].data + surplus)
    return early, parts


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    """Draw up to four requests of a client, and their answers."""
    sent, replies = b"", []
    for number in range(draw(st.integers(1, 4))):
        data, method, has_body = draw(requests(number))
        sent += data
        replies.append(draw(answers(number, method, has_body)))
    sent += draw(st.sampled_from([b"", b"", b"", b"\r\n", b"GET /T/fa", b"z" * 200, b"z" * 70_000]))
    end: End = draw(st.sampled_from(["stays", "stays", "stays", "finishes", "finishes", "closes", "resets"]))
    parts = split(draw, sent, end if len(sent) < SEEN_MAX else "stays")
    if draw(st.sampled_from([False, False, True])):
        parts = [part._replace(rights=draw(st.booleans())) for part in parts]
    turns = draw(st.lists(st.sampled_from([True, True, False]), max_size=12))
    lazy = draw(st.sampled_from([False, False, False, True]))
    is_large = any(len(part.data) > READ_MAX for _, answer in replies for part in answer)
    if is_large and (end in ("closes", "resets") or (lazy and end == "finishes")):
        parts = [part._replace(end="stays") for part in parts]  # how much of it the client gets is the system's affair
    gate: Gate = draw(st.sampled_from(["ready", "ready", "ready", "slow", "slow", "full", "revoking"]))
    step = draw(st.integers(1, 8)) if gate != "ready" else 0
    unix = draw(st.booleans())
    if gate == "revoking" and end == "finishes" and not unix:
        parts = [part._replace(end="stays") for part in parts]  # it has left: that or the revocation may come first
    if gate == "revoking" or end != "stays":
        replies = [(early, joined(answer)) for early, answer in replies]
    return Script(unix, parts, replies, turns, lazy, (step, gate))


def differing(
    make_gate: Callable[[int], Any], played: list[Script], cushion_s: float, pause: tuple[int, float]
) -> list[tuple[Script, Any, Any]]:
    """Return the scripts whose results differ between the poller and a task, with both results."""
    ways = []
    for polling in (True, False):
        with tempfile.TemporaryDirectory(prefix="omac") as folder:
            play = partial(play_all, make_gate, played, Path(folder), polling=polling, cushion_s=cushion_s, pause=pause)
            ways.append(trio.run(play))
    return [each for each in zip(played, *ways, strict=True) if each[1] != each[2]]


@settings(
    max_examples=EXAMPLES,
    phases=[Phase.generate],
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(scripts(), min_size=SCRIPTS, max_size=SCRIPTS), PAUSES)
def test_both_ways_come_to_the_same(
    make_gate: Callable[[int], Any], played: list[Script], pause: tuple[int, float]
) -> None:
    """The poller and a task give the same results for random requests and answers, split anywhere, with every end of a
    connection. A difference counts if it recurs in a repeat of the script alone and unhurried."""
    for script, *_ in differing(make_gate, played, CUSHION_S, pause):
        for _, polled, task in differing(make_gate, [script], PATIENT_S, pause):
            pytest.fail(f"{script}\n\npoller: {polled}\n\ntask:   {task}")
