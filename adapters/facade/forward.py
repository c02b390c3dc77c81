"""The heads that the facade writes: to the skill, back to the client, and its own refusals.

A proxy speaks for itself on each side: fields that concern one connection stay on it (RFC 9110 section 7.6.1),
what the client claims about the way here is dropped, and the routing token never reaches the skill.
"""

import re
from collections.abc import Collection
from typing import Literal

import msgspec

from omac.adapters.facade.cookies import confined
from omac.adapters.facade.references import REFERRING, referred
from omac.adapters.http.bodies import UpstreamError
from omac.adapters.http.fields import FieldNames, Values, options_of
from omac.adapters.http.http1 import UNFRAMED, RequestHead, ResponseHead, whole_answer
from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.scrub import may_hold_token

_UPGRADE = b"Connection: Upgrade\r\nUpgrade: %b\r\n"
_PROTOCOL = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z/-]{1,64}")

Delivery = Literal["none", "length", "chunked", "close"]

_HOP_BY_HOP = frozenset(
    b"close connection http2-settings keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer "
    b"transfer-encoding upgrade".split()
)
# written by us, or a claim of the client about the way here
_OURS_UPSTREAM = frozenset((b"content-length", b"expect", b"forwarded", b"host"))
# written by browsers and by libraries of pages: the address of the page that a request comes from
_OF_PAGES = frozenset((b"hx-current-url", b"ping-from", b"ping-to", b"referer"))
PAGE_BYTES_MAX = 2_048  # of all these together: decoding one takes time
# of an answer: clients keep them for the whole host, and so for every skill. A dictionary is chosen by a pattern of
# paths (RFC 9842), a report names the URLs of others, with their tokens
_OF_THE_HOST = frozenset(
    b"accept-ch alt-svc clear-site-data critical-ch nel report-to service-worker-allowed set-cookie2 set-login "
    b"strict-transport-security use-as-dictionary".split()
)

_ADDRESSED = REFERRING | {b"set-cookie"}  # fields of an answer that name places of its skill


def _stops_at_skill(lower: bytes) -> bool:
    """Return whether a field of a request does not reach the skill unchanged. Underscores count as hyphens: CGI-like
    upstreams read X_Forwarded_Prefix as X-Forwarded-Prefix."""
    meaning = lower.replace(b"_", b"-")
    return (
        meaning in _HOP_BY_HOP
        or meaning in _OURS_UPSTREAM
        or meaning in _OF_PAGES
        or meaning.startswith(b"x-forwarded-")
    )


def _stops_at_client(lower: bytes) -> bool:
    """Return whether a field of an answer does not reach the client unchanged, or not always."""
    return (
        lower in _HOP_BY_HOP
        or lower in _OF_THE_HOST
        or lower in REFERRING
        or lower in (b"content-length", b"set-cookie", b"x-accel-buffering")
        or lower.replace(b"_", b"-").startswith(b"x-omac-")
    )


_STOPPED_AT_SKILL, _STOPPED_AT_CLIENT = FieldNames(_stops_at_skill), FieldNames(_stops_at_client)


def upgrade_of(head: RequestHead) -> bytes | None:
    """The protocol that a request may be switched to, in lower case; None: it is forwarded as if it asked for none.

    Another HTTP is never switched to, as its requests could be neither judged nor recorded.
    """
    named = head.values.get(b"upgrade")
    if named is None or len(named) != 1 or head.minor == 0 or head.method != "GET" or head.framing.has_body:
        return None
    name = named[0].lower()
    return name if _is_switched_to(name) and b"upgrade" in options_of(head.values, b"connection") else None


def _is_switched_to(name: bytes) -> bool:
    return _PROTOCOL.fullmatch(name) is not None and not name.startswith((b"h2", b"h3", b"http", b"tls"))


def is_switch(response: ResponseHead, asked: bytes | None) -> bool:
    """Return whether the skill switches to the requested protocol. Raises UpstreamError if it switches to another."""
    if response.status != 101:
        return False
    names = [value.lower() for value in response.values.get(b"upgrade", ())]
    if asked is None or names != [asked] or b"upgrade" not in options_of(response.values, b"connection"):
        raise UpstreamError("it switched protocols without being asked")
    return True


def upstream_head(
    head: RequestHead, path: str, *, port: int, mount: str, token: str, upgrade: bytes | None = None
) -> bytes:
    """The request head for the skill on `port`; `path` is below the mount, with the query if there is one. Without a
    token, which then could not be cut out of them, addresses of pages are left out.

    The skill is told to close the connection behind a body: one that does not read it all, as many do not where they
    refuse, would take the rest for requests that nobody recorded.
    """
    lines = [
        f"{head.method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nX-Forwarded-Prefix: /{mount}\r\n".encode("ascii"),
    ]
    if upgrade is not None:
        lines.append(_UPGRADE % upgrade)
    if head.framing is not UNFRAMED:
        if head.framing.has_body:
            lines.append(b"Connection: close\r\n")
        if head.framing.chunked:
            lines.append(b"Transfer-Encoding: chunked\r\n")
        elif head.framing.content_length is not None:
            lines.append(b"Content-Length: %d\r\n" % head.framing.content_length)
    named = _named_in_connection(head.values)
    own = token.encode("ascii")
    room = PAGE_BYTES_MAX
    for name, value in head.headers:
        stopped = _STOPPED_AT_SKILL[name]
        if (stopped and stopped not in _OF_PAGES) or (named and name.lower() in named):
            continue
        sent: bytes | None = value
        if stopped:
            room -= len(value)
            sent = _address_of_page(value, own) if room >= 0 else None
        elif own and value.find(own) >= 0:  # `in` of bytes makes an error, and drops it, first
            sent = without_token(value, own)
        if sent is not None:
            lines += name, b": ", sent, b"\r\n"
    lines.append(b"\r\n")
    return b"".join(lines)


def client_head(
    response: ResponseHead, request: RequestHead, path: str, *, mount: str, prefix: str, port: int
) -> tuple[bytes, Delivery]:
    """The response head for the client, and how the body must be delivered behind it (RFC 9112 section 6.3).

    A body of unknown length goes in chunks to an HTTP/1.1 client and ends with the connection for HTTP/1.0. Cookies are
    confined to the mount, `path` being the requested path below it and `prefix` what the client has before that, and
    references to the skill on `port` lead there too; the skill does not speak for omac or for the host.
    """
    delivery = _delivery(response, request)
    named = _named_in_connection(response.values)
    events = b"content-type" in response.values and _is_event_stream(response.values)
    lines = [b"HTTP/1.1 %d %b\r\n" % (response.status, response.reason)]
    for name, value in response.headers:
        stopped = _STOPPED_AT_CLIENT[name]
        if not stopped:
            if not named or name.lower() not in named:
                lines += name, b": ", value, b"\r\n"
        elif stopped == b"content-length":
            if response.status not in (101, 204):  # RFC 9110 section 8.6 forbids it there
                lines += name, b": ", value, b"\r\n"
        elif stopped not in named:
            changed = _changed(stopped, value, path, mount=mount, prefix=prefix, port=port, events=events)
            if changed is not None:
                lines += name, b": ", changed, b"\r\n"
    if events:
        lines.append(b"X-Accel-Buffering: no\r\n")  # whoever stands before us must not hold events back either
    lines.append(_connection_fields(response, request, delivery) + b"\r\n")
    return b"".join(lines), delivery


def is_same_for_all(response: ResponseHead) -> bool:
    """Return whether clients get the same head of this answer wherever they address the skill."""
    return not any(_STOPPED_AT_CLIENT[name] in _ADDRESSED for name, _ in response.headers)


def _changed(name: bytes, value: bytes, path: str, *, mount: str, prefix: str, port: int, events: bool) -> bytes | None:
    """The value of a field of an answer as the client gets it, `name` in lower case; None: it does not get it."""
    outside, inside = prefix.encode("ascii"), f"/{mount}".encode("ascii")
    if name == b"set-cookie":
        folder = path.partition("?")[0].rpartition("/")[0]
        return confined(value, outside, inside, folder.encode("ascii"))
    if name in REFERRING:
        return referred(name, value, outside, inside, port)
    return None if name != b"x-accel-buffering" or events else value


def encode_body(body: bytes, delivery: Delivery, *, last: bool) -> bytes:
    """Return `body` as the next bytes of a delivery; `last` adds the end that chunks need (RFC 9112 section 7.1)."""
    if delivery != "chunked":
        return body
    end = b"0\r\n\r\n" if last else b""
    return b"%x\r\n%b\r\n%b" % (len(body), body, end) if body else end


def refusal_answer(refusal: Refusal, *, close: bool, skill: str | None = None, method: str = "GET") -> bytes:
    """Return the whole answer for a refusal: its reason as `X-Omac-Reason` and in a JSON body, which HEAD leaves out.
    The body is a line, as what follows it at a terminal begins one."""
    content: dict[str, object] = {"error": refusal.reason}
    if skill := skill or refusal.skill:
        content["skill"] = skill
    content |= {"detail": refusal.message, "fix": list(refusal.fix)}
    if refusal.missing:
        content["missing"] = list(refusal.missing)
    fields = [(b"X-Omac-Reason", refusal.reason.encode("ascii")), (b"Content-Type", b"application/json")]
    if refusal.reason == "too-many-calls":
        fields.append((b"Retry-After", b"1"))
    body = msgspec.json.encode(content) + b"\n"
    return whole_answer(refusal.status, fields, body, close=close, method=method)


def _connection_fields(response: ResponseHead, request: RequestHead, delivery: Delivery) -> bytes:
    """Return the fields that the facade itself writes about the connection to the client."""
    if response.status == 101:
        return _UPGRADE % (upgrade_of(request) or b"")
    required = response.status == 426 and sorted(filter(_is_switched_to, options_of(response.values, b"upgrade")))
    upgrade = _UPGRADE % b", ".join(required) if required else b""
    chunks = b"Transfer-Encoding: chunked\r\n" if delivery == "chunked" else b""
    return upgrade + chunks + (b"Connection: close\r\n" if delivery == "close" or not request.keep_alive else b"")


def _delivery(response: ResponseHead, request: RequestHead) -> Delivery:
    if not response.framing.has_body:
        return "none"
    if response.framing.content_length is not None:
        return "length"
    return "chunked" if request.minor == 1 else "close"


def _is_event_stream(values: Values) -> bool:
    return any(
        value.partition(b";")[0].strip().lower() == b"text/event-stream" for value in values.get(b"content-type", ())
    )


def _named_in_connection(values: Values) -> Collection[bytes]:
    """The names of the fields that Connection keeps to one connection, beside those that always are."""
    return options_of(values, b"connection") - _HOP_BY_HOP if b"connection" in values else ()


def without_token(value: bytes, token: bytes) -> bytes | None:
    """Return the value of a field as the skill may see it; None where the token cannot be cut out of it."""
    if not token or token not in value:
        return value
    cut = value.replace(b"/" + token, b"")
    return None if token in cut else cut


def _address_of_page(value: bytes, token: bytes) -> bytes | None:
    """The address of a page as the skill may see it; None when a token is in it that cannot be cut out, or may be that
    of another directory."""
    cut = without_token(value, token) if token else None
    if cut is None or may_hold_token(cut.decode("latin-1")):
        return None
    return cut
