"""The control plane's endpoints over a real socket: methods, paths, connections, and many callers at once."""

import http.client
import json
import socket
import threading
from typing import Any

import pytest
from polling import eventually
from real_omac import Omac, Serving, curl

from omac.adapters.control.app import control_app
from omac.adapters.control.contract import ROOT
from omac.adapters.control.late import ControlUseCases
from omac.domain.access.control import CALLS
from omac.domain.directories.events import ActivationRequested


def test_every_endpoint_is_a_call_that_refusals_name() -> None:
    unused: Any = None
    use_cases = ControlUseCases(unused, unused, unused, unused, unused, unused, unused, bridge_compat=True)
    rules = control_app(use_cases).url_map.iter_rules()
    assert {rule.rule for rule in rules} == {ROOT + call for call in CALLS}


def connect(server: Serving) -> socket.socket:
    """Return a connection to the private socket."""
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(server.ready["control_socket"])  # waits while many others connect, as it would not with a time limit
    sock.settimeout(10)
    return sock


def exchange(sock: socket.socket, *headers: str) -> http.client.HTTPResponse:
    """Send GET dirs on a connection, read the whole answer, and return it."""
    lines = ("GET /__omac__/dirs HTTP/1.1", "Host: localhost", *headers, "", "")
    sock.sendall("\r\n".join(lines).encode())
    response = http.client.HTTPResponse(sock)
    response.begin()
    assert json.loads(response.read()) == {"dirs": []}
    return response


@pytest.mark.parametrize("action", ["activate", "deactivate", "reload"])
def test_what_changes_something_is_post_only(server: Serving, action: str) -> None:
    """A GET of a changing endpoint is a 405 with the method to use, in words and in Allow (RFC 9110 section 15.5.6)."""
    answer = server.call(action)
    assert (answer.status, answer.headers["x-omac-reason"]) == (405, "method-not-allowed")
    assert answer.headers["allow"] == "POST"
    assert answer.json()["error"] == "POST only"


@pytest.mark.parametrize("action", ["dirs", "global", "status"])
def test_what_reads_is_get_only(server: Serving, action: str) -> None:
    """A POST to a reading endpoint is a 405."""
    answer = server.call(action, {})
    assert (answer.status, answer.headers["allow"]) == (405, "GET")


@pytest.mark.parametrize("path", ["", "nothing", "activate/", "../etc/passwd", "%2e%2e", "session"])
def test_what_is_not_there_is_a_404(server: Serving, path: str) -> None:
    """An unknown path is a 404 in the form of every refusal."""
    where = ("--unix-socket", server.ready["control_socket"], "--path-as-is", f"http://localhost/__omac__/{path}")
    answer = curl(*where)
    assert (answer.status, answer.headers["x-omac-reason"], answer.json()["reason"]) == (404, "not-found", "not-found")


def test_files_are_not_served(house: Omac, server: Serving) -> None:
    """No file of the folder that omac was started in is served."""
    folder = house.root / "static"
    folder.mkdir()
    (folder / "file").write_text("anything")
    answer = curl("--unix-socket", server.ready["control_socket"], "http://localhost/static/file")
    assert (answer.status, answer.headers["x-omac-reason"]) == (404, "not-found")


def test_reading_records_nothing(house: Omac, server: Serving) -> None:
    """GETs, and calls that change nothing, append nothing to the journal."""
    project = house.project("unchanged")
    assert server.call("deactivate", {"dir": str(project)}).json() == {"dir": str(project), "status": "deactivated"}
    before = len(house.events())
    for action in ("dirs", "global", "status"):
        assert server.call(action).status == 200
    assert server.call("deactivate", {"dir": str(project)}).status == 200
    assert server.call("global").json() == {"skills": []}
    assert len(house.events()) == before


def test_a_connection_serves_many_requests(server: Serving) -> None:
    """A connection that is kept alive serves request after request, in order."""
    with connect(server) as sock:
        for _ in range(20):
            assert exchange(sock).status == 200


def test_a_connection_closes_when_asked(server: Serving) -> None:
    """The server obeys `Connection: close`: the end of the stream follows the answer at once."""
    with connect(server) as sock:
        assert exchange(sock, "Connection: close").status == 200
        assert sock.recv(1) == b""


def test_connections_leave_nothing_behind(server: Serving) -> None:
    """Hundreds of connections, closed in order or broken off inside a request, leak no descriptor in the server."""
    with connect(server) as sock:
        exchange(sock)
    before = eventually(server.descriptors, 20.0, "descriptors")
    for number in range(200):
        with connect(server) as sock:
            if number % 2:
                exchange(sock, "Connection: close")
            else:
                sock.sendall(b"POST /__omac__/activate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
    eventually(lambda: server.descriptors() <= before + 2, 10.0, f"at most {before + 2} descriptors")
    assert server.call("dirs").status == 200


def test_bytes_that_are_not_http(server: Serving) -> None:
    """Noise, an endless head and half a request each cost the connection that they came on, and nothing else."""
    for noise in (b"\x16\x03\x01\x02\x00" * 50, b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 50_000, b"GET /__omac__/di"):
        with connect(server) as sock:
            try:
                sock.sendall(noise)
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(65_536):
                    pass
            except (BrokenPipeError, ConnectionResetError):
                pass  # it need not read what it will not answer
    assert server.call("dirs").status == 200
    assert "Traceback" not in server.said()


def test_many_callers_at_once(house: Omac, server: Serving) -> None:
    """200 simultaneous requests are all answered. Requests to activate one directory share one activation."""
    project = house.project("crowd")
    barrier = threading.Barrier(200)
    answers: list[tuple[int, str]] = []

    def call(number: int) -> None:
        body = json.dumps({"dir": str(project)}).encode() if number % 2 else b""
        line = b"POST /__omac__/activate" if number % 2 else b"GET /__omac__/status"
        barrier.wait(30)
        with connect(server) as sock:  # not before: one that is silent makes room for others
            sock.sendall(line + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            response = http.client.HTTPResponse(sock)
            response.begin()
            document = json.loads(response.read())
            answers.append((response.status, document.get("dir_token", "status")))

    threads = [threading.Thread(target=call, args=(number,)) for number in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(answers) == 200
    assert {status for status, _ in answers} == {200}
    assert len({token for _, token in answers}) == 2
    paths = [
        record.event.path
        for record in house.events(ActivationRequested)
        if isinstance(record.event, ActivationRequested)
    ]
    assert paths == [str(project)]
    assert server.call("deactivate", {"dir": str(project)}).status == 200
