"""Work that waits for the disk, in a thread of its own, while something else is done."""

from __future__ import annotations

import _thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class Background:
    """One piece of work, begun at once; where no thread can be started, it is done before this returns."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._problem: BaseException | None = None
        self._done = _thread.allocate_lock()
        self._done.acquire()
        try:
            _thread.start_new_thread(self._run, ())
        except RuntimeError:  # the system starts no more threads for this user
            self._run()

    def wait(self) -> None:
        """Return when it is done. Raises what it raised."""
        with self._done:
            if self._problem is not None:
                raise self._problem

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as problem:
            self._problem = problem
        finally:
            self._done.release()
