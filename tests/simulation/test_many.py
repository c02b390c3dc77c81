"""Many at once: callers of one directory share an activation; many directories come online side by side."""

import pytest
import trio
from simulation.world import world

from omac.domain.directories.events import Activated, ActivationRequested
from omac.journal.reader import ReadJournal

CALLERS = 200
DIRECTORIES = 50


@pytest.mark.full
async def test_two_hundred_callers_share_one_activation() -> None:
    """Concurrent activations of one directory, 200 of them, make one in the journal, and all get the same token."""
    answers = []
    with trio.fail_after(60):
        async with world() as here:
            project = here.project("p", "one")
            await here.omac("approve", "one", "--workdir", str(project))

            async def call() -> None:
                answers.append(await here.control("activate", project))

            async with trio.open_nursery() as nursery:
                for _ in range(CALLERS):
                    nursery.start_soon(call)
            journal = ReadJournal(here.ready.journal)
            kinds = [type(recorded.event) for recorded in journal.records()]
            journal.close()
    assert len(answers) == CALLERS
    assert {status for status, _ in answers} == {200}
    assert len({manifest["dir_token"] for _, manifest in answers}) == 1
    assert kinds.count(ActivationRequested) == 1
    assert kinds.count(Activated) == 1


@pytest.mark.full
async def test_fifty_directories_come_online_at_once() -> None:
    """Directories activated at once, 50 of them, are all active, each with its own token and its own sidecar."""
    answers = {}
    with trio.fail_after(120):
        async with world() as here:
            projects = [here.project(f"p{number}", "one") for number in range(DIRECTORIES)]
            for project in projects:
                await here.approve_in_place(project, "one")

            async def call(number: int) -> None:
                answers[number] = await here.control("activate", projects[number])
                while answers[number][1].get("state") == "activating":  # a slow skill keeps no token from its caller
                    await trio.sleep(0.1)
                    answers[number] = await here.control("activate", projects[number])

            async with trio.open_nursery() as nursery:
                for number in range(DIRECTORIES):
                    nursery.start_soon(call, number)
            for number, (status, manifest) in answers.items():
                assert (status, manifest["state"]) == (200, "active"), manifest
                answer = await here.get(manifest["skills"][0]["base"] + "/")
                assert answer == (200, str(projects[number]).encode())
            assert len({manifest["dir_token"] for _, manifest in answers.values()}) == DIRECTORIES
            assert len(here.processes()) == DIRECTORIES
    assert len(answers) == DIRECTORIES
