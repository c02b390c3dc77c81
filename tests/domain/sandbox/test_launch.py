"""domain/sandbox/launch.py: a launch is requested once, and ends once."""

import itertools
from typing import get_args

import pytest
from tables import deviations

from omac.domain.kernel.event import Event
from omac.domain.kernel.refusal import Refusal
from omac.domain.sandbox import launch
from omac.domain.sandbox.launch import (
    EVENTS,
    TABLE,
    Denied,
    Launched,
    LaunchExited,
    LaunchRequested,
    Lose,
    Report,
    Sandbox,
    Status,
)

REQUESTED = LaunchRequested("/w", "claude", "bubblewrap", "ab" * 32, ("npm", "test"), "host", 42, 7, "boot", "run1")
EXAMPLES: tuple[Event, ...] = (REQUESTED, Launched(43), LaunchExited(0), Denied("/w", "", ("x",), "git-unsafe", "no"))


def test_every_event_has_an_example() -> None:
    """Every kind of event has an example, so that the tests below leave none out."""
    assert {type(event) for event in EXAMPLES} == set(EVENTS)


def test_the_table_is_the_whole_truth() -> None:
    """An event in the table leads to the status named there; any other raises KeyError."""
    states = {status: Sandbox(status) for status in get_args(Status)}
    assert deviations(launch.evolve, TABLE, states, EXAMPLES) == []


@pytest.mark.parametrize(("status", "event"), list(itertools.product(get_args(Status), EXAMPLES)))
def test_a_report_that_cannot_follow_is_refused(
    status: Status, event: LaunchRequested | Launched | LaunchExited | Denied
) -> None:
    """A report means its event where the table allows it; else it is refused, and nothing is recorded."""
    report = Report(event)
    if (status, type(event)) in TABLE:
        assert launch.decide(report, Sandbox(status)) == [event]
        return
    with pytest.raises(Refusal, match=f"{type(event).__name__} cannot follow in a launch that is {status}") as refused:
        launch.decide(report, Sandbox(status))
    assert refused.value.reason == "out-of-order"


@pytest.mark.parametrize("ended", [status for status in get_args(Status) if not Sandbox(status).live])
def test_what_has_ended_ends_no_more(ended: Status) -> None:
    """A launch that has ended has no further events; an unknown one can only be requested or denied."""
    following = {event for status, event in TABLE if status == ended}
    assert following == ({LaunchRequested, Denied} if ended == "unknown" else set())


def test_what_a_launch_is_stays_known_after_its_end() -> None:
    """A launch keeps its request and its process id after its end."""
    state = Sandbox()
    for event, expected in (
        (REQUESTED, Sandbox("requested", REQUESTED)),
        (Launched(43), Sandbox("launched", REQUESTED, 43)),
        (LaunchExited(130), Sandbox("exited", REQUESTED, 43)),
    ):
        state = launch.evolve(state, event)
        assert state == expected


@pytest.mark.parametrize("status", get_args(Status))
def test_only_a_live_launch_is_lost(status: Status) -> None:
    """A launch that is lost gets an end without a status, since its end was not seen. A launch that has ended keeps its
    end."""
    state = Sandbox(status, REQUESTED)
    lost = launch.decide(Lose("killed"), state)
    assert lost == ([LaunchExited(None, (), "killed", (), REQUESTED.workdir)] if state.live else [])
    assert all(launch.evolve(state, event).status == "exited" for event in lost)
