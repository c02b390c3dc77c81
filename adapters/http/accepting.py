"""The loops of a listener: a task for each connection, within bounds, whatever the system runs out of; and in a
connection one request after the other."""

import logging
import math
import socket
import traceback
from collections.abc import Awaitable, Callable, Iterator

import msgspec
import trio

from omac.adapters.http.pacing import LARGE_HEAD_BYTES
from omac.adapters.http.slots import Slot, SlotLimits, Slots
from omac.adapters.http.wire import ClientGone, Wire
from omac.domain.kernel.refusal import problem_of

ACCEPTS = 64  # in one turn, before others have theirs: under load a turn takes as long as a request
RETRY_S = 0.1
CALM_S = 10.0  # without a refusal of the system, until a shortage is over: one descriptor at a time may come back
HEAD_BYTES_MAX = 65_536


async def accept_connections(
    listening: socket.socket, limits: SlotLimits, begin: Callable[[socket.socket, Slot], None], log: logging.Logger
) -> None:
    """Hand each connection to `begin`, with its place, until cancelled. Takes over a listening socket that does not
    block."""
    slots = Slots(limits)
    shortage = _Shortage(log)
    with listening:
        while True:
            with trio.move_on_at(shortage.over_at):
                await trio.lowlevel.wait_readable(listening)
            shortage.end_if_over()
            try:
                for _ in range(ACCEPTS):
                    await _accept(listening, slots, begin)
            except (BlockingIOError, ConnectionAbortedError):
                pass  # that was the last, or it has left again
            except OSError as problem:  # EMFILE, ENFILE, ENOBUFS, ENOMEM: it passes
                shortage.meet(problem)
                await trio.sleep(RETRY_S)


async def _accept(listening: socket.socket, slots: Slots, begin: Callable[[socket.socket, Slot], None]) -> None:
    """Hand one connection to `begin` as soon as there is a place for it. Raises OSError: there is none to accept, or
    the system refuses."""
    sock, _ = listening.accept()
    try:
        sock.setblocking(False)
        slot = await slots.enter(sock)
    except BaseException:
        sock.close()
        raise
    begin(sock, slot)


async def serve_in_tasks(
    listening: socket.socket,
    limits: SlotLimits,
    serve: Callable[[Wire, Slot], Awaitable[object]],
    log: logging.Logger,
) -> None:
    """Have `serve` run for every connection, until cancelled; closes each wire behind it."""

    async def run(sock: socket.socket, slot: Slot) -> None:
        wire = Wire(sock, ClientGone)
        try:
            with trio.CancelScope() as scope:
                slot.evict_by(scope.cancel)
                await serve(wire, slot)
        except Exception as error:
            log_failure(log, error)
        finally:
            wire.close()
            slot.leave()

    async with trio.open_nursery() as nursery:
        await accept_connections(listening, limits, lambda sock, slot: nursery.start_soon(run, sock, slot), log)


def log_failure(log: logging.Logger, error: BaseException) -> None:
    """Log a fault of omac in a connection: types and places. The text may quote a request, and with it a token."""
    log.error("a connection failed: %s", "; ".join(_locations(error)))


class HeadLimits(msgspec.Struct, frozen=True):
    """The time that a connection waits for the head of a request, and the number of bytes that a head may have.

    `head_timeout_s` runs from the first byte of a request, which for the first request of a connection comes within as
    long from the accept; `idle_timeout_s` runs between two requests.
    """

    head_timeout_s: float = 15
    idle_timeout_s: float = 300
    head_bytes_max: int = HEAD_BYTES_MAX


async def serve_heads(
    wire: Wire,
    slot: Slot,
    limits: HeadLimits,
    serve: Callable[[bytes], Awaitable[bool]],
    late: Callable[[bytes], Awaitable[None]] | None = None,
    *,
    begun: Callable[[], Awaitable[bool]] | None = None,
    wait_s: float | None = None,
    until_rest: bool = False,
) -> bool:
    """Have `serve` answer each head that arrives, in order, as long as it returns that another may follow. Returns when
    the client leaves or a limit is reached, too; closes the wire. `late` answers a head that took too long, of which it
    gets what came; `begun` finishes a request whose head somebody else took; `wait_s` is how long the client may still
    be silent, where somebody else has waited before.

    `until_rest`: return True, with the wire open, as soon as one is answered and another may follow; it may be ahead.
    """
    kept = False
    wait_s = limits.head_timeout_s if wait_s is None else wait_s
    try:
        while True:
            if begun is None:
                raw = await wire.next_head(wait_s, limits.head_timeout_s, limits.head_bytes_max)
                if raw is None and late is not None and wire.ahead and not wire.finished and slot.serve():
                    await late(wire.take_ahead())
                if raw is None or not slot.serve():
                    break
                if len(raw) > LARGE_HEAD_BYTES:
                    await slot.turn_for_large_head()
                if not await serve(raw):
                    break
            elif not await begun():
                break
            slot.rest()
            if until_rest and not wire.finished:
                kept = True
                break
            wait_s, begun = limits.idle_timeout_s, None
            await trio.lowlevel.checkpoint()  # the next may be ahead, and the answer have gone without a wait
    except ClientGone:
        pass  # the caller of `serve` has accounted for what the client had asked
    finally:
        if not kept:
            wire.close()
    return kept


class _Shortage:
    """A time in which the system refuses to accept connections, again and again; its beginning and its end are logged.

    `over_at`: the moment from which it is over unless the system refuses again; infinite without one.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._tries = 0
        self._began = self._last = 0.0
        self.over_at = math.inf

    def meet(self, problem: OSError) -> None:
        """The system refused one more."""
        self._last = trio.current_time()
        if not self._tries:
            self._began = self._last
            self._log.error("cannot accept a connection: %s; omac goes on trying", problem_of(problem))
        self._tries += 1
        self.over_at = self._last + CALM_S

    def end_if_over(self) -> None:
        """Log the end of it, once it is over."""
        if trio.current_time() >= self.over_at:
            message = "connections are accepted again: %d tries within %.1f s had failed"
            self._log.warning(message, self._tries, self._last - self._began + RETRY_S)
            self._tries, self.over_at = 0, math.inf


def _locations(error: BaseException) -> Iterator[str]:
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from _locations(member)
        return
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    where = " < ".join(f"{frame.name} ({frame.filename}:{frame.lineno})" for frame in reversed(frames))
    yield f"{type(error).__name__} in {where}"
