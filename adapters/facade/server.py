"""The facade's server: connections of all its listeners, in the poller or in tasks, until it is told to stop."""

import logging
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
import trio

from omac.adapters.facade.connection import FacadeConnection, Surroundings
from omac.adapters.facade.limits import FacadeLimits
from omac.adapters.facade.plane import DataPlane
from omac.adapters.http.accepting import accept_connections, serve_in_tasks
from omac.adapters.http.slots import Slot, SlotLimits
from omac.adapters.http.wire import Wire
from omac.services.access.port import AccessRecorder

_LOG = logging.getLogger("omac.facade")


class FacadeListener(NamedTuple):
    """A source of requests, and the bounds of its connections.

    `unix`: a Unix socket, where Host says nothing. `flat`: the socket of a run with one directory. That socket grants
    the directory's skills, at `/<mount>/...`, to every process that can open it.
    """

    sock: socket.socket
    slots: SlotLimits
    unix: bool = False
    flat: bool = False


class Facade:
    """HTTP/1.1 on the agent's side, skills on the other, and a recorder of each request.

    `reaches` tells whether a connection that was just made came to the sidecar that has the port; it may raise
    OSError. `polling` False: each connection has a task of its own, from its acceptance to its end, as on systems
    without epoll.
    """

    def __init__(
        self,
        recorder: AccessRecorder,
        limits: FacadeLimits,
        *,
        reaches: Callable[[socket.socket], bool] = lambda _: True,
        polling: bool = True,
    ) -> None:
        self._recorder = recorder
        self._limits = limits
        self._reaches = reaches
        self._polling = polling

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
        clock = trio.lowlevel.current_clock().current_time  # of this loop, without looking for it each time
        alone = Surroundings(self._recorder, self._limits, clock, self._reaches)
        async with trio.open_nursery() as nursery:
            clients_max = sum(each.slots.connections_max for each in listeners)
            plane = DataPlane(nursery, alone, clients_max) if self._polling else None
            for each in listeners:
                assert each.unix or not each.flat, "every user of the machine can reach a port"
                surroundings = plane.surroundings if plane else alone
                surroundings = msgspec.structs.replace(surroundings, unix=each.unix, flat=each.flat)
                if plane is None:
                    serve = partial(_serve_in_task, surroundings)
                    nursery.start_soon(serve_in_tasks, each.sock, each.slots, serve, _LOG)
                else:
                    begin = partial(plane.begin, surroundings)
                    nursery.start_soon(accept_connections, each.sock, each.slots, begin, _LOG)
            if plane is not None:
                nursery.start_soon(plane.run)
            task_status.started()


async def _serve_in_task(surroundings: Surroundings, wire: Wire, slot: Slot) -> None:
    await FacadeConnection(wire, slot, surroundings).run()
