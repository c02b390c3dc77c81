"""The guard: who may speak to the control plane at all. Authority is the listener, never something a caller says.

The private socket (0600) is for people; TCP wants the bearer token. On both, Host and Origin are checked: a web page
must not reach the control plane, neither by rebinding a name nor by posting a form. It is a plain ASGI wrapper, so
nothing behind it runs for a caller who may not.
"""

import hmac
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import msgspec
import trio

from omac.adapters.control.app import SCOPE_LISTENER, refusal_body
from omac.domain import loopback
from omac.domain.control import Listener
from omac.domain.refusal import Refusal

Scope = dict[str, Any]  # the ASGI message types
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Refused = Callable[[str, str], Awaitable[None]]  # path and reason
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Guard:
    """Wraps an ASGI app for one listener. `token` is wanted on TCP; `refused` is told of every refusal here."""

    def __init__(self, app: object, listener: Listener, token: str | None, refused: Refused) -> None:
        self._app = cast(App, app)
        self._listener = listener
        self._token = token
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":  # no WebSocket is offered
            await self._refused(scope["path"], "bad-request")
            return await send({"type": "websocket.close"})  # before it is accepted: 403
        try:
            self._check(scope)
        except Refusal as refusal:
            await self._refused(scope["path"], refusal.reason)
            return await _answer(refusal, send)
        return await self._app({**scope, SCOPE_LISTENER: self._listener}, receive, _shielded(send))

    def _check(self, scope: Scope) -> None:
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        hosts = headers.get("host", [])
        if len(hosts) != 1 or not loopback.HOST.fullmatch(hosts[0]):
            raise Refusal("misdirected-host", "the control plane answers to 127.0.0.1 and localhost only")
        origins = headers.get("origin", [])
        foreign = any(not loopback.ORIGIN.fullmatch(origin) for origin in origins)
        if foreign or "cross-site" in headers.get("sec-fetch-site", []):
            raise Refusal("foreign-origin", "the control plane does not answer web pages")
        if self._token is not None and not _bears(headers, self._token):
            message = "the control plane wants its bearer token on TCP; its Unix socket wants none"
            raise Refusal("unauthorized", message, fix=["omac status  # goes by the socket"])


def _bears(headers: Mapping[str, list[str]], token: str) -> bool:
    given = headers.get("authorization", [])
    return len(given) == 1 and hmac.compare_digest(given[0].encode(), f"Bearer {token}".encode())


async def _answer(refusal: Refusal, send: Send) -> None:
    body = msgspec.json.encode(refusal_body(refusal))
    headers = [(b"content-type", b"application/json"), (b"x-omac-reason", refusal.reason.encode())]
    headers.append((b"content-length", str(len(body)).encode()))
    if refusal.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _shielded(send: Send) -> Send:
    """hypercorn reports the end of a connection inside the app's final send, and quart-trio cancels itself there:
    without a shield that send is cut short and the connection never closes."""

    async def shielded(message: Any) -> None:
        final = message["type"] == "http.response.body" and not message.get("more_body", False)
        with trio.CancelScope(shield=final):
            await send(message)

    return shielded
