"""One admitted request: the body to the skill and the answer back, both at once.

Nothing goes to the skill before the access is durable: whoever makes an Exchange has awaited `AccessRecorder.admit`.
How it may go on and end, and how long it may wait, are the rules of `domain/access/exchange.py`.
"""

import contextlib
import math
import socket
from collections.abc import Callable
from functools import partial
from typing import Literal

import msgspec
import trio

from omac.adapters.facade.addressing import AddressedRequest, body_too_large
from omac.adapters.facade.forward import Delivery, client_head, encode_body, is_switch, upgrade_of, upstream_head
from omac.adapters.facade.limits import FacadeLimits
from omac.adapters.facade.pool import SkillConnections
from omac.adapters.http.bodies import UpstreamError, decoder_for
from omac.adapters.http.decoding import decode
from omac.adapters.http.http1 import ResponseHead, parse_response_head
from omac.adapters.http.pacing import LARGE_HEAD_BYTES, pace_of_relays
from omac.adapters.http.wire import AHEAD_BYTES_MAX, ClientGone, Wire, acknowledge
from omac.adapters.linux.tcp import hasten
from omac.domain.access.exchange import ExchangeProgress, Kind
from omac.domain.kernel.refusal import Refusal
from omac.services.access.port import Answer

INTERIM_HEADS_MAX = 16
LATE_S = 1.0
UNANSWERED = "it closed the connection before it answered"


class Forwarded(msgspec.Struct, frozen=True):
    """A request without a body that was forwarded before there was an Exchange: all but `unsent` of it has gone to the
    skill, `waited_s` ago."""

    upstream: Wire
    unsent: bytes
    waited_s: float


class Exchange:
    """The relay of one request and its answer; `run` it once, then `abandon` it and read its progress.

    `reaches` is that of the Facade. A connection to the skill that can serve another request goes to `connections`
    behind it. `repeated`: the skill had the request before, and ended the connection. `stopped` returns what a call is
    refused with that fails because omac stops the sidecar.
    """

    def __init__(
        self,
        client: Wire,
        addressed: AddressedRequest,
        limits: FacadeLimits,
        reaches: Callable[[socket.socket], bool],
        connections: SkillConnections | None = None,
        forwarded: Forwarded | None = None,
        *,
        repeated: bool = False,
        stopped: Callable[[], Refusal | None] = lambda: None,
    ) -> None:
        self._client = client
        self._head = head = addressed.head
        self._route = addressed.route
        self._target = addressed
        self._limits = limits
        self._reaches = reaches
        self._connections = connections
        self._forwarded = forwarded
        self._repeated = repeated
        self._stopped = stopped
        self._upstream_rests = False
        self._waited_s = waited_s = forwarded.waited_s if forwarded else 0.0
        own, owners_s = addressed.route.limits, addressed.route.bounds.idle_s or math.inf
        idle_s, answer_s, joined_s = (
            min(default_s if own.idle_s is None else own.idle_s, owners_s)
            for default_s in (limits.body_idle_timeout_s, limits.response_head_timeout_s, limits.joined_idle_timeout_s)
        )
        self._silent_s = {"sending": idle_s, "waiting": answer_s, "joined": joined_s}
        self._ends_at = math.inf if own.total_s is None else trio.current_time() + own.total_s - waited_s
        self._scope = trio.CancelScope(deadline=min(trio.current_time() + idle_s, self._ends_at))
        self._body = decoder_for(head.framing, lambda fault: Refusal("bad-request", f"the body is malformed: {fault}"))
        self._status: int | None = None
        self._delivery: Delivery = "none"
        self._bytes_in = 0
        self._bytes_out = 0
        self._upgrade = upgrade_of(head)
        self._watching = trio.CancelScope()
        self._undecided = trio.CancelScope()  # while the skill may still switch protocols
        self._switched = trio.Event()
        self.progress = ExchangeProgress(idle_s=idle_s, answer_s=answer_s - waited_s, joined_idle_s=joined_s)
        if forwarded is not None:
            self._on("connected")
        if client.gone_ahead:
            self._on("answer-bytes")

    @property
    def keeps_connection(self) -> bool:
        """Return whether the client may send its next request on the same connection."""
        return (
            self.progress.status == "completed"
            and self._head.keep_alive
            and self._delivery != "close"
            and not self._switched.is_set()
        )

    def answer(self, duration_s: float) -> Answer:
        """Return the answer for the record; a status of None says that no answer was begun."""
        status = self.progress.answer_status(self._status)
        return Answer(status, self._bytes_in, self._bytes_out, round(duration_s * 1_000_000))

    async def run(self) -> None:
        """Relay until complete, or until the first reason to stop. Never raises for what a peer does."""
        if self._forwarded is None and self._client.has_left(may_finish=self._upgrade is not None):
            self._on("client-closed")
            return
        with self._scope:
            upstream = await self._connect() if self._forwarded is None else self._forwarded.upstream
            if upstream is None:
                return
            try:
                await self._relay(upstream)
            finally:
                self._leave(upstream)
        if self._scope.cancelled_caught and not self.progress.over:
            self._on("timed-out", self._too_long())

    def cut(self, refusal: Refusal) -> None:
        """End it from outside: nothing more is relayed in either direction."""
        self._on("cut", refusal)

    def abandon(self) -> None:
        """End it, if it has not ended, from outside and without a reason of its own: omac stops, or has a fault."""
        self._on("stopped" if trio.current_effective_deadline() == -math.inf else "faulted")

    def _too_long(self) -> Refusal:
        limit_s = self._route.limits.total_s
        if limit_s is not None and trio.current_time() >= self._ends_at:
            whose, fix = self._route.limit("total_s", limit_s)
            return Refusal("timeout", f"calls of this skill are limited to {limit_s} s, {whose}", fix=[fix])
        silent_s = self._silent_s.get(self.progress.status, self._silent_s["sending"])
        whose, fix = self._route.limit("idle_s", silent_s)
        waiting = self.progress.status == "waiting"
        happened = "the skill did not begin its answer" if waiting else "the client and the skill exchanged no data"
        fixes = [fix, *self._route.commands_if_hung]
        return Refusal("timeout", f"{happened} within {silent_s:g} s, {whose}", fix=fixes)

    def _leave(self, upstream: Wire) -> None:
        """Keep the connection to the skill for another request where that can be, else close it."""
        if self._connections is not None and self._upstream_rests and self.progress.status == "completed":
            self._connections.rest_of_task(upstream.socket, self._route.port)
        elif self._switched.is_set() and self.progress.status != "completed":
            upstream.cut()  # an end that the client did not mean is none that the skill may take for one
        else:
            upstream.close()

    async def _relay(self, upstream: Wire) -> None:
        try:
            await trio.lowlevel.checkpoint()  # one that was cut ahead of this ends here
            if unsent := self._unsent():  # not even nothing can be sent where the skill ended with its answer
                await upstream.send(unsent)
            if self._head.expect_continue:  # before anything else can be on its way to the client
                await self._client.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        except UpstreamError as error:
            self._upstream_failed(error)
            return
        except ClientGone:
            self._on("client-lost")
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._serve_client, upstream)
            await self._serve_answer(upstream)
            if not self._switched.is_set():
                nursery.cancel_scope.cancel()
        if self._switched.is_set():
            self._on("both-finished")

    def _unsent(self) -> bytes:
        """Return the bytes that must go to the skill before the rest of the body."""
        if self._forwarded is None:
            route, target = self._route, self._target
            return upstream_head(
                self._head, target.path, port=route.port, mount=route.mount, token=target.token, upgrade=self._upgrade
            )
        return self._forwarded.unsent

    def _not_connected(self, refusal: Refusal) -> None:
        """The skill cannot be reached; where it had the request before, it failed to answer."""
        self._on("connect-failed", self._stopped() or (self._failed(UNANSWERED) if self._repeated else refusal))

    async def _connect(self) -> Wire | None:
        try:
            plain = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        except OSError:
            self._not_connected(_down("omac has no descriptor left for a connection to the skill"))
            return None
        sock = trio.socket.from_stdlib_socket(plain)
        connected, refusal = False, _down("the skill is not listening")
        try:
            with trio.move_on_after(self._limits.connect_timeout_s) as waited:
                await sock.connect(("127.0.0.1", self._route.port))
                hasten(plain)
                # a connection to an unused ephemeral port can meet itself (simultaneous open) and would echo
                connected = sock.getsockname() != sock.getpeername()
                if connected and not self._reaches(plain):
                    connected, refusal = False, _down("its port does not lead to its server alone")
            if waited.cancelled_caught:
                message = "the skill did not accept a connection in time"
                refusal = Refusal("timeout", message, fix=self._route.commands_if_hung)
        except OSError:
            refusal = _down("the skill does not accept connections")
        finally:
            if not connected:
                sock.close()
        if not connected:
            self._not_connected(refusal)
            return None
        self._on("connected")
        return Wire(plain, UpstreamError)

    # the client's side: its body, then whether it stays

    async def _serve_client(self, upstream: Wire) -> None:
        try:
            await self._send_body(upstream)
            self._on("body-sent")
            if self._body.finished:
                with self._watching:
                    await self._watch_client()
            if self._upgrade is not None:
                await self._switched.wait()
                await self._pass_on(self._client, upstream, "body-bytes")
        except UpstreamError as error:
            self._upstream_failed(error)
        except ClientGone:
            self._on("client-lost" if self.progress.status == "joined" else "client-closed")
        except Refusal as refusal:
            self._on("body-refused", refusal)

    async def _send_body(self, upstream: Wire) -> None:
        body, chunked = self._body, self._head.framing.chunked
        if not body.finished and not self._client.ahead:
            acknowledge(self._client.socket)
        while not body.finished:
            data = await self._body_bytes()
            if not data:
                raise ClientGone("the body ended early")
            piece = await decode(body, data)
            self._bytes_in += len(piece)
            if self._bytes_in > self._route.max_body_bytes:
                raise body_too_large(self._route)
            self._on("body-bytes")
            if body.leftover:  # of the next request, which the skill's answer may let in before this is sent
                self._client.ahead[:0] = body.leftover
            try:
                data = encode_body(piece, "chunked", last=body.finished) if chunked else piece
                await upstream.send(data, moved=partial(self._on, "body-bytes"))
            except UpstreamError:
                break  # it wants no more of the body; it may still answer, and the answer says more than we could
            self._on("body-bytes")

    async def _body_bytes(self) -> bytes:
        """Return the next bytes of the body. Raises Refusal (client-timeout) when the client owes them too long and
        nothing else goes on."""
        limit_s = self._limits.client_idle_timeout_s
        while True:
            with trio.move_on_after(limit_s):
                return await self._client.receive()
            if self.progress.status == "sending":
                raise Refusal("client-timeout", f"no byte of the body came for {limit_s:g} s")

    async def _watch_client(self) -> None:
        # pipelined requests are kept for later, up to a bound
        while len(self._client.ahead) < AHEAD_BYTES_MAX and await self._client.receive_ahead():
            pass
        if self._upgrade is not None:
            with self._undecided:  # the end of what it sends gets to the skill once the two are joined
                await self._client.left(may_finish=True)
                raise ClientGone("the client closed")
        await self._client.left()
        raise ClientGone("the client closed")

    # the skill's side: its answer

    async def _serve_answer(self, upstream: Wire) -> None:
        try:
            response = await self._answer_head(upstream)
            if response.status == 101:
                await self._join(upstream, response)
            else:
                self._undecided.cancel()
                await self._relay_answer(upstream, response)
        except UpstreamError as error:
            self._upstream_failed(error)
        except ClientGone:
            self._on("client-lost")
        except trio.TooSlowError:
            limit_s = self._limits.client_idle_timeout_s
            self._on("timed-out", Refusal("client-timeout", f"the client read nothing for {limit_s:g} s"))

    async def _answer_head(self, upstream: Wire) -> ResponseHead:
        bytes_max = self._limits.answer_head_bytes_max
        for _ in range(INTERIM_HEADS_MAX):
            head = None
            with contextlib.suppress(UpstreamError):  # lost, which the poller may have met first
                head = await self._next_head(upstream)
            if head is None:
                raise UpstreamError(UNANSWERED)
            if len(head) > LARGE_HEAD_BYTES:
                await pace_of_relays().begin()
            response = parse_response_head(head, self._head.method, bytes_max=bytes_max)
            if is_switch(response, self._upgrade) or response.status >= 200:
                return response
        raise UpstreamError("its interim answers do not end")

    async def _next_head(self, upstream: Wire) -> bytes | None:
        """The next head of the skill, as `Wire.receive_head`. While it is late, no other connection to it rests."""
        with trio.move_on_after(max(0.0, LATE_S - self._waited_s)):
            return await upstream.receive_head(self._limits.answer_head_bytes_max)
        if self._connections is None:
            return await upstream.receive_head(self._limits.answer_head_bytes_max)
        with self._connections.late(self._route.port):
            return await upstream.receive_head(self._limits.answer_head_bytes_max)

    async def _relay_answer(self, upstream: Wire, response: ResponseHead) -> None:
        body = decoder_for(response.framing, UpstreamError)
        if not self._body.finished:  # its connection may not serve another request, as the client must know by the head
            self._head = msgspec.structs.replace(self._head, keep_alive=False)
        route, target = self._route, self._target
        pending, self._delivery = client_head(
            response, self._head, target.path, mount=route.mount, prefix=target.prefix, port=route.port
        )
        self._status = response.status
        data = upstream.take_ahead()
        while True:
            piece = await decode(body, data)
            self._on("answer-last" if body.finished else "answer-bytes")
            delivered = pending + encode_body(piece, self._delivery, last=body.finished)
            await self._client.send(delivered, self._limits.client_idle_timeout_s, partial(self._on, "answer-bytes"))
            self._bytes_out += len(piece)
            if body.finished:
                self._on("answer-sent" if self._body.finished else "answer-sent-early")
                whole = not self._head.framing.has_body and not body.leftover and not upstream.ahead
                self._upstream_rests = response.keep_alive and whole
                if (body.leftover or upstream.ahead) and self._connections is not None:
                    self._connections.distrust(self._route.port)
                return
            self._on("answer-bytes")
            pending = b""
            data = await upstream.receive()
            if not data and (not body.feed_eof() or self._stopped()):  # an end that a signal made ends no answer
                raise UpstreamError("its answer broke off")

    # behind a switch of protocols

    async def _join(self, upstream: Wire, response: ResponseHead) -> None:
        route, target = self._route, self._target
        head, _ = client_head(
            response, self._head, target.path, mount=route.mount, prefix=target.prefix, port=route.port
        )
        self._status = response.status
        self._on("switched")
        await self._client.send(head)
        self._switched.set()
        self._watching.cancel()  # what it has read is ahead
        await self._pass_on(upstream, self._client, "answer-bytes")

    async def _pass_on(self, source: Wire, to: Wire, kind: Literal["body-bytes", "answer-bytes"]) -> None:
        """Forward all bytes until they end, and then the end; an end of one direction does not end the other."""
        while data := await source.receive():
            self._on(kind)
            if kind == "body-bytes":
                self._bytes_in += len(data)
            await to.send(data, moved=partial(self._on, kind))
            if kind == "answer-bytes":
                self._bytes_out += len(data)
            self._on(kind)
        if kind == "answer-bytes" and self._stopped():
            raise UpstreamError("it was stopped")  # an end that a signal made is none that the skill meant
        to.finish()

    def _upstream_failed(self, error: UpstreamError) -> None:
        self._on("skill-failed", self._stopped() or self._failed(str(error)))

    def _failed(self, how: str) -> Refusal:
        return Refusal("upstream-error", f"the skill failed to answer: {how}", fix=[self._route.logs_command])

    def _on(self, kind: Kind, refusal: Refusal | None = None) -> None:
        limit_s = self.progress.on(kind, refusal)
        if limit_s is not None:
            self._scope.deadline = min(trio.current_time() + limit_s, self._ends_at)
        elif self.progress.reason is not None:
            self._scope.cancel()


def _down(what: str) -> Refusal:
    return Refusal("sidecar-down", what, fix=("omac status",))
