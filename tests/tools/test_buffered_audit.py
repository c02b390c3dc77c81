"""`--audit buffered`, by a real server and curl: calls go ahead of their records, within bounds; each is recorded."""

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

from omac.journal.subject_ciphers import LEASE_S
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
    """Return the rows of the audit that are calls."""
    return [row for row in omac.audit() if row["kind"] == "access"]


def reaches(url: str) -> bool:
    """Return whether the skill answers a call, with any answer."""
    return curl(url).headers.get("server") == "omac-echo"


@pytest.mark.full
def test_each_call_is_recorded_once_with_its_outcome(omac: Omac) -> None:
    """A buffered server records each call with its outcome, like a strict one; the status reports which one it is."""
    project = omac.approved("shop")
    serving = omac.serve("--audit", "buffered")
    base = str(serving.skill(project, "echo")["base"])
    for number in range(CALLS):
        assert reaches(f"{base}/{number}")
    eventually(lambda: {row["outcome"] for row in calls_of(omac)} == {"completed"}, 10.0, "the last outcome")
    assert [row["path"] for row in calls_of(omac)] == [f"/{number}" for number in range(CALLS)]
    assert "--audit buffered" in omac.ok("status")
    (run,) = json.loads(omac.ok("status", "--json"))["runs"]
    assert run["audit"] == "buffered"


@pytest.mark.full
def test_calls_wait_once_they_are_too_far_ahead(omac: Omac) -> None:
    """Calls are answered for a second while the journal is locked, and then wait as in a strict server."""
    project = omac.approved("shop")
    serving = omac.serve("--audit", "buffered")
    base = str(serving.skill(project, "echo")["base"])
    assert reaches(f"{base}/before")
    eventually(lambda: len(calls_of(omac)) == 1, 10.0, "the first record")
    with (
        closing(sqlite3.connect(omac.state / "journal.db", isolation_level=None)) as writer,
        ThreadPoolExecutor() as pool,
    ):
        writer.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        assert reaches(f"{base}/ahead")
        assert time.monotonic() - began < BEHIND_S, "it did not wait for the journal"
        time.sleep(BEHIND_S)
        waiting = pool.submit(reaches, f"{base}/waits")
        with pytest.raises(TimeoutError):
            waiting.result(0.3)
        assert len(calls_of(omac)) == 1
        writer.execute("ROLLBACK")
        assert waiting.result(10.0)
    eventually(lambda: [row["outcome"] for row in calls_of(omac)] == ["completed"] * 3, 10.0, "the records")
    assert [row["path"] for row in calls_of(omac)] == ["/before", "/ahead", "/waits"]
    assert reaches(f"{base}/after")


@pytest.mark.full
def test_what_is_recorded_is_what_the_caller_got(omac: Omac) -> None:
    """The record of a call has the answer that the caller got, even if the route ended before the call was recorded."""
    project = omac.approved("shop")
    serving = omac.serve("--audit", "buffered")
    base = str(serving.skill(project, "echo")["base"])
    with closing(sqlite3.connect(omac.state / "journal.db", isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        assert curl(f"{base}/status").status == 200
        deactivate = Thread(target=serving.call, args=("deactivate", {"dir": str(project)}))
        deactivate.start()
        eventually(lambda: not reaches(f"{base}/behind"), 10.0, "the end of the route")
        writer.execute("ROLLBACK")
        deactivate.join()
    eventually(lambda: "completed" in {row["outcome"] for row in calls_of(omac)}, 10.0, "the record")
    (row,) = [row for row in calls_of(omac) if row["path"] == "/status"]
    assert (row["outcome"], row["status"], row["bytes"] > 0) == ("completed", 200, True)


@pytest.mark.full
def test_a_journal_that_refuses_makes_calls_wait(omac: Omac) -> None:
    """A server reports calls that went ahead of a failed record, and then refuses calls until the journal is back."""
    project = omac.approved("shop")
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


@pytest.mark.full
def test_a_record_that_cannot_be_encrypted_makes_calls_wait(omac: Omac) -> None:
    """A server reports a call that went ahead of a record which could not be encrypted, and refuses calls until it can
    be. A server that stops before says how many calls have no record."""
    project = omac.approved("shop")
    serving = omac.serve("--audit", "buffered")
    base = str(serving.skill(project, "echo")["base"])
    assert reaches(f"{base}/before")
    (key,) = eventually(lambda: list(omac.state.glob("subjects/*")), 10.0, "the key")
    content = key.read_text()

    def lose_call(count: int) -> None:
        key.write_text("no key\n")
        time.sleep(2 * LEASE_S)  # until the server reads the key again
        assert reaches(f"{base}/ahead")
        eventually(lambda: serving.said().count("could not be recorded") == count, 10.0, "the report")
        refused = curl(f"{base}/refused")
        assert (refused.status, refused.headers["x-omac-reason"]) == (503, "state-unusable")
        key.write_text(content)

    lose_call(1)
    eventually(lambda: reaches(f"{base}/again"), 10.0, "the key")
    assert "calls without a record (--audit buffered): 1; the journal is back\n" in serving.said()
    lose_call(2)
    assert serving.end() == 0
    assert "calls without a record (--audit buffered): 1\n" in serving.said()
    assert "/ahead" not in [row["path"] for row in calls_of(omac)]


def answered(sock: socket.socket) -> bytes:
    """Return a whole answer of the skill, or a refusal, from a connection."""
    data = b""
    while not data.endswith((b"got", b"}\n")):
        more = sock.recv(65536)
        assert more, data
        data += more
    return data


@pytest.mark.full
def test_the_limits_of_calls_hold(omac: Omac) -> None:
    """A skill limited to one call at a time answers each call that follows another, even before that one is recorded.

    Of calls that arrive at once, one reaches the skill.
    """
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


@pytest.mark.full
def test_a_word_that_is_none(omac: Omac) -> None:
    """`--audit` takes only the words of its setting, and a project cannot choose one."""
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
