"""HTTP/1.1 heads as bytes: what a request asks and what an answer says, judged without a socket.

httptools reads the fields of a head. It is lenient in places where leniency lets two readers disagree about
where a message ends or whom it is for, so the rules stand here:

1. A head is lines that end in CRLF, without folded lines, lone CR or LF, or control bytes (RFC 9112 section 2.2).
2. A request line is METHOD SP origin-form SP HTTP/1.0 or HTTP/1.1, without fragment. Its path is one of RFC 3986, and
   does not hold %00, which ends a path for whoever hands it to the system; its query is visible ASCII.
3. A request names exactly one host, and on TCP it is this machine's loopback; a browser page of elsewhere is refused.
4. A message has one framing: one Content-Length of digits, or Transfer-Encoding of exactly `chunked`, never both.
5. The first two segments of a target are compared byte for byte; nothing is decoded on the way. Several slashes in a
   row are one, as for the skills' clients, which join addresses with and without a slash at the end.
"""

import re
from functools import lru_cache
from http import HTTPStatus
from typing import Any

import httptools
import msgspec

from omac.adapters.http.bodies import Framing, UpstreamError, bad_request
from omac.adapters.http.fields import FieldNames, Fields, Values, options_of, values_of
from omac.domain.kernel import loopback
from omac.domain.kernel.ids import SHARED
from omac.domain.kernel.refusal import Refusal

HEAD_BYTES_MAX = 65536
FIELDS_MAX = 100  # of one head, as Apache has it by default
OPTIONS_MAX = 100  # that Connection or Expect list
HOST_BYTES_MAX = 64  # the loopback's names are shorter
NO_BODY = Framing(content_length=0)
UNFRAMED = Framing()

_READ = FieldNames(
    frozenset(
        b"connection content-length content-type expect host origin sec-fetch-site transfer-encoding upgrade".split()
    ).__contains__
)
_LISTS = (b"connection", b"expect")
# A group is repeated as it is, never possessively: before Python 3.11.5 that accepts more than it should.
_LINES = re.compile(rb"(?:[!-~\x80-\xff][\t -~\x80-\xff]*+\r\n)+\r\n")  # of a head, as rule 1 has them
_CONTROLS = bytes(code for code in range(0x20) if code not in b"\t\r\n") + b"\x7f"
_BARE_LF = re.compile(rb"(?<!\r)\n")
_REQUEST_LINE = re.compile(rb"([A-Z]{1,20}) (/[!-~]*) HTTP/1\.([01])\r\n")
_PLAIN = rb"[0-9A-Za-z\-._~!$&'*+,;=:@/()]*+"
_PATH = _PLAIN + rb"(?:%(?!00)[0-9A-Fa-f]{2}" + _PLAIN + rb")*"
_GOOD_LINE = re.compile(rb"([A-Z]{1,20}) (/" + _PATH + rb"(?:\?[!\"$-~]*+)?) HTTP/1\.([01])\r\n")
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: ([^\r\n]*))?\r\n")
_CONFLICT = "Content-Length is there twice, or beside Transfer-Encoding"  # which llhttp refuses first
_LENGTH = re.compile(rb"[0-9]{1,18}")
_SLASHES = re.compile(r"/{2,}")
_DOT_SEGMENT = re.compile(r"/(?:\.|%2e){1,2}(?:/|$)", re.IGNORECASE)


class RequestHead(msgspec.Struct, frozen=True):
    """A request that may be judged further; `minor` is the digit of HTTP/1.x, names keep the client's spelling.
    `values` are those of the fields that are read here."""

    method: str
    target: str
    minor: int
    headers: Fields
    values: Values
    framing: Framing
    keep_alive: bool
    expect_continue: bool


class ResponseHead(msgspec.Struct, frozen=True):
    """The head of an upstream's answer; `framing` is that of the bytes that follow, not what a HEAD announces.

    `keep_alive` is false, too, where no bytes may follow the head but it announces some: many upstreams send these, and
    they would be taken for the next answer.
    """

    status: int
    reason: bytes
    headers: Fields
    values: Values
    framing: Framing
    keep_alive: bool


def head_end(buffer: bytes | bytearray, start: int = 0) -> int:
    """Return the index at which the head at the front of `buffer` ends, -1 if more of it must come. The first `start`
    bytes were searched before.

    A lone LF ends the head too: no further bytes can make that head valid, and the parser reports why.
    """
    end = buffer.find(b"\r\n\r\n", max(0, start - 3))
    if end >= 0:
        return end + 4
    bare = _BARE_LF.search(buffer, max(0, start - 1))
    return bare.end() if bare else -1


def parse_request_head(head: bytes, *, bytes_max: int = HEAD_BYTES_MAX, any_host: bool = False) -> RequestHead:
    """Read a request head, its empty line included (RFC 9112 sections 2 to 6, RFC 9110 section 7.2). Raises Refusal:
    bad-request, head-too-large, misdirected-host, foreign-origin.

    `any_host`: the request came by a Unix socket, which no name resolves to, so that its Host says nothing.
    """
    if len(head) > bytes_max:
        raise Refusal("head-too-large", f"the head of a request is limited to {bytes_max} bytes")
    if _has_too_many_fields(head):
        raise Refusal("head-too-large", f"the head of a request is limited to {FIELDS_MAX} fields")
    if not _LINES.fullmatch(head) and (fault := _fault(head)) is not None:
        raise bad_request(fault)
    line = _GOOD_LINE.match(head)
    if line is None:
        raise bad_request(_line_fault(head))
    method, target, digit = line.groups()
    if method == b"CONNECT":
        raise bad_request("omac is not a tunnel")
    fields = _fields(httptools.HttpRequestParser, head)
    if fields is None:
        raise bad_request(f"the method is unknown, a header field is malformed, or {_CONFLICT}")
    minor, values = int(digit), values_of(fields, _READ)
    if (b"connection" in values or b"expect" in values) and _has_too_many_options(values):
        raise Refusal("head-too-large", f"Connection and Expect are limited to {OPTIONS_MAX} options")
    _judge_caller(values, any_host=any_host)
    framing = _request_framing(values, minor)
    keeps = minor == 1 and not (b"connection" in values and b"close" in options_of(values, b"connection"))
    expects = b"expect" in values and minor == 1 and framing.has_body
    return RequestHead(
        method.decode("ascii"), target.decode("ascii"), minor, fields, values, framing, keeps,
        expects and b"100-continue" in options_of(values, b"expect"),
    )  # fmt: skip


def parse_response_head(head: bytes, request_method: str, *, bytes_max: int = HEAD_BYTES_MAX) -> ResponseHead:
    """Read the head of an answer to `request_method` (RFC 9112 sections 4 and 6.3). Raises UpstreamError when the
    status line, a field or the framing cannot be trusted."""
    if len(head) > bytes_max:
        raise UpstreamError(f"the head of its answer is over {bytes_max} bytes")
    if _has_too_many_fields(head):
        raise UpstreamError(f"the head of its answer has more than {FIELDS_MAX} fields")
    if not _LINES.fullmatch(head) and (fault := _fault(head)) is not None:
        raise UpstreamError(fault)
    line = _STATUS_LINE.match(head)
    if line is None:
        raise UpstreamError("its status line is malformed")
    fields = _fields(httptools.HttpResponseParser, head)
    if fields is None:
        raise UpstreamError(f"a header field of its answer is malformed, or {_CONFLICT}")
    digit, code, reason = line.groups()
    minor, status, values = int(digit), int(code), values_of(fields, _READ)
    if b"connection" in values and _has_too_many_options(values):
        raise UpstreamError(f"its answer lists more than {OPTIONS_MAX} options of the connection")
    framing = _response_framing(values, minor)
    keep_alive = minor == 1
    if status < 200 or status in (204, 304) or request_method == "HEAD":
        keep_alive = keep_alive and (framing.until_close or not framing.has_body)
        framing = NO_BODY
    keep_alive = keep_alive and not framing.until_close
    if keep_alive and b"connection" in values:
        keep_alive = b"close" not in options_of(values, b"connection")
    return ResponseHead(status, reason or b"", fields, values, framing, keep_alive)


def whole_answer(status: int, fields: Fields, body: bytes, *, close: bool, method: str) -> bytes:
    """An answer of omac's own; HEAD leaves its body out (RFC 9110 section 9.3.2)."""
    lines = [b"HTTP/1.1 %d %b\r\n" % (status, HTTPStatus(status).phrase.encode("ascii"))]
    lines += [b"%b: %b\r\n" % field for field in fields]
    lines.append(b"Content-Length: %d\r\n" % len(body))
    if close:
        lines.append(b"Connection: close\r\n")
    return b"".join((*lines, b"\r\n", b"" if method == "HEAD" else body))


def split_target(target: str, *, flat: bool = False) -> tuple[str, str, str, str | None]:
    """`/<token>/<mount>/rest?query` as (token, mount, "/rest", "query"); the query is None when there is no `?`.

    The mount of a skill that all directories share has two parts, `__global__/<mount>`. `flat`: the path begins with
    the mount, and the token is "". Token and mount are taken byte for byte and the rest is left as it is but for its
    slashes, `%2F` included (RFC 3986 section 6.2.2 says what a decoder would merge). Raises Refusal: bad-request,
    unknown-mount.
    """
    path, question, query = target.partition("?")
    if "//" in path:
        path = _SLASHES.sub("/", path)
    if ("/." in path or "/%2" in path) and _DOT_SEGMENT.search(path):
        raise bad_request("the path holds a dot segment")
    token, _, below = ("", "", path.removeprefix("/")) if flat else path.removeprefix("/").partition("/")
    mount, _, rest = below.partition("/")
    if mount == SHARED:
        shared, _, rest = rest.partition("/")
        mount = f"{mount}/{shared}" if shared else ""
    if not mount:
        raise Refusal("unknown-mount", "no skill is mounted here: a skill answers below /<token>/<mount>/")
    if "%" in token or "%" in mount:
        raise bad_request("the token or the mount is percent-encoded")
    return token, mount, "/" + rest, query if question else None


def request_line(head: bytes) -> tuple[str, str] | None:
    """Method and target of a head that may have been refused for something else; None when even these are bad."""
    line = _REQUEST_LINE.match(head)
    return (line[1].decode("ascii"), line[2].decode("ascii")) if line else None


class _Collector(msgspec.Struct):
    fields: Fields = []
    complete: bool = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name, value))

    def on_headers_complete(self) -> None:
        self.complete = True


def _fields(parser: Any, head: bytes) -> Fields | None:  # Any: httptools has two parser classes and no common type
    collector = _Collector()
    try:
        parser(collector).feed_data(head)
    except httptools.HttpParserUpgrade:
        pass  # the head asks for another protocol; whether it gets it is not decided here
    except httptools.HttpParserError:
        pass  # a bare 101 stops llhttp behind a complete head, and so does a coding it cannot frame, which we refuse
    if not collector.complete:
        return None
    if head.find(b" \r\n") >= 0 or head.find(b"\t\r\n") >= 0:  # `in` of bytes makes an error, and drops it, first
        # llhttp leaves the blanks behind a value, which are no part of it (RFC 9112 section 5.1)
        return [(name, value.rstrip(b" \t")) for name, value in collector.fields]
    return collector.fields


def _has_too_many_fields(head: bytes) -> bool:
    # with the first line and the empty one; a field has four bytes at least, so that most heads need not be counted
    return len(head) > FIELDS_MAX * 4 and head.count(b"\n") > FIELDS_MAX + 2


def _has_too_many_options(values: Values) -> bool:
    return any(sum(line.count(b",") for line in values.get(name, ())) >= OPTIONS_MAX for name in _LISTS)


def _fault(head: bytes) -> str | None:
    """Return the fault in the lines of a head (RFC 9112 sections 2.2 and 5.2); None if they are valid."""
    if head.find(b"\r\n\r\n") != len(head) - 4 or not (head.count(b"\r\n") == head.count(b"\r") == head.count(b"\n")):
        return "a line of the head does not end in CRLF"
    if len(head.translate(None, _CONTROLS)) != len(head):
        return "the head holds a control byte"
    if b"\r\n " in head or b"\r\n\t" in head:
        return "the head holds a folded line"
    return None


def _line_fault(head: bytes) -> str:
    """Return the fault in the request line of a head."""
    line = _REQUEST_LINE.match(head)
    if line is None or b"#" in line[2]:
        return "the request line is not METHOD /path HTTP/1.1 in visible ASCII, without fragment"
    return "the path holds %00, or something that must be percent-encoded (RFC 3986 section 3.3)"


def _judge_caller(values: Values, *, any_host: bool) -> None:
    """A name that resolves here and a page that calls here are both steered from elsewhere: DNS rebinding, CSRF."""
    hosts = values.get(b"host", ())
    if len(hosts) != 1:
        raise bad_request("a request names exactly one Host")  # a MUST of RFC 9112 section 3.2
    if not any_host and (len(hosts[0]) > HOST_BYTES_MAX or not _is_loopback(hosts[0])):
        raise Refusal("misdirected-host", "omac answers to 127.0.0.1, localhost and [::1] only; see the Host field")
    for value in values.get(b"origin", ()):
        if not loopback.ORIGIN.fullmatch(value.decode("latin-1")):
            raise Refusal("foreign-origin", "a page of another origin may not call omac; see the Origin field")
    for value in values.get(b"sec-fetch-site", ()):
        if value.lower() == b"cross-site":
            raise Refusal("foreign-origin", "a page of another site may not call omac; see Sec-Fetch-Site")


@lru_cache(maxsize=256)
def _is_loopback(host: bytes) -> bool:
    return loopback.HOST.fullmatch(host.decode("latin-1")) is not None


def _request_framing(values: Values, minor: int) -> Framing:
    """Return the framing of a request (RFC 9112 section 6.3)."""
    lengths, codings = values.get(b"content-length"), values.get(b"transfer-encoding")
    if lengths is None and codings is None:
        return UNFRAMED
    if lengths and codings:
        raise bad_request("Content-Length and Transfer-Encoding contradict each other")
    if codings:
        if minor == 0:
            raise bad_request("HTTP/1.0 has no Transfer-Encoding")
        if len(codings) > 1 or codings[0].lower() != b"chunked":
            raise bad_request("the only transfer coding understood is chunked")
    if lengths and (len(lengths) > 1 or not _LENGTH.fullmatch(lengths[0])):
        raise bad_request("Content-Length is one number in digits")
    return Framing(content_length=int(lengths[0]) if lengths else None, chunked=bool(codings))


def _response_framing(values: Values, minor: int) -> Framing:
    lengths, codings = values.get(b"content-length"), values.get(b"transfer-encoding")
    if lengths and codings:
        raise UpstreamError("its answer has both Content-Length and Transfer-Encoding")
    if codings and (minor == 0 or len(codings) > 1 or codings[0].lower() != b"chunked"):
        raise UpstreamError("the transfer coding of its answer is not chunked")
    if lengths and (len(lengths) > 1 or not _LENGTH.fullmatch(lengths[0])):
        raise UpstreamError("the Content-Length of its answer is not one number in digits")
    if codings:
        return Framing(chunked=True)
    return Framing(content_length=int(lengths[0])) if lengths else Framing(until_close=True)
