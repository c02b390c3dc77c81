"""Activation: the owner of each directory performs the effects that `reaction.react` calls for, until it is offline."""

import logging
from collections.abc import Sequence
from functools import partial

import trio

from omac.domain.credentials.credential import ConfigRemoved, ConfigWritten, SecretRemoved, SecretWritten
from omac.domain.directories import directory, reaction
from omac.domain.directories.directory import ActivationPlan, Directory
from omac.domain.directories.events import ActivationRequested
from omac.domain.kernel import ids
from omac.domain.kernel.event import Cause, Recorded
from omac.domain.kernel.exhaustion import raise_exhaustion
from omac.domain.kernel.ids import StreamId
from omac.domain.kernel.refusal import Refusal
from omac.domain.sidecars import sidecar
from omac.domain.sidecars.sidecar import Sidecar
from omac.domain.skills.registration import ApprovalRevoked, Approved, Deregistered, Registered
from omac.domain.skills.repository import is_repository
from omac.journal.problem_log import ProblemLog
from omac.services.kernel.engine import JOURNAL_AWAY, Engine, first, together
from omac.services.kernel.owners import Owners
from omac.services.skills.registrar import Registrar

DISCOVER_S = 60.0  # for discovering and hashing the skills of one directory
SHARED_S = 1.0  # that a directory waits for the discovery of what all share
RETRY_S = 0.5  # between two tries while the journal is away
REVOCATIONS = (ApprovalRevoked, Deregistered, SecretRemoved)
# What a person changes from another terminal, after which a directory is looked at again.
CHANGES = (Registered, Approved, SecretWritten, ConfigWritten, ConfigRemoved, *REVOCATIONS)

_log = logging.getLogger("omac.activation")


class Activation:
    """Owns every directory that this run activated."""

    def __init__(self, engine: Engine, registrar: Registrar, harness: str) -> None:
        self._engine = engine
        self._registrar = registrar
        self._harness = harness
        self._discovering_shared: trio.Event | None = None  # that of the discovery that is under way
        self._owners = Owners(self._act, lambda stream: self._state(stream).status != "offline")
        self._problems: dict[StreamId, ProblemLog] = {}  # of directories where the last try failed

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Own directories until cancelled."""
        await self._owners.run(task_status)

    def notice(self, recorded: Recorded) -> None:
        """Own a directory that is activated here; look again at one about which something was changed elsewhere."""
        if isinstance(recorded.event, ActivationRequested) and recorded.run == self._engine.run:
            self._owners.need(recorded.stream)
        elif isinstance(recorded.event, CHANGES) and recorded.run != self._engine.run:
            key = ids.key_of(recorded.stream)
            if key.host != self._engine.host:
                return
            concerned = self._concerned(key.workdir)
            if key.workdir == ids.GLOBAL and not concerned:
                self.discover_shared()  # the first of those that all share
            for changed in concerned:
                cause = Cause("omac", recorded.correlation, recorded.position)
                if isinstance(recorded.event, REVOCATIONS):  # at once, whatever there is to look at
                    self._revoke(self._target(changed, key.name), cause)
                self._owners.also(self._reload, changed, self._state(changed).generation, cause)

    def _concerned(self, scope: ids.WorkdirId) -> list[StreamId]:
        """The directories of this run for which something is recorded in `scope`: one, or those of a repository."""
        if not is_repository(scope):
            own = ids.directory_stream(self._engine.namespace, scope)
            return [own] if own in self._owners else []
        directories = self._engine.system.directories.entries.items()
        return [
            stream
            for stream, entry in directories
            if stream in self._owners and self._registrar.is_worktree(entry.state.path, scope)
        ]

    def notice_revocation(self, stream: StreamId, cause: Cause | None) -> None:
        """A directory goes offline while that cannot be recorded: what runs in it ends all the same."""
        if stream in self._owners and stream in self._engine.revoked:
            stop, why = sidecar.RequestStop(reaction.OFFLINE), cause or self._cause(stream)
            for skill in (skill for skill, state in self._sidecars(stream).items() if state.live):
                self._engine.revoke(sidecar.AGGREGATE, self._target(stream, skill), stop, why)

    async def _act(self, stream: StreamId) -> None:
        """Perform what a directory calls for, or wait until it calls for something."""
        seen, state = self._engine.system.position, self._state(stream)
        sidecars = self._sidecars(stream)
        try:
            if effects := reaction.react(state, sidecars):
                await together(partial(self._perform, stream, state, effect) for effect in effects)
            else:
                await self._engine.moved([stream, *(self._target(stream, skill) for skill in sidecars)], seen)
        except Refusal as refusal:  # the journal is away, or someone was first: the state says what to do next
            problems = self._problems.setdefault(stream, ProblemLog(_log))
            problems.met(f"{state.path or 'what all directories share'}: {refusal.message}")
            await trio.sleep(RETRY_S)
        else:
            self._problems.pop(stream, None)

    async def _perform(self, stream: StreamId, state: Directory, effect: reaction.Effect) -> None:
        match effect:
            case reaction.FindSkills():
                await self._find_skills(stream, state)
            case reaction.CommandSidecar(skill, command):
                target = self._target(stream, skill)
                await self._engine.execute(sidecar.AGGREGATE, target, command, self._cause(stream))
            case reaction.SettleRoutes():
                await self._engine.execute_latest(
                    directory.AGGREGATE, stream, lambda: directory.Settle(self._sidecars(stream))
                )
            case reaction.FinishDeactivating():
                await self._execute(stream, directory.FinishDeactivation())

    async def _reload(self, stream: StreamId, generation: int, cause: Cause) -> None:
        """A person changed something about this directory: look at it again, once `generation` has settled."""
        await self._engine.until([stream], lambda: not self._is_activating(stream, generation))
        problems = ProblemLog(_log)
        while (state := self._state(stream)).generation == generation:  # a later one has seen the change
            try:
                await self._execute(stream, directory.RequestReload(), cause)
            except Refusal as refusal:
                if refusal.reason not in JOURNAL_AWAY:
                    _log.info("%s", refusal.message)  # it went offline meanwhile: nothing to look at
                    return
                problems.met(f"{state.path}: {refusal.message}")
                await trio.sleep(RETRY_S)

    def _revoke(self, target: StreamId, cause: Cause) -> None:
        """End a sidecar that lost its approval or a secret; it starts again if what is left will do."""
        spec = self._engine.system.sidecars[target].state.spec
        if spec is not None and (lost := self._registrar.loss(spec)):
            self._engine.revoke(sidecar.AGGREGATE, target, sidecar.RequestStop(lost), cause)

    def discover_shared(self, asker: StreamId | None = None) -> trio.Event:
        """Discover the skills that all directories share, in the background: bring them online as soon as there are
        any, and again when others are found. The event is set when that is done; one discovery at a time.

        `asker` is the directory for whose activation it is; None: the server's start.
        """
        if self._discovering_shared is None:
            self._discovering_shared = trio.Event()
            self._owners.also(self._discover_shared, self._discovering_shared, asker)
        return self._discovering_shared

    async def _discover_shared(self, done: trio.Event, asker: StreamId | None) -> None:
        stream = ids.directory_stream(self._engine.namespace, ids.GLOBAL)
        cause = self._cause(asker) if asker else Cause("omac")
        try:
            with trio.move_on_after(DISCOVER_S):
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
            _log.warning("the skills that all directories share cannot be discovered: %s", problem)
        finally:
            self._discovering_shared = None
            done.set()

    async def _find_skills(self, stream: StreamId, state: Directory) -> None:
        """Have what shall run recorded, or why nothing can; neither when the activation is called off meanwhile."""
        if state.path:
            with trio.move_on_after(SHARED_S):  # whoever activates a directory finds in its manifest what is shared
                await self.discover_shared(stream).wait()
        try:
            plan = await self._plan_unless_called_off(stream, state)
        except Exception as problem:  # whatever is wrong with one directory, the others are unharmed
            if isinstance(problem, Refusal) and problem.reason in JOURNAL_AWAY:
                raise
            raise_exhaustion(problem)  # it says nothing about the skills: worth another try
            if not isinstance(problem, Refusal | OSError):
                _log.exception("%s: its skills cannot be discovered", state.path)
            await self._execute(stream, directory.FailActivation(str(problem) or type(problem).__name__))
            return
        if plan is not None:
            await self._execute(stream, directory.AdoptPlan(plan))

    async def _plan_unless_called_off(self, stream: StreamId, state: Directory) -> ActivationPlan | None:
        """The plan; None when the activation was called off meanwhile. Raises Refusal when it takes too long."""

        async def plan() -> ActivationPlan | Exception:
            try:
                return await self._registrar.plan(state.path)
            except Exception as problem:  # as a value: it is not the race that failed
                return problem

        called_off = partial(self._engine.until, [stream], lambda: not self._is_activating(stream, state.generation))
        with trio.move_on_after(DISCOVER_S):
            outcome = await first(called_off, plan)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome
        raise Refusal("activation-failed", f"its skills could not be discovered within {DISCOVER_S:g} s")

    def _is_activating(self, stream: StreamId, generation: int) -> bool:
        state = self._state(stream)
        return state.status == "activating" and state.generation == generation

    async def _execute(
        self, stream: StreamId, command: directory.Command, cause: Cause | None = None
    ) -> Sequence[Recorded]:
        return await self._engine.execute(directory.AGGREGATE, stream, command, cause)

    def _state(self, stream: StreamId) -> Directory:
        return self._engine.system.directories[stream].state

    def _cause(self, stream: StreamId) -> Cause:
        return self._engine.system.directories[stream].cause()

    def _target(self, stream: StreamId, skill: str) -> StreamId:
        key = ids.key_of(stream)
        return ids.sidecar_stream(key.namespace, key.workdir, skill)

    def _sidecars(self, stream: StreamId) -> dict[str, Sidecar]:
        """The sidecars of a directory by skill: those of its plan and routes, and all others that are live."""
        own, state, all_sidecars = ids.key_of(stream), self._state(stream), self._engine.system.sidecars
        sidecars = {skill: all_sidecars[self._target(stream, skill)].state for skill in (*state.routes, *state.specs)}
        for target, entry in all_sidecars.entries.items():
            if entry.state.live and (key := ids.key_of(target)).namespace == own.namespace and key.scope == own.scope:
                sidecars[key.name] = entry.state
        return sidecars
