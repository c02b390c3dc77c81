"""The control plane served: sockets that are already bound, one accept loop and one set of bounds for each."""

import logging
import socket
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial

import msgspec
import trio

from omac.adapters.control.connection import ControlConnection, Surface, as_app
from omac.adapters.control.limits import ControlLimits
from omac.adapters.http.accepting import serve_in_tasks
from omac.adapters.http.pacing import Pace
from omac.adapters.http.slots import Slot, SlotLimits
from omac.adapters.http.wire import Wire
from omac.domain.access.control import Listener

_LOG = logging.getLogger("omac.control")


class ControlListener(msgspec.Struct, frozen=True):
    """A listener with its authority, the token it wants, if any, and how many connections it holds. `calls` are those
    that it offers; None: all."""

    authority: Listener
    sock: socket.socket
    token: str | None
    slots: SlotLimits
    calls: Collection[str] | None = None


async def serve_control(
    app: object,
    listeners: Iterable[ControlListener],
    refused: Callable[[Listener, str, str], Awaitable[None]],
    limits: ControlLimits = ControlLimits(),  # noqa: B008  # frozen
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the ASGI application `app` on each listener until cancelled. Takes the sockets over.

    `refused` is called with listener, path and reason for callers that are turned away.
    """
    async with trio.open_nursery() as nursery:
        for listener in listeners:
            authority = listener.authority
            surface = Surface(
                as_app(app),
                authority,
                listener.token,
                listener.calls,
                partial(refused, authority),
                limits,
                Pace(),
            )
            nursery.start_soon(serve_in_tasks, listener.sock, listener.slots, partial(_serve, surface), _LOG)
        task_status.started()


async def _serve(surface: Surface, wire: Wire, slot: Slot) -> None:
    await ControlConnection(surface, wire, slot).run()
