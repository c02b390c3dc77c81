"""The terminal and the signals of a sandboxed program: passed on, kept, and given back.

`_signal` is the interpreter's own module beneath `signal`, which would cost more to import than everything else here.
"""

from __future__ import annotations

import os
from time import sleep

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable
else:
    import _signal

FROM_KEYBOARD = (_signal.SIGINT, _signal.SIGQUIT)
PASSED_ON = (_signal.SIGTERM, _signal.SIGHUP, _signal.SIGUSR1, _signal.SIGUSR2, *FROM_KEYBOARD)
ENDING = (_signal.SIGTERM, _signal.SIGHUP)
IGNORED_BY_PYTHON = (_signal.SIGPIPE, _signal.SIGXFSZ)

LEAVES_MS_MAX = 5_000  # a busy machine takes its time to end a process of several threads
ORPHANED = _signal.SIGPWR  # what the kernel shall send when whoever launched omac is gone


class Terminal:
    """The controlling terminal, if there is one. `foreground`: omac's process group has it, and shares it with the
    program. `is_elsewhere`: another job has it, and a person goes on typing there: the program gets none."""

    def __init__(self) -> None:
        try:
            self._descriptor = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            self._descriptor = -1
        self.foreground = self.in_foreground()
        self._launcher = os.getppid()
        self.is_to_stop = False  # a ^Z that reached omac alone: the program has a session of its own
        self.is_elsewhere = self._descriptor >= 0 and not self.foreground
        if self.is_elsewhere:
            self.close()  # by what is open others see who shares a terminal (adapters/linux/terminal_holders.py)
        # Where only one of the two is a terminal, another program of a pipeline may be at work there in its own modes.
        self._modes = self._modes_now() if self.foreground and os.isatty(0) and os.isatty(1) else None

    def take_back(self) -> None:
        """Take the foreground back, where the program's own process groups have left it to nobody, and let the terminal
        be as it was: it echoes and edits lines, shows what is written, and can be opened."""
        if not self.foreground or self._descriptor < 0:
            return
        before = _signal.signal(_signal.SIGTTOU, _signal.SIG_IGN)
        try:
            if self._is_nobodys():
                os.tcsetpgrp(self._descriptor, os.getpgrp())
            if self._modes is not None and self.in_foreground():
                self._reset(self._modes)
        except OSError:
            pass  # the terminal was hung up
        finally:
            _signal.signal(_signal.SIGTTOU, before)

    def stop_with(self, pid: int, resume: Callable[[], None] = lambda: None) -> None:
        """Stop omac, since this process has stopped, until a shell lets the job go on; then both do, and first what
        `resume` lets go on. A process group of the process' own, as a shell's, has the foreground again then. All of
        its group go on, as Ctrl-Z stopped all: a shell would see to that, but a signal to omac alone does not."""
        try:
            group = os.getpgid(pid)  # now, since it may end before another of its group goes on
        except ProcessLookupError:
            resume()  # it has been killed meanwhile
            return
        self.pass_foreground(pid, to_it=False)  # where the shell that launched omac looks for it
        os.kill(os.getpid(), _signal.SIGSTOP)
        self.pass_foreground(pid, to_it=True)
        resume()
        try:
            os.killpg(group, _signal.SIGCONT)
        except ProcessLookupError:
            pass  # they have been killed meanwhile

    def pass_foreground(self, pid: int, *, to_it: bool) -> None:
        """Pass the foreground between omac's process group and another process', where the one has it."""
        before = _signal.signal(_signal.SIGTTOU, _signal.SIG_IGN)
        try:
            theirs, own = os.getpgid(pid), os.getpgrp()
            giver, taker = (own, theirs) if to_it else (theirs, own)
            if giver != taker and os.tcgetpgrp(self._descriptor) == giver:
                os.tcsetpgrp(self._descriptor, taker)
        except OSError:
            pass  # the process has ended, or there is no terminal
        finally:
            _signal.signal(_signal.SIGTTOU, before)

    def leave(self) -> None:
        """Leave the terminal to the shell, where the omac that led this process group was killed. The shell takes it
        at that moment, and would exit if this group, which ends, got it then. An omac that lives takes it itself."""
        if self._launcher != os.getpgrp():
            return
        for _ in range(LEAVES_MS_MAX):  # a process of several threads ends after the one that launched this
            if os.getppid() != self._launcher:
                self.foreground = False
                return
            sleep(0.001)

    def close(self) -> None:
        """Release the terminal."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _modes_now(self) -> list[object] | None:
        import fcntl  # noqa: F401  # for the end, before a program could change it
        import termios  # only where there is a terminal

        try:
            return termios.tcgetattr(self._descriptor)
        except termios.error:
            return None  # it was hung up

    def _reset(self, modes: list[object]) -> None:
        """Undo what a program can do to a terminal for good; nothing of it waits for output. Raises OSError."""
        import fcntl
        import termios

        try:
            fcntl.ioctl(self._descriptor, termios.TIOCNXCL)
            termios.tcflow(self._descriptor, termios.TCOON)
            termios.tcsetattr(self._descriptor, termios.TCSANOW, modes)  # type: ignore[arg-type]  # what it gave itself
        except termios.error as problem:
            raise OSError(*problem.args) from None

    def _is_nobodys(self) -> bool:
        """Return whether the process group in the foreground has no process any more. A shell that goes on keeps its
        terminal."""
        try:
            os.killpg(os.tcgetpgrp(self._descriptor), 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass  # it is another user's, or the terminal was hung up
        return False

    def in_foreground(self) -> bool:
        """Return whether omac's process group has the terminal now."""
        try:
            return self._descriptor >= 0 and os.tcgetpgrp(self._descriptor) == os.getpgrp()
        except OSError:
            return False


class Interrupted(BaseException):
    """A signal came before the program began; `number` is which."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class forwarding:  # noqa: N801  # used as a statement: with forwarding(...):
    """While inside, signals for omac go to the process that `target` names: None before it began, which ends the
    attempt (Interrupted), 0 when it has ended."""

    def __init__(self, target: Callable[[], int | None], terminal: Terminal) -> None:
        self._target = target
        self._terminal = terminal
        self._before: list[tuple[int, object]] = []

    def __enter__(self) -> None:
        for number in PASSED_ON:
            if _signal.getsignal(number) is not _signal.SIG_IGN:
                self._before.append((number, _signal.signal(number, self._pass_on)))
        self._before.append((_signal.SIGPWR, _signal.signal(_signal.SIGPWR, self._end)))
        # ^Z stops a program in the foreground, and omac stops when it sees that: once, not twice.
        suspends = _nothing if self._terminal.foreground else self._suspend
        if _signal.getsignal(_signal.SIGTSTP) is not _signal.SIG_IGN:
            self._before.append((_signal.SIGTSTP, _signal.signal(_signal.SIGTSTP, suspends)))

    def __exit__(self, *_: object) -> None:
        for number, before in self._before:  # what the program left is still to be looked at: nothing breaks that off
            _signal.signal(number, before if number == _signal.SIGTSTP else _nothing)  # type: ignore[arg-type]  # as it was

    def _end(self, _number: int, _frame: object) -> None:
        """Kill the program, because the process that launched omac was killed."""
        self._pass_on(_signal.SIGKILL, None)
        self._terminal.leave()

    def _suspend(self, _number: int, _frame: object) -> None:
        self._terminal.is_to_stop = True

    def _pass_on(self, number: int, _frame: object) -> None:
        pid = self._target()
        if pid is None:
            raise Interrupted(number)
        if number in FROM_KEYBOARD and self._terminal.foreground:
            return  # the kernel sent it to the program as well
        if pid:
            try:
                os.kill(pid, number)
                if number in ENDING:
                    os.kill(pid, _signal.SIGCONT)  # suspended, it would not get it
            except OSError:
                pass  # it has just ended


class awake:  # noqa: N801  # used as a statement: with awake() as signals:
    """While inside, a signal with a handler ends a wait, SIGCHLD too, also one that came just before the wait: a system
    call that waits for a child would not notice it, and the handler would run when the child has ended."""

    def __enter__(self) -> awake:
        self._reader, writer = os.pipe()
        self._writer = writer
        os.set_blocking(self._reader, False)
        os.set_blocking(writer, False)
        _signal.signal(_signal.SIGCHLD, _nothing)  # for good: Python complains of one that comes meanwhile
        self._before = _signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        _signal.set_wakeup_fd(self._before)
        os.close(self._writer)
        os.close(self._reader)

    def wait(self, within_s: float | None) -> None:
        """Return when a signal has come since the last wait, or after this time."""
        import select

        waiting = select.poll()
        waiting.register(self._reader, select.POLLIN)
        if waiting.poll(None if within_s is None else within_s * 1000):
            os.read(self._reader, 4096)


def _nothing(_number: int, _frame: object) -> None:
    """A handler, and not SIG_IGN, which would be handed on to the program."""


def ignored() -> None:
    """Ignore the signals that are passed on, for a process that shares the program's group: it outlives what the
    program may want to handle."""
    for number in PASSED_ON:
        _signal.signal(number, _signal.SIG_IGN)


def default() -> None:
    """Set the signals that Python changes as a program expects them. Handlers of omac end with exec; signals that were
    ignored when omac began stay ignored."""
    for number in IGNORED_BY_PYTHON:
        _signal.signal(number, _signal.SIG_DFL)
    if _signal.getsignal(_signal.SIGINT) is not _signal.SIG_IGN:  # else omac was started so, as by nohup(1)
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
