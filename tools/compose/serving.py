"""The composition root of `omac serve` and `omac start`: all is made here, wired here, started and ended in order here.

The nursery tree is the ownership tree. The journal's writer is outermost: it is there before anything happens and
until everything has been recorded. Then the reactors, which own processes; innermost the surfaces, through which
requests come.
"""

import contextlib
import logging
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from functools import partial
from typing import cast

import trio

from omac.adapters.control.contract import ROOT
from omac.adapters.control.late import ControlUseCases, LateApp
from omac.adapters.control.server import serve_control
from omac.adapters.credentials.stores import Choice, SecretStores
from omac.adapters.facade.limits import FacadeLimits
from omac.adapters.facade.server import Facade
from omac.adapters.http.accepting import HEAD_BYTES_MAX
from omac.adapters.linux import process_identity, readiness
from omac.adapters.linux.descriptor_limit import raise_descriptor_limit
from omac.adapters.linux.watch import FolderWatch
from omac.adapters.sidecars.host import LinuxSidecarHost
from omac.adapters.skills.folders import DiskSkillFolders
from omac.adapters.skills.frozen import DiskFrozenSkills
from omac.domain.access import control
from omac.domain.access.control import CALLS, ControlRefused, Listener
from omac.domain.kernel import ids
from omac.domain.kernel import run as runs
from omac.domain.kernel.aggregate import Addressed
from omac.domain.kernel.event import PERSON, Cause
from omac.domain.kernel.ids import HostId, RunId, StreamId
from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.run import RunStarted
from omac.projections.evidence.use import RunUse
from omac.projections.status import Status, narrowed, status_of
from omac.services.access.recorder import JournalAccessRecorder
from omac.services.credentials.values import Credentials
from omac.services.directories.activation import Activation
from omac.services.directories.control_call import Caller
from omac.services.directories.locking import StoreLocking
from omac.services.directories.manifest import Manifest, Reach
from omac.services.directories.requests import Directories
from omac.services.guard.claims import DenialClaims
from omac.services.kernel.checkpointing import Checkpointing
from omac.services.kernel.engine import Engine, first
from omac.services.kernel.intake import Intake, settle_lost
from omac.services.kernel.owners import innermost, retried
from omac.services.kernel.recovery import recover, require_only_server, unended_runs
from omac.services.kernel.refusals import Refusals
from omac.services.kernel.witnessing import Witnessing
from omac.services.sidecars.supervision import Supervision
from omac.services.skills.registrar import Registrar
from omac.tools.compose.approved_copies import keep_pruned, prune_copies
from omac.tools.compose.command_context import changing_of
from omac.tools.compose.ending import STALL_S, STOP_S, Ending
from omac.tools.compose.endpoints import Ready, flat_variables, inherited, variables
from omac.tools.compose.journals import inbox_of, snapshots_of, to_serve
from omac.tools.compose.listening import Listening
from omac.tools.compose.preloading import LaterLoading
from omac.tools.compose.receipts import receiving
from omac.tools.compose.repositories import GitRepositories
from omac.tools.compose.run_folder import delete_sockets, keep_folder
from omac.tools.compose.serve_options import ServeOptions
from omac.tools.compose.signing import BACKGROUND_WAIT_S, Signer
from omac.tools.compose.skill_policies import ServePolicies
from omac.tools.compose.state import StateDir, host_id, is_living_launch
from omac.tools.compose.waiting_sandbox import WaitingSandbox
from omac.tools.compose.witnesses import last_note, witness_of
from omac.tools.terminal.version import VERSION

_log = logging.getLogger("omac.serve")

DESCRIPTORS_MAX = 1 << 20  # where the system sets no limit


class Server:
    """An `omac serve` or `omac start`, from its start to its end; `waiting`, if given, will build its sandbox."""

    def __init__(self, options: ServeOptions, environment: Mapping[str, str], waiting: WaitingSandbox | None) -> None:
        self._options = options
        self._environment = dict(environment)
        self._writable = options.writable(environment)
        self._policies = ServePolicies(options.settings, environment, options.sandboxed)
        self.state = StateDir.of(environment)
        find = self.state.journal_in_use if options.beside else self.state.journal
        path, host, run = find(environment, options.journal), host_id(self.state), secrets.token_hex(6)
        self.ending = Ending()
        self._waiting = waiting
        self.bridge_base = self.witness_base = ""  # where bridges and other omacs reach it, once it is ready
        self._descriptors_max = DESCRIPTORS_MAX
        self._writing = trio.CancelScope(shield=True)  # whatever ends the rest, how it ended is still recorded
        with contextlib.ExitStack() as resources:  # which a refusal closes
            self.journal = resources.enter_context(contextlib.closing(to_serve(self.state, path, run)))
            self._watches = resources.enter_context(contextlib.ExitStack())
            self._compose(path, host)
            self._resources = resources.pop_all()

    def _compose(self, path: str, host: HostId) -> None:
        """Make the parts of the server around its journal, which is open. Raises Refusal."""
        options, environment = self._options, self._environment
        if not options.beside:
            self.state.hold_server(path)
        self._run = RunId(self.journal.run)
        self.use = RunUse(self._run)
        snapshots = snapshots_of(self.state, self.journal.store.reader)
        self.engine = Engine(self.journal, host, beside=options.beside, snapshots=snapshots)
        self.engine.observe(self.use.apply)
        self.engine.observe_accesses(self.use.apply)
        self._loading = LaterLoading(self.engine, options.launch, self._writable)
        self._intake = Intake(inbox_of(self.state, host, path), self.engine)
        self._refusals = Refusals(self.engine)
        signer = Signer(self.state, path, lambda _: self.secrets, trio.from_thread.run, BACKGROUND_WAIT_S)
        self._checkpoints = Checkpointing(self.engine, signer.checkpoint)
        witness = witness_of(self._policies.resolved, signer)
        self._witnessing = Witnessing(self.engine, witness, partial(last_note, path, host))
        choice = cast("Choice", self._policies.resolved["secrets.store"].value)
        self.secrets = SecretStores(self.state.path, environment, choice)
        key = self.state.fingerprint_key(lambda: secrets.token_hex(32))
        self._credentials = Credentials(self.engine, self.secrets, key, changing_of(self.state))
        self._frozen = DiskFrozenSkills(self.state.frozen(path, self.journal.store.journal_id()))
        self._folders = DiskSkillFolders(environment)

    async def run(self, ready: Callable[[Ready], None], activated: Callable[[Manifest], None] = lambda _: None) -> int:
        """Serve until asked to stop, or until the agent ends; returns the exit code. Raises Refusal. `activated` is
        told of the one directory that was to be activated at once, before `ready`."""
        self._descriptors_max = raise_descriptor_limit(DESCRIPTORS_MAX)
        try:
            self._prepare_sandbox()
            async with trio.open_nursery() as signals:
                await signals.start(self.ending.watch_signals)
                async with trio.open_nursery() as outermost:
                    await outermost.start(self._keep_writing)
                    outermost.start_soon(self.ending.refuse_stalled, self.engine.refuse_waiting)
                    try:
                        status = await self._run_reactors(ready, activated)
                    finally:
                        outermost.cancel_scope.cancel()
                        self._writing.cancel()
                signals.cancel_scope.cancel()
        finally:
            self._resources.close()
        return status

    async def _keep_writing(self, task_status: trio.TaskStatus[None]) -> None:
        with self._writing:
            await self.engine.keep_writing(task_status)

    async def _run_reactors(self, ready: Callable[[Ready], None], activated: Callable[[Manifest], None]) -> int:
        options = self._options
        self._folder = self.state.begin_run(self._run)  # no sooner: what was refused leaves no folder
        self._resources.callback(delete_sockets, self._folder)
        self.state.name_journal(self._run, self.journal.store.path)
        sidecars = LinuxSidecarHost(os.path.join(self._folder, "logs"), self._environment, writable=self._writable)
        await recover(self.engine, sidecars, self.state.is_alive, self.state.recovering)
        if not options.beside:
            require_only_server(self.engine)
        await self._settle_lost()
        self.state.prune_runs(unended_runs(self.engine))
        await first(partial(prune_copies, self.engine, self._frozen), self.ending.asked.wait)  # may wait for a thread
        await self._record_start()
        registrar = Registrar(
            self.engine, self._folders, self._frozen, self._credentials, options.harness, self._policies,
            self._environment, GitRepositories(),
        )  # fmt: skip
        self.ending.supervision = supervision = Supervision(
            self.engine, sidecars, self._folders, self._frozen, self._credentials, options.harness.name,
            registrar.is_approved, options.restarts,
        )  # fmt: skip
        activation = Activation(self.engine, registrar, options.harness.name)
        self.engine.observe(supervision.notice, activation.notice)
        self.engine.observe_revocations(activation.notice_revocation)
        try:
            async with trio.open_nursery() as reactors:
                reactors.start_soon(retried, "the namespaces of sidecars", sidecars.warn_without_isolation)
                reactors.start_soon(sidecars.bound_logs)
                await reactors.start(supervision.run)
                await reactors.start(activation.run)
                self._watch(reactors)
                reactors.start_soon(self._refusals.run)
                reactors.start_soon(self._checkpoints.run)
                reactors.start_soon(self._witnessing.run)
                reactors.start_soon(keep_pruned, self.engine, self._frozen)
                activation.discover_shared()
                status = await self._run_surfaces(sidecars, ready, activated)
                reactors.cancel_scope.cancel()
        except BaseExceptionGroup as problems:
            if refusals := problems.subgroup(Refusal):  # a port is taken, say: this run ends before it served
                self.ending.fail(str(innermost(refusals)))
                with contextlib.suppress(Refusal):  # the journal itself may be what failed
                    await self._record(runs.Stop(self.ending.why))
            raise
        self._watches.close()  # now: the kernel takes its time for it
        with trio.move_on_after(STOP_S):  # they may wait for threads; the next start does the rest
            await self._intake.take_in()  # how what was launched ended
            await self._settle_lost()  # of what was killed nothing else tells
        with trio.move_on_after(STALL_S):
            await self._refusals.flush()
            await self._checkpoints.sign_last()
            await self._witnessing.deliver()
        await self._record(runs.Stop(self.ending.why))
        return status

    async def _settle_lost(self) -> None:
        living = partial(is_living_launch, self.state)
        await settle_lost(self.engine, living, self._intake.take_in, self._intake.waiting)

    async def _run_surfaces(
        self, sidecars: LinuxSidecarHost, ready: Callable[[Ready], None], activated: Callable[[Manifest], None]
    ) -> int:
        options = self._options
        token = self.state.witness_token(partial(secrets.token_hex, 32)) if options.witness else ""
        listening = Listening(options, self._folder, self._descriptors_max, token)
        self.witness_base = listening.witness_base
        endpoints = listening.endpoints(self.journal.store.path, self._run)
        for_bridge = listening.for_bridge(endpoints)
        self.bridge_base = for_bridge.control_base
        for name, token in listening.tokens.items():
            self.state.write_token(os.path.join(self._folder, name), token)
        directories = self._directories(for_bridge)
        use_cases = ControlUseCases(
            directories, StoreLocking(self.engine, self._refusals), DenialClaims(self.engine, self._refusals),
            self._status, partial(secrets.token_hex, 8), self.secrets, receiving(self.engine), options.bridge_compat,
        )  # fmt: skip
        app = LateApp(use_cases)
        owner, status = self._policies.owner, 0
        gate = JournalAccessRecorder(self.engine, self._refusals, self._only_directory(), owner)
        self.engine.observe(directories.notice, gate.notice)
        self.engine.observe_revocations(gate.notice_revocation)
        limits = FacadeLimits(head_bytes_max=owner.head_bytes or HEAD_BYTES_MAX)
        facade = Facade(self._policies.recorder(gate, self._resources), limits, reaches=sidecars.reaches)
        async with trio.open_nursery() as surfaces:
            try:
                await surfaces.start(facade.serve, listening.data_plane())
                control_plane = listening.control_plane()
                await surfaces.start(partial(serve_control, app, control_plane, self._control_refused))
                if not options.beside:
                    self.state.point_current(self._run)
                surfaces.start_soon(retried, "run folder", partial(self._keep_folder, surfaces, listening, facade, app))
                self._loading.begin(app, surfaces)
                manifest = await first(partial(self._activate, directories), self.ending.asked.wait)
                if not self.ending.asked.is_set():
                    if manifest is not None:
                        activated(manifest)
                    ready(endpoints)
                    readiness.notify_ready(self._environment)
                    await self._loading.finish(app, surfaces)
                if not self.ending.asked.is_set():  # nor meanwhile
                    status = await self._run_inner(for_bridge, manifest)
                elif options.launch is not None:  # it was not even begun
                    status = 128 + self.ending.by
            finally:  # tokens die first, and who waits gets an answer while there is still somebody to give it
                gate.stop()
                with self.ending.offline():
                    await directories.deactivate_all(self.ending.why)
            surfaces.cancel_scope.cancel()
        return status

    def _only_directory(self) -> StreamId | None:
        """The directory of a run beside the server, which has no other."""
        workdirs = self._options.workdirs if self._options.beside else ()
        return ids.directory_stream(self.engine.namespace, ids.scope_of(workdirs[0])) if workdirs else None

    def _directories(self, endpoints: Ready) -> Directories:
        options, folders = self._options, self._folders
        seen = options.launch.sees(endpoints) if options.launch else endpoints
        offline = options.launch is not None and options.launch.offline
        reach = Reach(endpoints.facade_base, endpoints.facade_socket, seen.facade_socket, offline)
        mint, only = partial(secrets.token_hex, 16), options.workdirs[0] if options.beside else ""
        return Directories(self.engine, folders, options.harness.name, options.roots, reach, mint, self._refusals, only)

    def _watch(self, reactors: trio.Nursery) -> None:
        """Follow what other processes append and spool: by watching where that can be had, else by polling."""
        folder, name = os.path.split(self.journal.store.path)
        try:
            journal = self._watches.enter_context(closing(FolderWatch(folder, (name, f"{name}-wal"))))
            spool = self._watches.enter_context(closing(FolderWatch(self._intake.folder())))
        except OSError as problem:
            _log.info("files are polled, since they cannot be watched: %s", problem)
            reactors.start_soon(retried, "the spool", self._intake.run)
        else:
            reactors.start_soon(self.engine.watch, journal.changed)
            reactors.start_soon(retried, "the spool", partial(self._intake.run, spool.changed))

    async def _keep_folder(self, surfaces: trio.Nursery, listening: Listening, facade: Facade, app: object) -> None:
        async def serve_facade(bound: socket.socket) -> None:
            await surfaces.start(facade.serve, listening.data_again(bound))

        async def serve_again(authority: Listener, bound: socket.socket) -> None:
            again = listening.control_again(authority, bound)
            await surfaces.start(partial(serve_control, app, again, self._control_refused))

        control, bridge = partial(serve_again, "socket"), partial(serve_again, "bridge")
        sockets: dict[str, Callable[[socket.socket], Awaitable[None]]]
        sockets = {"facade.sock": serve_facade, "control.sock": control, "bridge.sock": bridge}
        journal, current = self.journal.store.path, not self._options.beside
        await keep_folder(self.state, self._run, journal, listening.tokens, sockets, current=current)

    async def _activate(self, directories: Directories) -> Manifest | None:
        """Activate what was named; returns the manifest of the first. Raises Refusal."""
        manifests = [
            await directories.activate(workdir, Caller("command-line", secrets.token_hex(8)))
            for workdir in self._options.workdirs
        ]
        return manifests[0] if manifests else None

    def _prepare_sandbox(self) -> None:
        """Have the sandbox's own process load what it needs, while this one does all else."""
        if self._options.launch and not self._waiting:
            self._waiting = self._options.launch.prepare(self._environment)
        if self._waiting:
            self._resources.callback(self._waiting.give_up)

    async def _run_inner(self, ready: Ready, manifest: Manifest | None) -> int:
        """Run what is to be launched to its end; `manifest` is that of the one directory of a run beside the server."""
        launch = self._options.launch
        if launch is None:
            await self.ending.asked.wait()
            return 0
        seen = launch.sees(ready)
        flat = flat_variables(manifest, seen) if manifest and self._options.beside else {}
        extra = flat | variables(self._options.harness, seen) | launch.variables
        self.ending.inner = await launch.start(self._waiting, ready, inherited(self._environment) | extra, list(extra))
        if self.ending.asked.is_set():  # meanwhile
            self.ending.inner.end(self.ending.by)
        try:
            return await self.ending.inner.ended()
        finally:
            self.ending.inner = None
            launch.remove_settings(ready)

    async def _status(self, listener: Listener) -> Status:
        """Return the status; callers that may be in a sandbox get only the part below the roots."""
        await self.engine.catch_up_for_reading()
        status = status_of(self.engine.system)
        return status if listener == "socket" else narrowed(status, self._options.roots)

    async def _record_start(self) -> None:
        pid, options = os.getpid(), self._options
        launch = options.launch.recorded if options.launch else {}
        policy = self._policies.recorded | launch | ({"bridge_compat": True} if options.bridge_compat else {})
        event = RunStarted(
            options.harness.name, VERSION, pid, process_identity.start_ticks(pid) or 0, process_identity.boot_id(),
            options.roots, policy, "start" if options.beside else "serve",
        )  # fmt: skip
        await self._record(runs.Start(event))

    async def _record(self, command: runs.Command) -> None:
        stream = ids.run_stream(self.engine.host, self._run)
        await self.engine.execute(runs.AGGREGATE, stream, command, PERSON)

    async def _control_refused(self, listener: Listener, path: str, reason: str) -> None:
        action = path.removeprefix(ROOT)  # what is no call of ours may be anything, even a token
        event = ControlRefused(action if action in CALLS else "", "", listener, reason)
        fact = Addressed(control.AGGREGATE, ids.control_stream(self.engine.host), event)
        await self._refusals.note(fact, Cause("bridge"), (event.action, listener, reason))
