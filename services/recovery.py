"""Recovery: what earlier runs of this host left open is settled by events before anything new begins.

Directories go offline, so their tokens stay dead; sidecars that survived are ended, recognised by more than their
pid; accesses without an outcome get one. Runs whose lock is held are alive and left alone. Whoever appended last to
a stream owned it: not only a run that was killed leaves things open, but also one that could not end everything in
order, and a recovery that was itself cut short.

One process at a time recovers, and looks only when it is its turn: what another has settled, or has begun anew since,
is nothing that a dead run left.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial

from omac.domain import directory, ids, sidecar
from omac.domain.access import AccessAborted
from omac.domain.ids import RunId, StreamId
from omac.domain.recorded import Cause, Draft, Event
from omac.domain.run import Run, RunRecovered
from omac.services.engine import Engine, together
from omac.services.ports import SidecarHost

WHY = "omac was killed"
REASON = "omac-killed"


async def recover(
    engine: Engine,
    host: SidecarHost,
    alive: Callable[[RunId], bool],
    turn: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
) -> list[RunId]:
    """Settle what dead runs of this host left open; `alive` tells whether a run's lock is held.

    `turn` makes the processes that recover wait for each other. Returns the runs that were found dead, for which
    `run.recovered` is recorded. Raises Refusal.
    """
    async with turn():
        await engine.writer.catch_up()
        return await _settle(engine, host, alive)


async def _settle(engine: Engine, host: SidecarHost, alive: Callable[[RunId], bool]) -> list[RunId]:
    system = engine.system
    gone = _Gone(engine.run, alive)
    directories = {
        stream: entry.run
        for stream, entry in system.directories.entries.items()
        if ids.host_of(stream) == engine.host and entry.state.status != "offline" and gone(entry.run)
    }
    sidecars = {
        stream: entry.run
        for stream, entry in system.sidecars.entries.items()
        if ids.host_of(stream) == engine.host and entry.state.live and gone(entry.run)
    }
    await together(partial(_take_offline, engine, target) for target in directories)
    await together(partial(_end, engine, host, target) for target in sidecars)
    finish = partial(directory.decide, directory.FinishDeactivation())
    await together(partial(engine.execute, system.directories, target, finish) for target in directories)

    settled = []
    forwarding = set(system.accesses.open.values())
    for stream, entry in sorted(system.runs.entries.items()):
        run = RunId(stream.split("/")[2])
        unended = entry.state.status == "started"
        if ids.host_of(stream) == engine.host and (unended or run in forwarding) and gone(run):
            counts = [list(owners.values()).count(run) for owners in (directories, sidecars)]
            await _close(engine, stream, run, counts[0], counts[1])
            settled += [run] if unended else []
    return settled


class _Gone:
    """Whether a run is another than this and lives no more; each lock is tried once."""

    def __init__(self, own: RunId, alive: Callable[[RunId], bool]) -> None:
        self._alive = alive
        self._known: dict[str, bool] = {own: False}

    def __call__(self, run: str) -> bool:
        if run not in self._known:
            self._known[run] = not self._alive(RunId(run))
        return self._known[run]


async def _close(engine: Engine, stream: StreamId, run: RunId, directories: int, sidecars: int) -> None:
    """Abort the open accesses of a run and, if it never ended, record its recovery: both or neither, and once."""
    cause = Cause("omac", None, engine.system.runs[stream].position)
    log = ids.access_stream(engine.host)
    open_ = [position for position, owner in engine.system.accesses.open.items() if owner == run]
    aborts = [Draft(log, None, AccessAborted(position, REASON)) for position in open_]

    def decide(state: Run) -> list[Event]:
        return [RunRecovered(engine.run, directories, sidecars, len(open_))] if state.status == "started" else []

    recovered = await engine.execute(engine.system.runs, stream, decide, cause, beside=aborts)
    late = [draft for draft in aborts if draft.event.request in engine.system.accesses.open]
    if not recovered and late:  # it ended in order, but could not record how these did
        await engine.writer.append(late, cause)


async def _take_offline(engine: Engine, stream: StreamId) -> None:
    decide = partial(directory.decide, directory.RequestDeactivation(WHY))
    await engine.execute(engine.system.directories, stream, decide)


async def _end(engine: Engine, host: SidecarHost, stream: StreamId) -> None:
    sidecars = engine.system.sidecars
    await engine.execute(sidecars, stream, partial(sidecar.decide, sidecar.RequestStop(WHY)))
    birth = sidecars[stream].state.birth
    if birth is not None:
        await host.end_orphan(birth)
    await engine.execute(sidecars, stream, partial(sidecar.decide, sidecar.ReportStopped()))
