"""`sidecar.limits` of an omac.yaml, and those of the owner's settings, by a real server and curl: how long calls take,
and how many there may be."""

import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from polling import eventually
from real_omac import CURL, Answer, Omac, curl, parse_answer

from omac.domain.kernel.run import RunStarted

SET = "omac settings set limits.concurrent_calls NUMBER"  # how a refusal says that the owner's limit is changed
PROGRAM = """\
import os, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        name, _, seconds = self.path[1:].partition("/")
        if name == "late":
            time.sleep(float(seconds))
        if name == "switch":
            self.wfile.write(b"HTTP/1.1 101 X\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\n\\r\\n")
            time.sleep(float(seconds))
            return
        self.send_response(200)
        if name == "drip":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            end = time.monotonic() + float(seconds)
            while time.monotonic() < end:
                self.wfile.write(b"1\\r\\nx\\r\\n")
                time.sleep(0.1)
            self.wfile.write(b"0\\r\\n\\r\\n")
            return
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_):
        pass

class Server(ThreadingHTTPServer):
    def handle_error(self, *_):
        pass

Server(("127.0.0.1", int(os.environ["SIDECAR_PORT"])), Handler).serve_forever()
"""


@pytest.fixture
def limited(omac: Omac) -> Any:
    """The base of a skill with these limits, on a server."""

    def serve(settings: Mapping[str, str] = {}, **limits: int) -> str:
        for name, word in settings.items():
            omac.ok("settings", "set", f"limits.{name}", word)
        lines = "".join(f"    {name}: {value}\n" for name, value in limits.items())
        block = f"  limits:\n{lines}" if lines else ""
        meta = f"name: limited\nsidecar:\n  command: [python3, sidecar.py]\n{block}"
        project = omac.root / "shop"
        omac.skill(project, "limited", meta, PROGRAM)
        omac.approve(project, "limited")
        return str(omac.serve().skill(project, "limited")["base"])

    return serve


def cut_off(url: str) -> tuple[float, bytes]:
    """How long a call took that ends before its answer does, and what came of that."""
    began = time.monotonic()
    done = subprocess.run([*CURL, "-i", url], capture_output=True)
    assert done.returncode in (18, 56), "the answer does not look whole"
    return time.monotonic() - began, done.stdout


@pytest.mark.full
def test_a_call_that_is_silent(omac: Omac, limited: Any) -> None:
    """For longer than its skill says, it is a 504; one that takes longer than others may is waited for."""
    base = limited(idle_timeout_secs=2)
    assert curl(f"{base}/late/1.2").body == "ok"
    began = time.monotonic()
    answer = curl(f"{base}/late/30")
    assert (answer.status, answer.headers["x-omac-reason"]) == (504, "timeout")
    assert 1.9 < time.monotonic() - began < 6
    assert curl(f"{base}/drip/3").body.startswith("x" * 20), "it was never silent for long"
    eventually(lambda: [row["reason"] for row in omac.audit()] == [None, "timeout", None], 5.0, "the outcomes")


def test_a_call_that_takes_too_long(omac: Omac, limited: Any) -> None:
    """Whether it talks meanwhile or not."""
    base = limited(total_timeout_secs=1)
    answer = curl(f"{base}/late/30")
    assert answer.status == 504
    assert "calls of this skill are limited to 1 s" in answer.json()["detail"]
    taken, begun = cut_off(f"{base}/drip/30")
    assert 0.9 < taken < 5
    assert begun.startswith(b"HTTP/1.1 200")
    eventually(lambda: [row["reason"] for row in omac.audit()] == ["timeout"] * 2, 5.0, "the outcomes")


@contextmanager
def switched(url: str) -> Iterator[socket.socket]:
    """A connection on which the skill has switched protocols, and says nothing more."""
    parts = urlsplit(url)
    with socket.create_connection((str(parts.hostname), parts.port or 0), timeout=10) as sock:
        asks = "Connection: Upgrade\r\nUpgrade: websocket\r\n"
        sock.sendall(f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\n{asks}\r\n".encode())
        assert sock.recv(4096).startswith(b"HTTP/1.1 101 ")
        yield sock


def at_once(url: str, count: int) -> list[Answer]:
    """The answers to calls that are made at the same time."""

    def call(_: int) -> Answer:
        return parse_answer(subprocess.run([*CURL, "-i", url], capture_output=True, check=True).stdout)

    with ThreadPoolExecutor(count) as callers:
        return list(callers.map(call, range(count)))


def test_too_many_at_once(omac: Omac, limited: Any) -> None:
    """Those beyond the limit are told to come again; when the others have ended they are answered."""
    base = limited(concurrent_calls=2)
    answers = at_once(f"{base}/late/1", 6)
    refused = [answer for answer in answers if answer.status != 200]
    assert [answer.status for answer in refused] == [429] * 4
    for answer in refused:
        assert (answer.headers["x-omac-reason"], answer.headers["retry-after"]) == ("too-many-calls", "1")
        assert answer.json()["skill"] == "limited"
    for _ in range(5):
        assert curl(f"{base}/now").status == 200
    rows = omac.audit("--outcome", "refused")
    assert {row["reason"] for row in rows} == {"too-many-calls"}


def test_too_many_a_second(limited: Any) -> None:
    """A burst of as many as may begin in a second, no more; a moment later the next."""
    base = limited(calls_per_second=2)
    began = time.monotonic()
    answers = [curl(f"{base}/now").status for _ in range(8)]
    allowed = 2 + 2 * (time.monotonic() - began)
    assert answers[:2] == [200, 200]
    assert 429 in answers
    assert answers.count(200) <= allowed + 1
    time.sleep(1.1)
    assert curl(f"{base}/now").status == 200


@pytest.mark.parametrize(
    ("settings", "own", "whose", "fix"),
    [
        ({"concurrent_calls": "2"}, 5, "your settings", SET),
        ({"concurrent_calls": "1,limited=2"}, None, "your settings", SET),
        ({"concurrent_calls": "5"}, 2, "its omac.yaml", "omac show limited"),
        (
            {"all_concurrent_calls": "2"}, 5, "your settings for all skills",
            "omac settings set limits.all_concurrent_calls NUMBER",
        ),
    ],
)  # fmt: skip
def test_the_stricter_of_both_limits_holds(
    limited: Any, settings: dict[str, str], own: int | None, whose: str, fix: str
) -> None:
    """Of the skill's and the owner's; the refusal says whose it is, and how that is changed."""
    base = limited(settings, **({} if own is None else {"concurrent_calls": own}))
    answers = at_once(f"{base}/late/1", 5)
    refused = [answer for answer in answers if answer.status != 200]
    assert [answer.status for answer in refused] == [429] * 3
    for answer in refused:
        told = answer.json()
        assert (told["error"], told["skill"]) == ("too-many-calls", "limited")
        assert f"are under way, the limit of {whose}; try again" in told["detail"]
        assert told["fix"][0].startswith(fix)
    assert curl(f"{base}/now").status == 200


def test_what_the_owner_allows_of_one_call(omac: Omac, limited: Any) -> None:
    """A body, a head, silence and time beyond the owner's limits are refused, whatever the skill allows; a server keeps
    the limits that it began with, and its record has them."""
    settings = {
        "max_body_bytes": "1000", "max_head_bytes": "2048",
        "idle_timeout_secs": "1", "total_timeout_secs": "60,limited=2",
    }  # fmt: skip
    base = limited(settings, max_body_bytes=5000, idle_timeout_secs=30, total_timeout_secs=30)
    for name in settings:
        omac.ok("settings", "unset", f"limits.{name}")
    assert curl("-d", "x" * 1000, f"{base}/now").status == 501, "the skill has no POST, and says so"
    cases = {
        ("body-too-large", 413, "limits.max_body_bytes"): ("-d", "x" * 1001, f"{base}/now"),
        ("head-too-large", 431, "limits.max_head_bytes"): ("-H", f"X-Long: {'x' * 2048}", f"{base}/now"),
        ("timeout", 504, "limits.idle_timeout_secs"): (f"{base}/late/9",),
    }
    for (reason, status, name), line in cases.items():
        answer = curl(*line)
        assert (answer.status, answer.headers["x-omac-reason"]) == (status, reason)
        assert "the limit of your settings" in answer.json()["detail"]
        assert answer.json()["fix"][0].startswith(f"omac settings set {name} NUMBER")
    with switched(f"{base}/switch/30") as silent:
        taken, _ = cut_off(f"{base}/drip/30")
        assert 1.9 < taken < 6
        silent.setblocking(False)
        with pytest.raises(ConnectionResetError):
            silent.recv(1)
    (started,) = omac.events(RunStarted)
    assert {f"limits.{name}": word for name, word in settings.items()}.items() <= started.event.policy.items()
