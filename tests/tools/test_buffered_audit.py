"""`--audit buffered` by a real server and curl: calls go ahead of their records, within bounds; each is recorded."""

import json
import socket
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest
from polling import eventually
from real_omac import Omac, curl

from omac.services.access.buffered import BEHIND_S

CALLS = 50
ONE_AT_A_TIME = """\
import os, pathlib, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        if self.headers["X-Number"] or self.command == "POST":
            with (pathlib.Path.home() / "received").open("a") as file:
                file.write(self.command + "\\n")
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        if self.command == "POST":
            time.sleep(0.3)
        self.send_response(200)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"got")

    do_GET = do_POST = answer

ThreadingHTTPServer(("127.0.0.1", int(os.environ["SIDECAR_PORT"])), Handler).serve_forever()
"""


def calls_of(omac: Omac) -> list[dict[str, Any]]:
    """The rows of the audit that are calls."""
    return [row for row in omac.audit() if row["kind"] == "access"]


def reaches(url: str) -> bool:
    """Whether a call is answered by the skill, whatever it says."""
    return curl(url).headers.get("server") == "omac-echo"


def test_each_call_is_recorded_once_with_its_outcome(omac: Omac) -> None:
    """As in a strict server; the status says which one this is."""
    project = omac.project("shop", "echo")
    omac.approve(project, "echo")
    serving = omac.serve("--audit", "buffered")
    base = str(serving.skill(project, "echo")["base"])
    for number in range(CALLS):
        assert reaches(f"{base}/{number}")
    eventually(lambda: {row["outcome"] for row in calls_of(omac)} == {"completed"}, 10.0, "the last outcome")
    assert [row["path"] for row in calls_of(omac)] == [f"/{number}" for number in range(CALLS)]
    assert "--audit buffered" in omac.ok("status")
    (run,) = json.loads(omac.ok("status", "--json"))["runs"]
    assert run["audit"] == "buffered"


def test_calls_wait_once_they_are_too_far_ahead(omac: Omac) -> None:
    """While the journal takes nothing, calls are answered for a second, and then wait as in a strict server."""
    project = omac.project("shop", "echo")
    omac.approve(project, "echo")
    serving = omac.serve("--audit", "buffered")
    base = str(serving.skill(project, "echo")["base"])
    assert reaches(f"{base}/before")
    eventually(lambda: len(calls_of(omac)) == 1, 10.0, "the first record")
    with (
        closing(sqlite3.connect(omac.state / "journal.db", isolation_level=None)) as other,
        ThreadPoolExecutor() as pool,
    ):
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        assert reaches(f"{base}/ahead")
        assert time.monotonic() - began < BEHIND_S, "it did not wait for the journal"
        time.sleep(BEHIND_S)
        waiting = pool.submit(reaches, f"{base}/waits")
        with pytest.raises(TimeoutError):
            waiting.result(0.3)
        assert len(calls_of(omac)) == 1
        other.execute("ROLLBACK")
        assert waiting.result(10.0)
    eventually(lambda: [row["outcome"] for row in calls_of(omac)] == ["completed"] * 3, 10.0, "the records")
    assert [row["path"] for row in calls_of(omac)] == ["/before", "/ahead", "/waits"]
    assert reaches(f"{base}/after")


def test_what_is_recorded_is_what_the_caller_got(omac: Omac) -> None:
    """Also where its route ended between the call and its record."""
    project = omac.project("shop", "echo")
    omac.approve(project, "echo")
    serving = omac.serve("--audit", "buffered")
    base = str(serving.skill(project, "echo")["base"])
    with closing(sqlite3.connect(omac.state / "journal.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert curl(f"{base}/status").status == 200
        deactivate = Thread(target=serving.call, args=("deactivate", {"dir": str(project)}))
        deactivate.start()
        eventually(lambda: not reaches(f"{base}/behind"), 10.0, "the end of the route")
        other.execute("ROLLBACK")
        deactivate.join()
    eventually(lambda: "completed" in {row["outcome"] for row in calls_of(omac)}, 10.0, "the record")
    (row,) = [row for row in calls_of(omac) if row["path"] == "/status"]
    assert (row["outcome"], row["status"], row["bytes"] > 0) == ("completed", 200, True)


def test_a_journal_that_refuses_makes_calls_wait(omac: Omac) -> None:
    """What went ahead of a record that failed is reported; then nothing is forwarded unrecorded."""
    project = omac.project("shop", "echo")
    omac.approve(project, "echo")
    serving = omac.serve("--audit", "buffered")
    base = str(serving.skill(project, "echo")["base"])
    journal = omac.state / "journal.db"
    away = journal.with_suffix(".away")
    journal.rename(away)
    try:
        assert reaches(f"{base}/ahead")
        eventually(lambda: "could not be recorded" in serving.said(), 10.0, "the report")
        refused = curl(f"{base}/refused")
        assert (refused.status, refused.headers["x-omac-reason"]) == (503, "journal-unavailable")
    finally:
        away.rename(journal)
    eventually(lambda: reaches(f"{base}/again"), 10.0, "the journal")
    assert "calls without a record (--audit buffered): 1;" in serving.said()


def answered(sock: socket.socket) -> bytes:
    """A whole answer of the skill, or a refusal, on a connection."""
    data = b""
    while not data.endswith((b"got", b"}\n")):
        more = sock.recv(65536)
        assert more, data
        data += more
    return data


def test_the_limits_of_calls_hold(omac: Omac) -> None:
    """One call at a time: each that follows another is answered, however late that one's record; of those that come at
    once, one reaches the skill."""
    project = omac.root / "shop"
    meta = "name: one\nsidecar:\n  command: [python3, sidecar.py]\n  limits:\n    concurrent_calls: 1\n"
    omac.skill(project, "one", meta, ONE_AT_A_TIME)
    omac.approve(project, "one")
    serving = omac.serve("--audit", "buffered")
    path = urlsplit(str(serving.skill(project, "one")["base"])).path
    asks = f"{path} HTTP/1.1\r\nHost: localhost\r\n".encode()
    with ExitStack() as ends:
        socks = [ends.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(9)]
        for sock in socks:
            sock.connect(serving.ready["facade_socket"])
        for number in range(20):
            socks[0].sendall(b"GET " + asks + b"X-Number: %d\r\n\r\n" % number)
            assert answered(socks[0]).startswith(b"HTTP/1.1 200 "), number
        for sock in socks[1:]:
            sock.sendall(b"POST " + asks + b"Content-Length: 2\r\n\r\nhi")
        statuses = sorted(answered(sock).split()[1] for sock in socks[1:])
    assert statuses == [b"200"] + [b"429"] * 7
    received = (omac.folder / "home" / "received").read_text().split()
    assert received == ["GET"] * 20 + ["POST"]


def test_a_word_that_is_none(omac: Omac) -> None:
    """The flag is held to the words of its setting, and a project cannot choose."""
    done = omac.run("serve", "--no-inner", "--audit", "lax")
    assert done.status == 2
    assert "strict" in done.err
    project = omac.project("shop", "echo")
    (project / ".omac").mkdir()
    (project / ".omac" / "settings.toml").write_text('[serve]\naudit = "buffered"\n')
    omac.approve(project, "echo")
    omac.serve().skill(project, "echo")
    (run,) = json.loads(omac.ok("status", "--json"))["runs"]
    assert run["audit"] == "strict"
