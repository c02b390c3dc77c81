"""The echo skill keeps the promises of its SKILL.md: a real sidecar, called over real sockets."""

import base64
import hashlib
import http.client
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from polling import eventually
from ruamel.yaml import YAML

from omac.domain.skills.contract import parse_meta
from omac.domain.skills.meta import Config, Limits, Meta, Secret

SKILL = Path(__file__).parents[2] / "examples" / "skills" / "echo"
READY_S_MAX = 5.0
MIB = 1024 * 1024
SECRETS = {
    "ECHO_SECRET": "value-of-the-declared-one",
    "FORGE_TOKEN": "value-of-the-token",
    "DB_PASSWORD": "value-of-the-password",
    "api_key_file": "value-of-the-key",
}
SETTINGS = {"ECHO_GREETING": "moin", "ECHO_PASSTHROUGH": "from the host"}
SAMPLE_KEY, SAMPLE_ACCEPT = "dGhlIHNhbXBsZSBub25jZQ==", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="  # RFC 6455 section 1.3
FINAL, TEXT, BINARY, CLOSE, PING, PONG = 0x80, 0x1, 0x2, 0x8, 0x9, 0xA


class Sidecar(NamedTuple):
    """A running sidecar and the port where it listens."""

    process: subprocess.Popen[str]
    port: int


class Answer(NamedTuple):
    """An HTTP answer."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:  # a JSON document is of any shape
        """Return the body, decoded."""
        return json.loads(self.body)


@contextmanager
def running_sidecar() -> Iterator[Sidecar]:
    """Start the command of omac.yaml with an environment built from nothing; kill it if it still runs at the end."""
    command = [sys.executable if word == "python3" else word for word in omac_yaml()["sidecar"]["command"]]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {"PATH": os.defpath, "SIDECAR_PORT": str(port), **SETTINGS, **SECRETS}
    with subprocess.Popen(command, cwd=SKILL, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            wait_until_ready(process, port)
            yield Sidecar(process, port)
        finally:
            process.kill()


def wait_until_ready(process: subprocess.Popen[str], port: int) -> None:
    """Ask for the health path until it answers, as omac does."""

    def is_ready() -> bool:
        assert process.poll() is None, f"the sidecar ended with {process.poll()}"
        try:
            return ask(port, "GET", "/status").status == 200
        except ConnectionRefusedError:
            return False

    eventually(is_ready, READY_S_MAX, "the sidecar's first answer")


def omac_yaml() -> Any:  # a YAML document is of any shape
    """Return the skill's omac.yaml, decoded."""
    return YAML(typ="safe", pure=True).load(SKILL / "omac.yaml")


def ask(port: int, method: str, target: str, body: Any = None, **headers: str) -> Answer:
    """Send one request on a connection of its own."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
        return ask_on(connection, method, target, body, **headers)


def ask_on(
    connection: http.client.HTTPConnection, method: str, target: str, body: Any = None, **headers: str
) -> Answer:
    """Send one request on `connection`; in the names of headers, _ replaces -."""
    connection.request(method, target, body, {name.replace("_", "-"): value for name, value in headers.items()})
    response = connection.getresponse()
    return Answer(response.status, response.headers, response.read())


def exchange(port: int, data: bytes) -> bytes:
    """Send `data` as it is and return all that comes until the sidecar closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as raw:
        raw.sendall(data)
        with raw.makefile("rb") as stream:
            return stream.read()


@pytest.fixture(scope="module")
def sidecar() -> Iterator[Sidecar]:
    """Yield a sidecar for all tests that leave it running."""
    with running_sidecar() as started:
        yield started


@pytest.fixture
def port(sidecar: Sidecar) -> int:
    """Return the port of the shared sidecar."""
    return sidecar.port


# omac.yaml and SKILL.md


def test_omac_yaml_holds_the_documented_values() -> None:
    """omac.yaml is valid YAML and has the values that SKILL.md and the sidecar rely on."""
    document = omac_yaml()
    assert document.pop("description")
    assert all(field.pop("description") for key in ("config", "secrets") for field in document["sidecar"][key])
    assert document == {
        "name": "echo",
        "version": "1.0.0",
        "sidecar": {
            "command": ["python3", "sidecar.py"],
            "mount": "echo",
            "health": {"path": "/status"},
            "limits": {"max_body_bytes": 64 * MIB},
            "env_passthrough": ["ECHO_PASSTHROUGH"],
            "config": [{"name": "ECHO_GREETING", "type": "string", "required": False, "default": "hello"}],
            "secrets": [{"name": "ECHO_SECRET", "required": False}],
        },
    }


def test_omac_yaml_has_the_shape_of_the_contract() -> None:
    """Every field of omac.yaml is one that omac knows, with the type that omac expects."""
    meta = parse_meta(omac_yaml())
    assert meta.sidecar is not None
    assert meta.sidecar.limits == Limits(max_body_bytes=64 * MIB)
    assert [type(field) for field in (*meta.sidecar.config, *meta.sidecar.secrets)] == [Config, Secret]
    assert set(omac_yaml()) <= set(Meta.__struct_fields__)
    assert set(omac_yaml()["sidecar"]) <= set(type(meta.sidecar).__struct_fields__)


def test_skill_md_names_the_skill_and_each_endpoint() -> None:
    """An agent that reads SKILL.md learns the skill's name, its address and every endpoint."""
    _, front_matter, text = (SKILL / "SKILL.md").read_text().split("---\n", 2)
    head = YAML(typ="safe", pure=True).load(front_matter)
    assert head["name"] == SKILL.name
    assert head["description"]
    for endpoint in ("/status", "/echo", "/whoami", "/ticks", "/ws", "/slow", "/crash"):
        assert f"$OMAC_ECHO_BASE{endpoint}" in text


# /status, methods and mistakes


def test_status_says_ok(port: int) -> None:
    """GET /status answers 200 with a small JSON document."""
    answer = ask(port, "GET", "/status")
    assert (answer.status, answer.json) == (200, {"status": "ok"})
    assert answer.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize("target", ["/status", "/echo", "/whoami", "/ticks?n=1000", "/slow?ms=1", "/nowhere"])
def test_head_has_a_head_only(port: int, target: str) -> None:
    """HEAD is answered like GET but without a body, and the connection stays usable."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
        answer = ask_on(connection, "HEAD", target)
        assert answer.status == (404 if target == "/nowhere" else 200)
        assert answer.body == b""
        assert ask_on(connection, "GET", "/status").json == {"status": "ok"}


def test_unknown_path_is_404_in_json(port: int) -> None:
    """A path that does not exist is refused with the paths that do."""
    answer = ask(port, "GET", "/echoes")
    assert answer.status == 404
    assert "/echo" in answer.json["paths"]


def test_wrong_method_is_405_with_allow(port: int) -> None:
    """An endpoint for reading refuses other methods and names the right ones."""
    answer = ask(port, "DELETE", "/whoami")
    assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    "target",
    ["/ticks?n=many", "/ticks?n=1001", "/ticks?ms=-1", "/ticks?n=", "/slow?ms=600001", "/slow?ms=1.5", "/crash?code=x"],
)
def test_malformed_number_is_400_in_json(port: int, target: str) -> None:
    """A number that is none, or out of bounds, is refused with the name of the parameter and its bounds."""
    answer = ask(port, "GET", target)
    assert answer.status == 400
    assert "must be a whole number from 0 to" in answer.json["error"]


def test_broken_head_is_answered_in_json(port: int) -> None:
    """Bytes that are no HTTP request are refused in JSON as well, and the connection ends."""
    head, _, body = exchange(port, b"GET /status HTTP/1.1 surplus\r\n\r\n").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert "error" in json.loads(body)


# /echo


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"])
def test_echo_shows_the_request(port: int, method: str) -> None:
    """The answer to any method on /echo or below is the request: method, path, query, headers and text."""
    answer = ask(port, method, "/echo/a%20b?x=1&y=%2F", "grüße".encode(), X_Colour="blue")
    document = answer.json
    assert document.pop("headers")["X-Colour"] == "blue"
    assert document == {"method": method, "path": "/echo/a%20b", "query": "x=1&y=%2F", "body": "grüße"}


def test_echo_joins_repeated_headers(port: int) -> None:
    """A header that came more than once, in any case, is shown once with all values."""
    request = b"GET /echo HTTP/1.1\r\nHost: x\r\nX-A: 1\r\nx-a: 2\r\nConnection: close\r\n\r\n"
    headers = json.loads(exchange(port, request).partition(b"\r\n\r\n")[2])["headers"]
    assert headers == {"Host": "x", "X-A": "1, 2", "Connection": "close"}


@pytest.mark.parametrize("body", [b"\xff\xfe", b"x" * (64 * 1024 + 1)], ids=["not UTF-8", "over 64 KiB"])
def test_echo_describes_what_it_does_not_show(port: int, body: bytes) -> None:
    """A body that is no small text is answered with its length and digest."""
    assert ask(port, "POST", "/echo", body).json == {"bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}


def test_echo_shows_text_up_to_its_bound(port: int) -> None:
    """A text of exactly 64 KiB is still shown."""
    assert ask(port, "POST", "/echo", b"x" * 64 * 1024).json["body"] == "x" * 64 * 1024


def test_big_upload_is_not_held_in_memory() -> None:
    """50 MiB arrive whole, and the sidecar's memory stays far below that."""
    piece, count = os.urandom(MIB), 50
    digest = hashlib.sha256()
    for _ in range(count):
        digest.update(piece)
    with running_sidecar() as own:
        answer = ask(own.port, "PUT", "/echo", (piece for _ in range(count)), Content_Length=str(count * MIB))
        status = Path(f"/proc/{own.process.pid}/status").read_text()
    assert answer.json == {"bytes": count * MIB, "sha256": digest.hexdigest()}
    peak_kib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
    assert peak_kib < 45 * 1024


def test_echo_sends_bytes_back(port: int) -> None:
    """The answer with Accept: application/octet-stream is the body, byte for byte."""
    body = os.urandom(3 * MIB + 1)
    answer = ask(port, "POST", "/echo", body, Accept="application/octet-stream")
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.body == body


def test_echo_refuses_to_send_back_too_much(port: int) -> None:
    """A request for more than 64 MiB gets a 413 instead of the body, after all of it was read."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
        pieces = (b"\0" * MIB for _ in range(65))
        answer = ask_on(connection, "POST", "/echo", pieces, Accept="application/octet-stream")
        assert answer.status == 413
        assert ask_on(connection, "GET", "/status").status == 200


# Bodies and connections


def test_chunked_upload_is_read_to_its_end(port: int) -> None:
    """A body in chunks, with extensions and trailers, is put together; the next request follows on the connection."""
    first = b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = b"5;note=1\r\nhello\r\n7\r\n, world\r\n0\r\nX-Trailer: 1\r\n\r\n"
    second = b"GET /status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    answers = exchange(port, first + chunks + second)
    assert b'"body": "hello, world"' in answers
    assert answers.endswith(b'{"status": "ok"}\n')
    assert answers.count(b"HTTP/1.1 200 ") == 2


@pytest.mark.parametrize("target", ["/status", "/nowhere", "/slow?ms=x", "/ws", "/crash?code=x"])
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_connection_survives_a_body_nobody_wants(port: int, target: str, chunked: bool) -> None:
    """A request whose body is ignored leaves the connection usable for the next one."""
    body = b"GET /nowhere HTTP/1.1\r\n\r\n" * 5_000
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
        assert ask_on(connection, "POST", target, iter([body]) if chunked else body).status >= 400
        first_socket = connection.sock
        assert ask_on(connection, "GET", "/status").json == {"status": "ok"}
        assert connection.sock is first_socket


@pytest.mark.parametrize(
    ("head", "body", "status"),
    [
        (b"Content-Length: 3\r\nTransfer-Encoding: chunked", b"0\r\n\r\n", 400),
        (b"Content-Length: 3\r\nContent-Length: 4", b"abcd", 400),
        (b"Content-Length: +3", b"abc", 400),
        (b"Transfer-Encoding: gzip, chunked", b"0\r\n\r\n", 501),
        (b"Transfer-Encoding: chunked", b"0x3\r\nabc\r\n0\r\n\r\n", 400),
        (b"Transfer-Encoding: chunked", b"3\r\nabcd\r\n0\r\n\r\n", 400),
        (b"Transfer-Encoding: chunked", b"3\nabc\r\n0\r\n\r\n", 400),
    ],
)
def test_unclear_framing_ends_the_connection(port: int, head: bytes, body: bytes, status: int) -> None:
    """A body whose end is uncertain is refused, and nothing after it is taken for a request."""
    smuggled = b"GET /status HTTP/1.1\r\nHost: x\r\n\r\n"
    answers = exchange(port, b"POST /echo HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n\r\n" + body + smuggled)
    assert answers.startswith(b"HTTP/1.1 %d " % status)
    assert answers.count(b"HTTP/1.1 ") == 1
    assert b"\r\nConnection: close\r\n" in answers


def test_expect_continue_is_answered_before_the_body(port: int) -> None:
    """A caller that waits for leave to send its body gets it at once."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as raw, raw.makefile("rb") as stream:
        raw.sendall(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert stream.readline() == b"HTTP/1.1 100 Continue\r\n"
        assert stream.readline() == b"\r\n"
        raw.sendall(b"ok")
        assert stream.readline() == b"HTTP/1.1 200 OK\r\n"


def test_http_1_0_is_answered_and_closed(port: int) -> None:
    """An old caller gets its answer, not in chunks, and then the end of the connection."""
    head, _, body = exchange(port, b"GET /ticks?n=2&ms=1 HTTP/1.0\r\n\r\n").partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert body.endswith(b'id: 2\ndata: {"tick": 2, "of": 2}\n\n')


def test_sidecar_listens_on_loopback_only(port: int) -> None:
    """No other address of the machine reaches the sidecar."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = {line[1] for line in lines if line[3] == "0A" and line[1].endswith(f":{port:04X}")}
    assert listening == {f"{struct.unpack('=I', socket.inet_aton('127.0.0.1'))[0]:08X}:{port:04X}"}


# /whoami


def test_whoami_shows_the_environment_without_secrets(sidecar: Sidecar) -> None:
    """Variables are shown with values, secrets by name only: no secret value is anywhere in the answer."""
    answer = ask(sidecar.port, "GET", "/whoami")
    document = answer.json
    assert document["secrets"] == sorted(SECRETS)
    assert document["variables"].items() >= {**SETTINGS, "SIDECAR_PORT": str(sidecar.port)}.items()
    assert not document["variables"].keys() & SECRETS.keys()
    assert (document["cwd"], document["pid"]) == (str(SKILL), sidecar.process.pid)
    for value in SECRETS.values():
        assert value.encode() not in answer.body


# /ticks and /slow


def test_ticks_arrive_one_by_one(port: int) -> None:
    """The first event is there long before the last, and n events make the stream."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
        start = time.monotonic()
        connection.request("GET", "/ticks?n=3&ms=150")
        response = connection.getresponse()
        assert response.headers["Content-Type"] == "text/event-stream"
        first = [response.readline() for _ in range(3)]
        first_after_s = time.monotonic() - start
        rest = response.read()
        whole_after_s = time.monotonic() - start
    assert first == [b"id: 1\n", b'data: {"tick": 1, "of": 3}\n', b"\n"]
    assert rest == b'id: 2\ndata: {"tick": 2, "of": 3}\n\nid: 3\ndata: {"tick": 3, "of": 3}\n\n'
    assert whole_after_s >= 0.3
    assert whole_after_s - first_after_s >= 0.15


def test_ticks_has_defaults_and_keeps_the_connection(port: int) -> None:
    """A stream without n has five events; a stream in chunks leaves the connection open."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
        assert ask_on(connection, "GET", "/ticks?ms=0").body.count(b"data: ") == 5
        assert ask_on(connection, "GET", "/ticks?n=1000&ms=0").body.count(b"data: ") == 1000
        assert ask_on(connection, "GET", "/status").status == 200


def test_slow_answers_after_the_time_asked_for(port: int) -> None:
    """GET /slow waits and reports how long; other callers are served meanwhile."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
        start = time.monotonic()
        connection.request("GET", "/slow?ms=1000")
        assert ask(port, "GET", "/status").status == 200
        assert time.monotonic() - start < 1
        assert json.loads(connection.getresponse().read()) == {"slept_ms": 1000}
        assert time.monotonic() - start >= 1


# /ws


class WebSocket:
    """A small WebSocket client, which can also send frames that a good client never would."""

    def __init__(self, raw: socket.socket) -> None:
        """Shake hands on a connected socket."""
        self.raw = raw
        self.stream = raw.makefile("rb")
        raw.sendall(
            b"GET /ws HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + SAMPLE_KEY.encode() + b"\r\n\r\n"
        )
        self.head = b"".join(iter(self.stream.readline, b"\r\n"))

    def send(self, first: int, payload: bytes = b"", *, masked: bool = True) -> None:
        """Send a frame whose first byte is `first`."""
        size, flag = len(payload), 0x80 if masked else 0
        if size < 126:
            head = bytes([first, flag | size])
        elif size < 1 << 16:
            head = struct.pack("!BBH", first, flag | 126, size)
        else:
            head = struct.pack("!BBQ", first, flag | 127, size)
        mask = b"\x37\xfa\x21\x3d"
        body = mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload)) if masked else payload
        self.raw.sendall(head + body)

    def receive(self) -> tuple[int, bytes]:
        """Return the first byte and the payload of the next frame, which must not be masked."""
        first, size = self.stream.read(2)
        if size == 126:
            (size,) = struct.unpack("!H", self.stream.read(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", self.stream.read(8))
        return first, self.stream.read(size)

    def is_at_end(self) -> bool:
        """Wait until the sidecar sends more or closes; return whether it closed."""
        return self.stream.read(1) == b""


@pytest.fixture
def websocket(port: int) -> Iterator[WebSocket]:
    """Yield a WebSocket to the shared sidecar, after the handshake."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as raw:
        client = WebSocket(raw)
        with client.stream:
            yield client


def test_websocket_handshake_proves_itself(websocket: WebSocket) -> None:
    """The answer to the RFC's sample key is the RFC's sample proof."""
    assert websocket.head.startswith(b"HTTP/1.1 101 ")
    assert f"\r\nSec-WebSocket-Accept: {SAMPLE_ACCEPT}\r\n".encode() in websocket.head


@pytest.mark.parametrize("size", [0, 5, 125, 126, 65_535, 65_536, MIB])
def test_websocket_returns_frames(websocket: WebSocket, size: int) -> None:
    """Text and binary frames of every length encoding come back as they were."""
    for opcode, payload in ((TEXT, b"x" * size), (BINARY, bytes(range(256)) * (size // 256))):
        websocket.send(FINAL | opcode, payload)
        assert websocket.receive() == (FINAL | opcode, payload)


def test_websocket_returns_a_message_in_pieces(websocket: WebSocket) -> None:
    """A message may come in several frames, a ping between them, a character across them."""
    start, end = "grü".encode()[:-1], "grü".encode()[-1:]
    websocket.send(TEXT, start)
    websocket.send(FINAL | PING, b"still there?")
    websocket.send(FINAL, end)
    assert [websocket.receive() for _ in range(3)] == [(TEXT, start), (FINAL | PONG, b"still there?"), (FINAL, end)]


@pytest.mark.parametrize("payload", [b"", struct.pack("!H", 1000) + b"bye"], ids=["without code", "with code"])
def test_websocket_answers_close(websocket: WebSocket, payload: bytes) -> None:
    """A close frame is answered with its code, and the connection ends."""
    websocket.send(FINAL | PONG, b"nobody asked")
    websocket.send(FINAL | CLOSE, payload)
    assert websocket.receive() == (FINAL | CLOSE, payload[:2])
    assert websocket.is_at_end()


@pytest.mark.parametrize(
    ("first", "payload", "masked", "code"),
    [
        (FINAL | TEXT, b"bare", False, 1002),
        (FINAL | 0x40 | TEXT, b"reserved bit", True, 1002),
        (FINAL | 0x3, b"reserved opcode", True, 1002),
        (FINAL, b"continues nothing", True, 1002),
        (PING, b"ping in pieces", True, 1002),
        (FINAL | PING, b"p" * 126, True, 1002),
        (FINAL | CLOSE, b"\x03", True, 1002),
        (FINAL | CLOSE, struct.pack("!H", 1005), True, 1002),
        (FINAL | TEXT, b"\xff", True, 1007),
        (FINAL | BINARY, b"b" * (MIB + 1), True, 1009),
    ],
)
def test_websocket_closes_on_a_broken_frame(
    websocket: WebSocket, first: int, payload: bytes, masked: bool, code: int
) -> None:
    """A frame against the rules is answered with a close frame that gives the reason, and the connection ends."""
    websocket.send(first, payload, masked=masked)
    assert websocket.receive() == (FINAL | CLOSE, struct.pack("!H", code))
    assert websocket.is_at_end()


def test_websocket_path_refuses_plain_requests(port: int) -> None:
    """A request for /ws without an upgrade, or for another version, gets a 426 with the supported version."""
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec_WebSocket_Key": SAMPLE_KEY}
    for headers in ({}, {**upgrade, "Sec_WebSocket_Version": "12"}):
        answer = ask(port, "GET", "/ws", **headers)
        assert (answer.status, answer.headers["Upgrade"]) == (426, "websocket")
        assert answer.headers["Sec-WebSocket-Version"] == "13"


def test_websocket_refuses_a_key_that_is_none(port: int) -> None:
    """A key of the wrong length is a mistake in the handshake: 400."""
    short = base64.b64encode(b"short").decode()
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec_WebSocket_Version": "13"}
    assert ask(port, "GET", "/ws", **upgrade, Sec_WebSocket_Key=short).status == 400


# The end of the process


@pytest.mark.parametrize(("target", "code"), [("/crash", 70), ("/crash?code=3", 3)])
def test_crash_ends_the_process_without_an_answer(target: str, code: int) -> None:
    """/crash ends the sidecar with the requested status; the caller sees the connection break."""
    with running_sidecar() as own:
        assert exchange(own.port, f"POST {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode()) == b""
        assert own.process.wait(timeout=5) == code


def test_sigterm_ends_the_process_at_once() -> None:
    """SIGTERM ends the sidecar with status 0, in the middle of a request too."""
    with running_sidecar() as own, socket.create_connection(("127.0.0.1", own.port), timeout=5) as raw:
        raw.sendall(b"GET /ticks?n=2&ms=600000 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert raw.recv(1)  # the request is under way
        own.process.send_signal(signal.SIGTERM)
        assert own.process.wait(timeout=5) == 0


def test_log_has_one_line_per_request() -> None:
    """Each request is one line on stdout at once, without query or headers and with nothing that could fake a line."""
    with running_sidecar() as own:
        assert own.process.stdout is not None
        assert own.process.stdout.readline() == "GET /status 200\n"
        for method, target in (("POST", "/echo/x?token=abc"), ("GET", "/slow?ms=abc"), ("BREW", "/echo/\x1b[2J")):
            request = f"{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            assert exchange(own.port, request.encode())
        lines = [own.process.stdout.readline() for _ in range(3)]
        assert lines == ["POST /echo/x 200\n", "GET /slow 400\n", "BREW /echo/\\x1b[2J 200\n"]
        own.process.terminate()
        assert own.process.stdout.read() == ""


@pytest.mark.parametrize("value", [None, "", "http", "0", "65536"])
def test_sidecar_says_what_it_misses(value: str | None) -> None:
    """The sidecar ends with status 1 without a usable SIDECAR_PORT, and one line names the variable."""
    environment = {"PATH": os.defpath} | ({} if value is None else {"SIDECAR_PORT": value})
    done = subprocess.run(
        [sys.executable, "sidecar.py"], cwd=SKILL, env=environment, capture_output=True, text=True, timeout=5
    )
    assert done.returncode == 1
    assert done.stderr.startswith("echo: SIDECAR_PORT must hold a port number")
    assert done.stderr.count("\n") == 1
