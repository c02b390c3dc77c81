"""The progress of long work: on a terminal, in one line of stderr that goes away at its end; elsewhere nothing is
shown."""

import math
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TextIO, TypeVar

from omac.tools.terminal.invocation import current

EVERY_S = 0.2
WAITING_AFTER_S = 1.0

Result = TypeVar("Result")


class Progress:
    """Shows how many things were done, such as "files inspected", while that takes long. `stream` is stderr, for work
    of threads that know no invocation."""

    def __init__(self, what: str, stream: TextIO | None = None) -> None:
        self._what = what
        self._given = stream
        self._done = 0
        self._is_shown = False
        self._next_at = time.monotonic() + EVERY_S

    @property
    def _stream(self) -> TextIO:
        return self._given or current().stderr

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self._next_at = math.inf  # a thread that is left alone shows nothing more
        self.clear()

    def restart(self) -> None:
        """Count from 0 again, for work that begins now."""
        self._done, self._next_at = 0, time.monotonic() + EVERY_S

    def clear(self) -> None:
        """Take the line away."""
        if self._is_shown:
            print("\r\x1b[K", end="", file=self._stream, flush=True)
            self._is_shown = False

    def before(self, results: Iterable[Result]) -> Iterator[Result]:
        """Yield the results of the work; the line is gone before the first."""
        for result in results:
            self.clear()
            yield result
        self.clear()

    def step(self, count: int) -> None:
        """Count `count` more as done."""
        self._done += count
        self._report(f"{self._done:,} {self._what}")

    def show(self, done: int, whole: int) -> None:
        """Show that `done` of `whole` are done."""
        self._report(f"{done:,} of {whole:,} {self._what}")

    def _report(self, line: str) -> None:
        if time.monotonic() >= self._next_at and self._stream.isatty():
            print(f"\r\x1b[K{line}", end="", file=self._stream, flush=True)
            self._is_shown, self._next_at = True, time.monotonic() + EVERY_S


class Waiting:
    """Shows what is waited for, such as "waits for the server", once that takes a second."""

    def __init__(self, line: str) -> None:
        self._line = line
        self._stream = current().stderr
        self._is_shown = False
        self._timer = threading.Timer(WAITING_AFTER_S, self._show)
        self._timer.daemon = True

    def __enter__(self) -> "Waiting":
        if self._stream.isatty():
            with suppress(RuntimeError, MemoryError):  # no thread can be had: the work counts more than the line
                self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        if self._timer.ident is not None:
            self._timer.join()
        if self._is_shown:
            print("\r\x1b[K", end="", file=self._stream, flush=True)

    def _show(self) -> None:
        print(self._line, end="", file=self._stream, flush=True)
        self._is_shown = True
