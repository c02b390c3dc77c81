"""The address of a request: its target in parts, and the route behind it."""

import re

import msgspec

from omac.adapters.facade.forward import without_token
from omac.adapters.http.fields import Fields
from omac.adapters.http.http1 import RequestHead, split_target
from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.scrub import TOKEN_DIGITS
from omac.domain.kernel.sizes import counted
from omac.projections.access.routes import ResolvedRoute
from omac.services.access.port import AccessRecorder, Request

PATH_CHARS_MAX = 2_048  # more than the recorder reads: a token that it cuts is beyond that
_DIGITS = re.compile(rb"(?<![0-9a-f])[0-9a-f]{%d}(?![0-9a-f])" % TOKEN_DIGITS)


class AddressedRequest(msgspec.Struct, frozen=True):
    """A request that leads somewhere. `path` is below the mount, with the query; `token` is "" where the socket itself
    stands for the directory. `request` is what is recorded of it."""

    head: RequestHead
    route: ResolvedRoute
    token: str
    mount: str
    path: str
    request: Request

    @property
    def prefix(self) -> str:
        """The part of the client's target before the path: `/<token>/<mount>`, or `/<mount>` without a token."""
        return f"/{self.token}/{self.mount}" if self.token else f"/{self.mount}"

    @property
    def closes(self) -> bool:
        """Return whether the connection cannot be read further unless the request is relayed."""
        return self.head.framing.has_body or not self.head.keep_alive


def address(head: RequestHead, recorder: AccessRecorder, *, flat: bool) -> AddressedRequest:
    """Find the route of a request. `flat`: its listener grants `/<mount>/...`; the head of a request without a token
    holds none in a field behind this. Raises Refusal: bad-request, and what `AccessRecorder.resolve` raises."""
    token, mount, rest, query = split(head.target, recorder, flat=flat)
    route = recorder.resolve(token or None, mount)
    if not token and any(len(value) >= TOKEN_DIGITS for _, value in head.headers):
        head = msgspec.structs.replace(head, headers=_without_tokens(head.headers, recorder))
    path = rest if query is None else f"{rest}?{query}"
    return AddressedRequest(head, route, token, mount, path, Request(head.method, recorded_path(rest, token)))


def split(target: str, recorder: AccessRecorder, *, flat: bool) -> tuple[str, str, str, str | None]:
    """A target in its parts, as `split_target`; where it may be flat, and does not begin with a token, the token is "".
    Raises Refusal."""
    flat = flat and not recorder.knows(target.lstrip("/").partition("/")[0])
    return split_target(target, flat=flat)


def _without_tokens(fields: Fields, recorder: AccessRecorder) -> Fields:
    """Return fields without the tokens that are valid now: any of them may be in one."""
    kept: Fields = []
    for name, value in fields:
        seen: bytes | None = value
        for digits in set(_DIGITS.findall(value)):
            if seen is not None and recorder.knows(digits.decode("ascii")):
                seen = without_token(seen, digits)
        if seen is not None:
            kept.append((name, seen))
    return kept


def recorded_path(path: str, token: str) -> str:
    """Return a path as the recorder gets it: with `*` in place of a token that the client repeats, and cut to
    PATH_CHARS_MAX characters."""
    return (path.replace(token, "*") if token and token in path else path)[:PATH_CHARS_MAX]


def body_too_large(route: ResolvedRoute) -> Refusal:
    """The body is over the limit of its skill."""
    whose, fix = route.limit("max_body_bytes", route.max_body_bytes)
    message = f"the body of a request to this skill is limited to {counted(route.max_body_bytes, 'byte')}, {whose}"
    return Refusal("body-too-large", message, fix=[fix], skill=route.skill)
