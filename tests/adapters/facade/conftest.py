"""A facade on real sockets, an access recorder that keeps a transcript, and skills that follow a script."""

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import trio

from omac.adapters.facade.limits import FacadeLimits
from omac.adapters.facade.server import Facade, FacadeListener
from omac.adapters.http.slots import SlotLimits
from omac.adapters.linux import listen
from omac.domain.kernel.ids import token_digest
from omac.domain.kernel.refusal import Refusal
from omac.projections.access.routes import ResolvedRoute
from omac.services.access.port import Answer, CallSoon, Request

TOKEN = "0123456789abcdef0123456789abcdef"


class RecordingGate:
    """An access recorder that accepts TOKEN, and keeps requests and outcomes in a transcript, in the order they came.
    With `ahead` it admits a request of the poller at once, unless it has to wait for `durable`."""

    def __init__(self, port: int, max_body_bytes: int = 1 << 30, *, ahead: bool = False) -> None:
        self._ahead = ahead
        self.target = ResolvedRoute("/work", "fast", "fast", None, port, max_body_bytes, token_digest("t"))
        self.transcript: list[tuple[Any, ...]] = []
        self._grown = trio.Event()
        self.resolve_error: Exception | None = None
        self.admit_error: Exception | None = None
        self.refused_error: Exception | None = None
        self.durable: trio.Event | None = None
        self.aborted_error: Exception | None = None
        self.cuts: list[Callable[[Refusal], None]] = []
        self.answers_by: list[CallSoon | None] = []
        self.admitted = 0

    def knows(self, token: str) -> bool:
        return token == TOKEN

    def resolve(self, token: str | None, mount: str) -> ResolvedRoute:
        if self.resolve_error is not None:
            raise self.resolve_error
        if token not in (TOKEN, None) or mount != "fast":
            raise Refusal("unknown-mount", "No skill is mounted here.")
        return self.target

    async def admit(self, way: ResolvedRoute, request: Request) -> int:
        self._note(("admit", request.method, request.path))
        if self.durable is not None:
            await self.durable.wait()
        if self.admit_error is not None:
            raise self.admit_error
        self.admitted += 1
        return self.admitted

    def admit_then(self, way: ResolvedRoute, request: Request, answered: Callable[[int | Exception], None]) -> None:
        async def admit() -> None:
            try:
                access: int | Exception = await self.admit(way, request)
            except Refusal as refusal:
                access = refusal
            answered(access)

        if self._ahead and self.durable is None:
            with contextlib.suppress(StopIteration):  # it does not wait
                admit().send(None)
        else:
            trio.lowlevel.spawn_system_task(admit)

    def answer_by(self, call_soon: CallSoon | None) -> None:
        self.answers_by.append(call_soon)

    def watch(self, way: ResolvedRoute, cut: Callable[[Refusal], None]) -> None:
        self.cuts.append(cut)

    def unwatch(self, cut: Callable[[Refusal], None]) -> None:
        if cut in self.cuts:
            self.cuts.remove(cut)

    def stopped(self, way: ResolvedRoute) -> Refusal | None:
        return None

    def completed(self, access: int, answer: Answer) -> None:
        self._note(("completed", access, answer.status, answer.bytes_in, answer.bytes_out))
        assert answer.duration_us >= 0

    def aborted(self, access: int, answer: Answer, reason: str) -> None:
        self._note(("aborted", access, answer.status, answer.bytes_in, answer.bytes_out, reason))
        if self.aborted_error is not None:
            raise self.aborted_error

    async def refused(self, token: str | None, mount: str, request: Request, status: int, reason: str) -> None:
        await trio.lowlevel.checkpoint()
        if self.durable is not None:
            await self.durable.wait()
        self._note(("refused", token, mount, request.method, request.path, status, reason))
        if self.refused_error is not None:
            raise self.refused_error

    def _note(self, entry: tuple[Any, ...]) -> None:
        self.transcript.append(entry)
        self._grown.set()
        self._grown = trio.Event()

    @property
    def last(self) -> tuple[Any, ...]:
        return self.transcript[-1]

    async def until(self, kind: str, count: int = 1) -> tuple[Any, ...]:
        """Wait until the transcript has `count` entries of `kind`; return the last of them."""

        def of_kind() -> list[tuple[Any, ...]]:
            return [entry for entry in self.transcript if entry[0] == kind]

        await self.until_holds(lambda: len(of_kind()) >= count)
        return of_kind()[-1]

    async def until_holds(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition on the transcript holds."""
        with trio.fail_after(5):
            while not condition():
                await self._grown.wait()


class ShortGate(RecordingGate):
    """A recorder whose token has a single letter."""

    def resolve(self, token: str | None, mount: str) -> ResolvedRoute:
        return super().resolve(TOKEN if token == "T" else "", mount)


class Client:
    """A raw client: it sends any bytes, and reads the bytes that come."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.buffer = b""

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def ask(self, method: str = "GET", path: str = "/", *fields: str, body: bytes = b"", minor: int = 1) -> None:
        lines = [f"{method} /{TOKEN}/fast{path} HTTP/1.{minor}", "Host: 127.0.0.1", *fields, "", ""]
        await self.send("\r\n".join(lines).encode("latin-1") + body)

    async def until(self, mark: bytes) -> bytes:
        """Return all bytes up to and including `mark`."""
        with trio.fail_after(5):
            while mark not in self.buffer:
                data = await self.stream.receive_some(65536)
                assert data, f"closed after {self.buffer!r}"
                self.buffer += data
        end = self.buffer.index(mark) + len(mark)
        part, self.buffer = self.buffer[:end], self.buffer[end:]
        return part

    async def exactly(self, count: int) -> bytes:
        with trio.fail_after(5):
            while len(self.buffer) < count:
                data = await self.stream.receive_some(65536)
                assert data, f"closed after {self.buffer!r}"
                self.buffer += data
        part, self.buffer = self.buffer[:count], self.buffer[count:]
        return part

    async def rest(self) -> bytes:
        """Return all bytes until the facade closes; raises trio.BrokenResourceError when it resets."""
        with trio.fail_after(5):
            while data := await self.stream.receive_some(65536):
                self.buffer += data
        remainder, self.buffer = self.buffer, b""
        return remainder


Handler = Callable[[trio.SocketStream], Awaitable[None]]


class House:
    """The facade, the recorder and the skill of a test."""

    def __init__(self, address: int | str, gate: RecordingGate, facade_scope: trio.CancelScope) -> None:
        self.address = address
        self.gate = gate
        self.facade_scope = facade_scope
        self.upstream_ended = trio.Event()
        self._streams: list[trio.SocketStream] = []

    async def client(self) -> Client:
        if isinstance(self.address, str):
            stream = await trio.open_unix_socket(self.address)
        else:
            stream = await trio.open_tcp_stream("127.0.0.1", self.address)
        self._streams.append(stream)
        return Client(stream)

    def close(self) -> None:
        for stream in self._streams:
            stream.socket.close()


@pytest.fixture(params=["polled", "tasks", pytest.param("ahead", marks=pytest.mark.full)])
def way(request: pytest.FixtureRequest) -> str:
    """Return how connections are served: in the poller, by a task for each, or in the poller with records that nobody
    waits for. All assertions hold for each."""
    return str(request.param)


@pytest.fixture
def polling(way: str) -> bool:
    """Return True for connections in the poller, False for a task for each."""
    return way != "tasks"


@pytest.fixture
def build(nursery: trio.Nursery, way: str, polling: bool) -> Iterator[Callable[..., Awaitable[House]]]:
    """Yield a function that starts a facade before a skill, `handler`; with None the skill does not listen. `path` is
    that of a Unix socket; without it the facade listens on TCP."""
    houses: list[House] = []

    async def start(
        handler: Handler | None,
        *,
        max_body_bytes: int = 1 << 30,
        slots: SlotLimits | None = None,
        path: str | None = None,
        **limits: Any,
    ) -> House:
        (back,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        gate = RecordingGate(back.socket.getsockname()[1], max_body_bytes, ahead=way == "ahead")
        front = listen.tcp("127.0.0.1", 0, "") if path is None else listen.unix(path)
        house = House(path or front.getsockname()[1], gate, trio.CancelScope())
        houses.append(house)

        async def served(stream: trio.SocketStream) -> None:
            async with stream:
                assert handler is not None
                with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    await handler(stream)
                house.upstream_ended.set()

        async def facade(task_status: trio.TaskStatus[None]) -> None:
            with house.facade_scope:
                await Facade(gate, FacadeLimits(**limits), polling=polling).serve(
                    [FacadeListener(front, slots or SlotLimits(), unix=path is not None)], task_status=task_status
                )

        if handler is None:
            await back.aclose()
        else:
            await nursery.start(lambda task_status: trio.serve_listeners(served, [back], task_status=task_status))
        await nursery.start(facade)
        return house

    yield start
    for house in houses:
        house.close()


async def read_request(stream: trio.SocketStream) -> tuple[bytes, bytes]:
    """Return head and body of a request as it reached the skill; a chunked body stays chunked."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = await stream.receive_some(65536)
        if not more:
            return data, b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    lower = head.lower()
    if b"\r\ntransfer-encoding: chunked" in lower:
        while not body.endswith(b"0\r\n\r\n"):
            more = await stream.receive_some(65536)
            if not more:
                break
            body += more
    elif b"\r\ncontent-length: " in lower:
        length = int(lower.partition(b"\r\ncontent-length: ")[2].partition(b"\r\n")[0])
        while len(body) < length and (more := await stream.receive_some(65536)):
            body += more
    return head + b"\r\n\r\n", body


@pytest.fixture
def replies() -> Callable[..., Handler]:
    """Return a maker of handlers that read a whole request, append it to `seen`, and send the given bytes."""

    def make(answer: bytes, seen: list[tuple[bytes, bytes]] | None = None) -> Handler:
        async def handler(stream: trio.SocketStream) -> None:
            request = await read_request(stream)
            if seen is not None:
                seen.append(request)
            await stream.send_all(answer)

        return handler

    return make


@pytest.fixture
def token() -> str:
    return TOKEN


@pytest.fixture(name="read_request")
def read_request_fixture() -> Callable[[trio.SocketStream], Awaitable[tuple[bytes, bytes]]]:
    return read_request


@pytest.fixture
def make_gate() -> Callable[[int], RecordingGate]:
    """Return a maker of recorders before a skill on a port, whose token is the letter T."""
    return ShortGate
