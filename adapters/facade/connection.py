"""One client's connection: its requests in their order, each judged, admitted, relayed and accounted for."""

import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from omac.adapters.facade.forward import refusal_answer
from omac.adapters.facade.limits import FacadeLimits
from omac.adapters.facade.proxy import AddressedPath, Exchange, body_too_large
from omac.adapters.http.accepting import serve_heads
from omac.adapters.http.http1 import RequestHead, parse_request_head, request_line, split_target
from omac.adapters.http.slots import Slot
from omac.adapters.http.wire import Wire
from omac.domain.kernel.refusal import Refusal
from omac.projections.access.routes import ResolvedRoute
from omac.services.access.port import AccessRecorder, Request

PATH_CHARS_MAX = 1024
MOUNT_CHARS_MAX = 128
OF_STRANGERS = frozenset(("bad-request", "unknown-mount"))  # refusals that show no knowledge of a token

Result = TypeVar("Result")


class FacadeConnection:
    """Serves the requests that arrive on one wire, one after the other."""

    def __init__(
        self, client: Wire, slot: Slot, recorder: AccessRecorder, limits: FacadeLimits, clock: Callable[[], float]
    ) -> None:
        self._client = client
        self._slot = slot
        self._recorder = recorder
        self._limits = limits
        self._clock = clock
        self._unix = self._flat = False

    async def run(self, *, unix: bool = False, flat: bool = False) -> None:
        """Until the client leaves, a limit is reached, or the connection cannot be read further. Closes the wire.

        `unix` and `flat` are those of its listener.
        """
        self._unix, self._flat = unix, flat
        await serve_heads(self._client, self._slot, self._limits, self._serve)

    async def _serve(self, raw: bytes) -> bool:
        """Answer one request; whether another may follow it."""
        started = self._clock()
        try:
            head = parse_request_head(raw, bytes_max=self._limits.head_bytes_max, any_host=self._unix)
        except Refusal as refusal:
            await self._refuse(refusal, request_line(raw), method="GET", close=True)
            return False
        close = head.framing.has_body or not head.keep_alive
        try:
            token, mount, rest, query = self._split(head.target)
            route = self._recorder.resolve(token or None, mount)
            self._slot.recognize()
            if (head.framing.content_length or 0) > route.max_body_bytes:
                raise body_too_large(route.max_body_bytes)
        except Refusal as refusal:
            if refusal.reason not in OF_STRANGERS:
                self._slot.recognize()
            close = close or refusal.reason in OF_STRANGERS  # who knows no token keeps no connection
            await self._refuse(refusal, (head.method, head.target), method=head.method, close=close)
            return not close
        try:
            request = Request(head.method, _recorded_path(rest, token))
            access = await self._recorded(self._recorder.admit(route, request))
        except Refusal as refusal:
            await self._answer(refusal, method=head.method, close=close, skill=route.skill)
            return not close
        prefix = f"/{token}/{mount}" if token else f"/{mount}"
        target = AddressedPath(token, prefix, rest if query is None else f"{rest}?{query}")
        exchange = Exchange(self._client, head, route, target, self._limits)
        return await self._relay(exchange, access, started, head, route)

    def _split(self, target: str) -> tuple[str, str, str, str | None]:
        """A target in its parts; where it may be flat, and does not begin with a token, the token is "". Raises
        Refusal."""
        flat = self._flat and not self._recorder.knows(target.lstrip("/").partition("/")[0])
        return split_target(target, flat=flat)

    async def _recorded(self, record: Awaitable[Result]) -> Result:
        """The result of a record, which neither a client nor a stop interrupts. Raises Refusal when it is too slow."""
        with trio.move_on_after(self._limits.record_timeout_s, shield=True):
            return await record
        message = f"the journal took no record within {self._limits.record_timeout_s:g} s; nothing was forwarded"
        raise Refusal("journal-unavailable", message, fix=["omac journal path  # is its disk slow, or full?"])

    async def _relay(
        self, exchange: Exchange, access: int, started: float, head: RequestHead, route: ResolvedRoute
    ) -> bool:
        """Run an admitted exchange and tell the recorder its one fate."""
        progress = exchange.progress
        try:
            with self._recorder.while_valid(route, exchange.cut):
                await exchange.run()
            if progress.refusal is not None:
                await self._send(refusal_answer(progress.refusal, close=True, skill=route.skill, method=head.method))
        finally:
            exchange.abandon()
            result = exchange.answer(self._clock() - started)
            if progress.reason is None:
                self._recorder.completed(access, result)
            else:
                self._recorder.aborted(access, result, progress.reason)
                if progress.status == "broken_off":
                    self._client.cut()
        if progress.status in ("refused", "completed_early"):
            await self._client.linger()
        return exchange.keeps_connection

    async def _refuse(self, refusal: Refusal, line: tuple[str, str] | None, *, method: str, close: bool) -> None:
        """Record a request that is not forwarded, then say so."""
        verb, target = line or ("", "")
        token = mount = path = ""
        with contextlib.suppress(Refusal):  # else recorded as a call to nowhere
            token, mount, path, _query = self._split(target)
        request = Request(verb, _recorded_path(path, token))
        if not await self._slot.may_refuse():
            return
        mount, shown = mount[:MOUNT_CHARS_MAX], token or (None if self._flat else "")
        try:
            await self._recorded(self._recorder.refused(shown, mount, request, refusal.status, refusal.reason))
        except Refusal as unrecorded:
            refusal = unrecorded
        await self._answer(refusal, method=method, close=close)

    async def _answer(self, refusal: Refusal, *, method: str, close: bool, skill: str | None = None) -> None:
        await self._send(refusal_answer(refusal, close=close, skill=skill, method=method))
        if close:
            await self._client.linger()

    async def _send(self, answer: bytes) -> None:
        with trio.move_on_after(self._limits.head_timeout_s):
            await self._client.send(answer)


def _recorded_path(path: str, token: str) -> str:
    """What is kept of a path: at most 1024 characters, and the token not even where the client repeats it."""
    return (path.replace(token, "*") if token and token in path else path)[:PATH_CHARS_MAX]
