"""Supervision: the owner of each sidecar performs the effect that `reaction.react` calls for, and records what came of
it, until the sidecar is idle or has given up."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

import trio

from omac.domain.directories.events import NOT_APPROVED
from omac.domain.kernel.event import Recorded
from omac.domain.kernel.exhaustion import raise_exhaustion
from omac.domain.kernel.ids import LOG_DIGITS, StreamId, key_of
from omac.domain.kernel.refusal import Refusal, problem_of, quoted
from omac.domain.sidecars import reaction, sidecar
from omac.domain.sidecars.sidecar import Exit, RestartPolicy, Sidecar, SidecarSpec, SpawnRequested
from omac.domain.skills.meta import Health
from omac.domain.skills.scope import SkillScope
from omac.journal.problem_log import ProblemLog
from omac.services.credentials.values import Credentials, SecretsMissing
from omac.services.kernel.engine import Engine, first
from omac.services.kernel.owners import Owners
from omac.services.ports import (
    CopyDamaged,
    FrozenSkills,
    InterpreterChanged,
    ProbeFailed,
    SidecarHost,
    SidecarProcess,
    SkillFolders,
    SpawnFailed,
)

STOP_GRACE_MS = 5_000
KILLED_S = 5.0  # for a sidecar that was killed to be gone
WATCH_S = 5.0  # between two looks whether a healthy sidecar still listens
DOUBT_S = 0.5
KEPT = "it wants to write where it must not, as in its approved copy"
RETRY_S = 0.5  # between two tries to record a fact while the journal is away

_log = logging.getLogger("omac.supervision")


class _Changed(Exception):
    """The files of a skill are not those that were judged; `fix` may mend it."""

    def __init__(self, problem: str, *fix: str) -> None:
        super().__init__(problem)
        self.fix = fix


class _Running:
    """A process that an owner has, and when it was started."""

    def __init__(self, process: SidecarProcess) -> None:
        self.process = process
        self.started_at = trio.current_time()


@dataclass(eq=False, repr=False)
class Supervision:
    """Owns every sidecar process of this run."""

    _engine: Engine
    _host: SidecarHost
    _folders: SkillFolders
    _frozen: FrozenSkills
    _credentials: Credentials
    _harness: str
    _is_approved: Callable[[SidecarSpec], bool]
    _policy: RestartPolicy = RestartPolicy()  # noqa: RUF009  # frozen
    _grace_ms: int = field(default=STOP_GRACE_MS, init=False)
    _ending: set[SidecarProcess] = field(default_factory=set, init=False)
    _running: dict[StreamId, _Running] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._owners = Owners(self._act, lambda stream: self._state(stream).live, self._end)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Own sidecars until cancelled; whatever still runs then is stopped before this returns."""
        await self._owners.run(task_status)

    def hurry(self) -> None:
        """Kill the processes that are being stopped; stop processes without grace from now on."""
        self._grace_ms = 0
        for process in self._ending:
            self._owners.also(process.stop, 0)

    def notice(self, recorded: Recorded) -> None:
        """Own a sidecar that shall run here."""
        if isinstance(recorded.event, SpawnRequested) and recorded.run == self._engine.run:
            self._owners.need(recorded.stream)

    async def _end(self, stream: StreamId) -> None:
        """Stop the process of a sidecar, so that none outlives its owner."""
        with trio.move_on_after(STOP_GRACE_MS / 1000 + KILLED_S, shield=True):
            await self._end_process(stream)

    async def _act(self, stream: StreamId) -> None:
        """Perform what a sidecar calls for."""
        state, running, revoked = self._state(stream), self._running.get(stream), stream in self._engine.revoked
        moved = partial(self._moved, stream, revoked, self._engine.system.position)
        match reaction.react(state, has_process=running is not None, is_revoked=revoked):
            case reaction.End():
                if running is not None:
                    await self._stop(running.process)
                await moved()
            case reaction.Spawn(spec):
                await self._begin(stream, spec)
            case reaction.AwaitHealth(health) if running:
                await self._await_health(stream, health, running, moved)
            case reaction.AwaitEnd() if running:
                await self._await_end(stream, running, moved)
            case reaction.AwaitRestart(delay_ms):
                await self._end_process(stream)
                with trio.move_on_after(delay_ms / 1000) as pause:
                    await moved()
                if pause.cancelled_caught:
                    await self._report(stream, sidecar.Restart())
            case reaction.StopGracefully():
                if running is not None:
                    await self._report_exit(stream, await self._stop(running.process), running.started_at)
                    del self._running[stream]
                await self._report(stream, sidecar.ReportStopped())
            case _:  # never seen; one sidecar without a process is no reason to end all the others
                _log.error("%s is %s and this run has no process for it", stream, state.status)
                await self._report_exit(stream, Exit(), trio.current_time(), "omac lost sight of it")

    async def _begin(self, stream: StreamId, spec: SidecarSpec) -> None:
        self._running.pop(stream, None)
        process = await self._spawn(stream, spec)
        if process is not None:  # ours to stop from here on, whatever becomes of the report
            self._running[stream] = _Running(process)
            await self._report(stream, sidecar.ReportStarted(process.birth))

    async def _await_end(self, stream: StreamId, running: _Running, moved: Callable[[], Awaitable[None]]) -> None:
        """Report the end of a healthy sidecar, or stop one that is deaf, unless it is moved before."""
        ended = await first(running.process.wait, moved, partial(_deaf, running.process))
        if isinstance(ended, Exit):
            await self._report_exit(stream, ended, running.started_at)
        elif isinstance(ended, str):
            await self._report_exit(stream, await self._stop(running.process), running.started_at, ended)

    async def _end_process(self, stream: StreamId) -> None:
        if stream in self._running:
            await self._stop(self._running[stream].process)
            self._running.pop(stream, None)

    async def _stop(self, process: SidecarProcess) -> Exit:
        """Stop it in its grace, which `hurry` ends."""
        self._ending.add(process)
        try:
            return await process.stop(self._grace_ms)
        finally:
            self._ending.discard(process)

    async def _moved(self, stream: StreamId, revoked: bool, seen: int) -> None:
        """Return when the sidecar gets an event after `seen`, or when its being revoked is other than `revoked`."""
        system = self._engine.system
        await self._engine.until(
            [stream], lambda: system.sidecars[stream].position > seen or (stream in self._engine.revoked) != revoked
        )

    async def _spawn(self, stream: StreamId, spec: SidecarSpec) -> SidecarProcess | None:
        policy = self._policy
        missing: tuple[str, ...] = ()
        fix: tuple[str, ...] = ()
        try:
            folder = await self._folder(spec)
            secrets = await self._credentials.needed(spec, self._harness)
            return await self._host.spawn(_label(stream), spec, folder, secrets)
        except _Changed as changed:  # trying again would not help: it was judged by other files
            problem, policy, fix = str(changed), RestartPolicy(limit=0), changed.fix
        except SecretsMissing as absent:
            problem, missing, fix = str(absent), absent.names, absent.fix
        except InterpreterChanged as changed:  # a person has to look at it
            problem, policy, fix = f"{changed}; approve it again", RestartPolicy(limit=0), (self._approve(spec),)
        except SpawnFailed as failed:
            raise_exhaustion(failed)  # no fault of the sidecar's: worth another try
            problem = str(failed)
        except OSError as error:
            raise_exhaustion(error)
            problem = f"its files cannot be read: {problem_of(error)}"
        except Exception as error:  # whatever is wrong with one sidecar, the others are unharmed
            raise_exhaustion(error)
            _log.exception("%s cannot be started", stream)
            problem = f"it cannot be started: {error!r}"
        await self._report(stream, sidecar.ReportExit(Exit(), 0, problem, policy, missing, fix))
        return None

    async def _folder(self, spec: SidecarSpec) -> str:
        """Return the folder that the sidecar runs in: the approved copy, else the skill's own folder. Raises _Changed
        when the code is no longer approved or the files there are not those that were judged, OSError when they cannot
        be read."""
        if not self._is_approved(spec):
            raise _Changed(f"{NOT_APPROVED}: its code is no longer approved", self._approve(spec))
        if spec.digest:
            try:
                return await self._frozen.checked(spec.digest, spec.copied_from or spec.source)
            except CopyDamaged as damaged:
                problem = f"the approved copy is not what was approved: {damaged}; approve it again"
                raise _Changed(problem, self._approve(spec)) from None
        try:
            digest = await self._folders.bundle_hash(spec.source)
        except FileNotFoundError as gone:
            raise _Changed(f"its files cannot be read: {gone}") from gone
        if digest != spec.bundle_hash:
            raise _Changed(f"its files in {spec.source} changed after omac read them; reload the directory")
        return spec.source

    def _approve(self, spec: SidecarSpec) -> str:
        return f"omac approve {quoted(spec.skill)} {SkillScope(spec.workdir, self._harness).flags}"

    async def _await_health(
        self, stream: StreamId, health: Health, running: _Running, moved: Callable[[], Awaitable[None]]
    ) -> None:
        process = running.process

        async def probe() -> str:
            try:
                await process.probe(health)
            except ProbeFailed as failed:
                return str(failed)
            return ""

        seen = await first(process.wait, probe, moved)
        if isinstance(seen, Exit):
            await self._report_exit(stream, seen, running.started_at)
        elif seen == "":
            await self._report(stream, sidecar.ReportHealthy())
        elif isinstance(seen, str):
            await self._report(stream, sidecar.ReportUnhealthy(seen))
            ended = await self._stop(process)
            await self._report_exit(stream, ended, running.started_at, seen)

    async def _report_exit(self, stream: StreamId, ended: Exit, started_at: float, detail: str = "") -> None:
        uptime_ms = round((trio.current_time() - started_at) * 1000)
        birth, running = self._state(stream).birth, self._running.get(stream)
        cause = f": {KEPT}" if running and running.process.is_kept_from_writing() else ""
        log = f"; its output is in {birth.log}" if birth else ""
        detail = (detail or _describe(ended, uptime_ms)) + cause + log
        await self._report(stream, sidecar.ReportExit(ended, uptime_ms, detail, self._policy))

    async def _report(self, stream: StreamId, command: sidecar.Command) -> None:
        """Record a fact, however long the journal is away; log once why it is."""
        problems = ProblemLog(_log)
        while True:
            try:
                await self._engine.execute(sidecar.AGGREGATE, stream, command)
            except Refusal as refusal:
                if refusal.reason == "stopping":  # nothing is recorded any more: this task is about to be cancelled
                    await trio.sleep_forever()
                problems.met(f"{stream} cannot be recorded yet: {refusal.message}")
                await trio.sleep(RETRY_S)
            else:
                return

    def _state(self, stream: StreamId) -> Sidecar:
        return self._engine.system.sidecars[stream].state


async def _deaf(process: SidecarProcess) -> str:
    """Return, with what there is to say, when it has stopped listening on its port though it lives, and serves nobody.

    A wrapper can outlive its server; then the port is anybody's, and requests must not go there.
    """
    while True:
        await trio.sleep(WATCH_S)
        if not process.listens():
            await trio.sleep(DOUBT_S)  # a server may open its listener anew
            if not process.listens():
                return "it no longer listens on its port"


def _label(stream: StreamId) -> str:
    key = key_of(stream)
    return f"{key.scope[:LOG_DIGITS]}-{key.name}"


def _describe(ended: Exit, uptime_ms: int) -> str:
    how = f"killed by signal {ended.signal}" if ended.signal is not None else f"exited with status {ended.code}"
    foreground = "; a sidecar has to stay in the foreground" if ended.code == 0 else ""
    return f"{how} after {uptime_ms} ms{foreground}"
