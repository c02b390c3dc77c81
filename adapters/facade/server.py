"""The facade's server loop: a task for each connection, until it is told to stop."""

import errno
import logging
import traceback
from collections.abc import Callable, Iterator

import trio

from omac.adapters.facade.connection import Connection
from omac.adapters.facade.limits import FacadeLimits
from omac.adapters.facade.wire import ClientGone, Wire
from omac.services.gate import Gate

__all__ = ["Facade", "FacadeLimits"]

_LOG = logging.getLogger("omac.facade")
_OUT_OF_RESOURCES = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS))
_RETRY_S = 0.1


class Facade:
    """HTTP/1.1 on the agent's side, skills on the other, and a gate that is asked and told about each request."""

    def __init__(self, gate: Gate, limits: FacadeLimits, clock: Callable[[], float] = trio.current_time) -> None:
        self._gate = gate
        self._limits = limits
        self._clock = clock

    async def serve(
        self, listeners: list[trio.SocketListener], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled; then open accesses are recorded as aborted (stopping) and the listeners closed."""
        async with trio.open_nursery() as nursery:
            for listener in listeners:
                nursery.start_soon(self._accept, listener, nursery)
            task_status.started()

    async def _accept(self, listener: trio.SocketListener, nursery: trio.Nursery) -> None:
        # of its own: who fills up TCP, which every user of the machine can reach, does not fill up the private socket
        slots = trio.Semaphore(self._limits.connections_max)
        async with listener:
            while True:
                try:
                    stream = await listener.accept()
                except OSError as error:
                    if error.errno not in _OUT_OF_RESOURCES:
                        raise
                    _LOG.error("cannot accept a connection: %s", errno.errorcode[error.errno])
                    await trio.sleep(_RETRY_S)
                    continue
                # the kernel's queue holds back the others
                try:
                    await slots.acquire()
                except BaseException:
                    stream.socket.close()
                    raise
                nursery.start_soon(self._serve_connection, stream, slots)

    async def _serve_connection(self, stream: trio.SocketStream, slots: trio.Semaphore) -> None:
        wire = Wire(stream.socket, ClientGone)
        try:
            await Connection(wire, self._gate, self._limits, self._clock).run()
        except Exception as error:
            # the text of an exception may quote the request, and with it the token; types and places do not
            _LOG.error("a connection failed: %s", "; ".join(_places(error)))
        finally:
            wire.close()
            slots.release()


def _places(error: BaseException) -> Iterator[str]:
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from _places(member)
        return
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    where = " < ".join(f"{frame.name} ({frame.filename}:{frame.lineno})" for frame in reversed(frames))
    yield f"{type(error).__name__} in {where}"
