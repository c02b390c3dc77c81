"""Recovery: what earlier runs of this host left open is settled by events before anything new begins.

Directories go offline, so their tokens stay dead; sidecars that survived are ended, recognised by more than their
pid; accesses without an outcome get one. Runs whose process lives are left alone. The run that appended last to
a stream owned it: not only a run that was killed leaves things open, but also one that could not end everything in
order, and a recovery that was itself cut short.

One process at a time recovers, and reads the state once it holds the turn: streams that another process has settled, or
has started again since, were not left by a dead run.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial

from omac.domain.access import access
from omac.domain.access.access import AccessAborted, ends_together, position_of
from omac.domain.directories import directory
from omac.domain.kernel import ids, run
from omac.domain.kernel.aggregate import Addressed
from omac.domain.kernel.event import Cause, Event
from omac.domain.kernel.ids import RunId, StreamId
from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.run import Run
from omac.domain.sidecars import sidecar
from omac.services.kernel.engine import Engine, together
from omac.services.ports import SidecarHost

WHY = "omac was killed"
REASON = "omac-killed"

Alive = Callable[[RunId, Run], bool]  # whether the process of a run lives, given what is recorded of it


async def recover(
    engine: Engine, host: SidecarHost, alive: Alive, turn: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
) -> list[RunId]:
    """Settle what dead runs of this host left open. `turn` makes the processes that recover wait for each other.
    Returns the runs that were found dead, for which `run.recovered` is recorded. Raises Refusal."""
    async with turn():
        await engine.catch_up()
        return await _settle(engine, host, alive)


async def _settle(engine: Engine, host: SidecarHost, alive: Alive) -> list[RunId]:
    system = engine.system
    gone = _Gone(engine, alive)
    directories = {
        stream: entry.run
        for stream, entry in system.directories.entries.items()
        if ids.key_of(stream).host == engine.host and entry.state.status != "offline" and gone(entry.run)
    }
    sidecars = {
        stream: entry.run
        for stream, entry in system.sidecars.entries.items()
        if ids.key_of(stream).host == engine.host and entry.state.live and gone(entry.run)
    }
    offline, finish = directory.RequestDeactivation(WHY), directory.FinishDeactivation()
    await together(partial(engine.execute, directory.AGGREGATE, target, offline) for target in directories)
    if sidecars:  # before their ends are recorded: if this recovery is killed, the next one comes here again
        await host.end_unbuilt()
    await together(partial(_end, engine, host, target) for target in sidecars)
    await together(partial(engine.execute, directory.AGGREGATE, target, finish) for target in directories)

    settled = []
    unended, log = unended_runs(engine), ids.access_stream(engine.host)
    forwarding = {RunId(run) for stream, run in system.accesses.open.values() if stream == log}
    for dead in filter(gone, sorted(unended | forwarding)):
        counts = [list(owners.values()).count(dead) for owners in (directories, sidecars)]
        await _close(engine, dead, counts[0], counts[1])
        settled += [dead] if dead in unended else []
    return settled


def unended_runs(engine: Engine) -> frozenset[RunId]:
    """Return the runs of this host that are not recorded as ended: after a recovery, those that live."""
    runs = engine.system.runs.entries.items()
    host = engine.host
    started = [stream for stream, entry in runs if ids.key_of(stream).host == host and entry.state.status == "started"]
    return frozenset(RunId(ids.key_of(stream).name) for stream in started)


def require_only_server(engine: Engine) -> None:
    """Raise Refusal (journal-in-use) when another server of this host lives, whatever became of its lock's file."""
    for other in sorted(unended_runs(engine) - {engine.run}):
        state = engine.system.runs[ids.run_stream(engine.host, other)].state
        if state.command == "serve":
            message = f"another omac serve (pid {state.pid}) uses this journal"
            raise Refusal("journal-in-use", message, fix=["omac status", f"omac stop {state.pid}"])


class _Gone:
    """Tells of a run that it is another than this and dead; each is judged once."""

    def __init__(self, engine: Engine, alive: Alive) -> None:
        self._engine = engine
        self._alive = alive
        self._known: dict[str, bool] = {engine.run: False}

    def __call__(self, owner: str) -> bool:
        if owner not in self._known:
            recorded = self._engine.system.runs[ids.run_stream(self._engine.host, RunId(owner))].state
            self._known[owner] = not self._alive(RunId(owner), recorded)
        return self._known[owner]


async def _close(engine: Engine, dead: RunId, directories: int, sidecars: int) -> None:
    """Abort the open accesses of a run and, if it never ended, record its recovery: both or neither, and once."""
    stream, log = ids.run_stream(engine.host, dead), ids.access_stream(engine.host)
    cause = Cause("omac", None, engine.system.runs[stream].position or None)
    open_ = [access for access, owner in engine.system.accesses.open.items() if owner == (log, dead)]
    command = run.Recover(run.RunRecovered(engine.run, directories, sidecars, len(open_)))
    recovered = await engine.execute(run.AGGREGATE, stream, command, cause, beside=_aborts(engine, log, open_))
    late = [access for access in open_ if access in engine.system.accesses.open]
    if not recovered and late:  # it ended in order, but could not record how these did
        await engine.record(_aborts(engine, log, late), cause)


def _aborts(engine: Engine, log: StreamId, accesses: Sequence[int]) -> list[Addressed[None, Event]]:
    """Return the records of accesses that nobody ends any more."""
    aborted = [(open_, AccessAborted(position_of(open_), REASON)) for open_ in accesses]
    return [Addressed(access.AGGREGATE, log, event) for event in ends_together(aborted, engine.batch_max)]


async def _end(engine: Engine, host: SidecarHost, stream: StreamId) -> None:
    await engine.execute(sidecar.AGGREGATE, stream, sidecar.RequestStop(WHY))
    birth = engine.system.sidecars[stream].state.birth
    if birth is not None:
        await host.end_orphan(birth)
    await engine.execute(sidecar.AGGREGATE, stream, sidecar.ReportStopped())
