"""The inner command as a process: it has omac's own terminal, and its signals and exit status are passed through.

Rules

1. In a terminal both are one job: the terminal tells both of Ctrl-C, Ctrl-\\ and Ctrl-Z, so omac passes none of them
   on. An interrupt that came otherwise is passed on, and is no reason for omac to end.
2. When it stops itself, omac stops too, so that the shell above has its terminal back; continued, both go on.
3. A request to end is passed on as it came. A second one kills the command; what a sandboxed one left is inspected
   all the same, and a third one kills that, too.
4. A terminal that it took for a process group that is gone is taken back.
"""

import contextlib
import os
import signal
import subprocess

import trio

from omac.adapters.sandbox.terminal import ORPHANED, pass_foreground

OF_THE_TERMINAL = (signal.SIGINT, signal.SIGQUIT)


class Inner:
    """A command that has begun, to the end of `ended`. Make it in a Trio task."""

    def __init__(self, child: subprocess.Popen[bytes], terminal: int | None, *, sandboxed: bool = False) -> None:
        """`terminal` is that of `own_terminal`, from before the child could take it. `sandboxed`: the child is the omac
        that launches the command, and inspects what that left."""
        self._child = child
        self._watch = os.pidfd_open(child.pid)  # before a signal finds that it has ended, and frees its pid
        self._terminal = terminal
        self._kills = (ORPHANED, signal.SIGKILL) if sandboxed else (signal.SIGKILL,)
        self._asked_to_end = 0

    async def ended(self) -> int:
        """Wait until the command has ended, and return its exit status, 128+n for a signal. Cancelled, it kills the
        command."""
        try:
            async with trio.open_nursery() as nursery:
                if self._terminal is not None:
                    await nursery.start(self._stop_with_it)
                await trio.lowlevel.wait_readable(self._watch)
                nursery.cancel_scope.cancel()
        finally:
            os.close(self._watch)
            if self._child.poll() is None:
                self._child.kill()
            status = self._child.wait()  # it has ended
            self._take_terminal_back()
        return status if status >= 0 else 128 - status

    def interrupt(self, number: signal.Signals) -> None:
        """Pass an interrupt on, unless the terminal has (rule 1)."""
        if not _in_foreground(self._terminal):
            self._child.send_signal(number)

    def end(self, number: signal.Signals) -> None:
        """Ask it to end with this signal; asked again, kill it (rule 3)."""
        signals = (number, *self._kills)
        self._child.send_signal(signals[min(self._asked_to_end, len(signals) - 1)])
        self._child.send_signal(signal.SIGCONT)
        self._asked_to_end += 1

    async def _stop_with_it(self, task_status: trio.TaskStatus[None]) -> None:
        with trio.open_signal_receiver(signal.SIGCHLD) as children:
            task_status.started()
            self._stop_if_it_has()  # before anybody listened, maybe
            async for _ in children:
                self._stop_if_it_has()

    def _stop_if_it_has(self) -> None:
        try:
            stopped = os.waitid(os.P_PID, self._child.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return  # it has ended
        if stopped is None or self._terminal is None:
            return
        pass_foreground(self._terminal, self._child.pid, to_it=False)  # a shell that suspends itself keeps it
        if _in_foreground(self._terminal):
            os.kill(os.getpid(), signal.SIGSTOP)  # goes on when the shell continues the job
            pass_foreground(self._terminal, self._child.pid, to_it=True)
            self._child.send_signal(signal.SIGCONT)

    def _take_terminal_back(self) -> None:
        if self._terminal is None:
            return
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTOU])  # or omac would be stopped for it
        try:
            with contextlib.suppress(OSError):  # it has hung up
                group = os.tcgetpgrp(self._terminal)
                if group != os.getpgrp() and not _exists(group):
                    os.tcsetpgrp(self._terminal, os.getpgrp())
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            os.close(self._terminal)
            self._terminal = None


def own_terminal() -> int | None:
    """Return the controlling terminal, where omac is its foreground job; else None."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    if _in_foreground(terminal):
        return terminal
    os.close(terminal)
    return None


def _in_foreground(terminal: int | None) -> bool:
    try:
        return terminal is not None and os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False


def _exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
