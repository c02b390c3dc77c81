"""Trio's wait for I/O, with a poller in it: where a loop waits for its tasks, it polls for other sockets as well.

A pass of Trio's loop looks after deadlines, cancellations, instruments and tasks, which takes longer than most events
of a call. An event that needs no task is handled without a pass. Trio has no public way into its wait: this stands in
for the I/O manager of a running loop (`trio/_core/_run.py: run`, `trio/_core/_io_epoll.py`). Nothing else here knows
Trio's inside, and pyproject.toml names the versions whose inside is so.
"""

from collections.abc import Callable
from typing import Any

from trio._core._run import GLOBAL_RUN_CONTEXT


class _Handled(list[tuple[int, int]]):
    """An empty list of events that does not say that the time is over, as an empty list does to Trio's loop."""

    def __bool__(self) -> bool:
        return True


_HANDLED = _Handled()


class TrioWait:
    """The stand-in, from `enter` to `leave`. Made where Trio runs.

    `wait` polls for so many seconds at most, and returns whether `descriptor` is ready, by which Trio's own events are
    polled for; None: nothing has happened in that time. It must not fail.
    """

    def __init__(self, wait: Callable[[float], bool | None]) -> None:
        self._wait = wait
        self._runner: Any = GLOBAL_RUN_CONTEXT.runner  # Any: its I/O manager is that of the system
        self._trio = self._runner.io_manager
        self.descriptor: int = self._trio._epoll.fileno()
        self.process_events, self.notify_closing = self._trio.process_events, self._trio.notify_closing
        self.wait_readable, self.wait_writable = self._trio.wait_readable, self._trio.wait_writable

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trio, name)

    def enter(self) -> None:
        """Stand in for Trio's I/O manager."""
        self._runner.io_manager = self

    def leave(self) -> None:
        """Give the loop its own I/O manager back."""
        self._runner.io_manager = self._trio

    def get_events(self, timeout: float) -> list[tuple[int, int]]:
        """Implement Trio's I/O manager: return the events of its tasks; an empty list when the time is over."""
        is_ready = self._wait(timeout)
        if is_ready:
            return self._trio.get_events(0) or _HANDLED
        return [] if is_ready is None else _HANDLED

    def may_wait_s(self, most_s: float) -> float:
        """Return for how many seconds the loop may wait once more, `most_s` at most, after its instruments have seen
        that it is about to; 0: a task can run, or a deadline has passed."""
        runner = self._runner
        if runner.runq:
            return 0.0
        if "before_io_wait" in runner.instruments:
            runner.instruments.call("before_io_wait", most_s)
            if runner.runq:
                return 0.0
        left_s: float = runner.clock.deadline_to_sleep_time(runner.deadlines.next_deadline())
        return max(0.0, min(most_s, left_s))
