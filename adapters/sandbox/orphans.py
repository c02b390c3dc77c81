"""Processes that would outlive who started them, where no namespace ends with omac (prctl(2))."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found] # the C part: `signal` itself takes 4 ms to import
import os
import time

from omac.adapters.linux import syscall

_SET_PDEATHSIG = 1
_SET_CHILD_SUBREAPER = 36
_SIGKILL = 9
_ROUNDS_MAX = 2_000
_QUIET_ROUNDS = 5
_PAUSE_S = 0.001
_SECONDS_MAX = 60.0


def adopt_orphans() -> None:
    """Make any descendant of this process its child when the descendant's own parent ends."""
    syscall.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with(parent: int, number: int = _SIGKILL) -> None:
    """Send this process a signal when the thread of `parent` that forked it ends; at once, if that has happened."""
    syscall.prctl(_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:  # orphans do not always go to process 1 (PR_SET_CHILD_SUBREAPER)
        os.kill(os.getpid(), number)


def end_holders(file: str) -> None:
    """Kill all processes but the parent that have this open, as /proc/PID/fd names it, until none has, nor a child that
    one has left in the middle of a look."""
    quiet = 0
    for _ in range(_ROUNDS_MAX):
        any_left = False
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if int(pid) == os.getppid():
                    continue
                if any(os.readlink(f"/proc/{pid}/fd/{number}") == file for number in os.listdir(f"/proc/{pid}/fd")):
                    os.kill(int(pid), _SIGKILL)
                    any_left = True
            except OSError:
                pass  # it is another user's, or has just ended
        quiet = 0 if any_left else quiet + 1
        if quiet == _QUIET_ROUNDS:
            return
        time.sleep(_PAUSE_S)


def reap_orphans(spared: list[int]) -> None:
    """Reap the children of this process that have ended, but for the `spared`."""
    for pid in _children(spared):
        os.waitpid(pid, os.WNOHANG)


def end_orphans(spared: list[int]) -> bool:
    """Kill all children of this process, and the children they leave, until none is there but the `spared`. Returns
    False where they start others for longer than that is tried.

    Nothing waits between two rounds, and the kernel reaps: processes that fork and end at once leave thousands.
    """
    before = _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)
    deadline = time.monotonic() + _SECONDS_MAX
    try:
        while time.monotonic() < deadline:
            left = _children(spared)
            if not left:
                return True
            for pid in left:
                try:
                    os.kill(pid, _SIGKILL)
                    os.waitpid(pid, os.WNOHANG)
                except OSError:
                    pass  # it has just ended
        return False
    finally:
        _signal.signal(_signal.SIGCHLD, before)


def _children(spared: list[int]) -> list[int]:
    with open(f"/proc/{os.getpid()}/task/{os.getpid()}/children", "rb") as file:
        return [pid for pid in map(int, file.read().split()) if pid not in spared]
