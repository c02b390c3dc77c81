"""The inner command as a process: it has omac's own terminal, and its signals and exit status are passed through.

Rules

1. In a terminal both are one job: the terminal tells both of Ctrl-C, Ctrl-\\ and Ctrl-Z, so omac passes none of them
   on. An interrupt that came otherwise is passed on, and is no reason for omac to end.
2. When it has stopped, omac stops too, so that the shell above has its terminal back; continued, both go on. Ctrl-Z
   alone does not stop omac, from before the command begins until it has ended: the command may ignore it, or what it
   has started has yet to be held.
3. A request to end is passed on as it came. A second one kills the command; what a sandboxed one left is inspected
   all the same, and a third one kills that, too.
4. Where the command ends and the terminal's foreground process group has ended, omac becomes that group again, and
   restores the terminal's modes.
"""

import os
import signal
import subprocess

import trio

from omac.adapters.sandbox.terminal import ORPHANED, Terminal

OF_THE_TERMINAL = (signal.SIGINT, signal.SIGQUIT)


def leave_suspending(terminal: Terminal) -> None:
    """Leave Ctrl-Z to a command that is about to begin at this terminal, to the end of `Inner.ended`."""
    if terminal.foreground and signal.getsignal(signal.SIGTSTP) is not signal.SIG_IGN:
        signal.signal(signal.SIGTSTP, _nothing)


def _nothing(_number: int, _frame: object) -> None:
    """A handler, and not SIG_IGN, which would be handed on to the command."""


class Inner:
    """A command that has begun, to the end of `ended`. Make it in a Trio task."""

    def __init__(self, child: subprocess.Popen[bytes], terminal: Terminal, *, sandboxed: bool = False) -> None:
        """`terminal` is from before the child could take it. `sandboxed`: the child is the omac that launches the
        command, and inspects what that left."""
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
                if self._terminal.foreground:
                    await nursery.start(self._stop_with_it)
                await trio.lowlevel.wait_readable(self._watch)
                nursery.cancel_scope.cancel()
        finally:
            os.close(self._watch)
            if self._child.poll() is None:
                self._child.kill()
            status = self._child.wait()  # it has ended
            self._terminal.take_back()
            self._terminal.close()
            if signal.getsignal(signal.SIGTSTP) is _nothing:  # which also takes one that came last
                signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        return status if status >= 0 else 128 - status

    def interrupt(self, number: signal.Signals) -> None:
        """Pass an interrupt on, unless the terminal has (rule 1)."""
        if not self._terminal.in_foreground():
            self._child.send_signal(number)

    def end(self, number: signal.Signals) -> None:
        """Ask it to end with this signal; asked again, kill it (rule 3)."""
        signals = (number, *self._kills)
        self._child.send_signal(signals[min(self._asked_to_end, len(signals) - 1)])
        self._child.send_signal(signal.SIGCONT)
        self._asked_to_end += 1

    async def _stop_with_it(self, task_status: trio.TaskStatus[None]) -> None:
        with trio.open_signal_receiver(signal.SIGCHLD, signal.SIGTSTP) as signals:
            task_status.started()
            self._stop_if_it_has()  # before anybody listened, maybe
            async for _ in signals:
                self._stop_if_it_has()

    def _stop_if_it_has(self) -> None:
        try:
            stopped = os.waitid(os.P_PID, self._child.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return  # it has ended
        if stopped is None:
            return
        self._terminal.pass_foreground(self._child.pid, to_it=False)  # a shell that suspends itself keeps it
        if self._terminal.in_foreground():
            self._terminal.stop_with(self._child.pid)
