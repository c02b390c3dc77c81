"""The processes of a sandbox, held while omac is suspended: it sets nothing aside then, and a person may use git.

SIGSTOP alone holds no process that wants to go on: a timer, or a pipe of its own, can send it SIGCONT, and so can the
other of two processes. So a thread of omac traces them. The kernel lets go of whatever a thread traces when that
thread ends. A process that may not be traced is stopped by SIGSTOP.

Source: ptrace(2).
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found] # the C part: `signal` itself takes 4 ms to import
import _thread
import os
import time

from omac.adapters.linux.children import children_of, threads_of
from omac.adapters.linux.process_identity import stat_fields
from omac.adapters.linux.syscall import call

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

WITHIN_S = 5.0  # the person who typed ^Z waits meanwhile
_QUIET_ROUNDS = 5  # a look at processes that start others, and end, may find none
_PAUSE_S = 0.001
_LET_GO_WITHIN_S = 1.0
_PTRACE = {"x86_64": 101, "aarch64": 117}
_DETACH, _SEIZE, _INTERRUPT = 17, 0x4206, 0x4207
_WITH_CHILDREN = 0x2 | 0x4 | 0x8  # PTRACE_O_TRACEFORK, TRACEVFORK and TRACECLONE: what it starts is traced from there


class HeldProcesses:
    """All processes below one, but for the `spared`: none of them runs until `resume`."""

    def __init__(self, top: int, spared: Collection[int]) -> None:
        self._top = top
        self._spared = spared
        self._ptrace = _PTRACE.get(os.uname().machine)
        self._traced: set[int] = set()  # threads
        self._stopped: dict[int, bytes] = {}  # the start of each process that was stopped by SIGSTOP, by its pid
        self._is_held, self._is_over, self._is_released = (_thread.allocate_lock() for _ in range(3))
        for lock in (self._is_held, self._is_over, self._is_released):
            lock.acquire()
        self._is_alone = False
        try:
            _thread.start_new_thread(self._trace, ())
        except RuntimeError:  # the system starts no more threads for this user: the program may have seen to that
            self._is_alone = True
            self._hold()
        else:
            self._is_held.acquire()

    def resume(self) -> None:
        """Let them go on, children first: no parent sees one then that SIGSTOP has stopped."""
        if self._is_alone:
            self._let_go(time.monotonic() + _LET_GO_WITHIN_S)
        else:
            self._is_over.release()
            self._is_released.acquire()  # omac, which waits for its own child, finds none of them traced
        for pid, start in reversed(self._stopped.items()):
            if stat_fields(pid)[19:20] == [start]:
                _send(pid, _signal.SIGCONT)

    def _trace(self) -> None:
        """Hold them as long as this thread lives."""
        self._hold()
        self._is_held.release()
        self._is_over.acquire()
        self._let_go()
        self._is_released.release()

    def _let_go(self, deadline: float = 0.0) -> None:
        """Let go of all that have stopped by then: a thread that waits in a system call cannot be let go before."""
        waiting = self._traced
        while waiting := {thread for thread in waiting if not self._calls(_DETACH, thread) and stat_fields(thread)}:
            if time.monotonic() > deadline:
                break
            time.sleep(_PAUSE_S)

    def _hold(self) -> None:
        """Hold all of them. Files that ran out leave some."""
        try:
            self._hold_all()
        except OSError:
            pass

    def _hold_all(self) -> None:
        quiet, deadline = 0, time.monotonic() + WITHIN_S
        while time.monotonic() < deadline:
            awake = [pid for pid in _below(self._top, self._spared) if not self._holds(pid)]
            quiet = 0 if awake else quiet + 1
            if quiet == _QUIET_ROUNDS:
                break
            time.sleep(_PAUSE_S)

    def _holds(self, pid: int) -> bool:
        """Hold a process, and return whether it was held before. A zombie can have threads that live."""
        threads = threads_of(pid)
        is_held = bool(threads)  # else it has just ended, and maybe another goes on in its place
        for thread in threads:
            if thread in self._traced:
                continue  # it goes no further than to the end of a system call
            state = (stat_fields(pid, thread) or [b"X"])[0]
            if state in b"ZX":
                continue
            if state == b"t":  # nothing inside may trace: the kernel has traced it since its parent started it
                self._traced.add(thread)
            elif self._calls(_SEIZE, thread, 0, _WITH_CHILDREN):
                self._calls(_INTERRUPT, thread)
                self._traced.add(thread)
                is_held = False
            elif state != b"T":
                is_held = False
                self._stopped.setdefault(pid, (stat_fields(pid) or [b""] * 20)[19])
                _send(pid, _signal.SIGSTOP)
        return is_held

    def _calls(self, request: int, thread: int, *words: int) -> bool:
        """Make a call of ptrace(2); False: the thread has ended, or may not be traced."""
        if self._ptrace is None:
            return False
        try:
            call(self._ptrace, request, thread, *words)
        except OSError:
            return False
        return True


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass  # it has ended


def _below(top: int, spared: Collection[int]) -> Iterator[int]:
    """Yield the processes below one, parents before their children."""
    waiting = [top]
    while waiting:
        for child in children_of(waiting.pop()):
            if child not in spared:
                yield child
                waiting.append(child)
