"""All carriers at once on one journal: live engines, opened journals and the spool, among faults, for one seed.

The answers that callers got (`simulation/processes.py`) are compared with the events that are durable in the end. A
seed reproduces the choices (not the operating system's timing).
"""

import shutil
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import trio
from contract.commands import COMMANDS, HOST, STARTED, WORKDIR
from contract.launches import REFUSED, REQUEST, Program
from simulation.processes import EARLY_NS, Copies, Host, Killed, Live, Opened, Process, Resolver, Simulation

from omac.domain.access import access
from omac.domain.directories import directory
from omac.domain.kernel import ids, run
from omac.domain.kernel.aggregate import Addressed
from omac.domain.kernel.event import Cause, Recorded
from omac.domain.kernel.hidden import Hidden
from omac.domain.kernel.ids import StreamId
from omac.domain.kernel.refusal import Refusal
from omac.domain.settings.settings import SETTINGS
from omac.domain.sidecars import sidecar
from omac.domain.skills.meta import FoundSkill, Meta, SidecarMeta
from omac.domain.skills.scope import SkillScope
from omac.journal import inbox
from omac.journal.reader import ReadJournal
from omac.journal.spool import REJECTED
from omac.projections.status import status_of
from omac.projections.system import System
from omac.services.credentials.values import Credentials, Values
from omac.services.kernel.ingestion import WAIT_NS, ingest
from omac.services.kernel.intake import settle_lost
from omac.services.kernel.recovery import recover, unended_runs
from omac.services.settings.changes import change_setting
from omac.services.skills.registration import Registering
from omac.services.skills.resolution import Candidate

LIVES = 2  # servers, one after the other
COMMANDERS = 2  # people who type commands, side by side
COMMANDS_EACH = 3
BESIDE = 1  # runs of `omac start`
PROGRAMS = 6  # that report into the spool
SCHEDULE_S = 60.0  # a schedule that takes longer is stuck
PERSON = Cause("person")
SKILLS = ("echo", "slack")
BUGS = ("unfoldable", "out-of-order", "journal-damaged", "journal-newer")  # reasons that no fault here explains


def candidate(name: str) -> Candidate:
    """Return a skill as a command finds it."""
    folder = f"{WORKDIR}/.agents/skills"
    meta = Meta(name, sidecar=SidecarMeta(("run", name), name))
    return Candidate(SkillScope(WORKDIR), FoundSkill(name, "agents", folder, f"{folder}/{name}", "sha256:1", meta))


async def command(simulation: Simulation) -> None:
    """Run one command line of a person: open the journal, ingest the spool, run one use case, close the journal."""
    chance = simulation.chance
    with simulation.process("command") as process:
        execution = Opened(process)
        with suppress(Refusal):
            await ingest(simulation.inbox, execution)
        await simulation.pause()
        credentials = Credentials(execution, simulation.secrets, bytes(32), lambda: simulation.changing)
        copies: Any = Copies()  # as far as it is used
        registering = Registering(execution, copies, Resolver(), credentials)
        skill = candidate(chance.choice(SKILLS))
        scope, values = skill.place.scope, Values({"KEY": Hidden(str(simulation.number()))}, {"LEVEL": "1"})
        stream = ids.registration_stream(HOST, scope, "agents", skill.skill.name)
        match chance.randrange(7):
            case 0:
                await expected(registering.approve(skill))
            case 1:
                await expected(registering.revoke(stream))
            case 2:
                await expected(registering.register(skill, values))
            case 3:
                await expected(registering.deregister(stream))
            case 4:
                await expected(credentials.give(scope, skill.skill.name, "sha256:1", values, PERSON, base="agents"))
            case 5:
                await expected(credentials.take(scope, skill.skill.name, ["KEY", "LEVEL"], PERSON))
            case _:
                value = chance.choice(["vault", "keychain"])
                await expected(change_setting(execution, File(simulation).changing, SETTINGS["secrets.store"], value))


class File:
    """The settings file of the user, locked by the command that changes it."""

    origin = "settings.toml"

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._settings = simulation.settings
        self.present: str | None = None
        self._value: str | None = None

    @contextmanager
    def changing(self, _: object, value: str | None) -> Iterator["File | None"]:
        if self._simulation.settings_locked:  # as the folder's lock refuses it; a kill lets go of it
            raise Refusal("contention", "another command is changing the settings")
        self._simulation.settings_locked = True
        self.present, self._value = self._settings.get("secrets.store"), value
        try:
            yield self if self.present != value else None
        finally:
            self._simulation.settings_locked = False

    def write(self) -> None:
        self._settings["secrets.store"] = self._value


async def expected(work: Awaitable[object]) -> None:
    """Await some work; ignore a refusal that a fault explains, and raise any other as a defect."""
    try:
        await work
    except Refusal as refusal:
        if refusal.reason in BUGS:
            raise AssertionError(str(refusal)) from refusal


@asynccontextmanager
async def running(simulation: Simulation, process: Process, *, beside: bool) -> Any:
    """Yield a live engine that has recovered what dead runs left, and is recorded as started."""
    engine = Live(process, beside=beside)

    async with trio.open_nursery() as nursery:
        await nursery.start(engine.keep_writing)
        host: Any = Host()  # as far as it is used
        await recover(engine, host, lambda name, _: name in simulation.living, lambda: simulation.recovering)
        stream = ids.run_stream(HOST, process.run)
        await engine.execute(run.AGGREGATE, stream, run.Start(STARTED), PERSON)
        yield engine, nursery
        await engine.execute(run.AGGREGATE, stream, run.Stop("asked to"), PERSON)
        nursery.cancel_scope.cancel()


async def live(simulation: Simulation, name: str, steps: int, *, beside: bool = False) -> None:
    """Run a server, or a run beside it: directories, sidecars, accesses and the spool, until it ends or is killed."""
    with simulation.process(name) as process:
        try:
            async with running(simulation, process, beside=beside) as (engine, nursery):
                if not beside:
                    nursery.start_soon(intake, simulation, engine)
                for _ in range(steps):
                    process.require_alive()
                    await expected(step(simulation, engine))
                    await simulation.pause()
                if simulation.chance.random() < 0.4:
                    process.killed = True
                    raise Killed
        except* Refusal as refusals:  # it could not start, or not say how it ended
            bugs = refusals.subgroup(lambda one: isinstance(one, Refusal) and one.reason in BUGS)
            assert bugs is None, bugs


async def intake(simulation: Simulation, engine: Live) -> None:
    """Ingest the spool as a server does, in quick succession."""
    while True:
        await expected(ingest(simulation.inbox, engine))
        await simulation.pause()


async def step(simulation: Simulation, engine: Live) -> None:
    """Do one of the things that happen in a server."""
    chance = simulation.chance
    name = f"{engine.namespace}-{chance.randrange(2)}"
    target = ids.directory_stream(engine.namespace, ids.workdir_id(name))
    runs = ids.sidecar_stream(engine.namespace, ids.workdir_id(name), "echo")
    log = ids.access_stream(HOST)
    match chance.randrange(6):
        case 0 | 1:
            with suppress_offline():
                await engine.execute(directory.AGGREGATE, target, chance.choice(COMMANDS["directory"]), PERSON)
        case 2 | 3:
            await engine.execute(sidecar.AGGREGATE, runs, chance.choice(COMMANDS["sidecar"]))
        case 4:
            recorded = engine.revoke(directory.AGGREGATE, target, directory.RequestDeactivation("asked to"))
            with trio.move_on_after(0.05):
                await recorded.wait()
        case _:
            fact = access.AccessRequested(WORKDIR, "echo", "echo", None, "GET", "/")
            (request,) = await engine.record([Addressed(access.AGGREGATE, log, fact)], Cause("agent"))
            outcome = access.AccessCompleted(request.position, 200, 0, 5, 1_000)
            engine.record_soon([Addressed(access.AGGREGATE, log, outcome)], Cause("omac", None, request.position))


@contextmanager
def suppress_offline() -> Iterator[None]:
    """Suppress the refusal of a directory that is offline."""
    try:
        yield
    except Refusal as refusal:
        if refusal.reason != "directory-offline":
            raise


async def sandboxed(simulation: Simulation) -> None:
    """Spool the reports of `omac sandbox run` and `omac hook`, in and out of order, late and twice."""
    chance, program = simulation.chance, simulation.program
    name = f"l{simulation.number()}"
    if chance.random() < 0.3:
        path = program.deny(f"d{name}", path=f"/w/{name}")
        simulation.spooled[Path(path).name] = ids.guard_stream(HOST), f"/w/{name}"
        if chance.random() < 0.3:
            _copy(simulation, Path(path))
        return
    steps = chance.choice([("launch-requested", "launched", "exited"), ("launch-requested", "exited"), ("denied",)])
    reports = list(enumerate(steps, 1))
    if chance.random() < 0.3:
        chance.shuffle(reports)
    for version, kind in reports:
        paths = _report(program, name, kind, version)
        simulation.spooled[paths.name] = ids.sandbox_stream(HOST, ids.LaunchId(name)), kind
        if chance.random() < 0.15:
            _copy(simulation, paths)
        await simulation.pause()


def _report(program: Program, launch: str, kind: str, version: int) -> Path:
    fields: dict[str, dict[str, Any]] = {
        "launch-requested": REQUEST, "launched": {"pid": 43}, "exited": {"status": 0}, "denied": REFUSED,
    }  # fmt: skip
    return Path(program.put(f"sandbox.{kind}", fields[kind], launch, version))


def _copy(simulation: Simulation, file: Path) -> None:
    """Copy a record to a second file, under a later name that is not the name of the record in it."""
    later = f"{int(file.name[:20]) + 1:020d}{file.name[20:]}"
    with suppress(FileNotFoundError):  # it is taken in already
        shutil.copyfile(file, file.with_name(later))
        simulation.spooled[later] = ids.guard_stream(HOST), f"copy of {file.name}"


# ---- a schedule, and what must hold after it ----


async def schedule(folder: Path, seed: int) -> int:
    """Drive one schedule in an empty folder and check it; return how many events there are. Raises AssertionError."""
    simulation = Simulation(folder, seed)
    try:
        with _quick(), trio.fail_after(SCHEDULE_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_repeat, LIVES, lambda: live(simulation, "server", 10))
                nursery.start_soon(_repeat, BESIDE, lambda: live(simulation, "beside", 8, beside=True))
                nursery.start_soon(_repeat, PROGRAMS, lambda: sandboxed(simulation))
                for _ in range(COMMANDERS):
                    nursery.start_soon(_repeat, COMMANDS_EACH, lambda: command(simulation))
            simulation.faults = False
            return await _settle(simulation)
    finally:
        simulation.clean()


async def _repeat(times: int, work: Callable[[], Awaitable[None]]) -> None:
    for _ in range(times):
        await work()


@contextmanager
def _quick() -> Iterator[None]:
    """Shorten the pauses between tries, and let a process that is gone remove no file."""
    remove = inbox.Pass.remove

    def remove_if_alive(self: inbox.Pass, names: Sequence[str]) -> None:
        process = getattr(self._clock, "__self__", None)
        if not (isinstance(process, Process) and process.killed):
            remove(self, names)

    with (
        mock.patch("omac.journal.commit_thread.RETRY_S", 0.002),
        mock.patch("omac.journal.commit_thread.POLL_S", 0.002),
        mock.patch("omac.services.kernel.engine.RETRY_S", 0.002),
        mock.patch.object(inbox.Pass, "remove", remove_if_alive),
    ):
        yield


async def _settle(simulation: Simulation) -> int:
    """Let a last server ingest and settle all that is left, then compare everything."""
    with simulation.process("last") as process:
        async with running(simulation, process, beside=False) as (engine, _):
            simulation.now += WAIT_NS + 2 * EARLY_NS  # whose beginning has not come by now, is set aside
            while simulation.inbox.names():
                await ingest(simulation.inbox, engine)

            async def take_in() -> None:
                await ingest(simulation.inbox, engine)

            await settle_lost(engine, lambda *_: False, take_in)
            await engine.catch_up()
            records = _durable(simulation.path)
            system = System().replay(records)
            assert status_of(system) == status_of(engine.system), "the live state is what a replay gives"
            assert unended_runs(engine) == {process.run}, "every dead run is settled"
            assert not system.accesses.open, "every access has an outcome"
            assert not [entry for entry in system.sandboxes.entries.values() if entry.state.live]
        assert not process.killed
    records = _durable(simulation.path)
    _check_order(records)
    _check_notes(simulation, records)
    _check_spool(simulation, records)
    return len(records)


def _durable(path: str) -> list[Recorded]:
    reader = ReadJournal(path)
    try:
        return list(reader.records())
    finally:
        reader.close()


def _check_order(records: Sequence[Recorded]) -> None:
    assert [recorded.position for recorded in records] == list(range(1, len(records) + 1))
    times = [recorded.at for recorded in records]
    assert times == sorted(times), "recorded time runs back"
    versions: dict[StreamId, int] = {}
    for recorded in records:
        if recorded.version is not None:
            assert recorded.version == versions.get(recorded.stream, 0) + 1, recorded
            versions[recorded.stream] = recorded.version


def _check_notes(simulation: Simulation, records: Sequence[Recorded]) -> None:
    """Require that acknowledged events are in the journal, once and as reported, and that refused ones are not."""
    durable = Counter(recorded.correlation for recorded in records)
    for note in simulation.notes:
        if note.records is None:
            continue
        own = [recorded for recorded in note.records if recorded.correlation == note.tag]
        assert durable[note.tag] == len(own), ("told", note, "durable", durable[note.tag])
        for recorded in note.records:
            assert records[recorded.position - 1] == recorded


def _check_spool(simulation: Simulation, records: Sequence[Recorded]) -> None:
    """Require that every file is in the journal, once, or among the rejected, and that none is in both."""
    kinds = {
        "LaunchRequested": "launch-requested",
        "Launched": "launched",
        "LaunchExited": "exited",
        "Denied": "denied",
    }
    durable = Counter(
        (recorded.stream, kinds.get(name := type(recorded.event).__name__) or getattr(recorded.event, "path", name))
        for recorded in records
        if recorded.happened is not None
    )
    folder = simulation.spool / REJECTED
    rejected = Counter(path.name for path in folder.iterdir()) if folder.is_dir() else Counter[str]()
    for name, event in simulation.spooled.items():
        assert durable[event] + rejected[name] == 1, (name, event, durable[event], rejected[name])
