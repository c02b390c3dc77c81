"""Calls of a sidecar whose port changes hands: they come to it also where it listens no more, and to nobody else."""

import socket

import pytest
from polling import eventually
from real_omac import Omac, curl

from omac.adapters.linux.listeners import answering

META = """\
name: wrapped
sidecar:
  command: [/bin/sh, -c, 'python3 sidecar.py; exec sleep 99']
  mount: wrapped
"""
PROGRAM = """\
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Served(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
        if self.path == "/end":
            os._exit(0)

    do_POST = do_GET

ThreadingHTTPServer(("127.0.0.1", int(os.environ["SIDECAR_PORT"])), Served).serve_forever()
"""
ONE_BY_ONE = """\
import os, socket, time

def listening():
    return socket.create_server(("127.0.0.1", int(os.environ["SIDECAR_PORT"])))

listener = listening()
while True:
    connection, _ = listener.accept()
    listener.close()
    if b" /long" in connection.recv(65536):
        time.sleep(6)
    listener = listening()
    connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n")
    connection.close()
"""
CALLS_MANY = 20  # so that some are accepted before omac goes on
CALLS = {"get": (), "post": ("--data", "for the skill alone")}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_who_takes_the_port_gets_no_byte(omac: Omac, call: tuple[str, ...]) -> None:
    """The call is refused and recorded, whichever part of the facade serves it."""
    project = omac.project("shop")
    omac.skill(project, "wrapped", META, PROGRAM)
    omac.approve(project, "wrapped")
    server = omac.serve()
    base = server.skill(project, "wrapped")["base"]
    (port,) = [each["port"] for each in server.call("status").json()["sidecars"] if each["skill"] == "wrapped"]
    assert curl(f"{base}/x", *call).status == 200
    curl(f"{base}/end")
    eventually(lambda: not answering(port), 20.0, "the server to end")
    with socket.create_server(("127.0.0.1", port)) as stranger:
        stranger.settimeout(5.0)
        answer = curl(f"{base}/x", *call)
        assert (answer.status, answer.headers["x-omac-reason"]) == (503, "sidecar-down"), answer
        assert "its port does not lead to its server alone" in answer.body
        stranger.settimeout(0.2)
        received = []
        while True:
            try:
                connection, _ = stranger.accept()
            except TimeoutError:
                break
            with connection:
                received.append(connection.recv(4096))
    assert set(received) == {b""}
    (*_, last) = omac.audit("--path", "/x")
    assert (last["status"], last["reason"]) == (503, "sidecar-down")


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.full
def test_a_server_that_listens_for_one_connection_gets_it(omac: Omac, call: tuple[str, ...]) -> None:
    """No call is refused because the server that has accepted it listens no more, as `nc -l` and `socat` do."""
    project = omac.project("shop")
    omac.skill(project, "wrapped", META, ONE_BY_ONE)
    omac.approve(project, "wrapped")
    base = omac.serve().skill(project, "wrapped")["base"]
    assert {curl(f"{base}/x", *call).status for _ in range(CALLS_MANY)} == {200}


@pytest.mark.full
def test_a_server_with_one_connection_is_not_taken_for_dead(omac: Omac) -> None:
    """A call that lasts longer than omac goes without checking whether the sidecar listens gets its answer."""
    project = omac.project("shop")
    omac.skill(project, "wrapped", META, ONE_BY_ONE)
    omac.approve(project, "wrapped")
    base = omac.serve().skill(project, "wrapped")["base"]
    assert curl(f"{base}/long").status == 200
