"""Owners: one task per aggregate that acts for it, as long as there is something to do.

An owner is started by an event, looks at the projected state, does the one thing that state calls for, and ends when
nothing is left to do. No checkpoint is between that last look and its end, so the next event starts a new one.

No error of the system ends an owner: it is logged once, and after a pause the owner tries again.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import trio

from omac.domain.kernel.ids import StreamId
from omac.domain.kernel.refusal import problem_of

RETRY_S = 0.5  # after an error of the system

_log = logging.getLogger("omac.owners")


def innermost(problem: BaseException) -> BaseException:
    """Return the first exception in a group of groups, or the one that is no group."""
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    return problem


class Retries:
    """The tries of one task; `name` is what it works for."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._failing = False

    @asynccontextmanager
    async def attempt(self) -> AsyncIterator[None]:
        """Around one try: an OSError in it is logged, the first in a row, and followed by a pause."""
        try:
            yield
        except* OSError as problems:
            if not self._failing:
                problem = innermost(problems)
                assert isinstance(problem, OSError), "except* gives no other"
                _log.error("%s: %s; omac goes on trying", self._name, problem_of(problem))
            self._failing = True
            await trio.sleep(RETRY_S)
        else:
            self._failing = False


async def retried(name: str, call: Callable[[], Awaitable[object]]) -> None:
    """Call it until it returns without an OSError."""
    retries, done = Retries(name), False
    while not done:
        async with retries.attempt():
            await call()
            done = True


@dataclass(eq=False, repr=False)
class Owners:
    """The owner tasks of one kind of aggregate: each calls `act`, which does the one thing that is called for, while
    `is_live`; `end`, if any, is called when it ends."""

    _act: Callable[[StreamId], Awaitable[None]]
    _is_live: Callable[[StreamId], bool]
    _end: Callable[[StreamId], Awaitable[None]] | None = None
    _owned: set[StreamId] = field(default_factory=set, init=False)
    _nursery: trio.Nursery | None = field(default=None, init=False)

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

    def also(self, call: Callable[..., Awaitable[object]], *arguments: Any) -> None:
        """Start a task beside the owners, with their lifetime. It is called again after an OSError."""
        if self._nursery is not None:
            self._nursery.start_soon(retried, "an owner", partial(call, *arguments))

    async def _own(self, stream: StreamId) -> None:
        retries = Retries(stream)
        try:
            while self._is_live(stream):
                async with retries.attempt():
                    await self._act(stream)
            self._owned.discard(stream)  # no checkpoint since the last look: a new request finds no owner
        finally:
            if self._end is not None:
                await self._end(stream)
