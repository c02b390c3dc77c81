"""The composition root of `omac serve` and `omac start`: all is made here, wired here, started and ended in order here.

The nursery tree is the ownership tree. The journal's writer is outermost: it is there before anything happens and
until everything has been recorded. Then the reactors, which own processes; innermost the surfaces, through which
requests come.
"""

import contextlib
import logging
import os
import resource
import secrets
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial

import msgspec
import trio

from omac.adapters.control.app import CALLS, ROOT, control_app
from omac.adapters.control.server import serve_control
from omac.adapters.facade.limits import FacadeLimits
from omac.adapters.facade.server import Facade
from omac.adapters.linux import birth, listen, process
from omac.adapters.linux.state import StateDir
from omac.adapters.secrets.stores import Choice, SecretStores
from omac.adapters.sidecars.host import LinuxSidecarHost
from omac.adapters.skills.folders import DiskSkillFolders
from omac.adapters.skills.frozen import DiskFrozenSkills
from omac.domain import ids
from omac.domain import run as runs
from omac.domain.control import ControlRefused, Listener
from omac.domain.harness import Harness
from omac.domain.ids import RunId
from omac.domain.recorded import Cause, Draft
from omac.domain.refusal import Refusal
from omac.domain.run import RunStarted
from omac.domain.sidecar import RestartPolicy
from omac.journal.format import Present
from omac.journal.opening import open_journal
from omac.projections.status import Status, narrowed, status_of
from omac.services.access import AccessGate
from omac.services.activation import Activation
from omac.services.credentials import Credentials, EngineLedger
from omac.services.directories import Caller, Directories
from omac.services.engine import Engine, first
from omac.services.intake import Intake, settle_lost
from omac.services.manifest import Manifest, Reach
from omac.services.recovery import recover, require_only_server, unended_runs
from omac.services.registrar import Registrar
from omac.services.supervision import Supervision
from omac.tools.inner import OF_THE_TERMINAL, Inner
from omac.tools.journals import inbox_of, mark_of
from omac.tools.launching import Launch
from omac.tools.opened import changing_of
from omac.tools.policies import ServePolicies
from omac.tools.ready import Ready, flat_variables, inherited, variables
from omac.tools.version import VERSION

_log = logging.getLogger("omac.serve")

STOP_S = 15.0  # for directories to go offline in order; after that their processes are killed


class Address(msgspec.Struct, frozen=True):
    """A loopback address to listen on; port 0 takes a free one."""

    host: str = "127.0.0.1"
    port: int = 0


class ServeOptions(msgspec.Struct, frozen=True):
    """What a person asked of `omac serve`, or of `omac start`: then `beside` holds, and `workdir` is the one directory.

    Roots and workdir are canonical; `launch` None: nothing is launched.
    """

    harness: Harness
    roots: tuple[str, ...]
    workdir: str | None = None
    launch: Launch | None = None
    beside: bool = False
    journal: str | None = None
    control: Address = Address()
    facade: Address = Address()
    settings: dict[str, str | None] = {}  # by name: what was asked by flags
    restarts: RestartPolicy = RestartPolicy()


class Server:
    """One `omac serve` or `omac start`, from its start to its end."""

    def __init__(self, options: ServeOptions, environment: Mapping[str, str]) -> None:
        self._options = options
        self._environment = dict(environment)
        self._policies = ServePolicies(options.settings, environment)
        self.state = StateDir.of(environment)
        find = self.state.journal_in_use if options.beside else self.state.journal
        path = find(environment, options.journal)
        host = self.state.host_id(lambda: secrets.token_hex(8))
        inbox = inbox_of(self.state, host, path)
        run = secrets.token_hex(6)
        self.journal = open_journal(
            path,
            run,
            time.time_ns,
            inbox,
            is_living=birth.is_living,
            present=_present(run),
            mark=mark_of(self.state, path),
        )
        self._intake = Intake(inbox, path, time.time_ns)
        if not options.beside:
            self.state.hold_server(path)
        self._run = RunId(self.journal.run)
        self._folder = self.state.begin_run(self._run)
        self.state.name_journal(self._run, path)
        self.engine = Engine(self.journal, host, beside=options.beside)
        self.secrets = SecretStores(self.state.path, environment, _choice(self._policies))
        key = self.state.fingerprint_key(lambda: secrets.token_hex(32))
        self._credentials = Credentials(EngineLedger(self.engine), host, self.secrets, key, changing_of(self.state))
        self._frozen = DiskFrozenSkills(self.state.frozen(path, self.journal.store.journal_id()))
        self._stop = trio.Event()
        self._stopped_by = signal.SIGTERM
        self._inner: Inner | None = None
        self._why = ""
        self._writing = trio.CancelScope(shield=True)  # whatever ends the rest, how it ended is still recorded

    async def run(self, ready: Callable[[Ready], None], activated: Callable[[Manifest], None] = lambda _: None) -> int:
        """Serve until asked to stop, or until the agent ends; returns the exit code. Raises Refusal.

        `activated` is told of the one directory that was to be activated at once, before `ready`.
        """
        raise_descriptor_limit()
        try:
            async with trio.open_nursery() as outermost:
                await outermost.start(self._keep_writing)
                try:
                    status = await self._run_reactors(ready, activated)
                finally:
                    self._writing.cancel()
        finally:
            self.journal.close()
        return status

    def stop(self, why: str, number: signal.Signals = signal.SIGTERM) -> None:
        """Ask the server to end in order, its agent by this signal; asked twice, it no longer waits for its agent."""
        if self._inner is not None:
            self._inner.end(number)
        if not self._stop.is_set():
            self._stopped_by = number
        self._why = self._why or why
        self._stop.set()

    async def _keep_writing(self, task_status: trio.TaskStatus[None]) -> None:
        with self._writing:
            await self.engine.writer.run(task_status)

    async def _run_reactors(self, ready: Callable[[Ready], None], activated: Callable[[Manifest], None]) -> int:
        options = self._options
        folders = DiskSkillFolders(self._environment)
        sidecars = LinuxSidecarHost(os.path.join(self._folder, "logs"), self._environment)
        if not await sidecars.isolation_available():
            _log.warning("sidecars get no pid namespace of their own: %s", sidecars.isolation_problem)
        await recover(self.engine, sidecars, self.state.is_alive, self.state.recovering)
        if not options.beside:
            require_only_server(self.engine)
        await settle_lost(self.engine, process.living, birth.boot_id(), self._intake.take_in)
        self.state.prune_runs(unended_runs(self.engine))
        await self._prune_copies()
        await self._record_start()
        registrar = Registrar(
            self.engine, folders, self._frozen, self._credentials, options.harness, self._policies, self._environment
        )
        supervision = Supervision(
            self.engine, sidecars, folders, self._frozen, self._credentials, options.harness.name, registrar.vouched,
            options.restarts,
        )  # fmt: skip
        activation = Activation(self.engine, registrar, options.harness.name)
        try:
            async with trio.open_nursery() as reactors:
                await reactors.start(supervision.run)
                await reactors.start(activation.run)
                reactors.start_soon(self._intake.run)
                activation.look_at_shared()
                status = await self._run_surfaces(folders, ready, activated)
                reactors.cancel_scope.cancel()
        except BaseExceptionGroup as problems:
            if refusals := problems.subgroup(Refusal):  # a port is taken, say: this run ends before it served
                self._why = str(next(leaves(refusals)))
                with contextlib.suppress(Refusal):  # the journal itself may be what failed
                    await self._record(runs.Stop(self._why))
            raise
        await self._intake.take_in()  # how what was launched ended
        await self._record(runs.Stop(self._why or "its agent ended"))
        return status

    async def _run_surfaces(
        self, folders: DiskSkillFolders, ready: Callable[[Ready], None], activated: Callable[[Manifest], None]
    ) -> int:
        options = self._options
        facade_tcp = listen.tcp(options.facade.host, options.facade.port, "--facade-addr")
        facade_unix = listen.unix(os.path.join(self._folder, "facade.sock"))
        control_tcp = listen.tcp(options.control.host, options.control.port, "--control-addr")
        control_unix = listen.unix(os.path.join(self._folder, "control.sock"))
        told = Ready(
            listen.http_base(control_tcp),
            control_unix.getsockname(),
            os.path.join(self._folder, "control.token"),
            listen.http_base(facade_tcp),
            facade_unix.getsockname(),
            self.journal.store.path,
            self._run,
        )
        token = secrets.token_hex(32)
        self.state.write_token(told.control_token_file, token)
        seen = options.launch.sees(told) if options.launch else told
        reach = Reach(told.facade_base, told.facade_socket, seen.facade_socket)
        directories = Directories(
            self.engine, folders, options.harness.name, options.roots, reach, lambda: secrets.token_hex(16)
        )
        app = control_app(
            directories,
            self._status,
            lambda: secrets.token_hex(8),
            self.secrets.give_vault_key,
        )
        facade = Facade(AccessGate(self.engine), FacadeLimits())
        listeners: dict[Listener, tuple[socket.socket, str | None]] = {
            "socket": (control_unix, None),
            "tcp": (control_tcp, token),
        }
        status = 0
        try:
            async with trio.open_nursery() as surfaces:
                await surfaces.start(self._watch_signals)
                await surfaces.start(facade.serve, [listen.listener(facade_tcp), listen.listener(facade_unix)])
                await surfaces.start(serve_control, app, listeners, self._control_refused)
                if not options.beside:
                    self.state.point_current(self._run)
                manifest = await self._unless_stopped(partial(self._activate, directories))
                if not self._stop.is_set():
                    if manifest is not None:
                        activated(manifest)
                    ready(told)
                    status = await self._run_inner(told, manifest)
                elif options.launch is not None:  # it was not even begun
                    status = 128 + self._stopped_by
                surfaces.cancel_scope.cancel()
        finally:
            with trio.move_on_after(STOP_S, shield=True):
                await directories.deactivate_all(self._why or "its agent ended")
        return status

    async def _prune_copies(self) -> None:
        """Remove copies that nobody approves any more. One that a sidecar of another run still uses is not needed for
        it to go on: its files are open, or its next start is refused."""
        registrations = self.engine.system.registrations.entries.values()
        kept = {code.digest for entry in registrations for code in (entry.state.approved, entry.state.accepted) if code}
        try:
            await self._frozen.prune(kept)
        except OSError as problem:
            _log.warning("copies of skills that are no longer approved cannot be removed: %s", problem)

    async def _activate(self, directories: Directories) -> Manifest | None:
        if self._options.workdir is None:
            return None
        return await directories.activate(self._options.workdir, Caller("command-line", secrets.token_hex(8)))

    async def _unless_stopped(self, work: Callable[[], Awaitable[Manifest | None]]) -> Manifest | None:
        """What the work gives; None when omac is asked to stop: then it is left undone."""

        async def stopped() -> None:
            await self._stop.wait()

        return await first(work, stopped)

    async def _run_inner(self, told: Ready, manifest: Manifest | None) -> int:
        """Run what is to be launched to its end; `manifest` is that of the one directory of a run beside the server."""
        launch = self._options.launch
        if launch is None:
            await self._stop.wait()
            return 0
        seen = launch.sees(told)
        flat = flat_variables(manifest, seen) if manifest and self._options.beside else {}
        given = flat | variables(self._options.harness.name, seen)
        argv = launch.command_line(told, list(given))
        folder = None if launch.sandboxed else launch.workdir
        self._inner = Inner(argv, inherited(self._environment) | given, folder)
        try:
            return await self._inner.ended()
        finally:
            self._inner = None

    def _status(self, listener: Listener) -> Status:
        """To whoever may be in a sandbox, no more than what is below the roots."""
        status = status_of(self.engine.system)
        return status if listener == "socket" else narrowed(status, self._options.roots)

    async def _watch_signals(self, task_status: trio.TaskStatus[None]) -> None:
        with trio.open_signal_receiver(*OF_THE_TERMINAL, signal.SIGTERM, signal.SIGHUP) as signals:
            task_status.started()
            async for raw in signals:
                number = signal.Signals(raw)
                if self._inner is not None and number in OF_THE_TERMINAL:
                    self._inner.interrupt(number)
                else:
                    self.stop(f"asked by {number.name}", number)

    async def _record_start(self) -> None:
        pid, options = os.getpid(), self._options
        event = RunStarted(
            options.harness.name, VERSION, pid, birth.start_ticks(pid) or 0, birth.boot_id(), options.roots,
            msgspec.to_builtins(self._policies.asked), "start" if options.beside else "serve",
        )  # fmt: skip
        await self._record(runs.Start(event))

    async def _record(self, command: runs.Command) -> None:
        stream = ids.run_stream(self.engine.host, self._run)
        await self.engine.execute(self.engine.system.runs, stream, partial(runs.decide, command), Cause("person"))

    async def _control_refused(self, listener: Listener, path: str, reason: str) -> None:
        action = path.removeprefix(ROOT)  # what is no call of ours may be anything, even a token
        event = ControlRefused(action if action in CALLS else "", "", listener, reason)
        await self.engine.record_refusal(Draft(ids.control_stream(self.engine.host), None, event), Cause("bridge"))


def _present(run: str) -> Present:
    pid = os.getpid()
    return Present(run, pid, birth.start_ticks(pid) or 0, birth.boot_id(), VERSION)


def _choice(policies: ServePolicies) -> Choice:
    value = policies.resolved["secrets.store"].value
    return "vault" if value == "vault" else "keychain" if value == "keychain" else "auto"


def raise_descriptor_limit() -> None:
    """Allow as many open files as the system lets us: an access may need two sockets."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def leaves(problems: BaseException) -> Iterator[BaseException]:
    """The exceptions in a group of groups."""
    if isinstance(problems, BaseExceptionGroup):
        for problem in problems.exceptions:
            yield from leaves(problem)
    else:
        yield problems
