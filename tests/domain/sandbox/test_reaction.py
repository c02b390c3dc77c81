"""domain/sandbox/reaction.py: the end of a launch whose omac is gone."""

from functools import reduce
from typing import get_args

import pytest

from omac.domain.kernel.event import Event
from omac.domain.sandbox.launch import Launched, LaunchExited, LaunchRequested, Lose, Sandbox, Status, decide, evolve
from omac.domain.sandbox.reaction import WHY, TakeInReports, react

REQUESTED = LaunchRequested("/w", "claude", "bubblewrap", "ab" * 32, ("npm", "test"), "host", 42, 7, "boot", "run1")


def after(*events: Event) -> Sandbox:
    return reduce(evolve, events, Sandbox())


@pytest.mark.parametrize("status", get_args(Status))
def test_a_launch_whose_omac_lives_needs_no_command(status: Status) -> None:
    assert react(Sandbox(status, REQUESTED), is_reported=True) is None


@pytest.mark.parametrize("events", [(REQUESTED,), (REQUESTED, Launched(43))])
def test_what_its_omac_reported_is_recorded_before_it_counts_as_lost(events: tuple[Event, ...]) -> None:
    """The transcript of a launch that was killed: its reports, then the command that ends it, then nothing."""
    state = after(*events)
    assert react(state, is_reported=False) == TakeInReports()
    command = react(state, is_reported=False, is_taken_in=True)
    assert command == Lose(WHY)
    ended = reduce(evolve, decide(command, state), state)
    assert (ended.status, react(ended, is_reported=False, is_taken_in=True)) == ("exited", None)


def test_an_end_that_was_reported_counts() -> None:
    """A launch whose end was in the spool when its omac was gone is not lost."""
    assert react(after(REQUESTED, Launched(43), LaunchExited(0)), is_reported=False, is_taken_in=True) is None
