"""Blocking work in threads, of which the system may have none to give.

A user has a bounded number of processes and threads (RLIMIT_NPROC of getrlimit(2), `pids.max` of a cgroup). Any program
of that user can use them up, such as an agent that forks without end. pthread_create(3) then fails with EAGAIN, as it
does where no memory is left for a stack (RLIMIT_AS). Python raises that as RuntimeError. The shortage passes, so omac
waits for its end, as it does for descriptors.
"""

import logging
from collections.abc import Callable
from typing import TypeVar

import trio

NO_THREAD = "can't start new thread"  # the text of that RuntimeError; no class tells it from others
RETRY_S = 0.2

_log = logging.getLogger("omac.threads")
_waiting: set[Callable[[], object]] = set()  # for a thread: the first of them logs the shortage
Result = TypeVar("Result")


async def run_in_thread(
    work: Callable[..., Result],
    *args: object,
    abandon_on_cancel: bool = False,
    limiter: trio.CapacityLimiter | None = None,
) -> Result:
    """Return what `work` returns, run in a thread (`trio.to_thread.run_sync`); wait while the system starts none.
    Raises whatever `work` raises."""
    begun: list[bool] = []

    def begin() -> Result:
        begun.append(True)
        return work(*args)

    try:
        while True:
            try:
                return await trio.to_thread.run_sync(begin, abandon_on_cancel=abandon_on_cancel, limiter=limiter)
            except RuntimeError as error:
                if begun or str(error) != NO_THREAD:
                    raise
            if not _waiting:
                _log.warning("omac waits for threads: a limit of processes (`ulimit -u`) or memory (-v) is reached")
            _waiting.add(begin)
            await trio.sleep(RETRY_S)
    finally:
        _waiting.discard(begin)
