"""Recovery: what an earlier run of this host left open is settled by events before anything new begins.

Directories go offline, so their tokens stay dead; sidecars that survived are ended, recognised by more than their
pid; accesses without an outcome get one. Runs whose lock is held are alive and left alone.
"""

from collections.abc import Callable
from functools import partial

from omac.domain import directory, ids, sidecar
from omac.domain.access import AccessAborted
from omac.domain.ids import RunId, StreamId
from omac.domain.recorded import Cause, Draft
from omac.domain.run import RunRecovered
from omac.services.engine import Engine, together
from omac.services.ports import SidecarHost

WHY = "omac was killed"
REASON = "omac-killed"


async def recover(engine: Engine, host: SidecarHost, alive: Callable[[RunId], bool]) -> list[RunId]:
    """Settle every dead run of this host; `alive` tells whether a run's lock is held. Returns the runs settled."""
    settled = []
    for stream, entry in sorted(engine.system.runs.entries.items()):
        _, owner, run = stream.split("/")
        if owner == engine.host and entry.state.status == "started" and run != engine.run and not alive(RunId(run)):
            await _settle(engine, host, RunId(run), stream)
            settled.append(RunId(run))
    return settled


async def _settle(engine: Engine, host: SidecarHost, run: RunId, stream: StreamId) -> None:
    system = engine.system
    cause = Cause("omac", None, system.runs[stream].position)
    directories = [s for s, e in system.directories.entries.items() if e.run == run and e.state.status != "offline"]
    sidecars = [s for s, e in system.sidecars.entries.items() if e.run == run and e.state.live]
    accesses = [position for position, owner in system.accesses.open.items() if owner == run]

    await together(partial(_take_offline, engine, target, cause) for target in directories)
    await together(partial(_end, engine, host, target, cause) for target in sidecars)
    finish = partial(directory.decide, directory.FinishDeactivation())
    await together(partial(engine.execute, system.directories, target, finish, cause) for target in directories)
    if accesses:
        log = ids.access_stream(engine.host)
        await engine.writer.append([Draft(log, None, AccessAborted(position, REASON)) for position in accesses], cause)
    event = RunRecovered(engine.run, len(directories), len(sidecars), len(accesses))
    await engine.writer.append([Draft(stream, system.runs[stream].version + 1, event)], cause)


async def _take_offline(engine: Engine, stream: StreamId, cause: Cause) -> None:
    decide = partial(directory.decide, directory.RequestDeactivation(WHY))
    await engine.execute(engine.system.directories, stream, decide, cause)


async def _end(engine: Engine, host: SidecarHost, stream: StreamId, cause: Cause) -> None:
    sidecars = engine.system.sidecars
    await engine.execute(sidecars, stream, partial(sidecar.decide, sidecar.RequestStop(WHY)), cause)
    birth = sidecars[stream].state.birth
    if birth is not None:
        await host.end_orphan(birth)
    await engine.execute(sidecars, stream, partial(sidecar.decide, sidecar.ReportStopped()), cause)
