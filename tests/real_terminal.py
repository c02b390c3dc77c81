"""A person at a terminal, for tests: a command with a controlling terminal of its own, and answers that are typed."""

import fcntl
import os
import pty
import select
import signal
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from real_omac import COMMAND, Omac


class Session(NamedTuple):
    """A command that has ended: what it printed, and what was to be seen on the terminal."""

    status: int
    out: str
    err: str
    screen: str


class Person:
    """Sits at the terminal of a process."""

    def __init__(self, process: "subprocess.Popen[bytes]", terminal: int) -> None:
        self.process = process
        self.terminal = terminal
        self.seen = b""
        self._answered = 0

    def sees(self, text: str, seconds: float = 30.0) -> None:
        """Wait until it is on the screen, after what was answered already."""
        deadline = time.monotonic() + seconds
        while (at := self.seen.find(text.encode(), self._answered)) < 0:
            assert time.monotonic() < deadline, f"no {text!r} within {seconds} s: {self.seen.decode()!r}"
            assert self._look(0.05) or self.process.poll() is None, f"ended without {text!r}: {self.seen.decode()!r}"
        self._answered = at + len(text)

    def types(self, keys: bytes) -> None:
        """Type."""
        while keys:
            keys = keys[os.write(self.terminal, keys[:512]) :]
            self._look(0)

    def echoes(self) -> bool:
        """Whether the terminal shows what is typed."""
        return bool(termios.tcgetattr(self.terminal)[3] & termios.ECHO)

    def ends(self, seconds: float = 30.0) -> int:
        """The status it ends with."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"still runs after {seconds} s: {self.seen.decode()!r}"
            self._look(0.02)
        while self._look(0):
            pass
        return self.process.returncode

    def _look(self, seconds: float) -> bool:
        """Read what is there."""
        if not select.select([self.terminal], [], [], seconds)[0]:
            return False
        try:
            chunk = os.read(self.terminal, 65536)
        except OSError:
            return False  # nobody has the other end open any more
        self.seen += chunk
        return bool(chunk)


@contextmanager
def at_terminal(
    argv: Sequence[str], environment: Mapping[str, str], folder: Path, stdin: int | None = None
) -> Iterator[Person]:
    """Run a command at a terminal; its output goes to the files `out` and `err` in `folder`.

    `stdin` None: the terminal, else that descriptor; then the terminal is only to be had as /dev/tty.
    """
    ours, theirs = pty.openpty()
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = subprocess.Popen(
            argv,
            stdin=theirs if stdin is None else stdin,
            stdout=out,
            stderr=err,
            env=environment,
            cwd=folder,
            start_new_session=True,
            pass_fds=(theirs,),
            preexec_fn=lambda: fcntl.ioctl(theirs, termios.TIOCSCTTY, 0),
        )
    try:
        yield Person(process, ours)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()
        os.close(theirs)
        os.close(ours)


def typed(
    omac: Omac, *arguments: str, answers: Sequence[tuple[str, bytes]], extra: Mapping[str, str] | None = None
) -> Session:
    """Run omac at a terminal: each answer is typed when its question is to be seen."""
    folder = omac.folder
    with at_terminal([*COMMAND, *arguments], omac.environment | dict(extra or {}), folder) as person:
        for question, keys in answers:
            person.sees(question)
            person.types(keys)
        status = person.ends()
    out, err = ((folder / name).read_text(errors="replace") for name in ("out", "err"))
    return Session(status, out, err, person.seen.decode(errors="replace"))
