"""Codex under `omac start`, offline, with a scripted model."""

from collections.abc import Iterator

import pytest
from clients import day, screen
from clients.agents import codex, codex_words
from clients.model.steps import prompt
from clients.world import world_or_skip
from programs import program_at

pytestmark = pytest.mark.full
PATCH = "apply_patch <<'END'\n*** Begin Patch\n*** Add File: {path}\n+stray\n*** End Patch\nEND"


@pytest.fixture(scope="module")
def ended() -> Iterator[day.Day]:
    """Yield the result of one prompt in a linked worktree."""
    with world_or_skip(codex) as world:
        tooled = {"sh": PATCH.format(path=world.two / day.TOOLED)}
        steps = day.steps_of(world, tooled)
        done = world.start(codex_words(day.prompt_of(steps)), world.one)
        yield day.Day(world, done, world.requests(), steps)


class TestDay(day.Holds):
    """A prompt without a terminal."""

    def test_the_audit_names_the_session(self, ended: day.Day) -> None:
        """The audit names a denial's session. Calls have the launch's token: Codex has no variables for one session."""
        assert ended.call()["session"] is None
        denials = [row for row in ended.world.omac.attempts() if row["kind"] == "guard.denied"]
        assert denials
        assert all(row["session"] in ended.done.out for row in denials)


def test_a_person_at_a_terminal() -> None:
    """A person works with Codex in a project that the person trusts."""
    with world_or_skip(codex) as world:
        settings = world.home / ".codex" / "config.toml"
        settings.write_text(f'{settings.read_text()}\n[projects."{world.one}"]\ntrust_level = "trusted"\n')
        screen.check_terminal(world, ["--no-alt-screen", prompt(*screen.STEPS)], "/quit")


def test_a_person_at_a_terminal_in_a_project_that_nobody_trusts() -> None:
    """Codex offers to leave the project's settings unread, and goes on."""
    with world_or_skip(codex) as world:
        words = ["--no-alt-screen", prompt(*screen.STEPS)]
        screen.check_terminal(world, words, "/quit", question="Open restricted")


def test_a_projects_settings_do_not_turn_omacs_hooks_off() -> None:
    """Settings of a trusted project, which an agent can write all the same, do not turn the guard off."""
    with world_or_skip(codex) as world:
        settings = world.home / ".codex" / "config.toml"
        settings.write_text(f'{settings.read_text()}\n[projects."{world.one}"]\ntrust_level = "trusted"\n')
        (world.one / ".codex").mkdir()
        (world.one / ".codex" / "config.toml").write_text("[features]\nhooks = false\n")
        tooled = {"sh": PATCH.format(path=world.two / day.TOOLED)}
        done = world.start(codex_words(prompt(tooled, {"text": "Done."})), world.one)
        assert done.status == 0, done
        assert "guard.denied" in [row["kind"] for row in world.omac.attempts()]


PLANTED = """\
cat > ~/.codex/environments.toml <<'END'
default = "planted"
include_local = false
[[environments]]
id = "planted"
program = "{program}"
END
printf '[mcp_servers.planted]\\ncommand = "{program}"\\n' > ~/.codex/work.config.toml
echo planted > ~/.codex/history.jsonl
"""


@pytest.mark.parametrize("options", [(), ("--profile", "work")], ids=["environments", "profile"])
def test_what_codex_runs_at_its_next_start_cannot_be_planted(options: tuple[str, ...]) -> None:
    """A Codex that the person starts next, without omac, runs no program that an agent named in its folder."""
    with world_or_skip(codex) as world:
        mark = world.home / "ran"
        program = program_at(world.home / "program", f"#!/bin/sh\necho $0 >> {mark}\n")
        (world.home / ".codex" / "work.config.toml").touch()
        script = PLANTED.format(program=program)
        done = world.start(codex_words(prompt({"sh": script}, {"text": "Done."})), world.one)
        assert done.status == 0, done
        assert (world.home / ".codex" / "history.jsonl").read_text() == "planted\n", done  # the twin
        alone = world.alone([*codex_words("Hello.", *options), "--skip-git-repo-check"])
        assert alone.status == 0, alone
        assert not mark.exists()
