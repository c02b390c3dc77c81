"""The end of a server: waiting callers get an answer, unread answers are not waited for, a second signal is obeyed."""

import contextlib
import json
import signal
import socket
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest
from polling import eventually
from real_omac import CURL, Omac, Serving, parse_answer
from streaming_skill import META, PROGRAM

from omac.domain.directories.events import Deactivated
from omac.domain.kernel.run import RunStopped

MUTE = "name: mute\nsidecar:\n  command: [sleep, '600']\n  mount: mute\n  health: {timeout_ms: 120000}\n"


def online(omac: Omac, *, stubborn: bool = False) -> tuple[Serving, dict[str, str], Path]:
    """Start a server with a project whose skill `own` streams; return it, the skill and the project."""
    project = omac.root / "p"
    source = omac.skill(project, "own", META.format(name="own"), PROGRAM)
    if stubborn:
        (source / "stubborn").touch()
    omac.approve(project, "own")
    server = omac.serve()
    return server, server.skill(project, "own"), project


def flooded(sock: socket.socket, request: bytes) -> socket.socket:
    """Fill a connection with calls whose answers are never read."""
    sock.settimeout(1)
    with contextlib.suppress(OSError):
        for _ in range(200_000):
            sock.sendall(request * 10)
    return sock


@pytest.mark.full
def test_clients_that_never_read_do_not_hold_up_the_end(omac: Omac) -> None:
    """Clients that never read do not keep omac from ending in order, by TCP with the token, by the private socket, or
    through the facade."""
    server, skill, _ = online(omac)
    bearer = f"Authorization: Bearer {server.token}\r\n"
    head = "GET /__omac__/status HTTP/1.1\r\nHost: localhost\r\n"
    tcp, unix, facade = socket.socket(), socket.socket(socket.AF_UNIX), socket.socket()
    with tcp, unix, facade:
        for sock, base in ((tcp, server.ready["control_base"]), (facade, server.ready["facade_base"])):
            host, _, port = base.removeprefix("http://").partition(":")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect((host, int(port)))
        unix.connect(server.ready["control_socket"])
        flooded(tcp, f"{head}{bearer}\r\n".encode())
        flooded(unix, f"{head}\r\n".encode())
        path = skill["base"].removeprefix(server.ready["facade_base"])
        facade.sendall(f"GET {path}/stream HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert server.call("dirs").status == 200
        assert server.end(seconds=10) == 0, server.said()
    assert server.said() == ""
    assert isinstance(omac.events()[-1].event, RunStopped)


@pytest.mark.full
def test_callers_that_wait_are_answered(omac: Omac) -> None:
    """Callers that wait for an activation, or for a skill, at a SIGTERM get 503 `stopping` as JSON. A caller of
    deactivate gets its normal answer."""
    server, skill, project = online(omac, stubborn=True)
    slow = omac.root / "slow"
    omac.skill(slow, "mute", MUTE)
    omac.approve(slow, "mute")
    socket_path = server.ready["control_socket"]

    def asking(action: str, directory: Path) -> subprocess.Popen[bytes]:
        body = json.dumps({"dir": str(directory)})
        url = f"http://localhost/__omac__/{action}"
        return subprocess.Popen([*CURL, "-i", "--unix-socket", socket_path, "-d", body, url], stdout=subprocess.PIPE)

    def states() -> dict[str, str]:
        return {answer["dir"]: answer["state"] for answer in server.call("dirs").json()["dirs"]}

    calling = subprocess.Popen([*CURL, "-i", f"{skill['base']}/silent"], stdout=subprocess.PIPE)
    with calling, asking("activate", slow) as activating:
        eventually(lambda: states().get(str(slow)) == "activating", 20.0, "the activation")
        eventually(lambda: server.call("status").json()["accesses"]["open"] == 1, 20.0, "the call of the skill")
        server.process.send_signal(signal.SIGTERM)
        with asking("deactivate", project) as deactivating:
            assert server.process.wait(20) == 0, server.said()
            answers = [parse_answer(each.communicate()[0]) for each in (calling, activating, deactivating)]
    assert [(answer.status, answer.headers.get("x-omac-reason")) for answer in answers] == [
        (503, "stopping"),
        (503, "stopping"),
        (200, None),
    ]
    assert answers[0].json()["error"] == "stopping"
    assert answers[1].json()["reason"] == "stopping"
    assert answers[2].json() == {"dir": str(project), "status": "deactivated"}
    assert [(row["path"], row["outcome"], row["reason"]) for row in omac.audit()] == [
        ("/silent", "aborted", "stopping"),
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_omac_at_once_and_in_order(omac: Omac, number: signal.Signals) -> None:
    """A second signal kills a sidecar that ignores the first, without its grace; all is recorded, nothing is left.
    Until then `omac ps` shows the skill as stopping, and a command that is refused proposes that: a server that began
    would be refused."""
    server, _, project = online(omac, stubborn=True)
    server.process.send_signal(number)
    eventually(lambda: server.call("dirs").json()["dirs"][0]["state"] == "deactivating", 20.0, "the stop to begin")
    assert "own (stopping)" in omac.ok("ps")
    for words in (("activate", str(project)), ("call", "own", "/", "--workdir", str(project))):
        done = omac.run(*words)
        assert (done.status, done.out) == (1, "")
        assert done.err.endswith("  try: omac ps  # lists it until it has ended\n"), done
    begun = time.monotonic()
    assert server.end(number, seconds=3) == 0, server.said()
    assert time.monotonic() - begun < 3
    assert omac.left() == []
    kinds = [type(recorded.event) for recorded in omac.events()[-2:]]
    assert kinds == [Deactivated, RunStopped]


STALLING = """\
import os, time
from omac.journal.application import Journal
commit = Journal.commit
def stalled(journal, groups):
    while os.path.exists(os.environ["STALLED"]):
        time.sleep(0.05)
    return commit(journal, groups)
Journal.commit = stalled
"""


@pytest.mark.full
def test_a_journal_that_stalls_does_not_hold_up_the_end(omac: Omac) -> None:
    """Two signals end omac while a commit hangs, as on a disk that is gone, within the bounds of its steps. It names
    the journal as the reason, and leaves no process behind."""
    project = omac.root / "p"
    omac.skill(project, "own", META.format(name="own"), PROGRAM)
    omac.approve(project, "own")
    patch, mark = omac.folder / "patch", omac.folder / "stalled"
    patch.mkdir()
    (patch / "sitecustomize.py").write_text(STALLING)
    server = omac.serve(extra={"PYTHONPATH": str(patch), "STALLED": str(mark)})
    server.activate(project)
    mark.touch()
    server.process.send_signal(signal.SIGTERM)
    assert server.call("dirs").status == 200  # the loop has gone round: the two do not become one
    assert server.end(seconds=25) != 0
    assert "takes no records" in server.said()
    assert "Traceback" not in server.said()
    assert omac.left() == []
    mark.unlink()
    assert omac.serve().end() == 0


@pytest.mark.full
def test_outcomes_that_cannot_be_recorded_are_reported(omac: Omac) -> None:
    """A server that ends while another program keeps the journal locked reports that, and how many outcomes of calls
    are missing; the next start records them."""
    server, skill, _ = online(omac)
    with subprocess.Popen([*CURL, "-N", f"{skill['base']}/stream"], stdout=subprocess.PIPE) as call:
        assert call.stdout is not None
        assert call.stdout.readline() == b"data: tick\n"
        with contextlib.closing(sqlite3.connect(omac.state / "journal.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            server.end(seconds=60)
    lines = server.said().splitlines()
    locked = f"omac: the journal {omac.state}/journal.db is locked by another program"
    assert lines.count(locked) == 2, lines  # when it was met, and as the reason for the end
    assert lines[-2:] == [locked, f"  try: fuser {omac.state}/journal.db"]
    assert any(line.startswith("omac: 1 outcome could not be recorded; ") for line in lines), lines
    omac.serve().end()
    (row,) = omac.audit("--path", "/stream")
    assert row["outcome"] == "aborted"
