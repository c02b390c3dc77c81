"""`sidecar.limits` of an omac.yaml and of the owner's settings bound the time and the number of calls."""

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
    """Return a function that serves a skill with these limits, and returns its base."""

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
    """Return how long a call took whose answer is cut off, and the part of the answer that arrived."""
    began = time.monotonic()
    done = subprocess.run([*CURL, "-i", url], capture_output=True)
    assert done.returncode in (18, 56), "the answer does not look whole"
    return time.monotonic() - began, done.stdout


@pytest.mark.full
def test_a_call_that_is_silent(omac: Omac, limited: Any) -> None:
    """A call that is silent for longer than its skill allows gets a 504; one that goes on sending is not cut off."""
    base = limited(idle_timeout_secs=2)
    assert curl(f"{base}/late/1.2").body == "ok"
    began = time.monotonic()
    answer = curl(f"{base}/late/30")
    assert (answer.status, answer.headers["x-omac-reason"]) == (504, "timeout")
    assert 1.9 < time.monotonic() - began < 6
    assert curl(f"{base}/drip/3").body.startswith("x" * 20), "it was never silent for long"
    eventually(lambda: [row["reason"] for row in omac.audit()] == [None, "timeout", None], 20.0, "the outcomes")


@pytest.mark.full
def test_a_call_that_takes_too_long(omac: Omac, limited: Any) -> None:
    """A call that takes longer than its limit in all is ended, even if it goes on sending."""
    base = limited(total_timeout_secs=1)
    answer = curl(f"{base}/late/30")
    assert answer.status == 504
    assert "calls of this skill are limited to 1 s" in answer.json()["detail"]
    duration_s, begun = cut_off(f"{base}/drip/30")
    assert 0.9 < duration_s < 5
    assert begun.startswith(b"HTTP/1.1 200")
    eventually(lambda: [row["reason"] for row in omac.audit()] == ["timeout"] * 2, 20.0, "the outcomes")


@contextmanager
def switched(url: str) -> Iterator[socket.socket]:
    """Yield a connection on which the skill has switched protocols and sends nothing more."""
    parts = urlsplit(url)
    with socket.create_connection((str(parts.hostname), parts.port or 0), timeout=10) as sock:
        asks = "Connection: Upgrade\r\nUpgrade: websocket\r\n"
        sock.sendall(f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\n{asks}\r\n".encode())
        assert sock.recv(4096).startswith(b"HTTP/1.1 101 ")
        yield sock


def at_once(url: str, count: int) -> list[Answer]:
    """Return the answers to calls that are made at the same time."""

    def call(_: int) -> Answer:
        return parse_answer(subprocess.run([*CURL, "-i", url], capture_output=True, check=True).stdout)

    with ThreadPoolExecutor(count) as callers:
        return list(callers.map(call, range(count)))


@pytest.mark.full
def test_too_many_at_once(omac: Omac, limited: Any) -> None:
    """Calls beyond the limit get a 429 with retry-after; once the others have ended, calls are answered again."""
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


@pytest.mark.full
def test_too_many_a_second(limited: Any) -> None:
    """A skill answers a burst of as many calls as may begin in a second, and refuses more until a moment later."""
    base = limited(calls_per_second=2)
    began = time.monotonic()
    answers = [curl(f"{base}/now").status for _ in range(8)]
    allowed = 2 + 2 * (time.monotonic() - began)
    assert answers[:2] == [200, 200]
    assert 429 in answers
    assert answers.count(200) <= allowed + 1
    time.sleep(1.1)
    assert curl(f"{base}/now").status == 200


@pytest.mark.full
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
    """The stricter limit of the skill and the owner holds; the refusal names whose it is, and how to change it."""
    base = limited(settings, **({} if own is None else {"concurrent_calls": own}))
    answers = at_once(f"{base}/late/1", 5)
    refused = [answer for answer in answers if answer.status != 200]
    assert [answer.status for answer in refused] == [429] * 3
    for answer in refused:
        refusal = answer.json()
        assert (refusal["error"], refusal["skill"]) == ("too-many-calls", "limited")
        assert f"are under way, the limit of {whose}; try again" in refusal["detail"]
        assert refusal["fix"][0].startswith(fix)
    assert curl(f"{base}/now").status == 200


@pytest.mark.full
def test_what_the_owner_allows_of_one_call(omac: Omac, limited: Any) -> None:
    """A body, a head, silence and time beyond the owner's limits are refused, even if the skill allows more.

    A server keeps the limits that it began with, and its record has them.
    """
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
    fields = [word for number in range(100) for word in ("-H", f"X{number}: x")]
    assert "your settings" not in curl(*fields, f"{base}/now").json()["detail"]
    with switched(f"{base}/switch/30") as silent:
        duration_s, _ = cut_off(f"{base}/drip/30")
        assert 1.9 < duration_s < 6
        silent.setblocking(False)
        with pytest.raises(ConnectionResetError):
            silent.recv(1)
    (started,) = omac.events(RunStarted)
    assert {f"limits.{name}": word for name, word in settings.items()}.items() <= started.event.policy.items()
