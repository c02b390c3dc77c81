"""OpenCode under `omac start`, offline, with a scripted model."""

import json
from collections.abc import Iterator

import pytest
from clients import day, seen
from clients.agents import opencode, opencode_words
from clients.model.steps import prompt
from clients.world import world_or_skip

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def ended() -> Iterator[day.Day]:
    """Yield the result of one prompt in a linked worktree."""
    with world_or_skip(opencode) as world:
        tooled = {"tool": "write", "args": {"filePath": str(world.two / day.TOOLED), "content": "stray"}}
        steps = day.steps_of(world, tooled)
        done = world.start(opencode_words(day.prompt_of(steps)), world.one)
        yield day.Day(world, done, world.requests(), steps)


class TestDay(day.Holds):
    """A prompt without a terminal."""

    def test_its_own_packages_are_not_reported_as_lost(self, ended: day.Day) -> None:
        """OpenCode installs packages in its settings folder at every start, which nobody misses."""
        assert "  lost " not in ended.done.err


REFERENCE_PLUGIN = """\
// A plugin as people have it from the Go omac: it knows OMAC_CONTROL_BASE, and sends no token.
export const Reference = async ({ directory }) => ({
  "shell.env": async ({ sessionID }, { env }) => {
    const post = async (action, document) => {
      const body = JSON.stringify(document)
      return (await fetch(`${process.env.OMAC_CONTROL_BASE}/__omac__/${action}`, { method: "POST", body })).json()
    }
    const manifest = await post("activate", { dir: directory })
    env.REFERENCE_BASE = manifest.skills.find((skill) => skill.name === "echo").base
    env.REFERENCE_SESSION = (await post("session", { session: sessionID })).ok
  },
})
"""


def test_a_plugin_written_for_the_go_omac_works_beside_omacs_own() -> None:
    """The variables of a plugin for the Go omac reach the shell with --bridge-compat, and lead to the skill."""
    with world_or_skip(opencode) as world:
        plugin = world.one / "reference.js"
        plugin.write_text(REFERENCE_PLUGIN)
        settings = json.loads(world.omac.environment["OPENCODE_CONFIG_CONTENT"]) | {"plugin": [f"file://{plugin}"]}
        world.omac.environment["OPENCODE_CONFIG_CONTENT"] = json.dumps(settings)
        step = {"sh": 'echo "session: $REFERENCE_SESSION"; curl -sS -d by-its-variable "$REFERENCE_BASE/echo"'}
        done = world.start(opencode_words(prompt(step, {"text": "Done."})), world.one, "--bridge-compat")
        assert done.status == 0, done
        (result,) = seen.results(world.requests())
        assert "session: true" in result
        assert "by-its-variable" in result
