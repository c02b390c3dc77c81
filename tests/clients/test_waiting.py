"""A skill that waits for a secret while an agent is at work, and gets it."""

import json

import pytest
from clients import seen
from clients.agents import CLIENTS
from clients.model.steps import prompt
from clients.world import World, world_or_skip
from polling import eventually
from valued_skill import PROGRAM, with_vault

pytestmark = pytest.mark.full
META = """\
name: slack
description: Wants a token
sidecar:
  command: [python3, -I, -S, sidecar.py]
  mount: chat
  health: {path: /status}
  secrets:
    - {name: TOKEN, description: opens the door}
"""
BEGUN, GIVEN = "begun", "given"
UNTIL_ENDED_S = 40.0


@pytest.mark.parametrize("client", CLIENTS)
def test_a_secret_given_meanwhile_is_used_by_the_next_command(client: str) -> None:
    """The agent's first command finds the skill waiting; after a person gave the secret, the next one uses it."""
    agent_of, words = CLIENTS[client]
    with world_or_skip(agent_of) as world:
        omac, project = world.omac, world.one
        with_vault(omac)
        omac.skill(project, "slack", META, PROGRAM)
        omac.ok("approve", "slack", "--workdir", str(project))
        script = prompt(
            {"sh": f'curl -sS -i "$OMAC_CHAT_BASE/"; touch {BEGUN}'},
            {"sh": f"until [ -e {GIVEN} ]; do sleep 0.05; done"},
            {"sh": 'curl -sS -i "$OMAC_CHAT_BASE/"'},
            {"text": "Done."},
        )
        run = world.begin(words(script), project)
        world.await_in(run, (project / BEGUN).exists, "the agent's first command")
        done = omac.run("secrets", "set", "slack", "TOKEN", "--workdir", str(project), stdin=b"open-sesame")
        assert done.status == 0, done
        eventually(lambda: _ready(world), 20.0, "the skill to run with its secret")
        (project / GIVEN).touch()
        assert run.process.wait(UNTIL_ENDED_S) == 0, run.said()
        before, _, after = seen.results(world.requests())
        assert "pending-credentials" in before
        assert "open-sesame" in after
        assert "200 OK" in after


def _ready(world: World) -> bool:
    directories = json.loads(world.omac.ok("status", "--json"))["directories"]
    states = [skill["state"] for directory in directories for skill in directory["skills"] if skill["name"] == "slack"]
    return states == ["ready"]
