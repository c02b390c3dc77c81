"""The echo skill's sidecar: an HTTP server that shows its callers what reached it.

It needs Python 3.9 or later and nothing else. Each sidecar has the same three duties, and `main` shows them: listen on
127.0.0.1 at the port in SIDECAR_PORT, answer the health path soon, end on SIGTERM. All else here is this skill's own.

Reading order: the endpoints (EchoHandler), the request's body (RequestBody, RFC 9112 sections 6 and 7), the WebSocket
(RFC 6455), the server, main.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import contextlib
import hashlib
import json
import os
import signal
import socket
import struct
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from urllib.parse import parse_qs

TEXT_BYTES_MAX = 64 * 1024  # a longer body is described, not shown
RETURNED_BYTES_MAX = 64 * 1024 * 1024  # a body sent back as it came is held in memory, so it has a bound
READ_BYTES = 1024 * 1024
FRAME_BYTES_MAX = 1024 * 1024
LINE_BYTES_MAX = 8 * 1024
TRAILER_LINES_MAX = 100
TICKS_MAX = 1_000
PAUSE_MS_MAX = 600_000
CONNECTION_IDLE_S_MAX = 300
WEBSOCKET_IDLE_S_MAX = 3_600
CLOSING_S_MAX = 1.0
CRASH_STATUS = 70  # EX_SOFTWARE of sysexits.h

DECLARED_SECRETS = frozenset({"ECHO_SECRET"})  # as in omac.yaml
SECRET_MARKS = ("SECRET", "TOKEN", "PASSWORD", "KEY")
WEBSOCKET_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455 section 1.3


class CallerError(Exception):
    """The caller's mistake: it is told `problem` with HTTP `status`."""

    def __init__(self, problem, status=400):
        super().__init__(problem)
        self.problem = problem
        self.status = status


class RequestError(CallerError):
    """The request asks for something that is not on offer. The connection can go on."""


class FramingError(CallerError):
    """The end of the request's body cannot be known, so nothing after it on the connection can be read."""


class EchoHandler(BaseHTTPRequestHandler):
    """Answers the requests of one connection, one after the other.

    Each request's body is read to its end, wanted or not: whatever stayed on the connection would be taken for the
    next request.
    """

    protocol_version = "HTTP/1.1"
    timeout = CONNECTION_IDLE_S_MAX
    disable_nagle_algorithm = True
    wbufsize = -1  # buffered, so that an answer's head and body leave together; whatever streams must flush

    def __getattr__(self, name):
        """Accept every method: the base class looks up `do_<METHOD>`, and /echo is for any method."""
        if name.startswith("do_"):
            return self.answer
        raise AttributeError(name)

    def answer(self):
        """Answer one request, or say what is wrong with it."""
        path, _, query = self.path.partition("?")
        try:
            self.body = RequestBody(self.rfile, self.headers, self.request_version)
            try:
                self.route(path, query)
            except RequestError as error:
                self.body.drain()
                self.send_json(error.status, {"error": error.problem})
        except FramingError as error:
            self.close_connection = True
            self.send_json(error.status, {"error": error.problem})

    def route(self, path, query):
        """Call the endpoint at `path`."""
        if path == "/echo" or path.startswith("/echo/"):
            self.echo(path, query)
            return
        if path == "/crash":
            self.crash(query)
        self.body.drain()
        endpoints = {
            "/status": self.status,
            "/whoami": self.whoami,
            "/ticks": self.ticks,
            "/slow": self.slow,
            "/ws": self.websocket,
        }
        if path not in endpoints:
            self.send_json(404, {"error": "no such path", "paths": ["/echo", "/crash", *endpoints]})
        elif self.command not in ("GET", "HEAD"):
            self.send_json(405, {"error": "use GET"}, {"Allow": "GET, HEAD"})
        else:
            endpoints[path](query)

    # The endpoints

    def status(self, _query):
        """Say that the sidecar is ready: omac's health probe."""
        self.send_json(200, {"status": "ok"})

    def echo(self, path, query):
        """Show the request; or send its body back, if that is what the caller accepts."""
        accepted = {part.partition(";")[0].strip().lower() for part in self.headers.get("Accept", "").split(",")}
        if "application/octet-stream" in accepted:
            self.send_payload(200, "application/octet-stream", self.body.read_all(RETURNED_BYTES_MAX))
            return
        text, description = self.body.describe()
        if text is None:
            self.send_json(200, description)
            return
        headers = {}
        for name in dict.fromkeys(self.headers.keys()):
            if name.lower() not in {seen.lower() for seen in headers}:
                headers[name] = ", ".join(self.headers.get_all(name))
        shown = {"method": self.command, "path": path, "query": query, "headers": headers, "body": text}
        self.send_json(200, shown)

    def whoami(self, _query):
        """Show the environment. Secrets by name only: what the agent reads must not hold their values."""
        secrets = sorted(name for name in os.environ if is_secret(name))
        variables = {name: value for name, value in sorted(os.environ.items()) if name not in secrets}
        self.send_json(200, {"variables": variables, "secrets": secrets, "cwd": os.getcwd(), "pid": os.getpid()})

    def ticks(self, query):
        """Send `n` server-sent events, the first at once and one every `ms` milliseconds after it."""
        count = number(query, "n", default=5, maximum=TICKS_MAX)
        pause_ms = number(query, "ms", default=200, maximum=PAUSE_MS_MAX)
        chunked = self.request_version != "HTTP/1.0"
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-store")
        if chunked:
            self.send_header("Transfer-Encoding", "chunked")
        if self.close_connection or not chunked:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.flush()
        for tick in range(1, count + 1):
            if tick > 1:
                time.sleep(pause_ms / 1000)
            event = f'id: {tick}\ndata: {{"tick": {tick}, "of": {count}}}\n\n'.encode()
            self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event) if chunked else event)
            self.wfile.flush()
        if chunked:
            self.wfile.write(b"0\r\n\r\n")

    def slow(self, query):
        """Answer after `ms` milliseconds."""
        pause_ms = number(query, "ms", default=1_000, maximum=PAUSE_MS_MAX)
        time.sleep(pause_ms / 1000)
        self.send_json(200, {"slept_ms": pause_ms})

    def crash(self, query):
        """End the process in the middle of the request, as a bug in native code would."""
        code = number(query, "code", default=CRASH_STATUS, maximum=255)
        self.log_request("crash")
        os._exit(code)

    def websocket(self, _query):
        """Change to the WebSocket protocol (RFC 6455 section 4.2) and return each frame."""
        wanted = (
            self.command == "GET"
            and self.request_version == "HTTP/1.1"
            and "websocket" in self.header_tokens("Upgrade")
            and "upgrade" in self.header_tokens("Connection")
            and self.headers.get("Sec-WebSocket-Version", "").strip() == "13"
        )
        if not wanted:
            hints = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
            self.send_json(426, {"error": "this path speaks WebSocket, version 13"}, hints)
            return
        accept = websocket_accept(self.headers.get("Sec-WebSocket-Key", "").strip())
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept)
        self.end_headers()
        self.wfile.flush()
        self.close_connection = True
        self.connection.settimeout(WEBSOCKET_IDLE_S_MAX)
        WebSocketEcho(self.rfile, self.wfile).run()

    # What the endpoints have in common

    def header_tokens(self, name):
        """Return the words of a header that is a list, in lower case."""
        lines = self.headers.get_all(name, [])
        return {token.strip().lower() for line in lines for token in line.split(",")}

    def send_json(self, status, document, headers=None):
        """Answer with `document`, which json can encode."""
        self.send_payload(status, "application/json", json.dumps(document).encode() + b"\n", headers)

    def send_payload(self, status, content_type, payload, headers=None):
        """Answer with the bytes of `payload`, or with the head alone if the method is HEAD."""
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(payload)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(payload)

    def send_error(self, code, message=None, explain=None):
        """Answer in JSON where the base class, which calls this for heads it cannot parse, would send HTML."""
        self.close_connection = True
        self.request_version = "HTTP/1.1"  # as yet unknown to the base class, which would leave out the head
        self.send_json(code, {"error": message or self.responses[code][0]})

    def handle_expect_100(self):
        """Tell the caller to send the body, at once: it waits for this line (RFC 9110 section 10.1.1)."""
        proceed = super().handle_expect_100()
        self.wfile.flush()
        return proceed

    def version_string(self):
        """Name the skill, not the Python that runs it."""
        return "omac-echo"

    def log_request(self, code="-", size="-"):
        """Write one line per request to stdout: no query and no headers, as they may hold what is not for logs."""
        path = getattr(self, "path", "-").partition("?")[0] if self.command else "-"
        line = f"{self.command or '-'} {path[:200]} {getattr(code, 'value', code)}"
        with contextlib.suppress(OSError):  # nobody reading the log is no reason to fail a request
            sys.stdout.write(line.encode("unicode_escape").decode() + "\n")
            sys.stdout.flush()

    def log_error(self, format, *args):  # noqa: A002 (the base class chose the name)
        """Write nothing: log_request has the status already."""


def is_secret(name):
    """Tell whether the variable `name` may hold a secret. In doubt it does."""
    return name in DECLARED_SECRETS or any(mark in name.upper() for mark in SECRET_MARKS)


def number(query, name, default, maximum):
    """Return the parameter `name` of a query string as an int from 0 to `maximum`; RequestError if it is none."""
    text = parse_qs(query, keep_blank_values=True).get(name, [str(default)])[-1]
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(maximum)) and int(text) <= maximum):
        raise RequestError(f"{name} must be a whole number from 0 to {maximum}")
    return int(text)


class RequestBody:
    """A request's body, read piece by piece and at most once."""

    def __init__(self, stream, headers, version):
        """Learn from the headers where the body ends (RFC 9112 section 6.3); FramingError if they are not clear."""
        self._stream = stream
        codings = headers.get_all("Transfer-Encoding", [])
        lengths = headers.get_all("Content-Length", [])
        if codings:
            # Length and coding together are how one request is smuggled inside another.
            if lengths or version == "HTTP/1.0":
                raise FramingError("Transfer-Encoding does not go with Content-Length or HTTP/1.0")
            if [coding.strip().lower() for coding in codings] != ["chunked"]:
                raise FramingError("the only transfer coding here is chunked", status=501)
            self._pieces = self._chunked()
        else:
            length = lengths[0].strip() if lengths else "0"
            if len(lengths) > 1 or not (length.isascii() and length.isdigit() and len(length) <= 18):
                raise FramingError("Content-Length must be one number")
            self._pieces = self._exactly(int(length))

    def __iter__(self):
        """Yield the rest of the body in pieces of at most 1 MiB; FramingError if it breaks off."""
        return self._pieces

    def drain(self):
        """Read what nobody has read."""
        for _ in self:
            pass

    def read_all(self, bytes_max):
        """Return the body; RequestError 413 if it is longer than `bytes_max`."""
        held = bytearray()
        for piece in self:
            held += piece
            if len(held) > bytes_max:
                raise RequestError(f"at most {bytes_max} bytes can be sent back", status=413)
        return held

    def describe(self):
        """Return (text, None) for a small UTF-8 body, else (None, {"bytes", "sha256"}); hold 1 MiB at a time."""
        held, size, digest = bytearray(), 0, hashlib.sha256()
        for piece in self:
            size += len(piece)
            digest.update(piece)
            if size <= TEXT_BYTES_MAX:
                held += piece
        if size <= TEXT_BYTES_MAX:
            with contextlib.suppress(UnicodeDecodeError):
                return held.decode("utf-8"), None
        return None, {"bytes": size, "sha256": digest.hexdigest()}

    def _exactly(self, size):
        """Yield the next `size` bytes of the connection."""
        while size:
            piece = self._stream.read(min(size, READ_BYTES))
            if not piece:
                raise FramingError("the body ends too early")
            size -= len(piece)
            yield piece

    def _chunked(self):
        """Yield the data of chunks up to the last one and its trailers (RFC 9112 section 7.1)."""
        while True:
            size_text = self._line().partition(b";")[0].strip()
            if not 1 <= len(size_text) <= 16 or size_text.strip(b"0123456789abcdefABCDEF"):
                raise FramingError("a chunk's size must be a hexadecimal number")
            size = int(size_text, 16)
            if size == 0:
                break
            yield from self._exactly(size)
            if self._line():
                raise FramingError("a chunk is longer than its size")
        for _ in range(TRAILER_LINES_MAX):
            if not self._line():
                return
        raise FramingError("too many trailers")

    def _line(self):
        """Return the next line without its end."""
        line = self._stream.readline(LINE_BYTES_MAX)
        if not line.endswith(b"\r\n"):
            raise FramingError("a line of the chunked body is too long or not ended by CR LF")
        return line[:-2]


CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA  # RFC 6455 section 5.2
PROTOCOL_ERROR, NOT_UTF8, TOO_BIG = 1002, 1007, 1009  # RFC 6455 section 7.4.1


def websocket_accept(key):
    """Return the proof that the handshake was read (RFC 6455 section 4.2.2); RequestError if `key` is none."""
    try:
        nonce = base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError):
        nonce = b""
    if len(nonce) != 16:
        raise RequestError("Sec-WebSocket-Key must be 16 bytes in base64")
    return base64.b64encode(hashlib.sha1(key.encode() + WEBSOCKET_GUID).digest()).decode()


class WebSocketError(Exception):
    """The peer broke the protocol; `code` goes into the close frame."""

    def __init__(self, code):
        super().__init__(code)
        self.code = code


class WebSocketEcho:
    """The server's side of one WebSocket: frames in, the same frames out.

    A message in several frames is returned frame by frame, so no message is ever held as a whole.
    """

    def __init__(self, rfile, wfile):
        self._rfile = rfile
        self._wfile = wfile
        self._message = None  # the opcode of the unfinished message
        self._decoder = None  # checks the text of the unfinished message

    def run(self):
        """Return frames until either side closes."""
        try:
            while self._answer(*self._read_frame()):
                pass
        except WebSocketError as error:
            self._send(True, CLOSE, struct.pack("!H", error.code))
        except EOFError:
            pass  # the peer left without a close frame

    def _read_frame(self):
        """Return (final, opcode, payload) of the next frame (RFC 6455 section 5.2)."""
        first, second = self._read(2)
        final, opcode, length = bool(first & 0x80), first & 0x0F, second & 0x7F
        masked = second & 0x80  # section 5.1: a client must mask
        if first & 0x70 or not masked or (opcode >= CLOSE and (length > 125 or not final)):
            raise WebSocketError(PROTOCOL_ERROR)
        if length >= 126:
            (length,) = struct.unpack("!H", self._read(2)) if length == 126 else struct.unpack("!Q", self._read(8))
        if length > FRAME_BYTES_MAX:
            raise WebSocketError(TOO_BIG)
        mask = self._read(4)
        # One exclusive or of two long numbers is far quicker than a loop over bytes.
        stretched = (mask * (length // 4 + 1))[:length]
        payload = int.from_bytes(self._read(length), "big") ^ int.from_bytes(stretched, "big")
        return final, opcode, payload.to_bytes(length, "big")

    def _answer(self, final, opcode, payload):
        """Answer one frame; return whether the connection goes on."""
        if opcode == CLOSE:
            if payload and not is_close_payload(payload):
                raise WebSocketError(PROTOCOL_ERROR)
            self._send(True, CLOSE, payload[:2])
            return False
        if opcode == PING:
            self._send(True, PONG, payload)
        elif opcode in (TEXT, BINARY, CONTINUATION):
            self._check_message(final, opcode, payload)
            self._send(final, opcode, payload)
        elif opcode != PONG:
            raise WebSocketError(PROTOCOL_ERROR)
        return True

    def _check_message(self, final, opcode, payload):
        """Check the order of a message's frames (RFC 6455 section 5.4) and, of a text message, the encoding."""
        if (opcode == CONTINUATION) != (self._message is not None):
            raise WebSocketError(PROTOCOL_ERROR)
        if opcode != CONTINUATION:
            self._message = opcode
            self._decoder = codecs.getincrementaldecoder("utf-8")()
        if self._message == TEXT:
            try:
                self._decoder.decode(payload, final)
            except UnicodeDecodeError:
                raise WebSocketError(NOT_UTF8) from None
        if final:
            self._message = None

    def _read(self, size):
        """Return exactly `size` bytes; EOFError if the peer is gone."""
        data = self._rfile.read(size)
        if len(data) < size:
            raise EOFError
        return data

    def _send(self, final, opcode, payload):
        """Send one frame, unmasked as a server must."""
        head = bytes([(0x80 if final else 0) | opcode])
        if len(payload) < 126:
            head += bytes([len(payload)])
        elif len(payload) < 1 << 16:
            head += struct.pack("!BH", 126, len(payload))
        else:
            head += struct.pack("!BQ", 127, len(payload))
        self._wfile.write(head + payload)
        self._wfile.flush()


def is_close_payload(payload):
    """Tell whether a close frame may carry `payload`: a code that may be sent, then UTF-8 (RFC 6455 section 7.4)."""
    code = int.from_bytes(payload[:2], "big") if len(payload) >= 2 else 0
    try:
        payload[2:].decode("utf-8")
    except UnicodeDecodeError:
        return False
    return (1000 <= code <= 1014 and code not in (1004, 1005, 1006)) or 3000 <= code <= 4999


class EchoServer(ThreadingHTTPServer):
    """One daemon thread per connection, so that none of them keeps the process from ending."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    allow_reuse_port = False  # on by default in some Python releases; another process could then share the port

    def server_bind(self):
        """Bind without the base class's look-up of the host's name, which can take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]

    def shutdown_request(self, request):
        """Say goodbye, then let the caller finish for a moment: closing with bytes unread would cut off our answer."""
        deadline = time.monotonic() + CLOSING_S_MAX
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_WR)
            while (left := deadline - time.monotonic()) > 0:
                request.settimeout(left)
                if not request.recv(READ_BYTES):
                    break
        self.close_request(request)

    def handle_error(self, request, client_address):
        """Show bugs, but not callers who hang up."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def main():
    """Listen on 127.0.0.1 at SIDECAR_PORT until SIGTERM."""
    # There is nothing to tidy up, so the process ends there and then, with requests under way.
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: os._exit(0))
    port = os.environ.get("SIDECAR_PORT", "")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 1 << 16):
        sys.exit("echo: SIDECAR_PORT must hold a port number; omac sets it when it starts this program")
    try:
        server = EchoServer(("127.0.0.1", int(port)), EchoHandler)
    except OSError as error:
        sys.exit(f"echo: cannot listen on 127.0.0.1:{port}: {error.strerror}")
    server.serve_forever()


if __name__ == "__main__":
    main()
