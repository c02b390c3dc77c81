"""Claude Code under `omac start`, offline, with a scripted model."""

import json
from collections.abc import Iterator

import pytest
from clients import day, screen, seen
from clients.agents import CLAUDE_MODEL, claude, claude_words
from clients.model.steps import prompt
from clients.world import World, world_or_skip

from omac.domain.directories.events import SessionEnded

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def ended() -> Iterator[day.Day]:
    """Yield the result of one prompt in a linked worktree."""
    with world_or_skip(claude) as world:
        tooled = {"tool": "Write", "args": {"file_path": str(world.two / day.TOOLED), "content": "stray"}}
        steps = day.steps_of(world, tooled)
        done = world.start(claude_words(day.prompt_of(steps)), world.one)
        yield day.Day(world, done, world.requests(), steps)


class TestDay(day.Holds):
    """A prompt without a terminal."""

    def test_the_session_was_ended(self, ended: day.Day) -> None:
        """The bridge ends the session at the end of the agent, and omac refuses no call of it."""
        omac = ended.world.omac
        assert [row for row in omac.attempts() if row["kind"] == "control.refused"] == []
        assert [record.event.session for record in omac.events(SessionEnded)] == [ended.call()["session"]]


def acquainted(world: World) -> None:
    """Write the person's answers to all questions that Claude Code asks at its first start in a project."""
    key = world.agent.environment["ANTHROPIC_API_KEY"][-20:]
    state = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "customApiKeyResponses": {"approved": [key], "rejected": []},
        "projects": {str(folder): {"hasTrustDialogAccepted": True} for folder in (world.one, world.repo)},
    }
    (world.home / ".claude.json").write_text(json.dumps(state))


def test_a_person_at_a_terminal() -> None:
    with world_or_skip(claude) as world:
        acquainted(world)
        manual = ("--permission-mode", "manual")  # in auto mode the provider's server judges calls of tools
        words = [prompt(*screen.STEPS), "--model", CLAUDE_MODEL, *manual, "--allowedTools=Bash"]
        screen.check_terminal(world, words, "/exit")


def test_serve_gives_its_agent_the_skill_as_well() -> None:
    """The agent of `omac serve` gets the skill by variables of its session, as the audit shows."""
    with world_or_skip(claude) as world:
        options = ("--workdir", str(world.one), *world.agent.handed_on)
        words = claude_words(prompt(*screen.STEPS))
        done = world.omac.process("serve", "claude", *options, "--", *words, cwd=world.one, within=world.within)
        assert done.status == 0, done
        assert "from-the-agent" in "".join(seen.results(world.requests()))
        (call,) = world.omac.audit("--outcome", "completed")
        assert call["session"] in done.out
        assert not [line for line in done.out.splitlines() if line.startswith("omac")]


REFERENCE_HOOK = """\
#!/bin/sh
# A hook as people have it from the Go omac: it knows OMAC_CONTROL_BASE, and sends no token.
curl -sS --fail -d '{"dir": "'"$CLAUDE_PROJECT_DIR"'"}' "$OMAC_CONTROL_BASE/__omac__/activate" > /tmp/manifest || exit 0
base=$(grep -o '"base": *"[^"]*"' /tmp/manifest | head -n 1 | cut -d '"' -f 4)
echo "export REFERENCE_BASE=$base" >> "$CLAUDE_ENV_FILE"
echo "REFERENCE: the skill echo is at \\$REFERENCE_BASE"
"""


def test_a_hook_written_for_the_go_omac_works_beside_omacs_own() -> None:
    """The text of a hook for the Go omac reaches the model with --bridge-compat, and its variable the shell."""
    with world_or_skip(claude) as world:
        hook = world.one / ".claude" / "hook.sh"
        hook.parent.mkdir()
        hook.write_text(REFERENCE_HOOK)
        handler = {"type": "command", "command": f"sh {hook}"}
        settings = {"hooks": {"SessionStart": [{"hooks": [handler]}]}}
        (hook.parent / "settings.json").write_text(json.dumps(settings))
        step = {"sh": 'curl -sS -d by-its-variable "$REFERENCE_BASE/echo"'}
        words = claude_words(prompt(step, {"text": "Done."}))
        done = world.start(words, world.one, "--bridge-compat")
        assert done.status == 0, done
        assert "REFERENCE: the skill echo" in day.context(world.requests())
        assert "by-its-variable" in "".join(seen.results(world.requests()))


def test_a_projects_settings_do_not_turn_omacs_hooks_off() -> None:
    """An agent can write these settings: the next session there has its skills and the guard all the same."""
    with world_or_skip(claude) as world:
        settings = world.one / ".claude" / "settings.local.json"
        settings.parent.mkdir()
        variables = {
            "OMAC_GUARD_SCRATCH": str(world.two),
            "OMAC_WORKDIR": str(world.two),
            "OMAC_CONTROL_TOKEN_FILE": "/no",
        }
        settings.write_text(json.dumps({"disableAllHooks": True, "env": variables}))
        stray = {"tool": "Write", "args": {"file_path": str(world.two / day.TOOLED), "content": "stray"}}
        step = {"sh": 'curl -sS -d by-its-variable "$OMAC_ECHO_BASE/echo"'}
        words = claude_words(prompt(step, stray, {"text": "Done."}))
        done = world.start(words, world.one)
        assert done.status == 0, done
        assert [row["session"] for row in world.omac.audit("--outcome", "completed")] != [None]
        assert "guard.denied" in [row["kind"] for row in world.omac.attempts()]


def test_a_file_of_settings_reaches_it_beside_omacs_hooks() -> None:
    """A settings file for the person alone, which the sandbox does not show, reaches Claude Code all the same."""
    with world_or_skip(claude) as world:
        settings = world.home / "mine.json"
        settings.write_text(json.dumps({"env": {"MINE": "from-my-settings"}}))
        step = {"sh": 'curl -sS -d "$MINE" "$OMAC_ECHO_BASE/echo"'}
        done = world.start([*claude_words(prompt(step, {"text": "Done."})), "--settings", str(settings)], world.one)
        assert done.status == 0, done
        assert "from-my-settings" in "".join(seen.results(world.requests()))
        (call,) = world.omac.audit("--outcome", "completed")
        assert call["session"] in done.out
