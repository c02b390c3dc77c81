"""Looking at folders in worker threads: a slow folder keeps nobody else waiting, and a look that nobody waits for ends.

A reader polls `go_on` between entries and chunks; there is no other way to end a thread. A command that runs no
event loop has nobody to keep waiting: it looks in its own thread, and loads no trio.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import trio
    from trio.lowlevel import RunVar

THREADS_MAX = 16
THREADS_PER_KEY_MAX = 2

Answer = TypeVar("Answer")

_ended: ContextVar[threading.Event | None] = ContextVar("ended", default=None)


class WorkAbandoned(Exception):
    """The work ended early, because its caller was cancelled."""


def go_on() -> None:
    """Raise WorkAbandoned in a look whose caller was cancelled; elsewhere nothing."""
    ended = _ended.get()
    if ended is not None and ended.is_set():
        raise WorkAbandoned


@contextmanager
def to_the_end() -> Iterator[None]:
    """Keep `go_on` from ending the work in this block, even when its caller is cancelled."""
    before = _ended.set(None)
    try:
        yield
    finally:
        _ended.reset(before)


class Pool:
    """At most `threads_max` threads at once, and at most `per_key_max` of them for one key."""

    def __init__(self, name: str, threads_max: int = THREADS_MAX, per_key_max: int = THREADS_PER_KEY_MAX) -> None:
        self._name = name
        self._threads_max = threads_max
        self._per_key_max = per_key_max

    async def run(self, key: str, work: Callable[[], Answer]) -> Answer:
        """Do `work` in a thread. It goes on alone when the caller is cancelled, up to its next `go_on`."""
        if "trio" not in sys.modules:
            return work()
        import trio

        if not trio.lowlevel.in_trio_run():
            return work()
        from omac.services.kernel.threads import run_in_thread

        limiters = self._limiters_of_run()
        ended = threading.Event()

        def begun() -> Answer:
            _ended.set(ended)  # in the thread's own context
            return work()

        limiter = _KeyedLimiter(limiters, key)
        try:
            return await run_in_thread(
                begun,
                abandon_on_cancel=True,
                limiter=limiter,  # type: ignore[arg-type]  # trio takes whatever has a limiter's two methods
            )
        finally:
            ended.set()

    @cached_property
    def _variable(self) -> "RunVar[_Limiters]":
        from trio.lowlevel import RunVar

        return RunVar(self._name)

    def _limiters_of_run(self) -> "_Limiters":
        """Return the limiters of this run of trio: a thread that outlives its run releases nothing."""
        variable = self._variable
        try:
            return variable.get()
        except LookupError:
            limiters = _Limiters(self._threads_max, self._per_key_max)
            variable.set(limiters)
            return limiters


class _Limiters:
    """The limiter of all threads of a pool, and those of the keys that have any."""

    def __init__(self, threads_max: int, per_key_max: int) -> None:
        import trio

        self.all = trio.CapacityLimiter(threads_max)
        self._limiter = trio.CapacityLimiter
        self._per_key_max = per_key_max
        self._by_key: dict[str, trio.CapacityLimiter] = {}

    def of(self, key: str) -> "trio.CapacityLimiter":
        """Return the limiter of one key."""
        return self._by_key.setdefault(key, self._limiter(self._per_key_max))

    def tidy(self, key: str) -> None:
        """Forget a key that has no thread; then none waits for one either."""
        if not self._by_key[key].borrowed_tokens:
            del self._by_key[key]


class _KeyedLimiter:
    """A limiter for trio: it acquires that of a key, and only then that of all."""

    def __init__(self, limiters: _Limiters, key: str) -> None:
        self._limiters = limiters
        self._key = key

    async def acquire_on_behalf_of(self, borrower: object) -> None:
        """Take both limiters, as a limiter of trio does."""
        own = self._limiters.of(self._key)
        try:
            await own.acquire_on_behalf_of(borrower)
            try:
                await self._limiters.all.acquire_on_behalf_of(borrower)
            except BaseException:
                own.release_on_behalf_of(borrower)
                raise
        finally:
            self._limiters.tidy(self._key)

    def release_on_behalf_of(self, borrower: object) -> None:
        """Release both limiters, as a limiter of trio does."""
        self._limiters.all.release_on_behalf_of(borrower)
        self._limiters.of(self._key).release_on_behalf_of(borrower)
        self._limiters.tidy(self._key)
