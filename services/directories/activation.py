"""Activation: the reactor that makes each directory's skills follow its recorded state.

One owner task per directory: while it is activating, find the skills, adopt the plan, have sidecars spawned and
stopped, and mount or stub each route as its sidecar settles; while it is active, keep the routes true; while it is
deactivating, have everything stopped. It ends when the directory is offline.
"""

import logging
from collections.abc import Mapping, Sequence
from functools import partial

import trio

from omac.domain.credentials.credential import ConfigRemoved, ConfigWritten, SecretRemoved, SecretWritten
from omac.domain.directories import directory
from omac.domain.directories.directory import ActivationPlan, Directory
from omac.domain.directories.events import ActivationRequested
from omac.domain.kernel import ids
from omac.domain.kernel.event import Cause, Recorded
from omac.domain.kernel.exhaustion import raise_exhaustion
from omac.domain.kernel.ids import StreamId
from omac.domain.kernel.refusal import Refusal
from omac.domain.sidecars import sidecar
from omac.domain.skills.registration import ApprovalRevoked, Approved, Deregistered, Registered
from omac.services.kernel.engine import JOURNAL_AWAY, Engine, first, together
from omac.services.kernel.owners import Owners, Retries
from omac.services.skills.registrar import Registrar

LOOK_S = 60.0  # for finding and hashing the skills of one directory
SHARED_S = 1.0  # that the look at one directory waits for a look at what all share
RETRY_S = 0.5  # between two tries while the journal is away
# What a person changes from another terminal, after which a directory is looked at again.
CHANGES = (
    Registered,
    Approved,
    ApprovalRevoked,
    Deregistered,
    SecretWritten,
    SecretRemoved,
    ConfigWritten,
    ConfigRemoved,
)
OFFLINE = "its directory goes offline"
REVOCATIONS = (ApprovalRevoked, Deregistered, SecretRemoved)

_log = logging.getLogger("omac.activation")


class Activation:
    """Owns every directory that this run activated."""

    def __init__(self, engine: Engine, registrar: Registrar, harness: str) -> None:
        self._engine = engine
        self._registrar = registrar
        self._harness = harness
        self._shared_look: trio.Event | None = None  # that of the look that is under way
        self._owners = Owners(self._own)
        engine.observe(self._notice)
        engine.observe_revocations(self._notice_revocation)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Own directories until cancelled."""
        await self._owners.run(task_status)

    def _notice(self, recorded: Recorded) -> None:
        if isinstance(recorded.event, ActivationRequested) and recorded.run == self._engine.run:
            self._owners.need(recorded.stream)
        elif isinstance(recorded.event, CHANGES) and recorded.run != self._engine.run:
            key = ids.key_of(recorded.stream)
            changed = ids.directory_stream(self._engine.seat, key.workdir)
            if key.host == self._engine.host and key.workdir == ids.GLOBAL and changed not in self._owners:
                self.look_at_shared()  # the first of those that all share
            if key.host == self._engine.host and changed in self._owners:
                cause = Cause("omac", recorded.correlation, recorded.position)
                if isinstance(recorded.event, REVOCATIONS):  # at once, whatever there is to look at
                    (target,) = self._sidecars(changed, [key.name])
                    self._revoke(target, cause)
                self._owners.also(self._reload, changed, self._state(changed).generation, cause)

    def _notice_revocation(self, stream: StreamId, cause: Cause | None) -> None:
        """A directory goes offline while that cannot be recorded: what runs in it ends all the same."""
        if stream in self._owners:
            for target in self._live(stream):
                stop, why = sidecar.RequestStop(OFFLINE), cause or self._cause(stream)
                self._engine.revoke(sidecar.AGGREGATE, target, stop, why)

    async def _own(self, stream: StreamId) -> None:
        retries = Retries(stream)
        while self._state(stream).status != "offline":
            async with retries.attempt():
                await self._act(stream, self._state(stream))
        self._owners.release(stream)  # no checkpoint since the look at the state: a new request finds no owner

    async def _act(self, stream: StreamId, state: Directory) -> None:
        """Do the one thing that the state of a directory calls for."""
        seen = self._engine.system.position
        try:
            match state.status:
                case "activating":
                    await self._bring_up(stream, state)
                case "active" | "active_partial":
                    if not await self._settle(stream, None):
                        await self._engine.moved([stream, *self._sidecars(stream, state.routes)], seen)
                case "deactivating":
                    await self._take_down(stream)
                case "offline":
                    pass
        except Refusal as refusal:  # the journal is away, or someone was first: the state says what to do next
            _log.error("%s: %s", state.path or "what all directories share", refusal.message)
            await trio.sleep(RETRY_S)

    async def _reload(self, stream: StreamId, generation: int, cause: Cause) -> None:
        """A person changed something about this directory: look at it again, once `generation` has settled."""
        while (state := self._state(stream)).generation == generation:  # a later one has seen the change
            if state.status == "activating":
                await self._engine.moved([stream])
                continue
            try:
                await self._execute(stream, directory.RequestReload(), cause)
            except Refusal as refusal:
                if refusal.reason not in JOURNAL_AWAY:
                    _log.info("%s", refusal.message)  # it went offline meanwhile: nothing to look at
                    return
                _log.error("%s: %s", state.path, refusal.message)
                await trio.sleep(RETRY_S)

    def _revoke(self, target: StreamId, cause: Cause) -> None:
        """End a sidecar that lost its approval or a secret; it starts again if what is left will do."""
        spec = self._engine.system.sidecars[target].state.spec
        if spec is not None and self._registrar.lacks(spec):
            self._engine.revoke(sidecar.AGGREGATE, target, sidecar.RequestStop("its values were revoked"), cause)

    def look_at_shared(self, asker: StreamId | None = None) -> trio.Event:
        """Look at the skills that all directories share, in the background: bring them online as soon as there are
        any, and look again when others are found. The event is set when that is done; one look at a time.

        `asker` is the directory for whose activation it is; None: the server's start.
        """
        if self._shared_look is None:
            self._shared_look = trio.Event()
            self._owners.also(self._look_at_shared, self._shared_look, asker)
        return self._shared_look

    async def _look_at_shared(self, done: trio.Event, asker: StreamId | None) -> None:
        stream = ids.directory_stream(self._engine.seat, ids.GLOBAL)
        cause = self._cause(asker) if asker else Cause("omac")
        try:
            with trio.move_on_after(LOOK_S):
                if not await self._registrar.shared_differ(self._state(stream)):
                    return
            if asker and not self._state(asker).reachable:
                return  # called off meanwhile; omac may be about to end
            status = self._state(stream).status
            if status == "offline":
                begin = directory.RequestActivation("", self._harness, ids.TokenDigest(""))
                await self._execute(stream, begin, cause)
            elif status in ("active", "active_partial"):
                await self._execute(stream, directory.RequestReload(), cause)
        except (Refusal, OSError) as problem:  # no reason to keep a directory from coming online
            _log.warning("the skills that all directories share cannot be looked at: %s", problem)
        finally:
            self._shared_look = None
            done.set()

    async def _bring_up(self, stream: StreamId, state: Directory) -> None:
        if state.path:
            with trio.move_on_after(SHARED_S):  # whoever activates a directory finds in its manifest what is shared
                await self.look_at_shared(stream).wait()
        try:
            plan = await self._plan_unless_called_off(stream, state)
        except Exception as problem:  # whatever is wrong with one directory, the others are unharmed
            if isinstance(problem, Refusal) and problem.reason in JOURNAL_AWAY:
                raise
            raise_exhaustion(problem)  # it says nothing about the skills: worth another try
            if not isinstance(problem, Refusal | OSError):
                _log.exception("%s: its skills cannot be looked at", state.path)
            await self._execute(stream, directory.FailActivation(str(problem) or type(problem).__name__))
            return
        if plan is None:
            return
        await self._execute(stream, directory.AdoptPlan(plan))
        while True:
            seen = self._engine.system.position
            now = self._state(stream)
            if now.status != "activating" or now.generation != state.generation:
                return
            steered = await self._steer(stream, now, plan)
            settled = await self._settle(stream, plan)
            if not steered and not settled:
                await self._engine.moved([stream, *self._sidecars(stream, plan.specs)], seen)

    async def _plan_unless_called_off(self, stream: StreamId, state: Directory) -> ActivationPlan | None:
        """The plan; None when the activation was called off meanwhile. Raises Refusal when it takes too long."""

        async def look() -> ActivationPlan | Exception:
            try:
                return await self._registrar.look(state.path)
            except Exception as problem:  # as a value: it is not the race that failed
                return problem

        async def called_off() -> None:
            while self._state(stream).status == "activating":
                await self._engine.moved([stream])

        with trio.move_on_after(LOOK_S):
            found = await first(called_off, look)
            if isinstance(found, Exception):
                raise found
            return found
        raise Refusal("activation-failed", f"its skills could not be discovered within {LOOK_S:g} s")

    async def _steer(self, stream: StreamId, state: Directory, plan: ActivationPlan) -> bool:
        """Ask for the sidecars that the plan wants and for the end of those it does not; whether anything was asked."""
        asked: list[tuple[StreamId, sidecar.Command]] = []
        for name, spec in plan.specs.items():
            (target,) = self._sidecars(stream, [name])
            current = self._engine.system.sidecars[target].state
            if current.live and current.spec != spec and current.status != "stopping":
                asked.append((target, sidecar.RequestStop("it is replaced")))
            elif current.status == "idle" or (current.status == "gave_up" and current.generation != state.generation):
                asked.append((target, sidecar.RequestSpawn(spec, state.generation)))
        wanted = set(self._sidecars(stream, plan.specs))
        asked += [
            (target, sidecar.RequestStop("it is no longer wanted"))
            for target in self._live(stream)
            if target not in wanted
        ]
        await together(
            partial(self._command_sidecar, target, command, self._cause(stream)) for target, command in asked
        )
        return bool(asked)

    async def _settle(self, stream: StreamId, plan: ActivationPlan | None) -> bool:
        """Make routes follow the sidecars; whether anything changed."""

        def settle() -> directory.Command:
            names = [*self._state(stream).routes, *(plan.specs if plan else ())]
            sidecars = {
                name: self._engine.system.sidecars[target].state
                for name, target in zip(names, self._sidecars(stream, names), strict=True)
            }
            return directory.Settle(plan, sidecars)

        return bool(await self._engine.execute_latest(directory.AGGREGATE, stream, settle))

    async def _take_down(self, stream: StreamId) -> None:
        stop = sidecar.RequestStop(OFFLINE)
        await together(
            partial(self._command_sidecar, target, stop, self._cause(stream)) for target in self._live(stream)
        )
        if live := self._live(stream):
            await self._engine.moved(live)
        else:
            await self._execute(stream, directory.FinishDeactivation())

    async def _execute(
        self, stream: StreamId, command: directory.Command, cause: Cause | None = None
    ) -> Sequence[Recorded]:
        return await self._engine.execute(directory.AGGREGATE, stream, command, cause)

    async def _command_sidecar(self, target: StreamId, command: sidecar.Command, cause: Cause) -> None:
        await self._engine.execute(sidecar.AGGREGATE, target, command, cause)

    def _state(self, stream: StreamId) -> Directory:
        return self._engine.system.directories[stream].state

    def _cause(self, stream: StreamId) -> Cause:
        return self._engine.system.directories[stream].cause()

    def _sidecars(self, stream: StreamId, names: Mapping[str, object] | Sequence[str]) -> list[StreamId]:
        key = ids.key_of(stream)
        return [ids.sidecar_stream(key.seat, key.workdir, name) for name in names]

    def _live(self, stream: StreamId) -> list[StreamId]:
        own = ids.key_of(stream)
        live = [target for target, entry in self._engine.system.sidecars.entries.items() if entry.state.live]
        return [t for t in live if (key := ids.key_of(t)).seat == own.seat and key.scope == own.scope]
