"""One admitted request: the body to the skill and the answer back, both at once.

Nothing goes to the skill before the access is durable: whoever makes an Exchange has awaited `AccessRecorder.admit`.
How it may go on and end, and how long it may wait, are the rules of `domain/access/exchange.py`.
"""

import math
import socket

import msgspec
import trio

from omac.adapters.facade.forward import Delivery, client_head, encode_body, upstream_head
from omac.adapters.facade.limits import FacadeLimits
from omac.adapters.http.bodies import UpstreamError, decoder_for
from omac.adapters.http.http1 import RequestHead, ResponseHead, parse_response_head
from omac.adapters.http.wire import AHEAD_BYTES_MAX, ClientGone, Wire
from omac.domain.access.exchange import ExchangeProgress, Kind
from omac.domain.kernel.refusal import Refusal
from omac.projections.access.routes import ResolvedRoute
from omac.services.access.port import Answer

INTERIM_HEADS_MAX = 16


class AddressedPath(msgspec.Struct, frozen=True):
    """What a request asks for: `path` is below the mount, with the query; `prefix` is what the client has before it,
    `/<token>/<mount>`; `token` is "" where the socket itself says which directory is meant."""

    token: str
    prefix: str
    path: str


def body_too_large(bytes_max: int) -> Refusal:
    """The body is over the limit of its skill."""
    return Refusal("body-too-large", f"the body of a request to this skill is limited to {bytes_max} bytes")


class Exchange:
    """The relay of one request and its answer; `run` it once, then `abandon` it and read its progress."""

    def __init__(
        self, client: Wire, head: RequestHead, route: ResolvedRoute, target: AddressedPath, limits: FacadeLimits
    ) -> None:
        self._client = client
        self._head = head
        self._route = route
        self._target = target
        self._limits = limits
        self._scope = trio.CancelScope(relative_deadline=limits.body_idle_timeout_s)
        self._body = decoder_for(head.framing, lambda fault: Refusal("bad-request", f"the body is malformed: {fault}"))
        self._status: int | None = None
        self._delivery: Delivery = "none"
        self._bytes_in = 0
        self._bytes_out = 0
        self.progress = ExchangeProgress(idle_s=limits.body_idle_timeout_s, answer_s=limits.response_head_timeout_s)

    @property
    def keeps_connection(self) -> bool:
        """Whether the client may send its next request on the same connection."""
        return self.progress.status == "completed" and self._head.keep_alive and self._delivery != "close"

    def answer(self, duration_s: float) -> Answer:
        """What is recorded of it; a status of None says that no answer was begun."""
        status = self.progress.answer_status(self._status)
        return Answer(status, self._bytes_in, self._bytes_out, round(duration_s * 1_000_000))

    async def run(self) -> None:
        """Relay until complete, or until the first reason to stop. Never raises for what a peer does."""
        with self._scope:
            upstream = await self._connect()
            if upstream is None:
                return
            try:
                await self._relay(upstream)
            finally:
                upstream.close()
        if self._scope.cancelled_caught and not self.progress.over:
            self._on("timed-out", Refusal("timeout", "the client and the skill exchanged no data for too long"))

    def cut(self, refusal: Refusal) -> None:
        """End it from outside: nothing more is relayed in either direction."""
        self._on("cut", refusal)

    def abandon(self) -> None:
        """End it, if it has not ended, from outside and without a reason of its own: omac stops, or has a fault."""
        self._on("stopped" if trio.current_effective_deadline() == -math.inf else "faulted")

    async def _relay(self, upstream: Wire) -> None:
        head = self._head
        route = self._route
        try:
            path, token = self._target.path, self._target.token
            await upstream.send(upstream_head(head, path, port=route.port, mount=route.mount, token=token))
            if head.expect_continue:  # before anything else can be on its way to the client
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
            nursery.cancel_scope.cancel()

    async def _connect(self) -> Wire | None:
        try:
            sock = trio.socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        except OSError:
            self._on("connect-failed", _down("omac has no descriptor left for a connection to the skill"))
            return None
        connected = False
        try:
            with trio.move_on_after(self._limits.connect_timeout_s) as waited:
                await sock.connect(("127.0.0.1", self._route.port))
                # a connection to an unused ephemeral port can meet itself (simultaneous open) and would echo
                connected = sock.getsockname() != sock.getpeername()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if waited.cancelled_caught:
                self._on("connect-failed", Refusal("timeout", "the skill did not accept a connection in time"))
            elif not connected:
                self._on("connect-failed", _down("the skill is not listening"))
        except OSError:
            connected = False
            self._on("connect-failed", _down("the skill does not accept connections"))
        finally:
            if not connected:
                sock.close()
        if not connected:
            return None
        self._on("connected")
        return Wire(sock, UpstreamError)

    # the client's side: its body, then whether it stays

    async def _serve_client(self, upstream: Wire) -> None:
        try:
            await self._send_body(upstream)
            self._on("body-sent")
            if self._body.finished:
                await self._watch_client()
        except ClientGone:
            self._on("client-closed")
        except Refusal as refusal:
            self._on("body-refused", refusal)

    async def _send_body(self, upstream: Wire) -> None:
        body, chunked = self._body, self._head.framing.chunked
        while not body.finished:
            data = await self._client.receive()
            if not data:
                raise ClientGone("the body ended early")
            piece = b"".join(body.feed(data))
            self._bytes_in += len(piece)
            if self._bytes_in > self._route.max_body_bytes:
                raise body_too_large(self._route.max_body_bytes)
            self._on("body-bytes")
            if body.leftover:  # of the next request, which the skill's answer may let in before this is sent
                self._client.ahead[:0] = body.leftover
            try:
                await upstream.send(encode_body(piece, "chunked", last=body.finished) if chunked else piece)
            except UpstreamError:
                break  # it wants no more of the body; it may still answer, and the answer says more than we could
            self._on("body-bytes")

    async def _watch_client(self) -> None:
        # pipelined requests are kept for later, up to a bound; behind it, sending will tell
        while len(self._client.ahead) < AHEAD_BYTES_MAX:
            if not await self._client.receive_ahead():
                raise ClientGone("the client closed")

    # the skill's side: its answer

    async def _serve_answer(self, upstream: Wire) -> None:
        try:
            response = await self._answer_head(upstream)
            await self._relay_answer(upstream, response)
        except UpstreamError as error:
            self._upstream_failed(error)
        except ClientGone:
            self._on("client-lost")

    async def _answer_head(self, upstream: Wire) -> ResponseHead:
        bytes_max = self._limits.head_bytes_max
        for _ in range(INTERIM_HEADS_MAX):
            head = await upstream.receive_head(bytes_max)
            if head is None:
                raise UpstreamError("it closed the connection before it answered")
            response = parse_response_head(head, self._head.method, bytes_max=bytes_max)
            if response.status == 101:
                raise UpstreamError("it switched protocols without being asked")
            if response.status >= 200:
                return response
        raise UpstreamError("its interim answers do not end")

    async def _relay_answer(self, upstream: Wire, response: ResponseHead) -> None:
        body = decoder_for(response.framing, UpstreamError)
        route, target = self._route, self._target
        pending, self._delivery = client_head(
            response, self._head, target.path, mount=route.mount, prefix=target.prefix, port=route.port
        )
        self._status = response.status
        data = upstream.take_ahead()
        while True:
            piece = b"".join(body.feed(data))
            self._on("answer-last" if body.finished else "answer-bytes")
            await self._client.send(pending + encode_body(piece, self._delivery, last=body.finished))
            self._bytes_out += len(piece)
            if body.finished:
                self._on("answer-sent" if self._body.finished else "answer-sent-early")
                return
            self._on("answer-bytes")
            pending = b""
            data = await upstream.receive()
            if not data and not body.feed_eof():
                raise UpstreamError("its answer broke off")

    def _upstream_failed(self, error: UpstreamError) -> None:
        self._on("skill-failed", Refusal("upstream-error", f"the skill failed to answer: {error}"))

    def _on(self, kind: Kind, refusal: Refusal | None = None) -> None:
        limit_s = self.progress.on(kind, refusal)
        if limit_s is not None:
            self._scope.deadline = trio.current_time() + limit_s
        elif self.progress.reason is not None:
            self._scope.cancel()


def _down(what: str) -> Refusal:
    return Refusal("sidecar-down", what, fix=("omac status",))
