"""One client's connection in a task: its requests in their order, each judged, admitted, relayed and accounted for."""

import contextlib
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import msgspec
import trio

from omac.adapters.facade.addressing import AddressedRequest, address, body_too_large, recorded_path, split
from omac.adapters.facade.forward import refusal_answer
from omac.adapters.facade.limits import FacadeLimits
from omac.adapters.facade.ordinary import OrdinaryAnswers
from omac.adapters.facade.pool import SkillConnections
from omac.adapters.facade.proxy import Exchange, Forwarded
from omac.adapters.http.accepting import HEAD_BYTES_MAX, serve_heads
from omac.adapters.http.http1 import parse_request_head, request_line
from omac.adapters.http.slots import Slot
from omac.adapters.http.wire import ClientGone, Wire, drain
from omac.domain.kernel.refusal import Refusal
from omac.domain.settings.owner_limits import HEAD_BYTES, how_to_change
from omac.services.access.port import AccessRecorder, Request

MOUNT_CHARS_MAX = 128
OF_STRANGERS = frozenset(("bad-request", "unknown-mount"))  # refusals that show no knowledge of a token

Result = TypeVar("Result")


class Surroundings(msgspec.Struct, frozen=True):
    """The context that the connections of one listener share. `unix` and `flat` are those of its FacadeListener,
    `reaches` is that of the Facade. The data plane adds `connections` and `answers`; without them, no connection to a
    skill serves two requests."""

    recorder: AccessRecorder
    limits: FacadeLimits
    clock: Callable[[], float]
    reaches: Callable[[socket.socket], bool]
    unix: bool = False
    flat: bool = False
    connections: SkillConnections | None = None
    answers: OrdinaryAnswers | None = None


class BegunRequest(msgspec.Struct, frozen=True):
    """A request whose head was taken from the wire before. It was recorded as `access`, or `refused` says why it could
    not be; `forwarded`: it has gone to the skill; `repeated`: in vain, and it goes there once more; `ended`: why its
    route has ended since."""

    addressed: AddressedRequest
    started: float
    access: int = 0
    refused: Refusal | None = None
    forwarded: Forwarded | None = None
    repeated: bool = False
    ended: Refusal | None = None


class FacadeConnection:
    """Serves the requests that arrive on one wire, one after the other."""

    def __init__(self, client: Wire, slot: Slot, surroundings: Surroundings) -> None:
        self._client = client
        self._slot = slot
        self._recorder = surroundings.recorder
        self._limits = surroundings.limits
        self._clock = surroundings.clock
        self._reaches = surroundings.reaches
        self._connections = surroundings.connections
        self._unix = surroundings.unix
        self._flat = surroundings.flat

    async def run(
        self, begun: BegunRequest | None = None, *, wait_s: float | None = None, until_rest: bool = False
    ) -> bool:
        """Serve requests until the client leaves, a limit is reached, or the connection cannot be read further; close
        the wire.

        `wait_s` is that of `serve_heads`.

        `until_rest`: return True, with the wire open, as soon as one is answered and another may follow.
        """
        finish = partial(self._finish, begun) if begun else None
        return await serve_heads(
            self._client, self._slot, self._limits, self._serve, self._late,
            begun=finish, wait_s=wait_s, until_rest=until_rest,
        )  # fmt: skip

    async def _late(self, begun: bytes) -> None:
        """Refuse a head that took too long."""
        message = f"the head of a request is limited to {self._limits.head_timeout_s:g} s"
        await self._refuse(Refusal("client-timeout", message), request_line(begun), method="GET", close=True)

    async def _serve(self, raw: bytes) -> bool:
        """Answer one request; whether another may follow it."""
        started = self._clock()
        try:
            head = parse_request_head(raw, bytes_max=self._limits.head_bytes_max, any_host=self._unix)
        except Refusal as refusal:
            if len(raw) > self._limits.head_bytes_max < HEAD_BYTES_MAX:
                refusal = _of_owner(refusal)
            await self._refuse(refusal, request_line(raw), method="GET", close=True)
            return False
        try:
            addressed = address(head, self._recorder, flat=self._flat)
            self._slot.recognize()
            if (head.framing.content_length or 0) > addressed.route.max_body_bytes:
                raise body_too_large(addressed.route)
        except Refusal as refusal:
            if refusal.reason not in OF_STRANGERS:
                self._slot.recognize()
            # who knows no token keeps no connection
            close = head.framing.has_body or not head.keep_alive or refusal.reason in OF_STRANGERS
            await self._refuse(refusal, (head.method, head.target), method=head.method, close=close)
            return not close
        try:
            access = await self._recorded(self._recorder.admit(addressed.route, addressed.request))
        except Refusal as refusal:
            return await self._finish(BegunRequest(addressed, started, refused=refusal))
        return await self._finish(BegunRequest(addressed, started, access))

    async def _recorded(self, record: Awaitable[Result]) -> Result:
        """The result of a record, which neither a client nor a stop interrupts. Raises Refusal when it is too slow."""
        with trio.move_on_after(self._limits.record_timeout_s, shield=True):
            return await record
        raise journal_slow(self._limits)

    async def _finish(self, begun: BegunRequest) -> bool:
        """Relay a request that was recorded, or say why it could not be; whether another may follow it."""
        addressed = begun.addressed
        if begun.refused is not None:
            skill = addressed.route.skill
            await self._answer(begun.refused, method=addressed.head.method, close=addressed.closes, skill=skill)
            return not addressed.closes
        exchange = Exchange(
            self._client,
            addressed,
            self._limits,
            self._reaches,
            self._connections,
            begun.forwarded,
            repeated=begun.repeated,
            stopped=partial(self._recorder.stopped, addressed.route),
        )
        return await self._relay(exchange, begun)

    async def _relay(self, exchange: Exchange, begun: BegunRequest) -> bool:
        """Run an admitted exchange and tell the recorder its one fate."""
        progress, addressed, access = exchange.progress, begun.addressed, begun.access
        method, skill = addressed.head.method, addressed.route.skill
        try:
            if begun.ended is not None:
                exchange.cut(begun.ended)
            self._recorder.watch(addressed.route, exchange.cut)
            try:
                await exchange.run()
            finally:
                self._recorder.unwatch(exchange.cut)
            if progress.refusal is not None:
                await self._send(refusal_answer(progress.refusal, close=True, skill=skill, method=method))
        finally:
            exchange.abandon()
            result = exchange.answer(self._clock() - begun.started)
            if progress.reason is None:
                self._recorder.completed(access, result)
            else:
                self._recorder.aborted(access, result, progress.reason)
                if progress.status == "broken_off":
                    self._client.cut()
        if progress.status in ("refused", "completed_early"):
            await self._client.linger(whole_body=True)
        elif progress.status == "completed" and not exchange.keeps_connection:
            drain(self._client.socket)
        return exchange.keeps_connection

    async def _refuse(self, refusal: Refusal, line: tuple[str, str] | None, *, method: str, close: bool) -> None:
        """Record a request that is not forwarded, then say so."""
        verb, target = line or ("", "")
        token = mount = path = ""
        with contextlib.suppress(Refusal):  # else recorded as a call to nowhere
            token, mount, path, _query = split(target, self._recorder, flat=self._flat)
        request = Request(verb, recorded_path(path, token))
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
            await self._client.linger(whole_body=self._slot.known)

    async def _send(self, answer: bytes) -> None:
        """Send an answer. Raises ClientGone, also when the client does not take it in time: no other may follow a part
        of it."""
        with trio.move_on_after(self._limits.head_timeout_s):
            await self._client.send(answer)
            return
        raise ClientGone("the client did not read its answer")


def _of_owner(refusal: Refusal) -> Refusal:
    """The refusal of a head that is over the limit which the owner of the host has set."""
    return Refusal(refusal.reason, f"{refusal.message}, the limit of your settings", fix=[how_to_change(HEAD_BYTES)])


def journal_slow(limits: FacadeLimits) -> Refusal:
    """A request whose record did not become durable in time."""
    message = f"the journal took no record within {limits.record_timeout_s:g} s; nothing was forwarded"
    return Refusal("journal-unavailable", message, fix=["omac journal path  # is its disk slow, or full?"])
