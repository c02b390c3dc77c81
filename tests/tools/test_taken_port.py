"""A sidecar whose server has ended behind a wrapper: who takes its port meanwhile receives no call."""

import socket
from pathlib import Path

import pytest
from polling import eventually
from real_omac import curl, omac_in

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


@pytest.mark.parametrize("call", [(), ("--data", "for the skill alone")], ids=["get", "post"])
def test_who_takes_the_port_gets_no_byte(tmp_path: Path, call: tuple[str, ...]) -> None:
    """The call is refused and recorded, whichever part of the facade serves it."""
    with omac_in(tmp_path) as omac:
        project = omac.project("shop")
        omac.skill(project, "wrapped", META, PROGRAM)
        omac.approve(project, "wrapped")
        server = omac.serve()
        base = server.skill(project, "wrapped")["base"]
        (port,) = [each["port"] for each in server.call("status").json()["sidecars"] if each["skill"] == "wrapped"]
        assert curl(f"{base}/x", *call).status == 200
        curl(f"{base}/end")
        eventually(lambda: not answering(port), 5.0, "the server to end")
        with socket.create_server(("127.0.0.1", port)) as stranger:
            stranger.settimeout(5.0)
            answer = curl(f"{base}/x", *call)
            assert (answer.status, answer.headers["x-omac-reason"]) == (503, "sidecar-down"), answer
            assert "another program listens on its port" in answer.body
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
