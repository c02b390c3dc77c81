"""Looking at folders in worker threads: a slow folder keeps nobody else waiting, and a look that nobody waits for ends.

Whoever reads polls `go_on` between entries and chunks; there is no other way to end a thread. A command that runs no
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


class LookEnded(Exception):
    """The work ended early, because its caller was cancelled."""


def go_on() -> None:
    """Raise LookEnded in a look whose caller was cancelled; elsewhere nothing."""
    ended = _ended.get()
    if ended is not None and ended.is_set():
        raise LookEnded


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

        places = self._places_of_run()
        ended = threading.Event()

        def look() -> Answer:
            _ended.set(ended)  # in the thread's own context
            return work()

        place = _Place(places, key)
        try:
            return await run_in_thread(
                look,
                abandon_on_cancel=True,
                limiter=place,  # type: ignore[arg-type]  # trio takes whatever has a limiter's two methods
            )
        finally:
            ended.set()

    @cached_property
    def _variable(self) -> "RunVar[_Places]":
        from trio.lowlevel import RunVar

        return RunVar(self._name)

    def _places_of_run(self) -> "_Places":
        """Return the places of this run of trio: a thread that outlives its run gives nothing back."""
        variable = self._variable
        try:
            return variable.get()
        except LookupError:
            places = _Places(self._threads_max, self._per_key_max)
            variable.set(places)
            return places


class _Places:
    """The places for all threads of a pool, and those for the keys that have any."""

    def __init__(self, threads_max: int, per_key_max: int) -> None:
        import trio

        self.all = trio.CapacityLimiter(threads_max)
        self._limiter = trio.CapacityLimiter
        self._per_key_max = per_key_max
        self._by_key: dict[str, trio.CapacityLimiter] = {}

    def of(self, key: str) -> "trio.CapacityLimiter":
        """Return the places of one key."""
        return self._by_key.setdefault(key, self._limiter(self._per_key_max))

    def tidy(self, key: str) -> None:
        """Forget a key that has no thread; then none waits for one either."""
        if not self._by_key[key].borrowed_tokens:
            del self._by_key[key]


class _Place:
    """A limiter for trio: it takes a place among those of a key, and only then one among all."""

    def __init__(self, places: _Places, key: str) -> None:
        self._places = places
        self._key = key

    async def acquire_on_behalf_of(self, borrower: object) -> None:
        """Take both places, as a limiter of trio does."""
        own = self._places.of(self._key)
        try:
            await own.acquire_on_behalf_of(borrower)
            try:
                await self._places.all.acquire_on_behalf_of(borrower)
            except BaseException:
                own.release_on_behalf_of(borrower)
                raise
        finally:
            self._places.tidy(self._key)

    def release_on_behalf_of(self, borrower: object) -> None:
        """Release both places, as a limiter of trio does."""
        self._places.all.release_on_behalf_of(borrower)
        self._places.of(self._key).release_on_behalf_of(borrower)
        self._places.tidy(self._key)
