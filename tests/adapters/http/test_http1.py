"""Heads and bodies as bytes: unambiguous ones are parsed, all others are refused."""

import contextlib
import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from omac.adapters.http.bodies import (
    EXTENSION_BYTES_MAX,
    LINE_BYTES_MAX,
    ChunkedDecoder,
    Framing,
    LengthDecoder,
    UntilCloseDecoder,
    UpstreamError,
)
from omac.adapters.http.http1 import (
    FIELDS_MAX,
    HEAD_BYTES_MAX,
    NO_BODY,
    head_end,
    parse_request_head,
    parse_response_head,
    split_target,
)
from omac.domain.kernel.refusal import Refusal


def request(*fields: bytes, line: bytes = b"GET /t/m/ HTTP/1.1", host: bytes | None = b"Host: 127.0.0.1") -> bytes:
    lines = [line, *([host] if host is not None else []), *fields, b"", b""]
    return b"\r\n".join(lines)


def response(*fields: bytes, line: bytes = b"HTTP/1.1 200 OK") -> bytes:
    return b"\r\n".join([line, *fields, b"", b""])


def refused(head: bytes) -> str:
    with pytest.raises(Refusal) as caught:
        parse_request_head(head)
    return caught.value.reason


def test_a_plain_request_is_read_as_it_stands() -> None:
    """The parser returns method, target, version and fields byte for byte, and values without the blanks around
    them."""
    head = parse_request_head(
        request(b"X-One:  a b \t", b"x-two:", b"X-Three: \xc3\xa9", line=b"DELETE /t/m/%2F?a=b&c HTTP/1.1")
    )
    assert (head.method, head.target, head.minor) == ("DELETE", "/t/m/%2F?a=b&c", 1)
    assert head.headers == [(b"Host", b"127.0.0.1"), (b"X-One", b"a b"), (b"x-two", b""), (b"X-Three", b"\xc3\xa9")]
    assert head.framing == Framing()
    assert (head.keep_alive, head.expect_continue) == (True, False)


@pytest.mark.parametrize(
    ("head", "framing", "keep_alive", "expect_continue"),
    [
        (request(b"Content-Length: 0"), Framing(content_length=0), True, False),
        (request(b"content-length: 12"), Framing(content_length=12), True, False),
        (request(b"Content-Length: 5", b"Expect: 100-Continue"), Framing(content_length=5), True, True),
        (request(b"Expect: 100-continue"), Framing(), True, False),
        (request(b"Transfer-Encoding: Chunked"), Framing(chunked=True), True, False),
        (request(b"Connection: Close"), Framing(), False, False),
        (request(b"Connection: foo", b"Connection: bar , close"), Framing(), False, False),
        (request(line=b"GET /t/m/ HTTP/1.0"), Framing(), False, False),
        (request(b"Connection: keep-alive", line=b"GET /t/m/ HTTP/1.0"), Framing(), False, False),
        (
            request(b"Content-Length: 5", b"Expect: 100-continue", line=b"PUT /t/m/ HTTP/1.0"),
            Framing(content_length=5),
            False,
            False,
        ),
        (request(b"Upgrade: websocket", b"Connection: Upgrade"), Framing(), True, False),
        (
            request(b"Upgrade: h2c", b"Connection: Upgrade", b"Content-Length: 3"),
            Framing(content_length=3),
            True,
            False,
        ),
    ],
)
def test_framing_and_persistence(head: bytes, framing: Framing, keep_alive: bool, expect_continue: bool) -> None:
    """The end of the body and the fate of the connection follow RFC 9112 sections 6.3 and 9.3."""
    parsed = parse_request_head(head)
    assert (parsed.framing, parsed.keep_alive, parsed.expect_continue) == (framing, keep_alive, expect_continue)


HOSTILE = {
    "no host": request(host=None),
    "two hosts": request(b"Host: 127.0.0.1"),
    "two hosts on 1.0": request(b"Host: localhost", line=b"GET /t/m/ HTTP/1.0"),
    "two lengths": request(b"Content-Length: 5", b"Content-Length: 6"),
    "identical lengths": request(b"Content-Length: 5", b"content-length: 5"),
    "length list": request(b"Content-Length: 5, 5"),
    "length sign": request(b"Content-Length: +5"),
    "length negative": request(b"Content-Length: -1"),
    "length hexadecimal": request(b"Content-Length: 0x5"),
    "length empty": request(b"Content-Length:"),
    "length with a blank": request(b"Content-Length: 1 2"),
    "length overflow": request(b"Content-Length: 18446744073709551617"),
    "length of 19 digits": request(b"Content-Length: 1000000000000000000"),
    "length and chunked": request(b"Content-Length: 5", b"Transfer-Encoding: chunked"),
    "chunked and length": request(b"Transfer-Encoding: chunked", b"Content-Length: 5"),
    "chunked on 1.0": request(b"Transfer-Encoding: chunked", line=b"POST /t/m/ HTTP/1.0"),
    "gzip, chunked": request(b"Transfer-Encoding: gzip, chunked"),
    "chunked twice": request(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"),
    "chunked, chunked": request(b"Transfer-Encoding: chunked, chunked"),
    "identity": request(b"Transfer-Encoding: identity"),
    "xchunked": request(b"Transfer-Encoding: xchunked"),
    "chunked with vertical tab": request(b"Transfer-Encoding: \x0bchunked"),
    "chunked quoted": request(b'Transfer-Encoding: "chunked"'),
    "coding empty": request(b"Transfer-Encoding:"),
    "space before the colon": request(b"Content-Length : 5"),
    "space in a name": request(b"X Y: 5"),
    "no name": request(b": 5"),
    "no colon": request(b"nonsense"),
    "name of delimiters": request(b"X(Y): 5"),
    "name of high bytes": request(b"X\xe9: 5"),
    "folded line": request(b"X-A: b", b" c"),
    "folded line with a tab": request(b"X-A: b", b"\tc"),
    "folded first line": request(host=b" Host: 127.0.0.1"),
    "bare LF": b"GET /t/m/ HTTP/1.1\nHost: 127.0.0.1\n\n",
    "one bare LF": b"GET /t/m/ HTTP/1.1\r\nHost: 127.0.0.1\nX: y\r\n\r\n",
    "bare CR": b"GET /t/m/ HTTP/1.1\r\nHost: 127.0.0.1\rX: y\r\n\r\n",
    "NUL in a value": request(b"X: a\x00b"),
    "control in a value": request(b"X: a\x01b"),
    "DEL in a value": request(b"X: a\x7fb"),
    "HTTP/2.0": request(line=b"GET /t/m/ HTTP/2.0"),
    "HTTP/1.2": request(line=b"GET /t/m/ HTTP/1.2"),
    "HTTP/0.9": b"GET /t/m/\r\n\r\n",
    "lower-case version": request(line=b"GET /t/m/ http/1.1"),
    "h2 preface": b"PRI * HTTP/2.0\r\n\r\n",
    "absolute form": request(line=b"GET http://127.0.0.1/t/m/ HTTP/1.1"),
    "authority form": request(line=b"CONNECT 127.0.0.1:80 HTTP/1.1"),
    "CONNECT of a path": request(line=b"CONNECT /t/m/ HTTP/1.1"),
    "asterisk form": request(line=b"OPTIONS * HTTP/1.1"),
    "fragment": request(line=b"GET /t/m/#x HTTP/1.1"),
    "blank in the target": request(line=b"GET /t/m/ x HTTP/1.1"),
    "tab in the request line": request(line=b"GET\t/t/m/ HTTP/1.1"),
    "two blanks": request(line=b"GET  /t/m/ HTTP/1.1"),
    "blank behind the version": request(line=b"GET /t/m/ HTTP/1.1 "),
    "high bytes in the target": request(line=b"GET /t/m/\xc3\xa9 HTTP/1.1"),
    "control in the target": request(line=b"GET /t/m/\x01 HTTP/1.1"),
    "lower-case method": request(line=b"get /t/m/ HTTP/1.1"),
    "unknown method": request(line=b"FROBNICATE /t/m/ HTTP/1.1"),
    "long method": request(line=b"A" * 21 + b" /t/m/ HTTP/1.1"),
    "something behind the head": request() + b"x",
    "no empty line": b"GET /t/m/ HTTP/1.1\r\nHost: 127.0.0.1\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "nothing": b"",
}


@pytest.mark.parametrize("head", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_heads_are_bad_requests(head: bytes) -> None:
    """A head that two readers could understand differently is refused before it is passed on."""
    assert refused(head) == "bad-request"


@pytest.mark.parametrize(
    "host", [b"127.0.0.1", b"127.0.0.1:80", b"localhost", b"LocalHost:65535", b"[::1]", b"[::1]:1"]
)
def test_loopback_names_are_known(host: bytes) -> None:
    """The loopback names of this machine are accepted, with any port."""
    assert parse_request_head(request(host=b"Host: " + host)).target == "/t/m/"


@pytest.mark.parametrize(
    "host",
    [
        b"example.com",
        b"127.0.0.1.example.com",
        b"localhost.example.com",
        b"example.com:127.0.0.1",
        b"128.0.0.1",
        b"0.0.0.0",
        b"::1",
        b"[::2]",
        b"2130706433",
        b"user@localhost",
        b"localhost:",
        b"localhost:x",
        b"localhost, localhost",
        b"",
    ],
)
def test_other_hosts_are_misdirected(host: bytes) -> None:
    """A name that resolves to this machine is refused unless it is a loopback name (DNS rebinding)."""
    head = request(host=b"Host: " + host)
    assert refused(head) == "misdirected-host"
    assert parse_request_head(head, any_host=True).target == "/t/m/"  # by a Unix socket no name leads here


def test_a_page_of_elsewhere_is_foreign_on_a_unix_socket_too() -> None:
    """A foreign Origin is refused on a Unix socket too, where only the Host does not count."""
    with pytest.raises(Refusal) as caught:
        parse_request_head(request(b"Origin: https://example.com"), any_host=True)
    assert caught.value.reason == "foreign-origin"


@pytest.mark.parametrize(
    "field",
    [
        b"Origin: https://example.com",
        b"Origin: null",
        b"Origin: http://localhost.example.com",
        b"Origin: http://127.0.0.1@example.com",
        b"Origin: http://127.0.0.1 http://example.com",
        b"Origin:",
        b"origin: file://",
        b"Sec-Fetch-Site: cross-site",
        b"sec-fetch-site: Cross-Site",
    ],
)
def test_pages_of_elsewhere_are_foreign(field: bytes) -> None:
    """A page from another site cannot call a skill, with GET or with POST."""
    assert refused(request(field)) == "foreign-origin"
    assert refused(request(field, line=b"POST /t/m/ HTTP/1.1")) == "foreign-origin"


@pytest.mark.parametrize(
    "field",
    [b"Origin: http://127.0.0.1:8080", b"Origin: http://localhost", b"Origin: http://[::1]:3", b"Sec-Fetch-Site: none"],
)
def test_pages_of_this_machine_are_not(field: bytes) -> None:
    """A skill's own page may call it."""
    assert parse_request_head(request(field)).method == "GET"


def test_heads_are_bounded() -> None:
    """A head of 64 KiB passes. A head that is one byte longer is too large."""
    padding = HEAD_BYTES_MAX - len(request(b"X: "))
    assert parse_request_head(request(b"X: " + b"a" * padding)).method == "GET"
    assert refused(request(b"X: " + b"a" * (padding + 1))) == "head-too-large"
    padding = HEAD_BYTES_MAX - len(response(b"X: "))
    assert parse_response_head(response(b"X: " + b"a" * padding), "GET").status == 200
    with pytest.raises(UpstreamError):
        parse_response_head(response(b"X: " + b"a" * (padding + 1)), "GET")


def test_fields_are_counted() -> None:
    """A hundred fields pass, Host included, and one more is too many. Answers have the same limit."""
    most = [b"X-%d: a" % number for number in range(FIELDS_MAX - 1)]
    assert len(parse_request_head(request(*most)).headers) == FIELDS_MAX
    assert refused(request(*most, b"Y: a")) == "head-too-large"
    assert parse_response_head(response(*most, b"Y: a"), "GET").status == 200
    with pytest.raises(UpstreamError):
        parse_response_head(response(*most, b"Y: a", b"Z: a"), "GET")


@pytest.mark.parametrize(
    ("target", "is_good"),
    [
        (b"/t/m/" + bytes(range(0x21, 0x7F)).translate(None, b'"#%<>?[]\\^`{|}'), True),
        (b"/t/m/%20%2F%5c%ff", True),
        (b"/t/m/x?a[]={1}|2^`\\%00%zz", True),
        *[(b"/t/m/a%cb" % character, False) for character in b'"#<>[]\\^`{|}'],
        (b"/t/m/%00", False),
        (b"/t/m/%", False),
        (b"/t/m/%2", False),
        (b"/t/m/%2G", False),
        (b"/t/m/%u0041", False),
        (b"/t/m/%%41", False),
    ],
)
def test_a_path_is_one_of_a_url(target: bytes, is_good: bool) -> None:
    """A path with characters outside RFC 3986 is refused, because readers disagree on it. A query is the skill's
    own."""
    head = request(line=b"GET " + target + b" HTTP/1.1")
    if is_good:
        assert parse_request_head(head).target == target.decode()
    else:
        assert refused(head) == "bad-request"


@pytest.mark.parametrize(
    ("method", "head", "framing", "keep_alive"),
    [
        ("GET", response(b"Content-Length: 5"), Framing(content_length=5), True),
        ("GET", response(b"Transfer-Encoding: chunked"), Framing(chunked=True), True),
        ("GET", response(), Framing(until_close=True), False),
        ("GET", response(b"Content-Length: 5", b"Connection: close"), Framing(content_length=5), False),
        ("GET", response(b"Content-Length: 5", line=b"HTTP/1.0 200 OK"), Framing(content_length=5), False),
        ("HEAD", response(), NO_BODY, True),
        ("HEAD", response(b"Content-Length: 0"), NO_BODY, True),
        ("HEAD", response(b"Content-Length: 5"), NO_BODY, False),
        ("HEAD", response(b"Transfer-Encoding: chunked"), NO_BODY, False),
        ("HEAD", response(line=b"HTTP/1.0 200 OK"), NO_BODY, False),
        ("GET", response(line=b"HTTP/1.1 204 No Content"), NO_BODY, True),
        ("GET", response(b"Content-Length: 5", line=b"HTTP/1.1 204 No Content"), NO_BODY, False),
        ("GET", response(line=b"HTTP/1.1 304 Not Modified"), NO_BODY, True),
        ("GET", response(b"Content-Length: 5", line=b"HTTP/1.1 304 Not Modified"), NO_BODY, False),
        ("POST", response(line=b"HTTP/1.1 100 Continue"), NO_BODY, True),
        ("GET", response(b"Link: </a>", line=b"HTTP/1.1 103 Early Hints"), NO_BODY, True),
        ("GET", response(line=b"HTTP/1.1 101 Switching"), NO_BODY, True),
        (
            "GET",
            response(b"Upgrade: websocket", b"Connection: upgrade", line=b"HTTP/1.1 101 Switching Protocols"),
            NO_BODY,
            True,
        ),
        ("GET", response(b"Content-Length: 0", line=b"HTTP/1.1 599 "), Framing(content_length=0), True),
        ("GET", response(b"Content-Length: 0", line=b"HTTP/1.1 200"), Framing(content_length=0), True),
    ],
)
def test_response_framing(method: str, head: bytes, framing: Framing, keep_alive: bool) -> None:
    """The end of an answer follows RFC 9112 section 6.3, whatever HEAD, 1xx, 204 and 304 announce. A connection ends
    behind an answer that announces a body and has none."""
    parsed = parse_response_head(head, method)
    assert parsed.framing == framing
    assert parsed.keep_alive == keep_alive


BROKEN_ANSWERS = {
    "status 20": response(line=b"HTTP/1.1 20 OK"),
    "status 2000": response(line=b"HTTP/1.1 2000 OK"),
    "status 099": response(line=b"HTTP/1.1 099 OK"),
    "status 600": response(line=b"HTTP/1.1 600 OK"),
    "ICY": response(line=b"ICY 200 OK"),
    "HTTP/2": response(line=b"HTTP/2 200 OK"),
    "HTTP/1.10": response(line=b"HTTP/1.10 200 OK"),
    "two blanks": response(line=b"HTTP/1.1  200 OK"),
    "no status line": response(b"Content-Length: 5", line=b"hello"),
    "two lengths": response(b"Content-Length: 5", b"Content-Length: 6"),
    "identical lengths": response(b"Content-Length: 5", b"Content-Length: 5"),
    "length list": response(b"Content-Length: 2, 3"),
    "length negative": response(b"Content-Length: -5"),
    "length overflow": response(b"Content-Length: 99999999999999999999"),
    "length and chunked": response(b"Content-Length: 5", b"Transfer-Encoding: chunked"),
    "chunked on 1.0": response(b"Transfer-Encoding: chunked", line=b"HTTP/1.0 200 OK"),
    "chunked twice": response(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"),
    "gzip": response(b"Transfer-Encoding: gzip"),
    "gzip, chunked": response(b"Transfer-Encoding: gzip, chunked"),
    "bare LF": b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
    "folded line": response(b"X: a", b" b"),
    "control": response(b"X: a\x00b"),
    "control in the reason": response(line=b"HTTP/1.1 200 O\x01K"),
    "bad name": response(b"X Y: a"),
}


@pytest.mark.parametrize("head", BROKEN_ANSWERS.values(), ids=BROKEN_ANSWERS.keys())
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_broken_answers_are_upstream_errors(head: bytes, method: str) -> None:
    """An answer that could be read in two ways is not relayed."""
    with pytest.raises(UpstreamError):
        parse_response_head(head, method)


@pytest.mark.parametrize("name", ["identical lengths", "length and chunked"])
def test_a_framing_that_contradicts_itself_is_named(name: str) -> None:
    """The error names the two fields, for the author of the server."""
    with pytest.raises(UpstreamError, match="Content-Length is there twice, or beside Transfer-Encoding"):
        parse_response_head(BROKEN_ANSWERS[name], "GET")


PIECES = st.lists(
    st.one_of(
        st.binary(max_size=8),
        st.sampled_from(
            [
                *(
                    b"GET /t/m/ HTTP/1.1\r\n",
                    b"HTTP/1.1 200 OK\r\n",
                    b"Host: localhost\r\n",
                    b"\r\n",
                    b"\r",
                    b"\n",
                    b" ",
                ),
                *(
                    b"Content-Length: 5\r\n",
                    b"Transfer-Encoding: chunked\r\n",
                    b"Upgrade: x\r\nConnection: upgrade\r\n",
                ),
            ]
        ),
    ),
    max_size=8,
).map(b"".join)


@given(PIECES)
@example(b"GET /t/m/ HTTP/1.1\r\nHost: localhost\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")
def test_no_bytes_surprise_the_parsers(data: bytes) -> None:
    """Any bytes are a head or a refusal, never another error."""
    for raw in (data, data + b"\r\n\r\n"):
        try:
            head = parse_request_head(raw)
            assert raw.startswith(head.method.encode())
            split_target(head.target)
        except Refusal:
            pass
        with contextlib.suppress(UpstreamError):
            assert 100 <= parse_response_head(raw, "GET").status <= 599


def test_a_head_ends_at_its_empty_line_or_at_a_lone_lf() -> None:
    """The reader stops at the end of the head, or at once if the head cannot become valid."""
    assert head_end(bytearray(b"GET / HTTP/1.1\r\nHost")) == -1
    assert head_end(bytearray(b"a\r\n\r\nbody")) == 5
    assert head_end(bytearray(b"a\r\n\r\n"), start=4) == 5
    assert head_end(bytearray(b"GET / HTTP/1.1\nHost")) == 15


@pytest.mark.parametrize("head", [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\nb", b"\nGET /"])
def test_a_head_in_pieces_ends_where_it_does_at_once(head: bytes) -> None:
    """A head that comes in two pieces ends at the same byte, wherever it is cut."""
    end = head_end(bytearray(head))
    assert end > 0
    for cut in range(end):
        assert head_end(bytearray(head[:cut])) == -1
        assert head_end(bytearray(head), start=cut) == end


def both_ways(data: bytes, pieces: list[bytes]) -> tuple[object, object]:
    def run(parts: list[bytes]) -> object:
        decoder = ChunkedDecoder()
        body = b""
        try:
            for part in parts:
                body += b"".join(decoder.feed(part))
        except Refusal as refusal:
            return refusal.reason
        return body, decoder.finished, decoder.leftover

    return run([data]), run(pieces)


CHUNKED = st.one_of(
    st.binary(max_size=60),
    st.lists(
        st.sampled_from(
            [
                *(b"5\r\nhello\r\n", b"0\r\n", b"\r\n", b"A;x=y\r\n0123456789\r\n", b"0;e\r\nX: y\r\n\r\n", b"GET / "),
                *(b"1\r\nab", b"g\r\n", b"0005\r\nhello\r\n", b"\n", b"\r", b"X: y\r\n", b"5"),
            ]
        ),
        max_size=10,
    ).map(b"".join),
)


@given(CHUNKED, st.lists(st.integers(0, 80), max_size=12))
def test_chunks_do_not_depend_on_how_they_arrive(data: bytes, cuts: list[int]) -> None:
    """A chunked body gives the same result, or the same refusal, in any pieces."""
    marks = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    whole, pieced = both_ways(data, [data[a:b] for a, b in itertools.pairwise(marks)])
    assert whole == pieced


def test_chunks_may_be_cut_anywhere() -> None:
    """A valid body gives the same result wherever it is cut in two, also between a CR and its LF."""
    data = b"5;x=y\r\nhello\r\nA\r\n0123456789\r\n0\r\nX: y\r\n\r\nGET /"
    for cut in range(len(data)):
        whole, pieced = both_ways(data, [data[:cut], data[cut:]])
        assert pieced == whole == (b"hello0123456789", True, b"GET /")


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), st.binary(max_size=10))
def test_chunks_give_back_the_body_and_nothing_behind_it(chunks: list[bytes], behind: bytes) -> None:
    """The body is whole, trailers are dropped, and the bytes behind it belong to the next message."""
    coded = b"".join(b"%x;ext=1\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    decoder = ChunkedDecoder()
    body = decoder.feed(coded + b"0\r\nX-Trailer: y\r\n\r\n" + behind)
    assert (b"".join(body), decoder.finished, decoder.leftover) == (b"".join(chunks), True, behind)
    assert decoder.feed_eof()


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n",
        b"x\r\n",
        b"-5\r\n",
        b"+5\r\n",
        b"0x5\r\n",
        b" 5\r\n",
        b"5 \r\n",
        b"5\n\r\n",
        b"5_0\r\n",
        b"1" * 16 + b"\r\n",
        b"5\r\nhello!\r\n",
        b"5\r\nhello\n",
        b"5;a\x00\r\n",
        b"5;a\nb\r\n",
        b"0\r\nno colon\r\n\r\n",
        b"0\r\nX: a\nTransfer-Encoding: chunked\r\n\r\n",
        b"5;" + b"a" * LINE_BYTES_MAX + b"\r\n",
        b"5" * (LINE_BYTES_MAX + 2),
        b"".join([b"1;" + b"a" * 4000 + b"\r\nx\r\n"] * (EXTENSION_BYTES_MAX // 4000 + 1)),
        b"0\r\n" + (b"X: " + b"a" * 4000 + b"\r\n") * 3 + b"\r\n",
    ],
)
def test_malformed_chunks_are_refused(data: bytes) -> None:
    """Sizes must be plain hexadecimal, lines must end in CRLF, and all dropped text is bounded."""
    with pytest.raises(Refusal, match="malformed"):
        ChunkedDecoder().feed(data)
    with pytest.raises(UpstreamError):
        ChunkedDecoder(UpstreamError).feed(data)


def test_bodies_of_known_length_and_until_close() -> None:
    """A length ends a body at its last byte, a close at the connection's end. A short body is not whole."""
    length = LengthDecoder(5)
    assert length.feed(b"hel") == [b"hel"]
    assert not length.feed_eof()
    assert length.feed(b"lo, next") == [b"lo"]
    assert (length.finished, length.leftover) == (True, b", next")
    until_close = UntilCloseDecoder()
    assert until_close.feed(b"all") == [b"all"]
    assert not until_close.finished
    assert until_close.feed_eof()
    assert not ChunkedDecoder().feed_eof()


@pytest.mark.parametrize(
    ("target", "parts"),
    [
        ("/t/m", ("t", "m", "/", None)),
        ("/t/m/", ("t", "m", "/", None)),
        ("/t/m?q", ("t", "m", "/", "q")),
        ("/t/m/?", ("t", "m", "/", "")),
        ("/t/m/a/b%2Fc%20d?x=/../y?z", ("t", "m", "/a/b%2Fc%20d", "x=/../y?z")),
        ("/t/m//a//", ("t", "m", "/a/", None)),
        ("//t///m?x=//y", ("t", "m", "/", "x=//y")),
        ("/t//__global__//m//x", ("t", "__global__/m", "/x", None)),
        ("/T/M/...", ("T", "M", "/...", None)),
        ("/t/__global__/m", ("t", "__global__/m", "/", None)),
        ("/t/__global__/m/x/y?q", ("t", "__global__/m", "/x/y", "q")),
    ],
)
def test_targets_split_byte_for_byte(target: str, parts: tuple[str, str, str, str | None]) -> None:
    """Token and mount are the first two segments, unchanged. In the rest only repeated slashes are merged."""
    assert split_target(target) == parts


@pytest.mark.parametrize(
    ("target", "parts"),
    [
        ("/m", ("", "m", "/", None)),
        ("//m//x?q=//", ("", "m", "/x", "q=//")),
        ("/__global__/m/x", ("", "__global__/m", "/x", None)),
        ("/", None),
        ("/__global__", None),
    ],
)
def test_flat_targets_begin_with_the_mount(target: str, parts: tuple[str, str, str, str | None] | None) -> None:
    """A target has no token on a socket that belongs to one directory."""
    if parts:
        assert split_target(target, flat=True) == parts
    else:
        with pytest.raises(Refusal):
            split_target(target, flat=True)


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("/", "unknown-mount"),
        ("/t", "unknown-mount"),
        ("/t/", "unknown-mount"),
        ("/t?x=/m/", "unknown-mount"),
        ("///", "unknown-mount"),
        ("/t/m//../x", "bad-request"),
        ("/t/%6D/", "bad-request"),
        ("/%74/m/", "bad-request"),
        ("/t%2Fm/m/x", "bad-request"),
        ("/t/m%2F/x", "bad-request"),
        ("/t/m/../x", "bad-request"),
        ("/t/m/.", "bad-request"),
        ("/t/m/..", "bad-request"),
        ("/../m/x", "bad-request"),
        ("/t/./x", "bad-request"),
        ("/t/m/%2e%2E/x", "bad-request"),
        ("/t/m/.%2e", "bad-request"),
        ("/t/m/%2e/", "bad-request"),
    ],
)
def test_targets_that_lead_nowhere_or_astray(target: str, reason: str) -> None:
    """A target with fewer than two segments is unknown. A target that a decoder would turn into another path is
    refused."""
    with pytest.raises(Refusal) as caught:
        split_target(target)
    assert caught.value.reason == reason
