"""Bytes sent to the control plane: unambiguous requests are served, all others are refused as JSON."""

import json
import re
import socket

import pytest
from real_omac import Answer, Serving, parse_answer

GET = b"GET /__omac__/dirs HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /__omac__/deactivate HTTP/1.1\r\nHost: localhost\r\n"

MALFORMED: dict[str, bytes] = {
    "lf": b"GET /__omac__/dirs HTTP/1.1\nHost: localhost\n\n",
    "lf-in-fields": GET + b"A: b\nC: d\r\n\r\n",
    "folded": GET + b"A: b\r\n c\r\n\r\n",
    "length-and-chunks": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two-lengths": POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "signed-length": POST + b"Content-Length: +2\r\n\r\n{}",
    "gzip-chunks": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunks-of-1.0": POST.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "bad-chunk": POST + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
    "no-host": b"GET /__omac__/dirs HTTP/1.1\r\n\r\n",
    "two-hosts": GET + b"Host: localhost\r\n\r\n",
    "absolute-form": GET.replace(b"/__omac__", b"http://localhost/__omac__") + b"\r\n",
    "nul": GET + b"A: \x00\r\n\r\n",
    "blank-before-colon": GET + b"A : b\r\n\r\n",
    "http2-preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "http2-in-the-line": GET.replace(b"1.1", b"2.0") + b"\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
}


def ask(server: Serving, request: bytes) -> tuple[Answer, bytes]:
    """Send bytes to the private socket; return the answer, and the bytes behind it until the server closes."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(10)
        sock.connect(server.ready["control_socket"])
        sock.sendall(request)
        raw = b""
        while data := sock.recv(65_536):
            raw += data
    assert raw.startswith(b"HTTP/1.1 "), raw
    answer = parse_answer(raw)
    length = int(answer.headers["content-length"])
    return answer, raw.partition(b"\r\n\r\n")[2][length:]


def refused(answer: Answer, status: int, reason: str) -> None:
    """Assert that an answer is this refusal, as JSON and in its header."""
    assert (answer.status, answer.headers["x-omac-reason"]) == (status, reason), answer
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["reason"] == reason
    assert answer.json()["error"]


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_request_is_refused(server: Serving, name: str) -> None:
    """The control plane refuses malformed requests by the facade's rules, and ends the connection behind the
    refusal."""
    answer, rest = ask(server, MALFORMED[name] + GET + b"\r\n")
    refused(answer, 400, "bad-request")
    assert answer.headers["connection"] == "close"
    assert rest == b""


def test_what_is_too_large_is_refused(server: Serving) -> None:
    """A head over 16 KiB is a 431. A body over 64 KiB is a 413, announced or in chunks."""
    refused(ask(server, GET + b"A: " + b"a" * 20_000 + b"\r\n\r\n")[0], 431, "head-too-large")
    refused(ask(server, POST + b"Content-Length: 65537\r\n\r\n")[0], 413, "body-too-large")
    chunks = b"8000\r\n" + b"a" * 0x8000 + b"\r\n"
    refused(ask(server, POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunks * 3)[0], 413, "body-too-large")


@pytest.mark.parametrize("method", ["OPTIONS", "DELETE", "PUT", "TRACE"])
def test_every_other_method_is_refused_as_json(server: Serving, method: str) -> None:
    """Any other method is a 405 that names the methods of the endpoint."""
    answer, _ = ask(server, GET.replace(b"GET", method.encode()) + b"Connection: close\r\n\r\n")
    refused(answer, 405, "method-not-allowed")
    assert answer.headers["allow"] == "GET"


def test_head_is_answered_without_a_body(server: Serving) -> None:
    """The answer to HEAD announces the length of the answer to GET. The next request on the connection is served."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(10)
        sock.connect(server.ready["control_socket"])
        sock.sendall(GET.replace(b"GET", b"HEAD") + b"\r\n")
        head = sock.recv(65_536)
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"\r\nContent-Length: 11\r\n" in head
        assert head.endswith(b"\r\n\r\n")
        sock.sendall(GET + b"\r\n")
        assert sock.recv(65_536).endswith(b'{"dirs":[]}')


def test_chunks_and_pipelined_calls_are_understood(server: Serving) -> None:
    """A chunked body is one body, and the bytes behind it are the next call. An awaited 100 Continue comes first."""
    body = json.dumps({"dir": "/nowhere"}).encode()
    chunked = b"%x\r\n%b\r\n0\r\nT: x\r\n\r\n" % (len(body), body)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(10)
        sock.connect(server.ready["control_socket"])
        sock.sendall(POST + b"Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n")
        assert sock.recv(65_536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(chunked + GET + b"\r\n" + GET + b"Connection: close\r\n\r\n")
        raw = b""
        while data := sock.recv(65_536):
            raw += data
    assert re.findall(rb"HTTP/1\.1 ([0-9]+)", raw) == [b"400", b"200", b"200"]
    assert b"\r\nx-omac-reason: outside-roots\r\n" in raw


def test_a_caller_that_has_only_finished_sending_is_answered(server: Serving) -> None:
    """A caller on the private socket that finishes sending, as `socat` and `nc -N` do, gets its answers."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(10)
        sock.connect(server.ready["control_socket"])
        sock.sendall(2 * (GET + b"\r\n"))
        sock.shutdown(socket.SHUT_WR)
        raw = b""
        while data := sock.recv(65_536):
            raw += data
    assert raw.count(b"HTTP/1.1 200 OK\r\n") == 2
