"""Pi under `omac start`, offline, with a scripted model."""

from collections.abc import Iterator

import pytest
from clients import day, screen, seen
from clients.agents import MODEL, pi, pi_words
from clients.model.steps import prompt
from clients.world import world_or_skip

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def ended() -> Iterator[day.Day]:
    """Yield the result of one prompt in a linked worktree."""
    with world_or_skip(pi) as world:
        tooled = {"tool": "write", "args": {"path": str(world.two / day.TOOLED), "content": "stray"}}
        steps = day.steps_of(world, tooled)
        done = world.start(pi_words(day.prompt_of(steps)), world.one)
        yield day.Day(world, done, world.requests(), steps)


class TestDay(day.Holds):
    """A prompt without a terminal."""


def test_a_person_at_a_terminal() -> None:
    """A session begins without a question: pi asks one where it finds a folder of hooks, which it no longer has."""
    with world_or_skip(pi) as world:
        words = ["--provider", "tests", "--model", MODEL, prompt(*screen.STEPS)]
        screen.check_terminal(world, words, "/quit")


@pytest.mark.parametrize("name", ["AGENTS.md", "CLAUDE.md"])
def test_the_persons_instructions_reach_the_model(name: str) -> None:
    """No file that omac keeps an agent from making hides the one that the person has."""
    with world_or_skip(pi) as world:
        (world.home / ".pi" / "agent" / name).write_text("Speak softly.")
        done = world.start(pi_words(prompt({"text": "Done."})), world.one)
        assert done.status == 0, done
        assert "Speak softly." in seen.context(world.requests())


def test_instructions_that_nobody_wrote() -> None:
    """A person without instructions reads no warning of the files that omac makes, and keeps none of them."""
    with world_or_skip(pi) as world:
        done = world.start(pi_words(prompt({"text": "Done."})), world.one)
        assert (done.status, "Could not read" in done.err) == (0, False), done
        assert list((world.home / ".pi" / "agent").glob("*.[mM][dD]")) == []
