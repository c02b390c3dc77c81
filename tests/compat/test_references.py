"""Redirects, links and cookies of a sidecar that knows X-Forwarded-Prefix, followed by a real curl."""

import pytest
from real_omac import Omac, Serving, curl
from started import started

pytestmark = pytest.mark.full

META = "name: fast\nsidecar: {command: [python3, -I, -S, sidecar.py], health: {path: /}}\n"
PROGRAM = """\
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = int(os.environ["SIDECAR_PORT"])

class Redirecting(BaseHTTPRequestHandler):
    def do_GET(self):
        prefix, own = self.headers.get("X-Forwarded-Prefix", ""), f"http://127.0.0.1:{PORT}"
        to = {"/prefixed": f"{prefix}/end?a=b", "/own": f"{own}/end", "/both": f"{own}{prefix}/end", "/relative": "end",
              "/elsewhere": "http://127.0.0.1:1/fast/end"}.get(self.path)
        body = self.path.encode()
        self.send_response(302 if to else 200)
        if to:
            self.send_header("Location", to)
        self.send_header("Content-Location", f"{prefix}/as")
        self.send_header("Link", f"<{prefix}/next>; rel=next, <{own}/first>; rel=first")
        self.send_header("Set-Cookie", f"sid=1; Path={prefix}/end")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass

ThreadingHTTPServer(("127.0.0.1", PORT), Redirecting).serve_forever()
"""
WAYS = {"/prefixed": "/end?a=b", "/own": "/end", "/both": "/end", "/relative": "/end"}


def test_a_client_follows_to_the_skill(omac: Omac) -> None:
    """curl follows by a token on a port, and flat by the socket of a run; links to another host are left unchanged."""
    project = omac.root / "shop"
    omac.skill(project, "fast", META, PROGRAM)
    omac.approve(project, "fast")
    serving: Serving = omac.serve()
    base = serving.skill(project, "fast")["base"]
    path = base.partition("/")[2].partition("/")[2].partition("/")[2]  # <token>/fast
    script = 'echo "$OMAC_SOCKET"; while kill -0 $PPID 2>/dev/null; do sleep 0.05; done'
    socket = started(omac, project, script).line().strip()
    for arguments, url, prefix in (((), base, f"/{path}"), (("--unix-socket", socket), "http://x/fast", "/fast")):
        for start, end in WAYS.items():
            assert curl("-L", *arguments, url + start).body.endswith(end), start
        answer = curl(*arguments, url + "/elsewhere")
        assert answer.headers["location"] == "http://127.0.0.1:1/fast/end"
        assert answer.headers["content-location"] == f"{prefix}/as"
        assert answer.headers["link"] == f"<{prefix}/next>; rel=next, <{prefix}/first>; rel=first"
        assert answer.headers["set-cookie"] == f"sid=1; Path={prefix}/end"
