"""The host that starts sidecars: each with a free port, a log, a clean environment, and a life that ends with
omac's."""

import logging
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from weakref import WeakValueDictionary

import trio

from omac.adapters.linux import host_programs, process
from omac.adapters.linux import process_identity as birth
from omac.adapters.sidecars import command, interpreters, launch, logfile, orphan
from omac.adapters.sidecars.ports import ReservedPort, SidecarPorts
from omac.adapters.sidecars.process import LinuxSidecarProcess
from omac.domain.kernel.hidden import Hidden
from omac.domain.kernel.refusal import problem_of
from omac.domain.sandbox.doctor import USERNS_MAX, is_lack
from omac.domain.sidecars.sidecar import Birth, SidecarSpec, environment
from omac.services.kernel.threads import run_in_thread
from omac.services.ports import SidecarHost, SpawnFailed

_log = logging.getLogger("omac.sidecars")

ISOLATION_PROBE_S = 5.0
TRIED_AFTER_S = 0.5
LOGS_BOUND_S = 5.0


class LinuxSidecarHost(SidecarHost):
    """Starts sidecars in a pid namespace each, where bubblewrap can build one, else in a session each.

    Only the namespace keeps the promise that nothing outlives omac's own SIGKILL; `Birth.isolated` says which it is.
    """

    def __init__(
        self,
        logs: str,
        host_environment: Mapping[str, str],
        *,
        isolate: bool = True,
        bwrap: str | None = None,
        writable: Sequence[str] = (),
    ) -> None:
        """`logs` is the folder of the log files; `host_environment` what sidecars may inherit from; `isolate=False`
        does without namespaces even where they can be had; `bwrap` is the path of bubblewrap, empty for none;
        `writable` are canonical folders, beside a sidecar's own project, where agents may have put programs."""
        self._logs = logs
        self._host_environment = dict(host_environment)
        self._ports = SidecarPorts()
        self._by_port: WeakValueDictionary[int, LinuxSidecarProcess] = WeakValueDictionary()
        self._writable = tuple(writable)
        self._boot_id = birth.boot_id()
        self._probing = trio.Lock()
        self._isolation_problem: str | None = "switched off"
        self._isolation_known = not isolate
        self._bwrap = host_programs.find("bwrap") if bwrap is None else bwrap

    async def isolation_available(self) -> bool:
        """Return whether bubblewrap can build the namespace here. Unless that is switched off, the first call tries it,
        with the same flags, for at most 5 s, and logs a failure."""
        async with self._probing:
            if not self._isolation_known:
                problem = self._isolation_problem = await self._try_isolation()
                self._isolation_known = problem is None or not self._bwrap or is_lack(problem, _sysctls())
                if problem is not None:
                    outlook = "" if self._isolation_known else "; none is started without, and the next one tries again"
                    _log.warning("sidecars get no pid namespace of their own: %s%s", problem, outlook)
        return self._isolation_problem is None

    async def warn_without_isolation(self) -> None:
        """Log where there is no namespace, even if no sidecar is started: one that gets its own spares the try."""
        await trio.sleep(TRIED_AFTER_S if self._bwrap else 0.0)
        await self.isolation_available()

    async def bound_logs(self) -> None:
        """Keep the logs of the sidecars that run within logfile.BOUND_BYTES each, until cancelled."""
        while True:
            await trio.sleep(LOGS_BOUND_S)
            logs = [started.birth.log for started in self._by_port.values()]
            if long := list(filter(logfile.is_long, logs)):  # else a thread would begin each time for nothing
                await run_in_thread(logfile.bound, long)

    async def spawn(
        self, label: str, spec: SidecarSpec, folder: str, secrets: Mapping[str, Hidden]
    ) -> LinuxSidecarProcess:
        """Start it in `folder` on a free loopback port; `label` names its log file.

        The environment is `omac.domain.sidecars.sidecar.environment` and PWD, which bubblewrap always sets (where
        /bin/sh is bash, SHLVL and _ too); it is in no other process's. An approved copy is read-only to it, where it
        has a namespace. Raises SpawnFailed, InterpreterChanged; then, as after a cancellation, nothing of it is left.
        """
        port = self._ports.reserve()
        try:
            return await self._spawn(label, spec, folder, secrets, port)
        except BaseException:
            port.release()
            raise

    async def _spawn(
        self, label: str, spec: SidecarSpec, folder: str, secrets: Mapping[str, Hidden], reserved: ReservedPort
    ) -> LinuxSidecarProcess:
        port, host_path = reserved.number, self._host_environment.get("PATH", os.defpath)
        path = await run_in_thread(interpreters.trusted_path, spec, host_path, self._writable)
        variables = environment(spec, port, self._host_environment | {"PATH": path}, secrets) | {"PWD": folder}
        argv = command.argv(spec, folder, port, variables)
        log_path = os.path.join(self._logs, f"{label}.log")
        logfile.make_room(log_path, {started.birth.log for started in self._by_port.values()})
        try:
            log = logfile.open_log(self._logs, label)
        except (OSError, ValueError) as problem:
            reason = (problem.strerror if isinstance(problem, OSError) else "") or str(problem)
            raise SpawnFailed(f"cannot open the log {log_path}: {reason}") from problem
        try:
            logfile.write_header(log, spec.skill, port, argv)
            child, init = await self._start(launch.SidecarProgram(argv, variables, folder, bool(spec.digest)), log)
        except (OSError, ValueError, launch.NoNamespace) as problem:
            why = problem_of(problem) if isinstance(problem, OSError) else problem
            raise SpawnFailed(f"cannot start {argv[0]}: {why}; see {log_path}") from problem
        finally:
            os.close(log)
        try:
            started = LinuxSidecarProcess(
                child, self._birth(child.pid, port, init is not None, log_path), init, reserved
            )
        except OSError as problem:  # it runs, but there is no descriptor left to watch it by
            await launch.destroy(child)
            raise SpawnFailed(f"cannot watch {argv[0]}: {problem_of(problem)}; see {log_path}") from problem
        self._by_port[port] = started
        return started

    def reaches(self, connection: socket.socket) -> bool:
        """Return whether a connection that was just made to a port came to the sidecar that has it. Raises OSError."""
        started = self._by_port.get(connection.getpeername()[1])
        return started is not None and started.is_reached(connection)

    async def end_orphan(self, birth: Birth) -> bool:
        """Kill what `birth` identifies, wrappers and children included; False if it was already gone."""
        return await orphan.end(birth)

    async def end_unbuilt(self) -> int:
        """Kill inits that wait for a bubblewrap that is gone; return how many."""
        return await orphan.end_unbuilt()

    async def _start(
        self, program: launch.SidecarProgram, log: int
    ) -> tuple[subprocess.Popen[bytes], process.Stat | None]:
        """Start it in a namespace, where there are any. The first one that could be built proves that there are; one
        that could not says nothing: it may have been this program's."""
        if self._bwrap and not self._isolation_known:
            try:
                started = await launch.start_in_namespace(self._bwrap, program, log)
            except (OSError, ValueError, launch.NoNamespace):
                if await self.isolation_available():
                    raise
            else:
                self._isolation_known, self._isolation_problem = True, None
                return started
        if await self.isolation_available():
            return await launch.start_in_namespace(self._bwrap, program, log)
        if not self._isolation_known:
            raise launch.NoNamespace(self._isolation_problem)
        return launch.start(program.argv, program.environment, program.folder, log), None

    def _birth(self, pid: int, port: int, isolated: bool, log: str) -> Birth:
        ticks = birth.start_ticks(pid)
        assert ticks is not None, "a child that was not reaped has an entry in /proc"
        return Birth(pid, ticks, self._boot_id, port, isolated, log)

    async def _try_isolation(self) -> str | None:
        if not self._bwrap:
            return f"bubblewrap (bwrap) is not in {host_programs.SEARCHED}"
        output = os.memfd_create("bwrap-output")
        try:
            with trio.fail_after(ISOLATION_PROBE_S):
                true = launch.SidecarProgram(["true"], {"PATH": host_programs.SEARCHED}, "/")
                child, _ = await launch.start_in_namespace(self._bwrap, true, output)
                try:
                    code = await launch.reap(child)
                except BaseException:
                    await launch.destroy(child)
                    raise
            return None if code == 0 else f"bubblewrap failed: {logfile.tail(output)}"
        except (OSError, ValueError, launch.NoNamespace) as problem:
            return f"bubblewrap failed: {logfile.tail(output) or problem}"
        except trio.TooSlowError:
            return f"bubblewrap did not finish within {ISOLATION_PROBE_S:g} s"
        finally:
            os.close(output)


def _sysctls() -> dict[str, str]:
    """Return the setting of the kernel that says whether there are user namespaces at all."""
    try:
        with open(f"/proc/sys/{USERNS_MAX.replace('.', '/')}", encoding="ascii") as file:
            return {USERNS_MAX: file.read().strip()}
    except OSError:
        return {}
