"""The facade's server loop: a task for each connection, until it is told to stop."""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import trio

from omac.adapters.facade.connection import FacadeConnection
from omac.adapters.facade.limits import FacadeLimits
from omac.adapters.http.accepting import accept_connections
from omac.adapters.http.slots import Slot, SlotLimits
from omac.adapters.http.wire import Wire
from omac.services.access.port import AccessRecorder

_LOG = logging.getLogger("omac.facade")


class FacadeListener(NamedTuple):
    """Where requests come from, and how many connections it may have.

    `unix`: a Unix socket, where Host says nothing. `flat`: the socket of a run with one directory, which grants that
    directory's skills to whoever can open it, at `/<mount>/...`.
    """

    listener: trio.SocketListener
    slots: SlotLimits
    unix: bool = False
    flat: bool = False


class Facade:
    """HTTP/1.1 on the agent's side, skills on the other, and a recorder of each request."""

    def __init__(
        self, recorder: AccessRecorder, limits: FacadeLimits, clock: Callable[[], float] = trio.current_time
    ) -> None:
        self._recorder = recorder
        self._limits = limits
        self._clock = clock

    async def serve(
        self,
        listeners: Sequence[FacadeListener],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until cancelled; then open accesses are recorded as aborted (stopping) and the listeners closed.

        Each listener has bounds of its own: who fills up TCP, which every user of the machine can reach, does not fill
        up the private socket.
        """
        async with trio.open_nursery() as nursery:
            for each in listeners:
                serve = partial(self._serve_connection, each)
                nursery.start_soon(accept_connections, each.listener, each.slots, serve, _LOG)
            task_status.started()

    async def _serve_connection(self, where: FacadeListener, wire: Wire, slot: Slot) -> None:
        assert where.unix or not where.flat, "every user of the machine can reach a port"
        connection = FacadeConnection(wire, slot, self._recorder, self._limits, self._clock)
        await connection.run(unix=where.unix, flat=where.flat)
