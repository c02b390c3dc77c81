"""Starting a program in its sandbox, held back until everything is certain, and staying with it to its end.

1. bubblewrap is started by a thread that has given up what can be given up before, mounts, and then waits for a byte
   (--block-fd). Until it comes, nothing of the program has run.
2. Meanwhile omac looks, from outside, through /proc/<init>/root, whether what was mounted is what was meant, and puts
   the sandbox under its limits. Then it gives the byte.
3. Signals for omac are for the program: they are sent to it, the first process in its namespace. With a terminal, all
   share its foreground process group, so that ^C and ^Z reach the program from the kernel, as without a sandbox.
   bubblewrap itself blocks what would end it; a stage inside lets it in for the program, with what has come meanwhile.
   Started in the background, the program has a session of its own, and no terminal.
4. When the program ends, its namespace ends with all that is in it; only then is looked at what it left.
"""

from __future__ import annotations

import errno
import os
import stat
import time

from omac.adapters.linux.process_identity import stat_fields
from omac.adapters.sandbox import bubblewrap, landlock, mounted, seccomp, start_barrier
from omac.adapters.sandbox.spawn import SandboxParent
from omac.adapters.sandbox.streams import Streams, kill
from omac.adapters.sandbox.suspension import HeldProcesses
from omac.adapters.sandbox.terminal import Terminal, awake, forwarding
from omac.domain.kernel.exhaustion import raise_exhaustion

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable, Collection, Sequence

    from omac.domain.sandbox.confinement import Policy
else:
    import _signal

BUILD_WITHIN_S = 20.0
_ENDS_WITHIN_S = 1.0
_LOOK_EVERY_S = 0.0002
_STOPPED_EVERY_S = 0.25  # how often omac reads whether a program at a terminal has stopped
_INFO_BYTES_MAX = 4096


class Failed(Exception):
    """bubblewrap ended, or said nothing, before the program began; what it said is on stderr."""


class HeldProgram:
    """One program in its sandbox, held back until `release`. A context manager: within, signals for omac are for the
    program; at its end nothing of the program is left."""

    def __init__(self, policy: Policy, argv: Sequence[str]) -> None:
        self.policy = policy
        self.argv = list(argv)
        self.terminal = Terminal()
        self.init = 0
        self._begun = False
        self._child = 0  # while it is to be killed if anything fails
        self._gate, self._way = start_barrier.opened()
        self._streams = Streams(apart=self.terminal.is_elsewhere)
        self._forwarding = forwarding(self._target, self.terminal)
        self._is_forwarding = False
        self._settle: Callable[[], None]

    def __enter__(self) -> HeldProgram:
        try:
            self._child = self._start()
            self._is_forwarding = True
            self._forwarding.__enter__()
        except BaseException as problem:
            self.__exit__(type(problem), problem, None)
            raise
        return self

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        if problem is not None and self._child:
            self._kill_begun(self._child)
        if self._is_forwarding:
            self._forwarding.__exit__()
        self._close()
        self._streams.close()
        os.close(self._way)
        if self._gate >= 0:
            os.close(self._gate)
        self.terminal.take_back()
        self.terminal.close()

    def built(self) -> int:
        """Wait until its sandbox is built, and return the pid of its first process, before its first instruction.
        Raises Failed, Refusal (path-changed), OSError."""
        raise NotImplementedError

    def release(self) -> None:
        """Let it begin. Raises OSError."""
        self._streams.feed()
        self._begun = True
        os.write(self._way, b"\n")

    def ended(self, settle: Callable[[], None]) -> int:
        """Return its exit status when it and all it started have ended, 128+n for a signal. `settle` judges what they
        have left; it is called while they are held."""
        raise NotImplementedError

    @property
    def bind_ports(self) -> tuple[int | str, ...] | None:
        """The TCP ports it may listen on; None: none of the host's network is there."""
        return self.policy.ports if self.policy.network == "host" else None

    def _start(self) -> int:
        raise NotImplementedError

    def _close(self) -> None:
        """Release what is its own."""

    def _target(self) -> int | None:
        """The pid that gets signals; None before it is let go, 0 when it has ended."""
        raise NotImplementedError

    def _kill_begun(self, child: int) -> None:
        kill(child)

    def _reap(self, child: int) -> None:
        """Reap what the program has left to omac, but not the `child` itself."""

    def _stop_with(self, pid: int) -> None:
        """Stop omac, since this process has stopped, and all that the program has started, until a shell lets the job
        go on."""
        held = HeldProcesses(*self._above())
        self._settle()
        self.terminal.stop_with(pid, held.resume)

    def _above(self) -> tuple[int, Collection[int]]:
        """Return the process below which all of the program are, and those there that are omac's."""
        return self.init, ()

    def _wait(self, settle: Callable[[], None]) -> int:
        """Return the child's exit status; from then on no signal is passed on."""
        child, self._child = self._child, 0
        self._settle = settle
        status = wait_for(child, self._reap, self.terminal, self._target, self._stop_with)
        self.terminal.take_back()  # before anything is reported there
        self._forwarding.__exit__()
        self._is_forwarding = False
        return status


class UnderBubblewrap(HeldProgram):
    """A program in namespaces that bubblewrap builds. Raises Failed where it does not."""

    def __init__(self, policy: Policy, argv: Sequence[str], bwrap: str, machine: str) -> None:
        super().__init__(policy, argv)
        self._bwrap = bwrap
        self._machine = machine
        self._files = bubblewrap.Files()
        self._info, self._info_of_child = os.pipe()
        self._parent = SandboxParent()
        self._held = os.dup(self._gate)  # which the namespace's init keeps open, and the program has not
        self._alive = -1
        self._watcher = 0
        self._program = 0  # its pid, once it was seen
        self._namespace = -1  # a descriptor of its init, once that is there
        self._expected: mounted.Expected

    def _start(self) -> int:
        self._expected = mounted.expected(self.policy)
        # A folder of a group hands its set-gid bit on, and git and cp keep it.
        set_gid = bool(os.stat(self.policy.workdir).st_mode & stat.S_ISGID)
        filter_program = seccomp.program(self._machine, set_gid=set_gid)
        line = [self._bwrap, *bubblewrap.arguments(self.policy, self._files, filter_program)]
        line += ["--new-session"] if self.terminal.is_elsewhere else []
        line += ["--info-fd", str(self._info_of_child), "--block-fd", str(self._gate)]
        line += ["--sync-fd", str(self._held), "--", *self._inside()]
        self._watcher, self._alive = start_barrier.watched(self._way)
        child = self._spawn(line)
        self._child = child
        self._streams.start(self._alive)
        for descriptor in (self._info_of_child, self._gate, self._held):
            os.close(descriptor)
        self._info_of_child = self._gate = self._held = -1
        return child

    def built(self) -> int:
        """Wait until bubblewrap has built the sandbox, and compare what is mounted. Raises as HeldProgram."""
        self.init = _init(self._info)
        self._namespace = _opened(self.init)
        _await_built(self.init, self._child, self.policy.workdir)
        try:
            mounted.check(self.init, self._expected)
        except (FileNotFoundError, ProcessLookupError) as gone:  # of /proc: it could not build the rest
            raise Failed("bubblewrap ended before it had built the sandbox") from gone
        return self.init

    def ended(self, settle: Callable[[], None]) -> int:
        """Return its exit status, as HeldProgram."""
        status = self._wait(settle)
        _end(self._namespace)
        kill(self._watcher)
        self._streams.finish()
        return status

    def killed_by(self) -> int:
        """Return the signal that killed bubblewrap, or its half inside, which it reports as a shell does; 0 for none.
        An end that is under way gets a moment."""
        deadline = time.monotonic() + _ENDS_WITHIN_S
        while self._child and time.monotonic() < deadline:
            if end := os.waitid(os.P_PID, self._child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                return max(0, end.si_status - 128) if end.si_code == os.CLD_EXITED else end.si_status
            time.sleep(_LOOK_EVERY_S)
        return 0

    def _close(self) -> None:
        self._parent.close()
        self._files.close()
        for descriptor in (self._info, self._info_of_child, self._alive, self._held, self._namespace):
            if descriptor >= 0:
                os.close(descriptor)

    def _spawn(self, line: list[str]) -> int:
        """Start bubblewrap; its pid. Raises Failed, or the OSError of a shortage, which says nothing about it."""

        def confine() -> None:
            if not self.policy.fence:  # which does the same, after the mounts
                landlock.confine_network_and_scope(bind_ports=self.bind_ports)

        try:
            return self._parent.spawn(
                line,
                dict(self.policy.environment),
                confine=confine,
                streams={number: theirs for number, (theirs, _) in self._streams.pipes.items()},
                descriptors=[self._info_of_child, self._gate, self._held, *self._files.descriptors],
                in_group=self.terminal.foreground,  # else signals to omac's group are omac's to pass on
            )
        except OSError as problem:
            raise_exhaustion(problem)
            raise Failed(f"{line[0]} cannot be started: {problem.strerror}") from problem

    def _kill_begun(self, child: int) -> None:
        _kill(self._namespace)  # it does not yet end with bubblewrap
        kill(child)

    def _inside(self) -> list[str]:
        """The program, or the stage that becomes it where something must be done inside first, or bubblewrap would not
        take so many words."""
        is_long = len(self.argv) > bubblewrap.WORDS_MAX
        if self.terminal.foreground or self.policy.fence or is_long:
            from omac.adapters.sandbox import stage

            words = self._files.add(b"\0".join(map(os.fsencode, self.argv))) if is_long else ""
            argv = [] if is_long else self.argv
            return stage.command(argv, self.policy.fence, self.bind_ports, words=words)
        return self.argv

    def _target(self) -> int | None:
        """The program's own pid, as the host sees it: the init's first child, which it starts once it is let go. What
        the program leaves behind are children of the init, too."""
        if not self._begun:
            return None
        while True:
            state = stat_fields(self.init)[:1]  # before its children: it ends after the last of them
            try:
                with open(f"/proc/{self.init}/task/{self.init}/children", "rb") as file:
                    child = int((file.read().split() or [b"0"])[0])
            except OSError:
                return 0
            if child or not state or state[0] in b"ZX":
                self._program = self._program or child
                return child if child == self._program else 0
            time.sleep(_LOOK_EVERY_S)


def _init(info: int) -> int:
    """The pid of the namespace's init, from bubblewrap's report, which it writes in pieces."""
    import select  # here, where bubblewrap is at work meanwhile

    report = b""
    waiting = select.poll()
    waiting.register(info, select.POLLIN)
    deadline = time.monotonic() + BUILD_WITHIN_S
    while not report.rstrip().endswith(b"}"):
        if not waiting.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise Failed(f"bubblewrap did not respond within {BUILD_WITHIN_S:g} s")
        piece = os.read(info, _INFO_BYTES_MAX)
        if not piece:
            raise Failed("bubblewrap ended before it had built the sandbox")
        report += piece
    after = report.partition(b'"child-pid"')[2].lstrip(b": \n")
    digits = after[: len(after) - len(after.lstrip(b"0123456789"))]
    return int(digits)


def _await_built(init: int, child: int, workdir: str) -> None:
    """Return as soon as the sandbox's root is whole. Raises Failed.

    bubblewrap builds below folders of its own and makes the result the root last; so a root that is not the host's and
    has the working directory is the final one.
    """
    root = f"/proc/{init}/root"
    host = os.stat("/")
    deadline = time.monotonic() + BUILD_WITHIN_S
    while time.monotonic() < deadline:
        try:
            seen = os.stat(root)
            if (seen.st_dev, seen.st_ino) != (host.st_dev, host.st_ino) and os.path.lexists(root + workdir):
                return
        except OSError as problem:
            if problem.errno not in (errno.ENOENT, errno.ESRCH, errno.EACCES):
                raise
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            raise Failed("bubblewrap ended before it had built the sandbox")
        time.sleep(_LOOK_EVERY_S)
    raise Failed(f"bubblewrap did not build the sandbox within {BUILD_WITHIN_S:g} s")


def wait_for(
    child: int,
    reap: Callable[[int], None],
    terminal: Terminal,
    target: Callable[[], int | None],
    stop_with: Callable[[int], None],
) -> int:
    """The exit status of a child, 128+n for a signal; when it is stopped, omac stops as well, until both go on. So they
    do where omac alone is to stop.

    `reap` is called with it whenever another child may have ended, and `stop_with` with what has stopped. At a terminal
    that may be the program, `target`, alone: its parent, which is bubblewrap's, does not report it.
    """
    with awake() as signals:
        while True:
            pid, status = os.waitpid(child, os.WUNTRACED | os.WNOHANG)
            program = terminal.foreground and not pid and target()
            if program and stat_fields(program)[:1] == [b"T"]:
                stop_with(program)
            elif not pid and terminal.is_to_stop:
                terminal.is_to_stop = False
                stop_with(child)
            elif not pid:
                reap(child)
                signals.wait(_STOPPED_EVERY_S if terminal.foreground else None)
            elif not os.WIFSTOPPED(status):
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
            else:
                stop_with(child)


def _opened(init: int) -> int:
    """A descriptor of the namespace's init; -1 where there is none: it has ended, or Linux is older than 5.3."""
    try:
        return os.pidfd_open(init)
    except OSError:
        return -1


def _kill(init: int) -> None:
    """Kill the namespace's init, with all that is inside, by its descriptor."""
    try:
        if init >= 0:
            _signal.pidfd_send_signal(init, _signal.SIGKILL)
    except ProcessLookupError:
        pass  # it has ended


def _end(init: int) -> None:
    """Return when the namespace's init, and with it everything inside, is gone. It is killed: bubblewrap may have been,
    before it had bound its init to itself."""
    import select

    _kill(init)
    if init >= 0:
        waiting = select.poll()
        waiting.register(init, select.POLLIN)
        waiting.poll(BUILD_WITHIN_S * 1000)
