"""Turns: tasks of several processes, one at a time, in the order of a file lock."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from omac.adapters.files.descriptor import Descriptor
from omac.adapters.files.lock import Locked, hold
from omac.domain.kernel.locks import NO_LOCKS, without_locks
from omac.domain.kernel.refusal import Refusal, quoted
from omac.journal.folders import write_command

POLL_S = 0.05


class OneAtATime:
    """Call it for a context that one task of one process on this host is in at a time; the others wait for their turn.

    Entering it raises Refusal: contention (another process stays in it for `wait_s`), state-unusable.
    """

    def __init__(self, path: str, wait_s: float = 10.0) -> None:
        self._path = path
        self._wait_s = wait_s
        self._turn = trio.Lock()  # within this process, first come first served

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[None]:
        async with self._turn:
            with Descriptor(await self._held()):
                yield

    async def _held(self) -> int:
        deadline = trio.current_time() + self._wait_s
        while True:
            try:
                return hold(self._path)
            except Locked as locked:
                if trio.current_time() >= deadline:
                    who = f"pid {locked.pid}" if locked.pid else "another process"
                    message = f"{who} has held {self._path} for {self._wait_s:g} s; nothing was changed"
                    fix = [f"ps -fp {locked.pid}" if locked.pid else f"fuser {quoted(self._path)}"]
                    raise Refusal("contention", message, fix=fix) from None
            except OSError as error:
                if error.errno in NO_LOCKS:
                    raise without_locks(os.path.dirname(self._path)) from None
                message = f"{self._path} cannot be locked: {error.strerror}"
                fix = [write_command(error, os.path.dirname(self._path))]
                raise Refusal("state-unusable", message, fix=fix) from None
            await trio.sleep(POLL_S)
