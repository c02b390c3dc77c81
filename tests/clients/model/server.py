"""A model's server that takes scripted steps: `python -m clients.model.server RECORD [STEPS]`.

It listens on a free port of loopback and prints that port. Each request is appended to the file RECORD as a line of
JSON, before it is answered: method, path, headers, body, and the status of the answer. STEPS is a file of steps for
conversations whose prompt carries none.

It is strict, as real servers are: another path, a missing key, a body that the interface does not allow are refused
with the error that the interface has for it.
"""

import itertools
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from clients.model.chat import Chat
from clients.model.interface import Body, Interface, Refused, Turn, invalid
from clients.model.messages import Messages
from clients.model.responses import Responses
from clients.model.steps import Step, Text, answer

INTERFACES: Mapping[str, Interface] = {
    "/v1/messages": Messages(),
    "/v1/chat/completions": Chat(),
    "/v1/responses": Responses(),
}
COUNT_TOKENS = "/v1/messages/count_tokens"
MODELS = "/v1/models"


class ModelServer(ThreadingHTTPServer):
    """A server with one thread for each connection, all of which end with the process."""

    daemon_threads = True

    def __init__(self, record: Path, steps: Sequence[Step] = ()) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.steps = steps
        self.numbers = itertools.count(1)
        self._record = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def note(self, entry: Mapping[str, Any]) -> None:
        """Append one line to the record, at once and whole."""
        os.write(self._record, json.dumps(entry).encode() + b"\n")

    def server_close(self) -> None:
        """Close the record as well."""
        super().server_close()
        os.close(self._record)

    def handle_error(self, request: object, client_address: object) -> None:
        """Report bugs, but not clients that hang up."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def _model(self) -> ModelServer:
        assert isinstance(self.server, ModelServer)
        return self.server

    def do_GET(self) -> None:
        path = self._path()
        if path == MODELS:
            self._send(200, {"object": "list", "data": [{"id": "scripted", "object": "model", "owned_by": "tests"}]})
        else:
            self._refuse(Refused(404, "not_found_error", f"GET {path}: no such endpoint"))

    def do_HEAD(self) -> None:
        self._note(404, None)
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            self._answer(raw)
        except Refused as refused:
            self._refuse(refused, raw)

    def _answer(self, raw: bytes) -> None:
        path = self._path()
        if path == COUNT_TOKENS:
            return self._send(200, {"input_tokens": 10}, _decoded(raw))
        interface = INTERFACES.get(path)
        if interface is None:
            raise Refused(404, "not_found_error", f"POST {path}: no such endpoint")
        headers = self._lower()
        if not interface.authorized(headers):
            raise Refused(401, "authentication_error", "a key is required")
        body = _decoded(raw)
        conversation = interface.conversation(body, headers)
        try:
            output = answer(conversation, self._model.steps)
        except ValueError as problem:
            raise invalid(f"steps: {problem}") from problem
        turn = Turn(next(self._model.numbers), str(body["model"]), output)
        if body.get("stream"):
            return self._stream(interface, turn, body)
        _stall(turn)
        return self._send(200, interface.document(turn), body)

    def _stream(self, interface: Interface, turn: Turn, body: Body) -> None:
        self._note(200, body)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number, (name, data) in enumerate(interface.events(turn, body)):
            if number == 1:
                _stall(turn)
            prefix = f"event: {name}\n" if name else ""
            self._chunk(f"{prefix}data: {json.dumps(data)}\n\n")
        if end := interface.end():
            self._chunk(f"data: {end}\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def _refuse(self, refused: Refused, raw: bytes = b"") -> None:
        path = self._path()
        of_anthropic = path.startswith("/v1/messages") or "anthropic-version" in self._lower()
        interface = INTERFACES["/v1/messages" if of_anthropic else "/v1/responses"]
        self._send(refused.status, interface.error(refused), raw.decode(errors="replace"))

    def _send(self, status: int, document: Mapping[str, Any], body: object = None) -> None:
        self._note(status, body)
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _note(self, status: int, body: object) -> None:
        request = {"method": self.command, "path": self._path(), "headers": self._lower()}
        self._model.note({"at_ns": time.time_ns(), **request, "status": status, "body": body})

    def _path(self) -> str:
        return self.path.partition("?")[0]

    def _lower(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.headers.items()}

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class chose the name)
        """Write nothing: the record has the request."""


def _decoded(raw: bytes) -> Body:
    try:
        body = json.loads(raw)
    except ValueError:
        raise invalid("the body is no JSON") from None
    if not isinstance(body, dict):
        raise invalid("the body must be an object")
    return body


def _stall(turn: Turn) -> None:
    if isinstance(turn.said, Text) and turn.said.after:
        time.sleep(turn.said.after)


def main(record: str, steps: str = "") -> None:
    """Serve until the process is ended."""
    server = ModelServer(Path(record), json.loads(Path(steps).read_text()) if steps else ())
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
