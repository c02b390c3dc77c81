"""The address of a request: its target in parts, and the route behind it."""

import msgspec

from omac.adapters.http.http1 import RequestHead, split_target
from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.sizes import counted
from omac.projections.access.routes import ResolvedRoute
from omac.services.access.port import AccessRecorder, Request

PATH_CHARS_MAX = 2_048  # more than the recorder reads: a token that it cuts is beyond that


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
    """Find the route of a request. `flat`: its listener grants `/<mount>/...`. Raises Refusal: bad-request, and what
    `AccessRecorder.resolve` raises."""
    token, mount, rest, query = split(head.target, recorder, flat=flat)
    route = recorder.resolve(token or None, mount)
    path = rest if query is None else f"{rest}?{query}"
    return AddressedRequest(head, route, token, mount, path, Request(head.method, recorded_path(rest, token)))


def split(target: str, recorder: AccessRecorder, *, flat: bool) -> tuple[str, str, str, str | None]:
    """A target in its parts, as `split_target`; where it may be flat, and does not begin with a token, the token is "".
    Raises Refusal."""
    flat = flat and not recorder.knows(target.lstrip("/").partition("/")[0])
    return split_target(target, flat=flat)


def recorded_path(path: str, token: str) -> str:
    """Return a path as the recorder gets it: with `*` in place of a token that the client repeats, and cut to
    PATH_CHARS_MAX characters."""
    return (path.replace(token, "*") if token and token in path else path)[:PATH_CHARS_MAX]


def body_too_large(route: ResolvedRoute) -> Refusal:
    """The body is over the limit of its skill."""
    whose, fix = route.limit("max_body_bytes", route.max_body_bytes)
    message = f"the body of a request to this skill is limited to {counted(route.max_body_bytes, 'byte')}, {whose}"
    return Refusal("body-too-large", message, fix=[fix], skill=route.skill)
