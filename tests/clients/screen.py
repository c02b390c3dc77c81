"""Checks of a client at a terminal under `omac start`."""

from collections.abc import Sequence

from clients import seen
from clients.terminal import terminal
from clients.world import World

UNTIL_DONE_S = 60.0
UNTIL_TYPED_S = 10.0
UNTIL_ENDED_S = 20.0
STEPS = ({"sh": 'curl -sS -d from-the-agent "$OMAC_ECHO_BASE/echo"'}, {"text": "All-is-done."})


def check_terminal(world: World, words: Sequence[str], leave: str, question: str = "") -> None:
    """Check a session: the agent calls its skill, the person sees its last words and leaves; nothing of the person's
    is lost, no process is left, and the journal is whole.

    `question` is a word of the client's first question, to which the person gives the proposed answer.
    """
    with terminal(world.line(words, world.one), world.omac.environment, world.one) as screen:
        if question:
            screen.until(lambda: question.encode() in screen.drawn, UNTIL_DONE_S, "the client's question")
            screen.settle()
            screen.type("\r")
        screen.until(lambda: b"All-is-done." in screen.drawn, UNTIL_DONE_S, "the agent's last words")
        typed_at = len(screen.drawn)
        screen.type(leave)
        screen.until(lambda: leave.encode() in screen.drawn[typed_at:], UNTIL_TYPED_S, "what was typed")
        screen.type("\r")
        assert screen.status(UNTIL_ENDED_S) == 0
        assert b"gone with the sandbox" not in screen.drawn, screen.drawn[-2000:]
    assert any("from-the-agent" in text for text in seen.results(world.requests()))
    assert [row["path"] for row in world.omac.audit("--outcome", "completed")] == ["/echo"]
    world.check_nothing_is_left()
    world.check_journal()
