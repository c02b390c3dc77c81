"""Supervision: the reactor that makes each sidecar's process follow its recorded state.

One owner task per sidecar looks at the projected state, does the one thing that state calls for, and records what
came of it. It ends when the sidecar is idle or has given up.
"""

import logging
import shlex
from collections.abc import Awaitable, Callable
from functools import partial

import trio

from omac.domain.kernel.event import Recorded
from omac.domain.kernel.exhaustion import raise_exhaustion
from omac.domain.kernel.ids import StreamId, key_of
from omac.domain.kernel.refusal import Refusal
from omac.domain.sidecars import sidecar
from omac.domain.sidecars.sidecar import Exit, RestartPolicy, Sidecar, SidecarSpec, SpawnRequested
from omac.domain.skills.scope import SkillScope
from omac.services.credentials.values import Credentials, SecretsMissing
from omac.services.kernel.engine import Engine, first
from omac.services.kernel.owners import Owners, Retries
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
RETRY_S = 0.5  # between two tries to record a fact while the journal is away

_log = logging.getLogger("omac.supervision")


class _Changed(Exception):
    """The files of a skill are not those that were judged; `fix` may mend it."""

    def __init__(self, problem: str, *fix: str) -> None:
        super().__init__(problem)
        self.fix = fix


class _Held:
    """The process that an owner holds, and when it was started."""

    process: SidecarProcess | None = None
    started_at = 0.0


class Supervision:
    """Owns every sidecar process of this run."""

    def __init__(
        self,
        engine: Engine,
        host: SidecarHost,
        folders: SkillFolders,
        frozen: FrozenSkills,
        credentials: Credentials,
        harness: str,
        vouched: Callable[[SidecarSpec], bool],
        policy: RestartPolicy = RestartPolicy(),  # noqa: B008  # frozen
    ) -> None:
        self._engine = engine
        self._host = host
        self._folders = folders
        self._frozen = frozen
        self._credentials = credentials
        self._harness = harness
        self._vouched = vouched
        self._policy = policy
        self._grace_ms = STOP_GRACE_MS
        self._ending: set[SidecarProcess] = set()
        self._owners = Owners(self._own)
        engine.observe(self._notice)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Own sidecars until cancelled; whatever still runs then is stopped before this returns."""
        await self._owners.run(task_status)

    def hurry(self) -> None:
        """Whatever is being stopped is killed now; what is stopped from now on has no grace."""
        self._grace_ms = 0
        for process in self._ending:
            self._owners.also(_kill, process)

    def _notice(self, recorded: Recorded) -> None:
        if isinstance(recorded.event, SpawnRequested) and recorded.run == self._engine.run:
            self._owners.need(recorded.stream)

    async def _own(self, stream: StreamId) -> None:
        held = _Held()
        retries = Retries(stream)
        try:
            while self._state(stream).live:
                async with retries.attempt():
                    await self._act(stream, self._state(stream), held)
            self._owners.release(stream)  # no checkpoint since the look at the state: a new request finds no owner
        finally:
            if held.process is not None:
                with trio.move_on_after(STOP_GRACE_MS / 1000 + KILLED_S, shield=True):
                    await self._stop(held.process)

    async def _act(self, stream: StreamId, state: Sidecar, held: "_Held") -> None:
        """Do the one thing that the state of a sidecar calls for."""
        revoked = self._engine.is_revoked(stream)
        moved = partial(self._moved, stream, revoked, self._engine.system.position)
        process = held.process
        if revoked and state.status != "stopping":  # at once; its end is recorded when the journal takes it
            if process is not None:
                await self._stop(process)
            await moved()
            return
        match state.status:
            case "requested":
                await self._begin(stream, state, held)
            case "started" if process:
                await self._await_health(stream, state, process, held.started_at, moved)
            case "healthy" if process:
                await self._await_end(stream, process, held.started_at, moved)
            case "backoff":
                await self._end_leftovers(held)
                with trio.move_on_after(state.delay_ms / 1000) as pause:
                    await moved()
                if pause.cancelled_caught:
                    await self._report(stream, sidecar.Restart())
            case "stopping":
                if process is not None:
                    ended = await self._stop(process)
                    await self._report_exit(stream, ended, held.started_at)
                    held.process = None
                await self._report(stream, sidecar.ReportStopped())
            case _:  # never seen; one sidecar without a process is no reason to end all the others
                _log.error("%s is %s and this run has no process for it", stream, state.status)
                await self._report_exit(stream, Exit(), held.started_at, "omac lost sight of it")

    async def _begin(self, stream: StreamId, state: Sidecar, held: "_Held") -> None:
        held.process = await self._spawn(stream, state)
        held.started_at = trio.current_time()
        if held.process is not None:  # ours to stop from here on, whatever becomes of the report
            await self._report(stream, sidecar.ReportStarted(held.process.birth))

    async def _await_end(
        self, stream: StreamId, process: SidecarProcess, started_at: float, moved: Callable[[], Awaitable[None]]
    ) -> None:
        """Report the end of a healthy sidecar, or stop one that is deaf, unless it is moved before."""
        ended = await first(process.wait, moved, partial(_deaf, process))
        if isinstance(ended, Exit):
            await self._report_exit(stream, ended, started_at)
        elif isinstance(ended, str):
            await self._report_exit(stream, await self._stop(process), started_at, ended)

    async def _end_leftovers(self, held: "_Held") -> None:
        if held.process is not None:
            await self._stop(held.process)
            held.process = None

    async def _stop(self, process: SidecarProcess) -> Exit:
        """Stop it in its grace, which `hurry` ends."""
        self._ending.add(process)
        try:
            return await process.stop(self._grace_ms)
        finally:
            self._ending.discard(process)

    async def _moved(self, stream: StreamId, revoked: bool, seen: int) -> None:
        """Return when the sidecar gets an event after `seen`, or when its being revoked is other than `revoked`."""
        if self._engine.is_revoked(stream) == revoked:
            await self._engine.moved([stream], seen)
        else:
            await trio.lowlevel.checkpoint()

    async def _spawn(self, stream: StreamId, state: Sidecar) -> SidecarProcess | None:
        assert state.spec is not None
        policy = self._policy
        missing: tuple[str, ...] = ()
        fix: tuple[str, ...] = ()
        try:
            folder = await self._folder(state.spec)
            secrets = await self._credentials.needed(state.spec, self._harness)
            return await self._host.spawn(_label(stream), state.spec, folder, secrets)
        except _Changed as changed:  # trying again would not help: it was judged by other files
            problem, policy, fix = str(changed), RestartPolicy(limit=0), changed.fix
        except SecretsMissing as absent:
            problem, missing, fix = str(absent), absent.names, absent.fix
        except InterpreterChanged as changed:  # a person has to look at it
            problem, policy, fix = f"{changed}; approve it again", RestartPolicy(limit=0), (self._approve(state.spec),)
        except SpawnFailed as failed:
            raise_exhaustion(failed)  # no fault of the sidecar's: worth another try
            problem = str(failed)
        except OSError as error:
            raise_exhaustion(error)
            problem = f"its files cannot be read: {error}"
        except Exception as error:  # whatever is wrong with one sidecar, the others are unharmed
            _log.exception("%s cannot be started", stream)
            problem = f"it cannot be started: {error!r}"
        await self._report(stream, sidecar.ReportExit(Exit(), 0, problem, policy, missing, fix))
        return None

    async def _folder(self, spec: SidecarSpec) -> str:
        """Where it runs: the approved copy, else the skill's own folder. Raises _Changed when the files there are not
        those that were judged, OSError when they cannot be read."""
        if not self._vouched(spec):
            raise _Changed("its code is no longer approved")
        if spec.digest:
            try:
                return await self._frozen.checked(spec.digest, spec.source)
            except CopyDamaged as damaged:
                problem = f"the approved copy is not what was approved: {damaged}; approve it again"
                raise _Changed(problem, self._approve(spec)) from None
        try:
            found = await self._folders.bundle_hash(spec.source)
        except FileNotFoundError as gone:
            raise _Changed(f"its files cannot be read: {gone}") from gone
        if found != spec.bundle_hash:
            raise _Changed(f"its files in {spec.source} changed after omac read them; reload the directory")
        return spec.source

    def _approve(self, spec: SidecarSpec) -> str:
        return f"omac approve {shlex.quote(spec.skill)} {SkillScope(spec.workdir, self._harness).flags}"

    async def _await_health(
        self,
        stream: StreamId,
        state: Sidecar,
        process: SidecarProcess,
        started_at: float,
        moved: Callable[[], Awaitable[None]],
    ) -> None:
        assert state.spec is not None
        health = state.spec.health

        async def probe() -> str:
            try:
                await process.probe(health)
            except ProbeFailed as failed:
                return str(failed)
            return ""

        seen = await first(process.wait, probe, moved)
        if isinstance(seen, Exit):
            await self._report_exit(stream, seen, started_at)
        elif seen == "":
            await self._report(stream, sidecar.ReportHealthy())
        elif isinstance(seen, str):
            await self._report(stream, sidecar.ReportUnhealthy(seen))
            ended = await self._stop(process)
            await self._report_exit(stream, ended, started_at, seen)

    async def _report_exit(self, stream: StreamId, ended: Exit, started_at: float, detail: str = "") -> None:
        uptime_ms = round((trio.current_time() - started_at) * 1000)
        birth = self._state(stream).birth
        log = f"; its output is in {birth.log}" if birth else ""
        detail = (detail or _describe(ended, uptime_ms)) + log
        await self._report(stream, sidecar.ReportExit(ended, uptime_ms, detail, self._policy))

    async def _report(self, stream: StreamId, command: sidecar.Command) -> None:
        """Record a fact, however long the journal is away."""
        while True:
            try:
                await self._engine.execute(sidecar.AGGREGATE, stream, command)
            except Refusal as refusal:
                if refusal.reason == "stopping":  # nothing is recorded any more: this task is about to be cancelled
                    await trio.sleep_forever()
                _log.error("%s cannot be recorded yet: %s", stream, refusal.message)
                await trio.sleep(RETRY_S)
            else:
                return

    def _state(self, stream: StreamId) -> Sidecar:
        return self._engine.system.sidecars[stream].state


async def _kill(process: SidecarProcess) -> None:
    await process.stop(0)


async def _deaf(process: SidecarProcess) -> str:
    """Return, with what there is to say, when it has stopped listening on its port though it lives.

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
    return f"{key.scope[:12]}-{key.name}"


def _describe(ended: Exit, uptime_ms: int) -> str:
    how = f"killed by signal {ended.signal}" if ended.signal is not None else f"exited with status {ended.code}"
    return f"{how} after {uptime_ms} ms"
