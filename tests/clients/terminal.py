"""A client at a terminal: a person who types, and sees the program's output."""

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

SIZE = struct.pack("HHHH", 50, 160, 0, 0)  # rows and columns
QUIET_S = 0.3
ANSWERS = {b"\x1b[6n": b"\x1b[1;1R", b"\x1b[c": b"\x1b[?62;c"}  # what programs ask terminals


class Terminal:
    """A program that runs at a terminal of its own; `drawn` is all that it wrote."""

    def __init__(self, pid: int, master: int) -> None:
        self.pid = pid
        self.drawn = b""
        self._master = master
        self._open = True

    def until(self, condition: Callable[[], object], seconds: float, what: str) -> None:
        """Read the program's output until the condition holds. Raises AssertionError."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"not within {seconds} s: {what}; last: {self.drawn[-2000:]!r}"
            self._read()

    def settle(self) -> None:
        """Read until nothing more is drawn; programs drop keys that are typed while they still draw a question."""
        while self._read():
            pass

    def type(self, keys: str) -> None:
        """Type keys."""
        os.write(self._master, keys.encode())

    def status(self, seconds: float) -> int:
        """Return the exit status once the program has ended."""
        ended: list[int] = []

        def reaped() -> bool:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                ended.append(os.waitstatus_to_exitcode(status))
                self.pid = 0
            return bool(pid)

        self.until(reaped, seconds, "its end")
        return ended[0]

    def close(self) -> None:
        """End the program, if it still runs."""
        os.close(self._master)
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)

    def _read(self) -> bool:
        """Read all output that comes now, or soon; return whether there was any."""
        if not self._open:
            time.sleep(QUIET_S / 10)
            return False
        if not select.select([self._master], [], [], QUIET_S)[0]:
            return False
        try:
            piece = os.read(self._master, 65536)
        except OSError:  # it hung up
            self._open = False
            return False
        before = len(self.drawn)
        self.drawn += piece
        for question, answer in ANSWERS.items():
            if question in self.drawn[max(0, before - len(question) + 1) :]:  # it may come in two pieces
                os.write(self._master, answer)
        return True


@contextmanager
def terminal(line: Sequence[str], environment: Mapping[str, str], folder: Path) -> Iterator[Terminal]:
    """Run a program at a terminal; it is ended with the block."""
    pid, master = pty.fork()
    if pid == 0:
        try:
            os.chdir(folder)
            os.execvpe(line[0], list(line), {**environment, "TERM": "xterm-256color"})
        finally:
            os._exit(127)
    fcntl.ioctl(master, termios.TIOCSWINSZ, SIZE)
    made = Terminal(pid, master)
    try:
        yield made
    finally:
        made.close()
