"""domain/registration.py: finding is not approving, and an approval is for one code."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omac.domain import registration
from omac.domain.directory import Activated
from omac.domain.recorded import Event
from omac.domain.registration import (
    EVENTS,
    Approve,
    Approved,
    AutoRegistered,
    Code,
    Command,
    Discover,
    Drifted,
    Registered,
    Registration,
)

A, B, C = Code("/s", "sha256:a"), Code("/s", "sha256:b"), Code("/elsewhere", "sha256:a")


@pytest.mark.parametrize(
    ("found", "approved", "command", "events"),
    [
        (None, None, Discover(A), [AutoRegistered("/s", "sha256:a")]),
        (A, None, Discover(A), []),
        (A, None, Discover(B), [AutoRegistered("/s", "sha256:b")]),
        (A, A, Discover(A), []),
        (A, A, Discover(B), [Drifted("/s", "sha256:b")]),
        (A, A, Discover(C), [Drifted("/elsewhere", "sha256:a")]),
        (B, A, Discover(B), []),
        (B, A, Discover(A), [AutoRegistered("/s", "sha256:a")]),
        (None, None, Approve(A), [Registered("/s", "sha256:a"), Approved("/s", "sha256:a")]),
        (A, None, Approve(A), [Approved("/s", "sha256:a")]),
        (A, A, Approve(A), []),
        (B, A, Approve(A), []),
        (B, A, Approve(B), [Approved("/s", "sha256:b")]),
        (A, A, Approve(B), [Registered("/s", "sha256:b"), Approved("/s", "sha256:b")]),
    ],
)
def test_decisions(found: Code | None, approved: Code | None, command: Command, events: list[Event]) -> None:
    """Given what was found and approved, when code is found or approved, then these events."""
    assert registration.decide(command, Registration(found, approved)) == events


COMMANDS = st.builds(lambda kind, code: kind(code), st.sampled_from([Discover, Approve]), st.sampled_from([A, B, C]))


@given(st.lists(COMMANDS, max_size=20))
def test_only_a_person_approves(commands: list[Command]) -> None:
    """After any history: what is approved is what a person approved last, and what is found was seen last."""
    state = Registration()
    approved: Code | None = None
    for command in commands:
        for event in registration.decide(command, state):
            state = registration.evolve(state, event)
        if isinstance(command, Approve):
            approved = command.code
        else:
            assert state.found == command.code
        assert state.approved == approved
        assert [code for code in (A, B, C) if state.approves(code)] == ([approved] if approved else [])
        again = registration.decide(command, state)
        assert not [event for event in again if isinstance(event, Approved)]


@pytest.mark.parametrize(("first", "second"), list(itertools.product(EVENTS, EVENTS)))
def test_any_of_its_events_may_follow_any_other(first: type[Event], second: type[Event]) -> None:
    """A registration has no order to break."""
    state = registration.evolve(Registration(), first("/s", "1"))  # type: ignore[call-arg]  # all take these two
    state = registration.evolve(state, second("/s", "2"))  # type: ignore[call-arg]
    assert Code("/s", "2") in (state.found, state.approved)


def test_foreign_events_cannot_follow() -> None:
    """An event of another aggregate says that the journal is damaged."""
    with pytest.raises(KeyError):
        registration.evolve(Registration(), Activated())
