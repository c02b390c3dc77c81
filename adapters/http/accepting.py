"""The loops of a listener: a task for each connection, within bounds, whatever the system runs out of; and in a
connection one request after the other."""

import errno
import logging
import traceback
from collections.abc import Awaitable, Callable, Iterator

import msgspec
import trio

from omac.adapters.http.slots import Slot, SlotLimits, Slots
from omac.adapters.http.wire import ClientGone, Wire

RETRY_S = 0.1


async def accept_connections(
    listener: trio.SocketListener,
    limits: SlotLimits,
    serve: Callable[[Wire, Slot], Awaitable[None]],
    log: logging.Logger,
) -> None:
    """Have `serve` run for every connection, until cancelled. Takes the listener over; closes each wire behind it."""
    slots = Slots(limits)

    async def run(stream: trio.SocketStream, slot: Slot) -> None:
        wire = Wire(stream.socket, ClientGone)
        try:
            with slot.scope:
                await serve(wire, slot)
        except Exception as error:
            # the text of an exception may quote the request, and with it a token; types and places do not
            log.error("a connection failed: %s", "; ".join(_places(error)))
        finally:
            wire.close()
            slot.leave()

    async with listener, trio.open_nursery() as nursery:
        failing = False
        while True:
            try:
                stream = await listener.accept()
            except OSError as problem:  # EMFILE, ENFILE, ENOBUFS, ENOMEM: it passes
                if not failing:
                    name = errno.errorcode.get(problem.errno or 0, "?")
                    log.error("cannot accept a connection: %s; omac goes on trying", name)
                failing = True
                await trio.sleep(RETRY_S)
                continue
            failing = False
            try:
                slot = await slots.enter()
            except BaseException:
                stream.socket.close()
                raise
            nursery.start_soon(run, stream, slot)


class HeadLimits(msgspec.Struct, frozen=True):
    """How long a connection waits for the head of a request, and how many bytes it may have.

    `head_timeout_s` runs from the first byte of a request (from the accept, for the first request of a connection);
    `idle_timeout_s` between two requests.
    """

    head_timeout_s: float = 15
    idle_timeout_s: float = 300
    head_bytes_max: int = 65536


async def serve_heads(wire: Wire, slot: Slot, limits: HeadLimits, serve: Callable[[bytes], Awaitable[bool]]) -> None:
    """Have `serve` answer each head that arrives, in order, as long as it returns that another may follow. Returns when
    the client leaves or a limit is reached, too; closes the wire."""
    wait_s = limits.head_timeout_s
    try:
        while True:
            raw = await wire.next_head(wait_s, limits.head_timeout_s, limits.head_bytes_max)
            if raw is None or not slot.serve() or not await serve(raw):
                break
            slot.rest()
            wait_s = limits.idle_timeout_s
    except ClientGone:
        pass  # the caller of `serve` has accounted for what the client had asked
    finally:
        wire.close()


def _places(error: BaseException) -> Iterator[str]:
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from _places(member)
        return
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    where = " < ".join(f"{frame.name} ({frame.filename}:{frame.lineno})" for frame in reversed(frames))
    yield f"{type(error).__name__} in {where}"
