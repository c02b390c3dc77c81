"""A running sidecar: watched, probed, and ended with everything that it started.

1. *Isolated* means a pid namespace of its own: the outer bubblewrap is our child, the init below it owns the rest.
   Killing the init ends all of it at once, however fast it forks and wherever it hides.
2. Not isolated, a sidecar is its session and whatever descends from its leader. What left both (a daemon that
   called setsid and was orphaned) cannot be found again.
3. The child stays unreaped until nothing else is left: a zombie keeps the pid, hence the session and process group
   id, from being given to anyone else.
4. When the program ends by itself, what it leaves behind is killed at once; during `stop` it keeps its grace.
"""

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator

import trio

from omac.adapters.linux import process
from omac.adapters.linux.listeners import accepted_by, answering, connected
from omac.adapters.linux.process import Stat
from omac.adapters.sidecars import health as health_check
from omac.adapters.sidecars import logfile
from omac.adapters.sidecars.ports import ReservedPort
from omac.domain.sidecars.sidecar import Birth, Exit
from omac.domain.skills.meta import Health
from omac.services.ports import SidecarProcess

_PAUSE_FIRST_S = 0.002
_PAUSE_MAX_S = 0.025
_SIGNALS = frozenset(signal.valid_signals())


class LinuxSidecarProcess(SidecarProcess):
    """One start of a sidecar. Someone must `wait` or `stop` it to the end: that is what reaps it."""

    def __init__(self, child: subprocess.Popen[bytes], birth: Birth, init: Stat | None, reserved: ReservedPort) -> None:
        """`init` is the namespace's init: given for an isolated sidecar, and for no other. `reserved` is its port, and
        released once it answers there."""
        assert birth.isolated == (init is not None)
        self._child = child
        self._birth = birth
        self._init = init
        self._pidfds = [os.pidfd_open(child.pid)]
        try:
            if init and (descriptor := process.open_pidfd(init.pid, init.start_ticks)) is not None:
                self._pidfds.append(descriptor)
        except OSError:
            os.close(self._pidfds.pop())
            raise
        self._reserved = reserved
        self._sockets: set[int] = set()  # the inodes of those that it had when they were last looked up
        self._exit: Exit | None = None
        self._ending = trio.Lock()
        self._grace_ends = float("-inf")

    @property
    def birth(self) -> Birth:
        """The identity of the sidecar on this host; the pid is that of the outer process."""
        return self._birth

    async def probe(self, health: Health) -> None:
        """Return once it answers 2xx on its own port and owns that port. Raises ProbeFailed.

        It does not notice that the process ended: let it race `wait`.
        """
        await health_check.probe(health, self._birth.port, self._pids)
        self._reserved.release()

    def listens(self) -> bool:
        """Return whether the sidecar, and no other process, still listens on its port, or will again: a server may
        take one connection at a time."""
        reachable = {listener.inode for listener in answering(self._birth.port)}
        sockets = process.socket_inodes(self._pids())
        return reachable <= sockets if reachable else not sockets.isdisjoint(connected(self._birth.port))

    def is_kept_from_writing(self) -> bool:
        """Return whether the output of this start ends with the complaint that a file system is read-only."""
        return logfile.complains_of_read_only(self._birth.log)

    def is_reached(self, connection: socket.socket) -> bool:
        """Return whether a connection that was just made to its port came to the sidecar: it is listening there still,
        and nobody else is, or it has accepted the connection, and may listen no more. Its processes are looked through
        only where its listener is another one than before."""
        reachable = {listener.inode for listener in answering(self._birth.port)}
        if not reachable or not reachable <= self._sockets:
            self._sockets = process.socket_inodes(self._pids())
            reachable = reachable if reachable and reachable <= self._sockets else {accepted_by(connection)}
        return self._exit is None and reachable <= self._sockets

    async def wait(self) -> Exit:
        """Return when nothing of it is left; any number of tasks may wait, and cancelling a wait leaves it running.

        A shell's or bubblewrap's 128+n stands for "killed by signal n" when isolated.
        """
        async with self._ending:
            if self._exit is None:
                self._exit = await self._watch()
            return self._exit

    async def stop(self, grace_ms: int) -> Exit:
        """SIGTERM to all of it, `grace_ms` later SIGKILL; return when nothing of it is left.

        Harmless when it has ended or is being stopped. A cancelled stop stops half-way: callers shield it.
        """
        if self._exit is None:
            now = trio.current_time()
            # Of two stops at once the more impatient one counts.
            self._grace_ends = min(now + grace_ms / 1000, self._grace_ends if self._grace_ends > now else float("inf"))
            await self._terminate()
            self._grace_ends = float("-inf")
            self._kill()
        return await self.wait()

    async def _watch(self) -> Exit:
        for descriptor in self._pidfds:
            await process.wait_exit(descriptor)
        if not self._init:
            pause = _pauses()
            while self._members():
                if trio.current_time() >= self._grace_ends:
                    self._kill()
                await trio.sleep(next(pause))
        code = self._child.wait()
        self._reserved.release()
        while self._pidfds:
            os.close(self._pidfds.pop())
        if code < 0:
            return Exit(signal=-code)
        if self._init and code - 128 in _SIGNALS:
            return Exit(signal=code - 128)
        return Exit(code=code)

    async def _terminate(self) -> None:
        """SIGTERM everything, what it forks meanwhile too, until it is gone or its grace is over."""
        signalled: set[tuple[int, int]] = set()
        pause = _pauses()
        held = False
        try:
            while self._exit is None and self._lives() and trio.current_time() < self._grace_ends:
                members = self._members()
                if members and self._init and not held:
                    # The outer bubblewrap ends with the program, and the kernel kills the rest with it: the server
                    # behind `sh -c "server; true"` would lose its grace. Stopped, it leaves that to the init, which
                    # ends with the last process. Not before there is a member: until then it builds the namespace.
                    held = self._signal_outer(signal.SIGSTOP)
                for member in members:
                    if (member.pid, member.start_ticks) not in signalled:
                        signalled.add((member.pid, member.start_ticks))
                        process.kill(member.pid, member.start_ticks, signal.SIGTERM)
                await trio.sleep(next(pause))
        finally:
            if held:
                self._signal_outer(signal.SIGCONT)

    def _kill(self) -> None:
        """SIGKILL: the init, and with it the namespace; or all that can be found, which `_watch` repeats."""
        if self._exit is not None:
            return
        if self._init:
            # Not the outer process: it follows by itself, and has the exit code to tell.
            process.kill(self._init.pid, self._init.start_ticks, signal.SIGKILL)
            return
        # The group is killed in one step that a fork cannot slip through (rule 3: the id is still ours).
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signal.SIGKILL)
        for member in self._members():
            process.kill(member.pid, member.start_ticks, signal.SIGKILL)

    def _signal_outer(self, number: signal.Signals) -> bool:
        return process.kill(self._birth.pid, self._birth.start_ticks, number)

    def _lives(self) -> bool:
        if self._init:
            return process.living(self._init.pid, self._init.start_ticks)
        return bool(self._members())

    def _members(self) -> list[Stat]:
        """The sidecar's own living processes: without bubblewrap's two."""
        if self._init:
            return process.descendants(self._init.pid) if self._lives() else []
        members = {entry.pid: entry for entry in process.session_members(self._birth.pid)}
        members |= {entry.pid: entry for entry in process.descendants(self._birth.pid)}
        return list(members.values())

    def _pids(self) -> list[int]:
        return [] if self._exit else [member.pid for member in self._members()]


def _pauses() -> Iterator[float]:
    pause = _PAUSE_FIRST_S
    while True:
        yield pause
        pause = min(pause * 1.5, _PAUSE_MAX_S)
