"""Fixtures for one omac without its adapters: the real journal, writer, engine and reactors; scripted sidecars and
skill folders.

The scripted host writes a transcript, so that a test can read which sidecars were spawned and stopped, in which order.
"""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from contract.journals import decide_now

from omac.domain.access.control import Listener
from omac.domain.directories.directory import Directory
from omac.domain.directories.skill_plan import SkillPolicy
from omac.domain.harness.table import DEFAULT_HARNESS
from omac.domain.kernel import ids
from omac.domain.kernel.event import Cause, Recorded
from omac.domain.kernel.hidden import Hidden
from omac.domain.kernel.ids import HostId, StreamId
from omac.domain.kernel.refusal import Refusal
from omac.domain.sidecars.sidecar import Birth, Exit, RestartPolicy, Sidecar, SidecarSpec
from omac.domain.skills import registration
from omac.domain.skills.meta import FoundSkill, Health, Meta, Secret, SidecarMeta
from omac.domain.skills.registration import Approve, Code
from omac.domain.skills.repository import WorktreeFolder
from omac.journal.application import Journal
from omac.journal.event_kinds import KIND_OF
from omac.journal.opening import open_journal
from omac.journal.reader import ReadJournal
from omac.projections.status import Status, status_of
from omac.projections.system import System
from omac.services.access.recorder import JournalAccessRecorder
from omac.services.credentials.values import Credentials, Values
from omac.services.directories.activation import Activation
from omac.services.directories.control_call import Caller
from omac.services.directories.locking import StoreLocking
from omac.services.directories.manifest import Reach
from omac.services.directories.requests import Directories
from omac.services.kernel.engine import Engine
from omac.services.kernel.opened import OpenedJournal
from omac.services.kernel.refusals import Refusals
from omac.services.ports import CopyDamaged, Frozen, ProbeFailed, SpawnFailed
from omac.services.sidecars.supervision import Supervision
from omac.services.skills.registrar import Registrar

HOST = HostId("host0001")
KEY = bytes(32)
DIGEST = "sha256:frozen"
QUICK = RestartPolicy(base_ms=1, max_ms=4, limit=2, stable_ms=60_000)
GUARD_S = 20.0  # a test that takes longer waits for something that will not come


class Bell:
    """A bell that tests wait for: each change that may fulfil their condition rings it."""

    def __init__(self) -> None:
        self._waiting: set[trio.Event] = set()

    def ring(self) -> None:
        for event in self._waiting:
            event.set()

    async def until(self, holds: Callable[[], object]) -> None:
        """Return as soon as `holds()` is true after a ring, or already."""
        while not holds():
            event = trio.Event()
            self._waiting.add(event)
            try:
                await event.wait()
            finally:
                self._waiting.discard(event)


class ScriptedProcess:
    """A sidecar that acts as the test's script requires."""

    def __init__(self, host: "ScriptedHost", skill: str, birth: Birth) -> None:
        self._host = host
        self.skill = skill
        self._birth = birth
        self._ended = trio.Event()
        self._exit = Exit()

    @property
    def birth(self) -> Birth:
        return self._birth

    @property
    def runs(self) -> bool:
        return not self._ended.is_set()

    async def probe(self, health: Health) -> None:
        await trio.lowlevel.checkpoint()
        if self.skill in self._host.silent:
            await self._host.bell.until(lambda: self.skill not in self._host.silent)
        if self.skill in self._host.unhealthy:
            raise ProbeFailed("it answered 500")

    def listens(self) -> bool:
        return self.skill not in self._host.deaf

    def is_kept_from_writing(self) -> bool:
        return False

    async def wait(self) -> Exit:
        await self._ended.wait()
        return self._exit

    async def stop(self, grace_ms: int) -> Exit:
        if self.runs:
            self._host.say(f"stop {self.skill}")
            await self._host.bell.until(lambda: self.skill not in self._host.stubborn)
            self.end(Exit(signal=15))
            self._host.say(f"stopped {self.skill}")
        return await self.wait()

    def end(self, exit_: Exit) -> None:
        """End the process, as by itself."""
        self._exit = exit_
        self._ended.set()
        self._host.bell.ring()


class ScriptedHost:
    """A sidecar host whose `transcript` lists the calls to it. Sets name the skills that misbehave."""

    def __init__(self, bell: Bell) -> None:
        self.bell = bell
        self.transcript: list[str] = []
        self.processes: list[ScriptedProcess] = []
        self.orphans: list[Birth] = []
        self.unbuilt_ended = 0  # how often what was never born was looked for
        self.before_unbuilt: Callable[[], None] = lambda: None
        self.failing: set[str] = set()  # cannot be started
        self.held: set[str] = set()  # take their time to start
        self.silent: set[str] = set()  # do not answer their probe yet
        self.unhealthy: set[str] = set()  # answer it badly
        self.deaf: set[str] = set()  # live, and no longer listen
        self.stubborn: set[str] = set()  # do not end when told to
        self.secrets: dict[str, dict[str, str]] = {}  # what the last start of each skill was given
        self.before_spawn: Callable[[str, SidecarSpec], None] = lambda label, spec: None
        self.before_orphan: Callable[[Birth], Awaitable[None]] | None = None
        self._pids = itertools.count(100)

    def say(self, text: str) -> None:
        self.transcript.append(text)
        self.bell.ring()

    def let(self, skills: set[str], name: str) -> None:
        """Let the skill misbehave no longer."""
        skills.discard(name)
        self.bell.ring()

    async def spawn(self, label: str, spec: SidecarSpec, folder: str, secrets: Mapping[str, Hidden]) -> ScriptedProcess:
        self.secrets[spec.skill] = {name: value.reveal() for name, value in secrets.items()}
        self.before_spawn(label, spec)
        self.say(f"spawn {spec.skill}")
        await self.bell.until(lambda: spec.skill not in self.held)
        await trio.lowlevel.checkpoint()
        if spec.skill in self.failing:
            raise SpawnFailed("no such program")
        pid = next(self._pids)
        birth = Birth(pid, 7, "boot", 40_000 + pid, True, f"{pid}.log")
        process = ScriptedProcess(self, spec.skill, birth)
        self.processes.append(process)
        self.bell.ring()
        return process

    async def end_unbuilt(self) -> int:
        await trio.lowlevel.checkpoint()
        self.before_unbuilt()
        self.unbuilt_ended += 1
        return 0

    async def end_orphan(self, birth: Birth) -> bool:
        await trio.lowlevel.checkpoint()
        if self.before_orphan is not None:
            await self.before_orphan(birth)
        self.orphans.append(birth)
        return True

    def running(self) -> list[str]:
        return sorted(process.skill for process in self.processes if process.runs)

    def process(self, skill: str) -> ScriptedProcess:
        """Return the newest process of a skill."""
        return [process for process in self.processes if process.skill == skill][-1]


class ScriptedFolders:
    """Skill folders with the skills of the project directories below /w."""

    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self.skills: dict[str, list[FoundSkill]] = {}
        self.hashes: dict[str, str] = {}
        self.digests: dict[str, str] = {}  # of every file, where it is not that of the approved copy
        self.problem: Exception | None = None  # discovery fails with it
        self.held = False  # discovery takes its time
        self.held_shared = False  # and so does that of what all share
        self.discovered = 0
        self.gone: set[str] = set()

    def put(self, workdir: str, *skills: FoundSkill) -> None:
        """Let the directory hold these skills, and no others."""
        self.skills[workdir] = list(skills)
        self.hashes |= {skill.source: skill.bundle_hash for skill in skills}

    def go_on(self) -> None:
        self.held = self.held_shared = False
        self._bell.ring()

    async def canonical(self, path: str, roots: Sequence[str]) -> str:
        await trio.lowlevel.checkpoint()
        if path in self.gone:
            raise Refusal("directory-missing", f"{path} does not exist")
        if not any(path == root or path.startswith(root + "/") for root in roots):
            raise Refusal("outside-roots", f"{path} is not under any root")
        return path

    async def discover_global(self, bases: Sequence[str], *, guidance: bool = False) -> list[FoundSkill]:
        await trio.lowlevel.checkpoint()
        await self._bell.until(lambda: not self.held_shared)
        return self.skills.get("", [])

    async def digest(self, source: str) -> str:
        await trio.lowlevel.checkpoint()
        return self.digests.get(source, DIGEST)

    async def discover(self, workdir: str, bases: Sequence[str], *, guidance: bool = False) -> list[FoundSkill]:
        self.discovered += 1
        self._bell.ring()
        await trio.lowlevel.checkpoint()
        await self._bell.until(lambda: not self.held)
        if self.problem is not None:
            raise self.problem
        return self.skills.get(workdir, [])

    async def bundle_hash(self, source: str) -> str:
        await trio.lowlevel.checkpoint()
        if source not in self.hashes:
            raise FileNotFoundError(2, "No such file or directory", source)
        return self.hashes[source]


class ScriptedFrozen:
    """Frozen skills whose copies always exist, unless they are `damaged`."""

    def __init__(self, folders: ScriptedFolders) -> None:
        self._folders = folders
        self.damaged: set[str] = set()
        self.problem: Exception | None = None  # nothing can be copied

    async def freeze(self, source: str) -> Frozen:
        if self.problem is not None:
            raise self.problem
        return Frozen(await self._folders.bundle_hash(source), "sha256:frozen")

    async def checked(self, digest: str, source: str) -> str:
        await trio.lowlevel.checkpoint()
        if source in self.damaged:
            raise CopyDamaged("a file differs")
        return f"/frozen/{digest}"


class ScriptedSecrets:
    """Secrets in one store, "vault", in memory. `problem` is the error of every call."""

    def __init__(self) -> None:
        self.values: dict[str, dict[str, Hidden]] = {}
        self.problem: Refusal | None = None

    async def _raise_problem(self) -> None:
        await trio.lowlevel.checkpoint()
        if self.problem is not None:
            raise self.problem

    async def chosen(self) -> str:
        await self._raise_problem()
        return "vault"

    async def read(self, store: str, service: str, names: Sequence[str]) -> dict[str, Hidden]:
        await self._raise_problem()
        stored = self.values.get(service, {})
        return {name: stored[name] for name in names if name in stored}

    async def write(self, store: str, service: str, values: Mapping[str, Hidden]) -> None:
        await self._raise_problem()
        self.values.setdefault(service, {}).update(values)

    async def remove(self, store: str, service: str, names: Sequence[str]) -> None:
        await self._raise_problem()
        for name in names:
            self.values.get(service, {}).pop(name, None)


class FixedPolicies:
    """Policies that are the same for every directory."""

    def __init__(self, asked: SkillPolicy) -> None:
        self.asked = asked

    async def policy(self, workdir: str) -> SkillPolicy:
        await trio.lowlevel.checkpoint()
        return self.asked


class ScriptedRepositories:
    """Repositories with `parts` by directory."""

    def __init__(self) -> None:
        self.parts: dict[str, WorktreeFolder] = {}

    async def of(self, workdir: str) -> WorktreeFolder | None:
        return self.parts.get(workdir)


class World:
    """An omac that serves, with its scripted surroundings."""

    def __init__(self, journal: Journal, bell: Bell, host: ScriptedHost, folders: ScriptedFolders) -> None:
        self.secrets = ScriptedSecrets()
        self.frozen = ScriptedFrozen(folders)
        self.repositories = ScriptedRepositories()
        self.journal = journal
        self.path = journal.store.path
        self.bell = bell
        self.host = host
        self.folders = folders
        self.engine = Engine(journal, HOST)
        self.credentials = Credentials(self.engine, self.secrets, KEY)
        self.engine.observe(lambda recorded: bell.ring())
        self.engine.observe_accesses(lambda recorded: bell.ring())
        self.refusals = Refusals(self.engine)
        self.gate = JournalAccessRecorder(self.engine, self.refusals)
        self.engine.observe(self.gate.notice)
        self.engine.observe_revocations(self.gate.notice_revocation)
        self._mint = itertools.count(1)
        self._reactors = trio.CancelScope()
        self._reactors_ended = trio.Event()
        self.minted: list[str] = []
        reach = Reach("http://127.0.0.1:9", "/run/omac/facade.sock")
        self.directories = Directories(
            self.engine, folders, DEFAULT_HARNESS.name, ("/w",), reach, self.mint, self.refusals
        )
        self.engine.observe(self.directories.notice)
        self.locking = StoreLocking(self.engine, self.refusals)
        self.caller = Caller("socket", "correlation-1")

    async def react(self, supervision: Supervision, activation: Activation, task_status: trio.TaskStatus[None]) -> None:
        """Run the reactors until `end_reactors`."""
        with self._reactors:
            async with trio.open_nursery() as owners:
                await owners.start(supervision.run)
                await owners.start(activation.run)
                task_status.started()
        self._reactors_ended.set()

    async def end_reactors(self) -> None:
        """Cancel the reactors, and return when they have ended."""
        self._reactors.cancel()
        await self._reactors_ended.wait()

    def mint(self) -> str:
        self.minted.append(f"{self.engine.run}token{next(self._mint):020d}")
        return self.minted[-1]

    def calls_by(self, listener: Listener, correlation: str) -> Caller:
        return Caller(listener, correlation)

    async def until(self, holds: Callable[[], object]) -> None:
        await self.bell.until(holds)

    async def activate(self, path: str = "/w/shop", session: str | None = None) -> Any:
        return await self.directories.activate(path, self.caller, session)

    async def deactivate(self, path: str = "/w/shop") -> str:
        return (await self.directories.deactivate(path, self.caller)).dir

    async def reload(self, path: str = "/w/shop") -> Any:
        return await self.directories.reload(path, self.caller)

    def stream(self, path: str = "/w/shop") -> StreamId:
        return ids.directory_stream(HOST, ids.workdir_id(path))

    def directory(self, path: str = "/w/shop") -> Directory:
        return self.engine.system.directories[self.stream(path)].state

    def sidecar_stream(self, skill: str, path: str = "/w/shop") -> StreamId:
        return ids.sidecar_stream(HOST, ids.workdir_id(path), skill)

    def sidecar(self, skill: str, path: str = "/w/shop") -> Sidecar:
        return self.engine.system.sidecars[self.sidecar_stream(skill, path)].state

    def skill_states(self) -> dict[str, str]:
        """Return the state of each skill in all directories that are not offline."""
        return {skill.name: skill.state for directory in self.status().directories for skill in directory.skills}

    def status(self) -> Status:
        return status_of(self.engine.system)

    async def caught_up(self) -> None:
        """Return when all committed events, and all events appended without waiting, are folded."""
        await self.engine.catch_up()
        await self.engine.catch_up()

    def journal_fails(self, times: int, *kinds: str) -> None:
        """Let the store refuse the next `times` transactions that hold an event of one of these kinds."""
        insert, failures = self.journal.store.insert_events, itertools.repeat(True, times)

        def refuse(events: Sequence[Any], **groups: Any) -> Any:
            if any(event.topic in kinds for event in events) and next(failures, False):
                raise Refusal("journal-unavailable", "the disk is full")
            return insert(events, **groups)

        self.journal.store.insert_events = refuse  # type: ignore[assignment,method-assign]  # a fault of the disk

    def decide(self, workdir: str, skill: FoundSkill, command: registration.Command, scope: str = "") -> None:
        """Execute a registration command as another process does: with a journal of its own. `scope` is that of a
        repository, empty for the directory's own."""
        journal = open_journal(self.path, "approver", self.journal.clock)
        stream = ids.registration_stream(HOST, scope or ids.scope_of(workdir), skill.base, skill.name)
        try:
            decide_now(journal, registration.AGGREGATE, stream, command)
        finally:
            journal.close()

    def approve(self, workdir: str, *skills: FoundSkill) -> None:
        """Approve the skills, as a person does."""
        for skill in skills:
            self.decide(workdir, skill, Approve(Code(skill.source, skill.bundle_hash, DIGEST), workdir))

    def put_approved(self, workdir: str, *skills: FoundSkill) -> None:
        """Put skills into a directory, and approve them."""
        self.folders.put(workdir, *skills)
        self.approve(workdir, *skills)

    async def give(self, workdir: str, skill: str, values: Values, bundle_hash: str = "sha256:1") -> None:
        """Give values from another process, as a person does."""
        journal = open_journal(self.path, "giver", self.journal.clock)
        try:
            credentials = Credentials(OpenedJournal(journal, HOST), self.secrets, KEY)
            await credentials.give(ids.scope_of(workdir), skill, bundle_hash, values, Cause("person"))
        finally:
            journal.close()

    async def take(self, workdir: str, skill: str, *names: str) -> None:
        """Remove values from another process, as a person does."""
        journal = open_journal(self.path, "giver", self.journal.clock)
        try:
            credentials = Credentials(OpenedJournal(journal, HOST), self.secrets, KEY)
            await credentials.take(ids.scope_of(workdir), skill, names, Cause("person"))
        finally:
            journal.close()


Serving = Callable[..., AbstractAsyncContextManager[World]]


def records_of(path: str) -> list[Recorded]:
    """Return the durable records, as a second reader finds them."""
    reader = ReadJournal(path)
    try:
        return list(reader.records())
    finally:
        reader.close()


@pytest.fixture
def records() -> Callable[[str], list[Recorded]]:
    """Return a function that reads a journal with a reader of its own."""
    return records_of


@pytest.fixture
def kinds() -> Callable[..., list[str]]:
    """Return a function that lists the kinds of a journal's events, in order; with prefixes, only those that match."""

    def find(path: str, *prefixes: str) -> list[str]:
        all_kinds = [KIND_OF[type(recorded.event)] for recorded in records_of(path)]
        return [kind for kind in all_kinds if not prefixes or kind.startswith(prefixes)]

    return find


@pytest.fixture
def replayed() -> Callable[[str], Status]:
    """Return a function that computes the status which a replay of a journal gives."""
    return lambda path: status_of(System().replay(records_of(path)))


@pytest.fixture
def skill() -> Callable[..., FoundSkill]:
    """Return a function that makes a skill as discovery finds it; `needs` names the host variable of its secret."""

    def make(name: str, code: str = "1", mount: str = "", workdir: str = "/w/shop", needs: str = "") -> FoundSkill:
        secrets = (Secret("KEY", default_from_env=needs),) if needs else ()
        sidecar = SidecarMeta(("run", name), mount or name, secrets=secrets)
        folder = f"{workdir}/.agents/skills"
        return FoundSkill(name, "agents", folder, f"{folder}/{name}", f"sha256:{code}", Meta(name, sidecar=sidecar))

    return make


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Return the path of the test's journal."""
    return str(tmp_path / "journal.db")


@pytest.fixture
def clock() -> Callable[[], int]:
    """Return a clock that is a second later at each reading."""
    ticks = itertools.count(1_700_000_000)
    return lambda: next(ticks) * 10**9


@pytest.fixture
def serving(path: str, clock: Callable[[], int]) -> Serving:
    """Return a function that makes an omac that serves for a block; its end cancels all, like a crash of the loop."""

    @asynccontextmanager
    async def serve(
        run: str = "run1",
        policy: SkillPolicy = SkillPolicy(),  # noqa: B008  # frozen
        environment: Mapping[str, str] | None = None,
        restarts: RestartPolicy = QUICK,
        reactors: bool = True,
    ) -> AsyncIterator[World]:
        journal = open_journal(path, run, clock)
        bell = Bell()
        world = World(journal, bell, ScriptedHost(bell), ScriptedFolders(bell))
        try:
            with trio.fail_after(GUARD_S):
                async with trio.open_nursery() as outermost:
                    await outermost.start(world.engine.keep_writing)
                    if reactors:
                        registrar = Registrar(
                            world.engine, world.folders, world.frozen, world.credentials, DEFAULT_HARNESS,
                            FixedPolicies(policy), environment or {}, world.repositories,
                        )  # fmt: skip
                        supervision = Supervision(
                            world.engine, world.host, world.folders, world.frozen, world.credentials, "opencode",
                            registrar.is_approved, restarts,
                        )  # fmt: skip
                        activation = Activation(world.engine, registrar, DEFAULT_HARNESS.name)
                        world.engine.observe(supervision.notice)
                        world.engine.observe(activation.notice)
                        world.engine.observe_revocations(activation.notice_revocation)
                        await outermost.start(world.react, supervision, activation)
                    yield world
                    if reactors:
                        await world.end_reactors()
                    outermost.cancel_scope.cancel()
        finally:
            journal.close()

    return serve


@pytest.fixture(autouse=True)
def retries_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make all retries immediate that wait for the journal."""
    monkeypatch.setattr("omac.services.directories.activation.RETRY_S", 0.001)
    monkeypatch.setattr("omac.services.sidecars.supervision.RETRY_S", 0.001)
