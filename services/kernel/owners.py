"""Owners: one task per aggregate that acts for it, as long as there is something to do.

An owner is started by an event, looks at the projected state, does the one thing that state calls for, and ends when
nothing is left to do. Without a checkpoint between that last look and `release`, the next event starts a new one.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from omac.domain.ids import StreamId


class Owners:
    """The owner tasks of one kind of aggregate; `own` is what each does for its stream."""

    def __init__(self, own: Callable[[StreamId], Awaitable[None]]) -> None:
        self._own = own
        self._owned: set[StreamId] = set()
        self._nursery: trio.Nursery | None = None

    def __contains__(self, stream: StreamId) -> bool:
        return stream in self._owned

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep owners until cancelled."""
        try:
            async with trio.open_nursery() as self._nursery:
                task_status.started()
                await trio.sleep_forever()
        finally:
            self._nursery = None  # a closed nursery takes no more tasks: what is recorded from now on has no owner

    def need(self, stream: StreamId) -> None:
        """Start an owner for this stream unless it has one."""
        if stream not in self._owned and self._nursery is not None:
            self._owned.add(stream)
            self._nursery.start_soon(self._own, stream)

    def also(self, call: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        """Start a task beside the owners, with their lifetime."""
        if self._nursery is not None:
            self._nursery.start_soon(call, *arguments)

    def release(self, stream: StreamId) -> None:
        """The owner of this stream is about to end."""
        self._owned.discard(stream)
