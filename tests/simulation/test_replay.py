"""The fold at every position is the state that was live there."""

import sys
from functools import partial
from pathlib import Path

import msgspec
import trio
from simulation.world import World, world
from tiers import everything

from omac.domain.kernel import ids
from omac.domain.kernel.event import Recorded
from omac.journal.reader import ReadJournal
from omac.projections.status import status_of
from omac.projections.system import System
from omac.services.kernel.engine import Engine

EVENTS_MIN = 500 if everything() else 150
COMPARED_BY_CLI = 10 if everything() else 3

# Another process that keeps appending to the same streams as the server: it approves other code of the same skills,
# and then the true code again.
APPROVER = """
import sys, time
import trio
from omac.domain.kernel import ids
from omac.domain.skills import registration
from omac.domain.kernel.event import Cause
from omac.journal.opening import open_journal
from omac.services.kernel.opened import OpenedJournal
journal = open_journal(sys.argv[1], "other", time.time_ns)
execution = OpenedJournal(journal, ids.HostId(sys.argv[2]))
for number in range(20):
    for skill in ("one", "two"):
        stream = ids.registration_stream(ids.HostId(sys.argv[2]), sys.argv[3], "agents", skill)
        state = execution.entry(registration.AGGREGATE, stream).state
        for code in (registration.Code(f"/elsewhere/{skill}", f"sha256:{number:064x}"), state.approved):
            approve = registration.Approve(code, sys.argv[4])
            trio.run(execution.execute, registration.AGGREGATE, stream, approve, Cause("person"))
            time.sleep(0.03)
journal.close()
"""


async def test_every_position_replays_to_what_was_live_there() -> None:
    """The fold and the live state agree byte for byte at every position, with crashes, reloads and a second process."""
    live: dict[int, bytes] = {}
    documents: list[bytes] = []
    with trio.fail_after(120):
        async with world() as here:
            system = here.server.engine.system

            def capture(recorded: Recorded) -> None:
                live[recorded.position] = msgspec.json.encode(status_of(system))

            here.server.engine.observe(capture)
            here.server.engine.observe_accesses(capture)
            projects = [here.project(f"p{number}", "one", "two") for number in range(3)]
            await approve_all(here, projects)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(keep_appending, here, projects[0])
                nursery.start_soon(collect_statuses, here, documents)
                while system.position < EVENTS_MIN or len(documents) < COMPARED_BY_CLI:
                    await make_history(here, projects)
            compare_by_cli = [
                (document, await here.omac("replay", "--at", str(msgspec.json.decode(document)["position"]), "--json"))
                for document in documents
            ]
            path = here.ready.journal
            records = folded(path)
    assert len(records) >= EVENTS_MIN
    assert "other" in {run for run, _ in records.values()}, "the second process took part"
    common = records.keys() & live.keys()  # the observer came after the start, and saw the end
    assert len(common) >= EVENTS_MIN - 10
    assert [position for position in sorted(common) if records[position][1] != live[position]] == []
    assert all(status == replayed for status, replayed in compare_by_cli)
    assert len({msgspec.json.decode(document)["position"] for document in documents}) == COMPARED_BY_CLI


def folded(path: str) -> dict[int, tuple[str, bytes]]:
    """Return, by position, the run that appended, and the status of a system folded afresh up to there."""
    journal = ReadJournal(path)
    system = System()
    states = {}
    for recorded in journal.records():
        system.apply(recorded)
        states[recorded.position] = (recorded.run, msgspec.json.encode(status_of(system)))
    journal.close()
    return states


async def make_history(here: World, projects: list[Path]) -> None:
    """Make everything happen that can happen to a directory, once for each."""
    for project in projects:
        _, manifest = await here.control("activate", project)
        reachable = [skill["base"] for skill in manifest["skills"] if "base" in skill]  # one may have given up
        for base in reachable:
            await here.get(base)
        await here.get(f"{here.ready.facade_base}/{'0' * 32}/one/")
        await here.crash(reachable[0])
        await here.control("reload", project)
    await here.control("deactivate", projects[-1])


async def collect_statuses(here: World, documents: list[bytes]) -> None:
    """Ask the command line for the status, each time at another position."""
    engine = here.server.engine
    while len(documents) < COMPARED_BY_CLI:
        is_past = partial(_is_past, engine, engine.system.position)
        await engine.until([ids.access_stream(engine.host)], is_past)
        documents.append(await here.omac("status", "--json"))


def _is_past(engine: Engine, position: int) -> bool:
    return engine.system.position > position


async def keep_appending(here: World, project: Path) -> None:
    """Run the other process to its end."""
    scope = ids.workdir_id(str(project))
    host = here.server.engine.host
    await trio.run_process([sys.executable, "-c", APPROVER, here.ready.journal, host, scope, str(project)])


async def approve_all(here: World, projects: list[Path]) -> None:
    """Approve every skill from outside, as a person does."""
    for project in projects:
        for skill in ("one", "two"):
            await here.omac("approve", skill, "--workdir", str(project))
