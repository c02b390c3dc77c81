"""Heads of requests and answers as the facade forwards them."""

import msgspec
import pytest

from omac.adapters.facade.forward import client_head, encode_body, refusal_answer, upstream_head
from omac.adapters.http.http1 import RequestHead, parse_request_head, parse_response_head
from omac.domain.kernel.refusal import Refusal

TOKEN = "s3cr3t"
OTHERS = "0ce629a8c7c511311f53f9cc9bdd07b3"  # a token of another directory


def request(*fields: str, line: str = "GET /s3cr3t/fast/a HTTP/1.1") -> RequestHead:
    return parse_request_head("\r\n".join([line, "Host: localhost:1", *fields, "", ""]).encode("latin-1"))


def upstream(*fields: str, line: str = "GET /s3cr3t/fast/a HTTP/1.1") -> list[str]:
    head = upstream_head(request(*fields, line=line), "/a?b", port=4711, mount="fast", token=TOKEN).decode("latin-1")
    assert head.endswith("\r\n\r\n")
    return head[:-4].split("\r\n")


ALWAYS = ["GET /a?b HTTP/1.1", "Host: 127.0.0.1:4711", "X-Forwarded-Prefix: /fast"]


def test_a_skill_sees_its_own_path_and_host() -> None:
    """A skill gets its own path below the mount, its own host, and a prefix without token."""
    assert upstream("Accept: */*", "Cookie: a=b") == [*ALWAYS, "Accept: */*", "Cookie: a=b"]


@pytest.mark.parametrize(
    "field",
    [
        "Keep-Alive: timeout=5",
        "Proxy-Connection: close",
        "Proxy-Authorization: Basic eA==",
        "TE: trailers",
        "Trailer: X",
        "Upgrade: websocket",
        "HTTP2-Settings: AAMAAABkAAQAAP__",
        "Expect: 100-continue",
        "Forwarded: for=1.2.3.4",
        "X-Forwarded-For: 1.2.3.4",
        "X-Forwarded-Prefix: /evil",
        "x_forwarded_prefix: /evil",
        "X_Forwarded_Host: evil",
        "Content_Length: 7",
        "Transfer_Encoding: chunked",
    ],
)
def test_what_concerns_one_connection_or_claims_a_way_is_dropped(field: str) -> None:
    """The facade drops hop-by-hop fields and a client's claims about the request's route, with underscores or not."""
    assert upstream(field) == ALWAYS


def test_fields_named_in_connection_are_dropped_but_never_ours() -> None:
    """A client's Connection field can drop the client's fields, but not the proxy's own or the length of the body."""
    connection = "Connection: x-private, Host, X-Forwarded-Prefix, content-length, close"
    head = upstream(connection, "X-Private: 1", "X-Public: 2", "Content-Length: 3", line="POST /s3cr3t/fast/a HTTP/1.1")
    assert head == ["POST /a?b HTTP/1.1", *ALWAYS[1:], "Connection: close", "Content-Length: 3", "X-Public: 2"]


def test_a_chunked_body_stays_chunked() -> None:
    """The forwarded request has the framing that the facade has checked, written once."""
    assert upstream("transfer-encoding: Chunked") == [*ALWAYS, "Connection: close", "Transfer-Encoding: chunked"]


@pytest.mark.parametrize(
    ("referer", "seen"),
    [
        ("http://localhost:1/s3cr3t/fast/page?x", ["Referer: http://localhost:1/fast/page?x"]),
        ("http://localhost:1/s3cr3t/fast/?u=/s3cr3t/fast/", ["Referer: http://localhost:1/fast/?u=/fast/"]),
        ("https://example.com/", ["Referer: https://example.com/"]),
        ("http://localhost:1/?t=s3cr3t", []),
        (f"http://localhost:1/%{ord(OTHERS[0]):x}{OTHERS[1:]}/fast", []),
        (f"http://localhost:1/{OTHERS}/fast/", []),
        (f"http://localhost:1/s3cr3t/fast/?back=%2F{OTHERS.upper()}", []),
        (f"http://localhost:1/s3cr3t/fast/?back=%2525{ord(OTHERS[0]):x}{OTHERS[1:]}", []),
        (f"http://localhost:1/{'x' * 2_100}", []),
        ("http://localhost:1/s3cr3t/fast/ab12cd34", ["Referer: http://localhost:1/fast/ab12cd34"]),
    ],
)
def test_the_token_never_leaves_in_referer(referer: str, seen: list[str]) -> None:
    """A skill learns from no Referer the token that reaches its neighbours, nor that of another directory."""
    assert upstream(f"Referer: {referer}") == [*ALWAYS, *seen]
    for name in ("HX-Current-URL", "Ping-From", "ping-to"):
        assert upstream(f"{name}: {referer}") == [*ALWAYS, *(field.replace("Referer", name) for field in seen)]


@pytest.mark.parametrize(
    ("field", "seen"),
    [
        ("Destination: http://localhost:1/s3cr3t/fast/b", ["Destination: http://localhost:1/fast/b"]),
        ("Cookie: from=s3cr3t", []),
        (f"Traceparent: 00-{OTHERS}-01", [f"Traceparent: 00-{OTHERS}-01"]),
    ],
)
def test_the_token_is_in_no_other_field(field: str, seen: list[str]) -> None:
    """The facade removes the token from all other fields. Text that only looks like a token stays in fields that hold
    no page's address."""
    assert upstream(field) == [*ALWAYS, *seen]


def answer(*fields: str, line: str = "HTTP/1.1 200 OK", to: RequestHead | None = None) -> tuple[list[str], str]:
    to = to or request()
    response = parse_response_head("\r\n".join([line, *fields, "", ""]).encode("latin-1"), to.method)
    head, delivery = client_head(response, to, "/a?b", mount="fast", prefix=f"/{TOKEN}/fast", port=4711)
    assert head.endswith(b"\r\n\r\n")
    return head[:-4].decode("latin-1").split("\r\n"), delivery


def test_hop_by_hop_fields_of_an_answer_are_dropped() -> None:
    """The facade drops an answer's hop-by-hop fields, which concern only the skill's connection."""
    head, delivery = answer(
        "Content-Length: 3", "Connection: X-Mine, content-length", "X-Mine: 1", "Keep-Alive: 5", "ETag: x"
    )
    assert head == ["HTTP/1.1 200 OK", "Content-Length: 3", "ETag: x"]
    assert delivery == "length"


@pytest.mark.parametrize(
    ("fields", "seen"),
    [
        (("Connection: Upgrade", "Upgrade: WebSocket"), ["Connection: Upgrade", "Upgrade: websocket"]),
        (("Connection: upgrade", "Upgrade: h2c, graphql/1, HTTP/2.0"), ["Connection: Upgrade", "Upgrade: graphql/1"]),
        (("Upgrade: websocket", "Upgrade: x y"), ["Connection: Upgrade", "Upgrade: websocket"]),
        (("Connection: Upgrade", "Upgrade: h2c"), []),
        ((), []),
    ],
)
def test_a_skill_that_requires_an_upgrade_says_to_which(fields: tuple[str, ...], seen: list[str]) -> None:
    """An answer of 426 names the protocols that the skill asks for (RFC 9110 section 15.5.22), as far as the facade
    switches to them. Any other answer names none."""
    required = "HTTP/1.1 426 Upgrade Required"
    assert answer("Content-Length: 0", *fields, line=required)[0] == [required, "Content-Length: 0", *seen]
    assert answer("Content-Length: 0", *fields)[0] == ["HTTP/1.1 200 OK", "Content-Length: 0"]


def test_a_skill_speaks_neither_for_omac_nor_for_the_host() -> None:
    """A skill cannot send the fields of omac: clients trust X-Omac-Reason. Nor can it send fields that apply to the
    whole host."""
    forged = ("X-Omac-Reason: pending-credentials", "x-omac-x: 1", "X_Omac_Reason: revoked")
    of_the_host = (
        'Alt-Svc: h2="evil:443"',
        "Service-Worker-Allowed: /",
        'Clear-Site-Data: "cookies"',
        "Set-Cookie2: a=b",
        "Accept-CH: Sec-CH-UA-Model",
        "critical-ch: Sec-CH-UA-Model",
        'NEL: {"report_to": "all", "max_age": 9, "success_fraction": 1}',
        'Report-To: {"group": "all", "max_age": 9, "endpoints": [{"url": "https://evil.example/"}]}',
        "Set-Login: logged-out",
        'Use-As-Dictionary: match="/*"',
    )
    head, _ = answer(*forged, *of_the_host, "Content-Length: 0", "X-Omacs: 1")
    assert head == ["HTTP/1.1 200 OK", "Content-Length: 0", "X-Omacs: 1"]


def test_cookies_are_confined_to_the_mount() -> None:
    """The facade rewrites each Set-Cookie by itself, and drops a cookie that demands the whole host."""
    head, _ = answer("Set-Cookie: a=1; Path=/; Domain=127.0.0.1", "set-cookie: __Host-b=2; Secure; Path=/")
    assert [line for line in head if "ookie" in line] == ["Set-Cookie: a=1; Path=/s3cr3t/fast"]


def test_a_body_of_unknown_length_is_chunked_or_ends_with_the_connection() -> None:
    """HTTP/1.1 clients get chunks and keep their connection; HTTP/1.0 clients read to the end."""
    old = request(line="GET /s3cr3t/fast/a HTTP/1.0")
    for field in ((), ("Transfer-Encoding: chunked",)):
        assert answer(*field) == (["HTTP/1.1 200 OK", "Transfer-Encoding: chunked"], "chunked")
        assert answer(*field, to=old) == (["HTTP/1.1 200 OK", "Connection: close"], "close")


def test_answers_without_body_announce_what_they_may() -> None:
    """HEAD and 304 keep the length they announce, 204 announces none, and none is chunked."""
    head = request(line="HEAD /s3cr3t/fast/a HTTP/1.1")
    assert answer("Content-Length: 9", to=head) == (["HTTP/1.1 200 OK", "Content-Length: 9"], "none")
    assert answer("Transfer-Encoding: chunked", to=head) == (["HTTP/1.1 200 OK"], "none")
    assert answer("Content-Length: 9", line="HTTP/1.1 304 Not Modified")[0][1:] == ["Content-Length: 9"]
    assert answer("Content-Length: 9", line="HTTP/1.1 204 No Content") == (["HTTP/1.1 204 No Content"], "none")


def test_event_streams_are_not_to_be_buffered() -> None:
    """An event stream carries one field that asks proxies before the facade not to buffer it."""
    head, _ = answer("Content-Type: text/event-stream; charset=utf-8", "X-Accel-Buffering: yes")
    assert [line for line in head if line.startswith("X-Accel")] == ["X-Accel-Buffering: no"]


def test_a_client_that_closes_is_told_so() -> None:
    """The facade answers `Connection: close` in kind (RFC 9112 section 9.6)."""
    assert answer("Content-Length: 1", to=request("Connection: close"))[0][-1] == "Connection: close"


def test_chunks_are_written_as_the_decoder_reads_them() -> None:
    """The facade writes no chunk for an empty piece, because an empty chunk would end the body."""
    assert encode_body(b"", "chunked", last=False) == b""
    assert encode_body(b"0123456789", "chunked", last=False) == b"a\r\n0123456789\r\n"
    assert encode_body(b"x", "chunked", last=True) == b"1\r\nx\r\n0\r\n\r\n"
    assert encode_body(b"", "chunked", last=True) == b"0\r\n\r\n"
    assert encode_body(b"x", "length", last=True) == b"x"


def test_a_refusal_is_a_whole_answer() -> None:
    """A refusal has a status, a reason header and a JSON body of one line, which names the fix. HEAD gets the same
    head."""
    refusal = Refusal("pending-credentials", "A secret is missing.", fix=["omac secrets set fast KEY"])
    head, _, body = refusal_answer(refusal, close=True, skill="fast").partition(b"\r\n\r\n")
    assert head.decode().split("\r\n") == [
        "HTTP/1.1 409 Conflict",
        "X-Omac-Reason: pending-credentials",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    assert msgspec.json.decode(body) == {
        "error": "pending-credentials",
        "skill": "fast",
        "detail": "A secret is missing.",
        "fix": ["omac secrets set fast KEY"],
    }
    assert body.endswith(b"}\n")
    assert refusal_answer(refusal, close=True, skill="fast", method="HEAD") == head + b"\r\n\r\n"
    assert b"Connection" not in refusal_answer(refusal, close=False)
