"""One connection of the control plane: its requests in order, each judged, carried out by the application, answered.

1. The heads are judged by the same rules as the facade's (`adapters/http/http1.py`).
2. Nothing waits without a deadline: neither for the caller nor for what it asked.
3. A caller that waits when omac stops gets 503 `stopping`.
"""

import contextlib
from collections.abc import Awaitable, Callable, Collection
from typing import Any, cast
from urllib.parse import unquote

import msgspec
import trio

from omac.adapters.control.contract import SCOPE_LISTENER, refusal_body
from omac.adapters.control.guard import check_caller
from omac.adapters.control.limits import ControlLimits
from omac.adapters.http.accepting import serve_heads
from omac.adapters.http.bodies import bad_request, decoder_for
from omac.adapters.http.decoding import decode
from omac.adapters.http.fields import Fields
from omac.adapters.http.http1 import RequestHead, parse_request_head, request_line, whole_answer
from omac.adapters.http.pacing import Pace
from omac.adapters.http.slots import Slot
from omac.adapters.http.wire import AHEAD_BYTES_MAX, ClientGone, Wire
from omac.domain.access.control import Listener
from omac.domain.kernel.refusal import Refusal, stopping

Message = dict[str, Any]  # the ASGI message types
App = Callable[[Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]

FAREWELL_S = 1.0  # that an answer may take once omac stops
_OURS = frozenset((b"connection", b"content-length", b"transfer-encoding"))  # fields of an answer that we write


class Surface(msgspec.Struct, frozen=True):
    """One listener: what serves its requests, the token it wants, if any, and who records its refusals. `calls` are
    those that it offers; None: all.

    `refused` gets the path and the reason of a caller that was turned away; it may be cancelled, and never raises.
    `pace` says when a call begins.
    """

    app: App
    listener: Listener
    token: str | None
    calls: Collection[str] | None
    refused: Callable[[str, str], Awaitable[None]]
    limits: ControlLimits
    pace: Pace


class ControlConnection:
    """Serves the requests that arrive on one wire, one after the other."""

    def __init__(self, surface: Surface, client: Wire, slot: Slot) -> None:
        self._surface = surface
        self._limits = surface.limits
        self._client = client
        self._slot = slot

    async def run(self) -> None:
        """Serve requests until the caller leaves, a limit is reached, or the connection cannot be read further. Close
        the wire, and return when the calls have ended, too."""
        async with trio.open_nursery() as self._calls:
            await serve_heads(self._client, self._slot, self._limits, self._serve)

    async def _serve(self, raw: bytes) -> bool:
        """Answer one request; whether another may follow it."""
        method, target = request_line(raw) or ("GET", "")
        try:
            head = parse_request_head(raw, bytes_max=self._limits.head_bytes_max)
            check_caller(head, self._surface.token, self._surface.calls)
            self._slot.recognize()
            body = await self._receive_body(head)
        except Refusal as refusal:
            await self._refuse(refusal, method, target)
            return False
        answer = await self._call(head, body)
        return answer is not None and await self._send(answer) and head.keep_alive

    async def _receive_body(self, head: RequestHead) -> bytes:
        """The whole body of a request. Raises Refusal: bad-request, body-too-large; ClientGone."""
        too_large = Refusal("body-too-large", f"the body of a call is limited to {self._limits.body_bytes_max} bytes")
        if (head.framing.content_length or 0) > self._limits.body_bytes_max:
            raise too_large
        decoder = decoder_for(head.framing, bad_request)
        body = b""
        with trio.move_on_after(self._limits.body_timeout_s):
            if head.expect_continue:
                await self._client.send(b"HTTP/1.1 100 Continue\r\n\r\n")
            while not decoder.finished:
                data = await self._client.receive()
                if not data:
                    raise ClientGone("the body ended early")
                body += await decode(decoder, data)
                if len(body) > self._limits.body_bytes_max:
                    raise too_large
            self._client.ahead[:0] = decoder.leftover
            return body
        raise bad_request(f"its body did not come within {self._limits.body_timeout_s:g} s")

    async def _refuse(self, refusal: Refusal, method: str, target: str) -> None:
        """Record a request that is not carried out, then say so."""
        if not await self._slot.may_refuse():
            return
        with trio.move_on_after(self._limits.record_timeout_s, shield=True):
            await self._surface.refused(unquote(target.partition("?")[0]), refusal.reason)
        await self._send(_refusal_answer(refusal, method))
        await self._client.linger()

    async def _call(self, head: RequestHead, body: bytes) -> bytes | None:
        """The answer of the application; None when the caller has gone, or got one because omac stops."""
        response = _Response(body)
        # a stop does not interrupt it before its caller was answered
        scope = trio.CancelScope(shield=True, deadline=trio.current_time() + self._limits.call_timeout_s)

        async def run() -> None:
            with scope:
                await self._surface.pace.begin()
                await self._surface.app(_scope(head, self._surface.listener), response.receive, response.send)
            response.ended.set()

        async def watch() -> None:
            with contextlib.suppress(ClientGone):
                while len(self._client.ahead) < AHEAD_BYTES_MAX and await self._client.receive_ahead():
                    pass  # pipelined requests are kept for later, up to a bound
                await self._client.left()
            response.gone.set()
            waiting.cancel_scope.cancel()

        self._calls.start_soon(run)
        try:
            async with trio.open_nursery() as waiting:
                waiting.start_soon(watch)
                with trio.CancelScope(deadline=scope.deadline):
                    await response.ended.wait()
                waiting.cancel_scope.cancel()
        except BaseException:  # omac stops
            await self._take_leave(response, head)
            raise
        finally:
            scope.cancel()
        if response.gone.is_set():
            return None
        if (answer := response.answer(head)) is not None:
            return answer
        message = f"the call did not end within {self._limits.call_timeout_s:g} s; its work continues"
        return _refusal_answer(Refusal("timeout", message, fix=["omac status"]), head.method)

    async def _take_leave(self, response: "_Response", head: RequestHead) -> None:
        """Answer a caller that still waits when omac stops: what came of its call, if that is about to be known."""
        with trio.move_on_after(FAREWELL_S, shield=True):
            await response.ended.wait()
        answer = response.answer(head) or _refusal_answer(stopping(), head.method)
        with trio.move_on_after(FAREWELL_S, shield=True), contextlib.suppress(ClientGone):
            await self._client.send(answer)

    async def _send(self, answer: bytes) -> bool:
        """Send an answer and return whether the caller took it in time; cut the connection of a caller that does not
        read."""
        with trio.move_on_after(self._limits.send_timeout_s):
            await self._client.send(answer)
            return True
        self._client.cut()
        return False


class _Response:
    """The two ends of one ASGI call: the body of the request goes in, the response is collected."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body
        self._status = 0
        self._fields: Fields = []
        self._pieces: list[bytes] = []
        self.gone = trio.Event()
        self.ended = trio.Event()

    async def receive(self) -> Message:
        if self._body is None:
            await self.gone.wait()
            return {"type": "http.disconnect"}
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._fields = [(name, value) for name, value in message["headers"] if name.lower() not in _OURS]
        else:
            self._pieces.append(message.get("body", b""))

    def answer(self, head: RequestHead) -> bytes | None:
        """Return the collected response; None if the application gave none."""
        if not self._status:
            return None
        body = b"".join(self._pieces)
        return whole_answer(self._status, self._fields, body, close=not head.keep_alive, method=head.method)


def _scope(head: RequestHead, listener: Listener) -> Message:
    path, _, query = head.target.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": f"1.{head.minor}",
        "method": head.method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode("ascii"),
        "query_string": query.encode("ascii"),
        "root_path": "",
        "headers": [(name.lower(), value) for name, value in head.headers],
        "client": None,
        "server": None,
        "extensions": {},
        SCOPE_LISTENER: listener,
    }


def _refusal_answer(refusal: Refusal, method: str) -> bytes:
    fields = [(b"Content-Type", b"application/json"), (b"X-Omac-Reason", refusal.reason.encode("ascii"))]
    if refusal.status == 401:
        fields.append((b"WWW-Authenticate", b"Bearer"))
    return whole_answer(refusal.status, fields, msgspec.json.encode(refusal_body(refusal)), close=True, method=method)


def as_app(app: object) -> App:
    """The ASGI application that `app` is; its own types are narrower than what is called here."""
    return cast(App, app)
