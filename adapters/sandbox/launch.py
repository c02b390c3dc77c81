"""Starting a program in its sandbox, held back until everything is certain, and staying with it to its end.

1. bubblewrap is started by a thread that has given up what can be given up before, mounts, and then waits for a byte
   (--block-fd). Until it comes, nothing of the program has run.
2. Meanwhile omac looks, from outside, through /proc/<init>/root, whether what was mounted is what was meant, and puts
   the sandbox under its limits. Then it gives the byte.
3. Signals for omac are for the program: they are sent to it, the first process in its namespace. With a terminal, all
   share its foreground process group, so that ^C and ^Z reach the program from the kernel, as without a sandbox.
   bubblewrap itself ignores what would end it; a stage inside makes the program's signals usual again.
4. When the program ends, its namespace ends with all that is in it; only then is looked at what it left.
"""

from __future__ import annotations

import errno
import os
import stat
import time

from omac.adapters.sandbox import bubblewrap, landlock, mounted, seccomp
from omac.adapters.sandbox import start_barrier as gate
from omac.adapters.sandbox.spawn import SandboxParent
from omac.adapters.sandbox.terminal import Terminal, default, forwarding, ignored

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from omac.domain.sandbox.confinement import Policy

BUILD_WITHIN_S = 20.0
_LOOK_EVERY_S = 0.0002
_INFO_BYTES_MAX = 4096
_CHUNK_BYTES = 1 << 16


class Failed(Exception):
    """bubblewrap ended, or said nothing, before the program began; what it said is on stderr."""


class SandboxRun:
    """One program in its sandbox. `held` is called with the pid of its first process before its first instruction,
    `begun` as soon as it runs."""

    def __init__(self, policy: Policy, argv: Sequence[str], terminal: Terminal) -> None:
        self.policy = policy
        self.argv = list(argv)
        self.terminal = terminal
        self.init = 0
        self.begun = False

    def under_bubblewrap(
        self,
        bwrap: str,
        machine: str,
        meanwhile: Callable[[], None],
        held: Callable[[int], None],
        begun: Callable[[int], None],
    ) -> int:
        """Run it to its end; its exit status, 128+n for a signal. Raises Failed, Refusal (path-changed), OSError.

        `meanwhile` is called once, while bubblewrap is at work: what is done there takes no time of its own.
        """
        files = bubblewrap.Files()
        info, info_of_child = os.pipe()
        gate_of_child, way = gate.opened()
        streams = Streams()
        parent = SandboxParent()
        alive = -1
        try:
            expected = mounted.expected(self.policy)
            # A folder of a group hands its set-gid bit on, and git and cp keep it.
            set_gid = bool(os.stat(self.policy.workdir).st_mode & stat.S_ISGID)
            filter_program = seccomp.program(machine, set_gid=set_gid)
            line = [bwrap, *bubblewrap.arguments(self.policy, files, filter_program)]
            line += ["--info-fd", str(info_of_child), "--block-fd", str(gate_of_child), "--", *self._inside()]
            kept = [info_of_child, gate_of_child, *files.descriptors]
            watcher, alive = gate.watched(way)
            child = self._spawn(parent, line, streams, kept)
            streams.start(alive)
            os.close(info_of_child)
            os.close(gate_of_child)
            info_of_child = gate_of_child = -1
            with forwarding(self._target, self.terminal):
                try:
                    meanwhile()
                    self._check_built(info, child, expected)
                    held(self.init)
                    self.begun = True
                    os.write(way, b"\n")
                    begun(self.init)
                    os.write(alive, b"\n")
                except BaseException:
                    self._kill_begun(child)
                    raise
                finally:
                    os.close(alive)
                    alive = -1
                status = _wait(child)
            _gone(self.init)
            os.waitpid(watcher, 0)
            streams.finish()
        finally:
            parent.close()
            files.close()
            streams.close()
            for descriptor in (info, info_of_child, way, gate_of_child, alive):
                if descriptor >= 0:
                    os.close(descriptor)
            self.terminal.restore()
        return status

    def _spawn(self, parent: SandboxParent, line: list[str], streams: Streams, kept: list[int]) -> int:
        """Start bubblewrap; its pid. Raises Failed."""

        def confine() -> None:
            if not self.policy.fence:  # which does the same, after the mounts
                landlock.confine_network_and_scope(bind_ports=self.bind_ports)

        try:
            return parent.spawn(
                line,
                dict(self.policy.environment),
                confine=confine,
                streams={number: theirs for number, (theirs, _) in streams.pipes.items()},
                descriptors=kept,
                in_group=self.terminal.there,  # else signals to omac's group are omac's to pass on
            )
        except OSError as problem:
            raise Failed(f"{line[0]} cannot be started: {problem.strerror}") from problem

    def _check_built(self, info: int, child: int, expected: mounted.Expected) -> None:
        """Wait until bubblewrap has built the sandbox, and compare what is mounted. Raises as `under_bubblewrap`."""
        self.init = _init(info)
        _await_built(self.init, child, self.policy.workdir)
        mounted.check(self.init, expected)

    def _kill_begun(self, child: int) -> None:
        if self.init:
            os.kill(self.init, 9)  # it does not yet end with bubblewrap
        _kill(child)

    def confined(
        self,
        enter: Callable[[], None],
        meanwhile: Callable[[], None],
        held: Callable[[int], None],
        begun: Callable[[int], None],
    ) -> int:
        """Run it without namespaces: `enter` confines the process it is called in. As `under_bubblewrap` else.

        What it started is found again as omac's own children (PR_SET_CHILD_SUBREAPER, prctl(2)), and ended with it.
        """
        from omac.adapters.sandbox.orphans import adopt_orphans, end_orphans

        adopt_orphans()
        gate_of_child, way = gate.opened()
        streams = Streams()
        try:
            child = os.fork()
            if not child:
                _confine(self, enter, streams, gate_of_child)
            streams.start()
            with forwarding(lambda: child if self.begun else None, self.terminal):
                try:
                    meanwhile()
                    held(child)
                    self.begun = True
                    os.write(way, b"\n")
                except BaseException:
                    _kill(child)
                    raise
                begun(child)
                status = _wait(child)
            end_orphans(streams.pumps)
            streams.finish()
        finally:
            streams.close()
            os.close(way)
            os.close(gate_of_child)
            self.terminal.restore()
        return status

    @property
    def bind_ports(self) -> tuple[int, ...] | None:
        """The TCP ports it may listen on; None: none of the host's network is there."""
        return self.policy.ports if self.policy.network == "host" else None

    def _inside(self) -> list[str]:
        """The program, or the stage that becomes it where something must be done inside first."""
        if self.terminal.there or self.policy.fence:
            from omac.adapters.sandbox import stage

            return stage.command(self.argv, self.policy.fence, self.bind_ports)
        return self.argv

    def _target(self) -> int | None:
        """The program's own pid, as the host sees it: the init's first child."""
        if not self.begun:
            return None
        try:
            with open(f"/proc/{self.init}/task/{self.init}/children", "rb") as file:
                return int((file.read().split() or [b"0"])[0])
        except OSError:
            return 0


class Streams:
    """The standard streams of the program. A file among them is reached through a pipe: whoever holds a file's
    descriptor could open it again, for writing too, by way of /proc/self/fd; a folder could be walked upwards."""

    def __init__(self) -> None:
        self.pipes: dict[int, tuple[int, int]] = {}  # by standard descriptor: (of the program, ours)
        self.pumps: list[int] = []
        for number in (0, 1, 2):
            try:
                mode = os.fstat(number).st_mode
            except OSError:
                mode = stat.S_IFDIR  # closed; something else would get its number
            if not (stat.S_ISCHR(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
                if stat.S_ISREG(mode) or stat.S_ISBLK(mode):
                    reader, writer = os.pipe()
                    self.pipes[number] = (reader, writer) if number == 0 else (writer, reader)
                else:
                    self.pipes[number] = (os.open(os.devnull, os.O_RDWR), -1)

    def take(self) -> None:
        """In the child: let the standard descriptors be the pipes."""
        for number, (theirs, _) in self.pipes.items():
            os.dup2(theirs, number)

    def start(self, *closed: int) -> None:
        """In omac: let a process of its own carry what flows between each file and its pipe; `closed` are for omac
        alone."""
        for number, (theirs, ours) in self.pipes.items():
            if ours >= 0:
                pump = os.fork()
                if not pump:
                    others = [other for pair in self.pipes.values() for other in pair if other >= 0]
                    _carry(number, ours, [*others, *closed])
                self.pumps.append(pump)
                os.close(ours)
            os.close(theirs)
            self.pipes[number] = (-1, -1)

    def finish(self) -> None:
        """Wait until what the program has written has arrived."""
        for pump in self.pumps:
            os.waitpid(pump, 0)
        self.pumps = []

    def close(self) -> None:
        """Let go of everything, arrived or not."""
        for pump in self.pumps:
            _kill(pump)
        for pair in self.pipes.values():
            for descriptor in pair:
                if descriptor >= 0:
                    os.close(descriptor)


def _confine(run: SandboxRun, enter: Callable[[], None], streams: Streams, gate: int) -> None:
    """In the child: wait for the word, be confined, be the program. Does not return."""
    from omac.adapters.sandbox.orphans import die_with_parent

    status = 126
    try:
        streams.take()
        _close_all_but([gate])
        if not run.terminal.there:
            os.setpgid(0, 0)
        default()
        die_with_parent()
        os.read(gate, 1)
        os.close(gate)
        os.chdir(run.policy.workdir)
        enter()
        os.execve(run.argv[0], run.argv, dict(run.policy.environment))  # noqa: S606  # no shell is wanted
    except BaseException as problem:
        os.write(2, f"omac: {run.argv[0]} cannot be started: {problem}\n".encode(errors="backslashreplace"))
        status = 127 if isinstance(problem, FileNotFoundError) else 126
    finally:
        os._exit(status)


def _close_all_but(kept: list[int]) -> None:
    """Nobody inside shall hold what whoever started omac had open."""
    at = 3
    for descriptor in sorted(kept):
        os.closerange(at, descriptor)
        at = descriptor + 1
    os.closerange(at, 1 << 20)


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


def _wait(child: int) -> int:
    """The exit status of a child, 128+n for a signal; when it is stopped, omac stops as well, until both go on."""
    while True:
        _, status = os.waitpid(child, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        os.kill(os.getpid(), 19)  # SIGSTOP; the shell lets the whole group go on
        os.kill(child, 18)  # SIGCONT


def _gone(init: int) -> None:
    """Return when the namespace's init, and with it everything inside, is gone."""
    try:
        descriptor = os.pidfd_open(init)
    except OSError:
        return
    import select

    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    waiting.poll(BUILD_WITHIN_S * 1000)
    os.close(descriptor)


def _kill(child: int) -> None:
    try:
        os.kill(child, 9)
        os.waitpid(child, 0)
    except OSError:
        pass  # it has ended and was waited for


def _carry(number: int, ours: int, others: list[int]) -> None:
    """In a process of its own: from a standard descriptor to the program, or from it. Does not return."""
    try:
        ignored()  # what the keyboard sends is for the program
        source, sink = (number, ours) if number == 0 else (ours, number)
        for descriptor in others:
            if descriptor != ours:
                os.close(descriptor)
        while chunk := os.read(source, _CHUNK_BYTES):
            while chunk:
                chunk = chunk[os.write(sink, chunk) :]
    except OSError:
        pass  # the other side is gone
    finally:
        os._exit(0)
