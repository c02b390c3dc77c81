"""Advisory file locks: who holds one is alive, for the kernel lets go of it when the process ends (flock(2))."""

import errno
import fcntl
import os
import shlex
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from omac.domain.refusal import Refusal

POLL_S = 0.05
FOLDER_WAIT_S = 2.0
FOLDER_POLL_S = 0.02


class Locked(Exception):
    """Someone else holds the lock; `pid` is who wrote its pid there, if that can be read."""

    def __init__(self, path: str, pid: int | None) -> None:
        super().__init__(path)
        self.pid = pid


def hold(path: str) -> int:
    """Take the lock and keep it for the life of this process; returns the descriptor. Raises Locked, OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(descriptor, 20).strip()
        os.close(descriptor)
        raise Locked(path, int(holder) if holder.isdigit() else None) from None
    except BaseException:
        os.close(descriptor)
        raise
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def hold_folder(folder: int) -> bool:
    """Lock an open folder until it is closed; False when another process keeps it for `FOLDER_WAIT_S`. Raises OSError.

    A network's file system that cannot lock folders is taken as one that nobody else has locked.
    """
    deadline = time.monotonic() + FOLDER_WAIT_S
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(FOLDER_POLL_S)
        except OSError as error:
            if error.errno not in (errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP):
                raise
            return True
        else:
            return True


def is_held(path: str) -> bool:
    """Whether a living process holds the lock; False where there is no such file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


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
            descriptor = await self._held()
            try:
                yield
            finally:
                os.close(descriptor)

    async def _held(self) -> int:
        deadline = trio.current_time() + self._wait_s
        while True:
            try:
                return hold(self._path)
            except Locked as locked:
                if trio.current_time() >= deadline:
                    who = f"pid {locked.pid}" if locked.pid else "another process"
                    message = f"{who} has held {self._path} for {self._wait_s:g} s; nothing was changed"
                    fix = [f"ps -fp {locked.pid}" if locked.pid else f"fuser {shlex.quote(self._path)}"]
                    raise Refusal("contention", message, fix=fix) from None
            except OSError as error:
                message = f"{self._path} cannot be locked: {error.strerror}"
                raise Refusal("state-unusable", message, fix=[f"ls -ld {shlex.quote(self._path)}"]) from None
            await trio.sleep(POLL_S)
