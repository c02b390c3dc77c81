"""Claude Code under `omac start`, offline, with a scripted model."""

from collections.abc import Iterator

import pytest
from clients import day, kills, waiting
from clients.agents import claude, claude_words
from clients.world import world_or_skip

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def ended() -> Iterator[day.Day]:
    """One prompt in a linked worktree, and all that came of it."""
    with world_or_skip(claude) as world:
        tooled = {"tool": "Write", "args": {"file_path": str(world.two / day.TOOLED), "content": "stray"}}
        steps = day.steps_of(world, tooled)
        done = world.start(claude_words(day.prompt_of(steps)), world.one)
        yield day.Day(world, done, world.requests(), steps)


class TestDay(day.Holds):
    """A prompt without a terminal."""

    @pytest.mark.xfail(strict=True, raises=AssertionError, reason="the bridge may not end a session: 403 forbidden")
    def test_the_session_was_ended(self, ended: day.Day) -> None:
        """By the hook of its end; omac refused no call of the bridge."""
        assert [row for row in ended.world.omac.attempts() if row["kind"] == "control.refused"] == []


@pytest.mark.parametrize("victim", kills.VICTIMS)
def test_a_sudden_end_leaves_no_process_and_a_true_journal(victim: str) -> None:
    """In the middle of a call of the skill."""
    with world_or_skip(claude) as world:
        kills.check_sudden_end(world, claude_words, victim)


def test_a_secret_given_meanwhile_is_used_by_the_next_command() -> None:
    with world_or_skip(claude) as world:
        waiting.check_secret_given_meanwhile(world, claude_words)


def test_the_clients_exit_status_is_passed_through() -> None:
    """That of a command line that it refuses, and what it prints."""
    with world_or_skip(claude) as world:
        line = ["--no-such-option-of-this-client"]
        alone, under = world.alone(line), world.start(line, world.one)
        assert under.status == alone.status != 0
        assert under.out == alone.out
