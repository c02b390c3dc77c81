"""Sudden ends while an agent waits for its skill: of the client, of omac, of the model's server."""

import signal
from contextlib import suppress
from subprocess import TimeoutExpired
from typing import Any

import pytest
from clients.agents import CLIENTS
from clients.model.steps import prompt
from clients.world import World, world_or_skip
from polling import eventually

pytestmark = pytest.mark.full
VICTIMS = ("client", "omac", "model")
UNTIL_ENDED_S = 30.0
GIVES_UP_S = 3.0


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_sudden_end_leaves_no_process_and_a_true_journal(client: str, victim: str) -> None:
    """A kill in the middle of a call of the skill leaves no process, and a journal with the true end of the call."""
    agent_of, words = CLIENTS[client]
    with world_or_skip(agent_of) as world:
        pause_ms = 5_000 if victim == "model" else 60_000
        run = world.begin(
            words(prompt({"sh": f'curl -sS "$OMAC_ECHO_BASE/slow?ms={pause_ms}"'}, {"text": "No."})), world.one
        )
        world.await_in(run, lambda: _calls(world, "open"), "the call of the skill")
        match victim:
            case "client":
                for pid in world.of_client():
                    world.kill(pid)
                assert run.process.wait(UNTIL_ENDED_S) != 0
                assert _calls(world, "aborted")
            case "omac":
                run.end(signal.SIGKILL, UNTIL_ENDED_S)
                world.check_nothing_is_left()
                assert not _calls(world, "completed")
                assert (
                    world.omac.run("start", "--workdir", str(world.one), "--", "true").status == 0
                )  # it settles the rest
                assert _calls(world, "aborted")
            case _:
                world.end_model()
                eventually(lambda: _calls(world, "completed"), UNTIL_ENDED_S, "the end of the call")
                with suppress(TimeoutExpired):  # some clients try for minutes to reach a model again
                    run.process.wait(GIVES_UP_S)
                if run.process.poll() is None:
                    run.end(seconds=UNTIL_ENDED_S)
                assert run.process.returncode != 0
        assert not _calls(world, "open")
        world.check_nothing_is_left()
        world.check_journal()


def _calls(world: World, outcome: str) -> list[dict[str, Any]]:
    return [row for row in world.omac.audit("--outcome", outcome) if row["path"] == "/slow"]
