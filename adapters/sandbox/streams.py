"""The standard streams of a sandboxed program: no file among them is handed in as it is."""

from __future__ import annotations

import os
import stat

from omac.adapters.files import atomic
from omac.adapters.sandbox.terminal import ignored

_CHUNK_BYTES = 1 << 16


class Streams:
    """The standard streams of the program. A file among them is reached through a pipe: whoever holds a file's
    descriptor could open it again, for writing too, by way of /proc/self/fd; a folder could be walked upwards. With
    `apart` that goes for a terminal, too, which is somebody else's: what is typed there is not read."""

    def __init__(self, *, apart: bool = False) -> None:
        self.pipes: dict[int, tuple[int, int]] = {}  # by standard descriptor: (of the program, ours)
        self.pumps: list[int] = []
        self._closed: tuple[int, ...] = ()  # for omac alone
        for number in (0, 1, 2):
            try:
                mode = os.fstat(number).st_mode
            except OSError:
                mode = stat.S_IFDIR  # closed; something else would get its number
            if apart and stat.S_ISCHR(mode) and os.isatty(number):
                mode = stat.S_IFREG if number else stat.S_IFDIR
            if not (stat.S_ISCHR(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
                if stat.S_ISREG(mode) or stat.S_ISBLK(mode):
                    reader, writer = os.pipe()
                    self.pipes[number] = (reader, writer) if number == 0 else (writer, reader)
                else:
                    self.pipes[number] = (os.open(os.devnull, os.O_RDWR), -1)

    def take(self) -> None:
        """Make the pipes the standard descriptors, in the child."""
        for number, (theirs, _) in self.pipes.items():
            os.dup2(theirs, number)

    def start(self, *closed: int) -> None:
        """Have processes of their own carry what flows from each pipe to its file; `closed` are for omac alone."""
        self._closed = closed
        for number, (theirs, ours) in self.pipes.items():
            if number and ours >= 0:
                self._pump(number, ours)
                ours = -1
            os.close(theirs)
            self.pipes[number] = (-1, ours)

    def feed(self) -> None:
        """Have such a process carry the standard input, since the program begins now: what is read of a file is gone
        for a sandbox that is built after this one failed."""
        _, ours = self.pipes.get(0, (-1, -1))
        if ours >= 0:
            self._pump(0, ours)
            self.pipes[0] = (-1, -1)

    def _pump(self, number: int, ours: int) -> None:
        pump = os.fork()
        if not pump:
            others = [other for pair in self.pipes.values() for other in pair if other >= 0]
            _carry(number, ours, [*others, *self._closed])
        self.pumps.append(pump)
        os.close(ours)

    def finish(self) -> None:
        """Wait until what the program has written has arrived."""
        for pump in self.pumps:
            try:
                os.waitpid(pump, 0)
            except ChildProcessError:
                pass  # it ended while the kernel reaped children (end_orphans)
        self.pumps = []

    def close(self) -> None:
        """Close everything, arrived or not."""
        for pump in self.pumps:
            kill(pump)
        for pair in self.pipes.values():
            for descriptor in pair:
                if descriptor >= 0:
                    os.close(descriptor)


def kill(child: int) -> None:
    """Kill a child, unless it has ended and was waited for."""
    try:
        os.kill(child, 9)
        os.waitpid(child, 0)
    except OSError:
        pass  # it has ended and was waited for


def _carry(number: int, ours: int, others: list[int]) -> None:
    """Carry bytes, in a process of its own, from a standard descriptor to the program, or from it. Does not return."""
    try:
        ignored()  # what the keyboard sends is for the program
        source, sink = (number, ours) if number == 0 else (ours, number)
        for descriptor in others:
            if descriptor != ours:
                os.close(descriptor)
        while chunk := os.read(source, _CHUNK_BYTES):
            atomic.write_all(sink, chunk)
    except OSError:
        pass  # the other side is gone
    finally:
        os._exit(0)
