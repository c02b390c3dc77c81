"""The control plane served: hypercorn on sockets that are already bound, one server per listener."""

import logging
import socket
from collections.abc import Awaitable, Callable
from functools import partial

import trio
from hypercorn.config import Config
from hypercorn.trio import serve

from omac.adapters.control.guard import Guard
from omac.domain.control import Listener

READ_TIMEOUT_S = 60
GRACE_S = 2.0
BACKLOG = 1024  # callers that may wait to be accepted; a Unix socket turns away the next one


async def serve_control(
    app: object,
    listeners: dict[Listener, tuple[socket.socket, str | None]],
    refused: Callable[[Listener, str, str], Awaitable[None]],
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve `app` on each listener until cancelled. A listener is a bound socket and the token it wants, if any.

    `refused` is called with listener, path and reason for callers that the guard turns away. Takes the sockets over.
    """
    async with trio.open_nursery() as nursery:
        for listener, (bound, token) in listeners.items():
            guard = Guard(app, listener, token, partial(refused, listener))
            await nursery.start(_serve, guard, _config(bound))
        task_status.started()


async def _serve(guard: Guard, config: Config, task_status: trio.TaskStatus[list[str]]) -> None:
    await serve(guard, config, mode="asgi", task_status=task_status)  # type: ignore[arg-type]  # looser than ASGI's TypedDicts


def _config(bound: socket.socket) -> Config:
    config = Config()
    config.bind = [f"fd://{bound.detach()}"]
    config.accesslog = None
    config.errorlog = logging.getLogger("omac.control")
    config.loglevel = "WARNING"
    config.include_server_header = False
    config.backlog = BACKLOG
    config.graceful_timeout = GRACE_S
    config.read_timeout = READ_TIMEOUT_S
    config.keep_alive_timeout = READ_TIMEOUT_S
    config.h11_max_incomplete_size = 64 * 1024
    return config
