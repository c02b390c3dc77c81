"""Processes for a simulation: each with a journal of its own, the faults that it meets, and the answers of its callers.

A process can stall in a commit, fail to read, fail to write, and be killed between any two steps. A killed process
neither writes nor removes anything, and nothing of it is closed.
"""

import random
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import trio
from contract.commands import HOST
from contract.journals import lock
from contract.launches import Program

from omac.domain.kernel.aggregate import Addressed
from omac.domain.kernel.event import Cause, Recorded
from omac.domain.kernel.hidden import Hidden
from omac.domain.kernel.ids import RunId, StreamId
from omac.domain.kernel.refusal import Refusal
from omac.domain.sidecars.sidecar import Birth
from omac.domain.skills.interpreter import Interpreter
from omac.journal.inbox import Inbox
from omac.journal.opening import open_journal
from omac.services.kernel.engine import Engine
from omac.services.kernel.execution import AlreadyRecorded, Execution
from omac.services.kernel.opened import OpenedJournal
from omac.services.ports import Frozen

PAUSE_S = 0.003  # at most, between two steps
EARLY_NS = 3_600 * 10**9  # how wrong a clock may be
FAULTS = ("stall", "locked", "unreadable", "refuse", "kill-before", "kill-after")


class Killed(BaseException):
    """The process is gone."""


class Note(NamedTuple):
    """The answer that a caller got: the durable events; () for none; None when it did not live to get one."""

    tag: str
    records: Sequence[Recorded] | None


class Simulation:
    """A schedule: its files, its chances, and the answers that callers got."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.path = str(folder / "journal.db")
        self.spool = folder / "spool"
        self.inbox = Inbox(str(self.spool), HOST)
        self.program = Program(self.spool)
        self.secrets = Store()
        self.settings: dict[str, str | None] = {}
        self.settings_locked = False
        self.changing = trio.Lock()  # credentials.lock in a state directory
        self.recovering = trio.Lock()
        self.now = self.program.at
        self.faults = True
        self.living: set[RunId] = set()
        self.processes: list[Process] = []
        self.notes: list[Note] = []
        self.spooled: dict[str, tuple[StreamId, str]] = {}  # by the name of a file: its stream, and what tells it apart
        self._numbers = iter(range(1, 1_000_000))

    def number(self) -> int:
        """Return another number at each call."""
        return next(self._numbers)

    async def pause(self) -> None:
        """Let the other tasks go on."""
        await trio.sleep(self.chance.random() * PAUSE_S)

    @contextmanager
    def process(self, name: str) -> Iterator["Process"]:
        """Yield a process, from its start to its end; a killed one ends here, and leaves everything as it is."""
        process = Process(self, RunId(f"{name}{self.number()}"))
        self.processes.append(process)
        self.living.add(process.run)
        try:
            yield process
        except* Killed:
            pass
        else:
            process.journal.close()
        finally:
            self.living.discard(process.run)

    def clean(self) -> None:
        """Close what the killed processes left open."""
        for process in self.processes:
            process.journal.close()
        self.program.spool.close()


class Process:
    """A process with the journal open, and the faults that it meets."""

    def __init__(self, simulation: Simulation, name: RunId) -> None:
        self.simulation = simulation
        self.run = name
        self.killed = False
        self._early = simulation.chance.randrange(-EARLY_NS, EARLY_NS)
        self.journal = open_journal(simulation.path, name, self.clock)
        store = self.journal.store
        for owner, method in (
            (store, "insert_events"),
            (store, "head"),
            (store.reader, "select"),
            (store.reader, "versions"),
        ):
            change = method == "insert_events"
            setattr(owner, method, self._faulty(getattr(owner, method), FAULTS if change else ("unreadable", "stall")))

    def clock(self) -> int:
        """Return nanoseconds since 1970 UTC, as wrong as this process's clock is."""
        self.simulation.now += 10**6
        return self.simulation.now + self._early

    def require_alive(self) -> None:
        """Raise Killed when the process was killed."""
        if self.killed:
            raise Killed

    def _faulty(self, method: Callable[..., Any], faults: Sequence[str]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            self.require_alive()
            chance = self.simulation.chance
            if not self.simulation.faults or chance.random() > 0.12:
                return method(*arguments, **named)
            match chance.choice(faults):
                case "stall":
                    time.sleep(chance.random() * 0.01)
                case "locked":
                    _hold_lock(self.simulation.path, chance.random() * 0.01)
                case "unreadable" if method.__name__ != "insert_events":
                    raise Refusal("journal-unavailable", "it cannot be read right now")
                case "refuse":
                    raise Refusal("journal-unavailable", "the disk is full")
                case "kill-before":
                    self.killed = True
                    raise Killed
                case "kill-after":
                    method(*arguments, **named)
                    self.killed = True
                    raise Killed
                case "unreadable":
                    pass  # only what reads can fail so
                case fault:
                    raise AssertionError(fault)
            return method(*arguments, **named)

        return call


def _hold_lock(path: str, seconds: float) -> None:
    """Have another program hold the write lock for a while."""
    connection = lock(Path(path))
    threading.Timer(seconds, connection.close).start()


class Noted(Execution):
    """An execution that keeps the answers of its callers: every command has a correlation of its own."""

    process: Process

    async def execute_latest(
        self, aggregate: Any, stream: StreamId, command_now: Callable[[], Any], cause: Cause | None = None, **rest: Any
    ) -> Sequence[Recorded]:
        """Execute as Execution does, with a correlation of its own, and keep the answer."""
        if rest.get("spooled"):
            return await super().execute_latest(aggregate, stream, command_now, cause, **rest)
        cause = cause or self.entry(aggregate, stream).cause()
        tag = f"c{self.process.simulation.number()}"
        tagged = Cause(cause.actor, tag, cause.causation)
        return await self._noted(tag, super().execute_latest(aggregate, stream, command_now, tagged, **rest))

    async def record(self, facts: Sequence[Addressed[Any, Any]], cause: Cause, late: Any = None) -> Sequence[Recorded]:
        """Record as Execution does, with a correlation of its own, and keep the answer."""
        tag = f"c{self.process.simulation.number()}"
        return await self._noted(tag, super().record(facts, Cause(cause.actor, tag, cause.causation), late))

    async def _noted(self, tag: str, work: Awaitable[Sequence[Recorded]]) -> Sequence[Recorded]:
        records: Sequence[Recorded] | None = None
        try:
            records = await work
        except (Refusal, AlreadyRecorded):
            records = None if self.process.killed else ()
            raise
        finally:
            self.process.simulation.notes.append(Note(tag, records))
        return records


class Live(Noted, Engine):
    """The carrier of a server, or of a run beside it."""

    def __init__(self, process: Process, *, beside: bool = False) -> None:
        self.process = process
        super().__init__(process.journal, HOST, beside=beside)


class Opened(Noted, OpenedJournal):
    """The carrier of a command."""

    def __init__(self, process: Process) -> None:
        self.process = process
        super().__init__(process.journal, HOST)


class Store:
    """Implements Secrets: a vault in memory that outlives every process."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, Hidden]] = {}

    async def chosen(self) -> str:
        return "vault"

    async def read(self, store: str, service: str, names: Sequence[str]) -> dict[str, Hidden]:
        await trio.lowlevel.checkpoint()
        stored = self._values.get(service, {})
        return {name: stored[name] for name in names if name in stored}

    async def write(self, store: str, service: str, values: Mapping[str, Hidden]) -> None:
        await trio.lowlevel.checkpoint()
        self._values.setdefault(service, {}).update(values)

    async def remove(self, store: str, service: str, names: Sequence[str]) -> None:
        await trio.lowlevel.checkpoint()
        for name in names:
            self._values.get(service, {}).pop(name, None)


class Copies:
    """Implements FrozenSkills as far as a command needs it: every copy can be made."""

    async def freeze(self, source: str) -> Frozen:
        return Frozen("sha256:1", f"sha256:{source}")

    async def checked(self, digest: str, source: str) -> str:
        return f"/copies/{digest}"


class Resolver:
    """Implements Interpreters: every command runs by one program, which is as it was."""

    async def resolve(self, command: Sequence[str], source: str, copy: str, workdir: str) -> tuple[Interpreter, ...]:
        return (Interpreter(command[0], f"/usr/bin/{command[0]}", 1, 2),)


class Host:
    """Implements SidecarHost as far as recovery needs it: every orphan can be ended."""

    async def end_orphan(self, birth: Birth) -> bool:
        await trio.lowlevel.checkpoint()
        return True

    async def end_unbuilt(self) -> int:
        await trio.lowlevel.checkpoint()
        return 0
