"""domain/skills/registration.py: a discovery approves nothing, and an approval is for one code."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import deviations

from omac.domain.directories.events import Activated
from omac.domain.kernel.event import Event
from omac.domain.skills import registration
from omac.domain.skills.interpreter import Interpreter
from omac.domain.skills.registration import (
    EVENTS,
    TABLE,
    Accept,
    ApprovalRevoked,
    Approve,
    Approved,
    AutoRegistered,
    Code,
    Command,
    Deregister,
    Deregistered,
    Discover,
    Drifted,
    Register,
    Registered,
    Registration,
    Revoke,
    Status,
)

W = "/w"
A, B, C = Code("/s", "sha256:a", "d:a"), Code("/s", "sha256:b", "d:b"), Code("/elsewhere", "sha256:a", "d:a")
A_SEEN, B_SEEN = Code("/s", "sha256:a"), Code("/s", "sha256:b")  # found without a look at every file
A_BY = Code("/s", "sha256:a", "d:a", (Interpreter("python3", "/usr/bin/python3", 1, 2, "d"),))
A_VENDORED = Code("/s", "sha256:a", "d:other")  # where only files differ that the bundle hash leaves out


@pytest.mark.parametrize(
    ("found", "approved", "command", "events"),
    [
        (None, None, Discover(A_SEEN, W), [AutoRegistered("/s", "sha256:a", W)]),
        (A_SEEN, None, Discover(A_SEEN, W), []),
        (A, None, Discover(A_SEEN, W), []),
        (A_SEEN, None, Discover(B_SEEN, W), [AutoRegistered("/s", "sha256:b", W)]),
        (A, A, Discover(A, W), []),
        (A, A, Discover(A_SEEN, W), []),
        (A, A, Discover(B_SEEN, W), [Drifted("/s", "sha256:b")]),
        (A, A, Discover(C, W), [Drifted("/elsewhere", "sha256:a", "d:a")]),
        (A, A, Discover(A_VENDORED, W), [Drifted("/s", "sha256:a", "d:other")]),
        (A_VENDORED, A, Discover(A_VENDORED, W), []),
        (A_VENDORED, A, Discover(A, W), [AutoRegistered("/s", "sha256:a", W, "d:a")]),
        (B, A, Discover(B, W), []),
        (B, A, Discover(A, W), [AutoRegistered("/s", "sha256:a", W, "d:a")]),
        (B, A, Accept(B, "r1"), [Drifted("/s", "sha256:b", "d:b", "r1")]),
        (B, None, Accept(B, "r1"), []),
        (None, None, Register(A, W), [Registered("/s", "sha256:a", W, "d:a")]),
        (A_SEEN, None, Register(A_SEEN, W), []),
        (None, None, Approve(A, W), [Registered("/s", "sha256:a", W, "d:a"), Approved("/s", "sha256:a", "d:a")]),
        (A_SEEN, None, Approve(A, W), [Approved("/s", "sha256:a", "d:a")]),
        (A_SEEN, None, Approve(A_BY, W), [Approved("/s", "sha256:a", "d:a", A_BY.interpreters)]),
        (A, A, Approve(A_BY, W), [Approved("/s", "sha256:a", "d:a", A_BY.interpreters)]),
        (A, A_BY, Approve(A_BY, W), []),
        (A, A_BY, Discover(A, W), []),
        (A, A, Approve(A, W), []),
        (A_SEEN, A_SEEN, Approve(A, W), [Approved("/s", "sha256:a", "d:a")]),
        (B, A, Approve(A, W), []),
        (B, A, Approve(B, W), [Approved("/s", "sha256:b", "d:b")]),
        (A, A, Approve(B, W), [Registered("/s", "sha256:b", W, "d:b"), Approved("/s", "sha256:b", "d:b")]),
        (A, None, Revoke("x"), []),
        (A, A, Revoke("x"), [ApprovalRevoked("x")]),
        (None, None, Deregister(), []),
        (A, None, Deregister(), [Deregistered()]),
        (A, A, Deregister(), [ApprovalRevoked("deregistered"), Deregistered()]),
    ],
)
def test_decisions(found: Code | None, approved: Code | None, command: Command, events: list[Event]) -> None:
    """Each command to discover, register, approve, accept or forget code means these events in this state."""
    assert registration.decide(command, Registration(found, approved, W)) == events


def test_an_acceptance_is_recorded_once() -> None:
    """An acceptance is recorded once for each run, and each code."""
    state = registration.evolve(Registration(B, A, W), Drifted("/s", "sha256:b", "d:b", "r1"))
    assert registration.decide(Accept(B, "r1"), state) == []
    assert registration.decide(Accept(B, "r2"), state) != []
    assert state.may_run(B_SEEN, "r1") == B
    assert state.may_run(B_SEEN, "r2") is None
    assert registration.evolve(state, ApprovalRevoked("x")).may_run(B_SEEN, "r1") is None


COMMANDS = st.builds(
    lambda kind, code: kind(code),
    st.sampled_from([lambda c: Discover(c, W), lambda c: Approve(c, W), lambda c: Revoke("x")]),
    st.sampled_from([A, B, C, A_SEEN, A_VENDORED]),
)  # fmt: skip


@given(st.lists(COMMANDS, max_size=20))
def test_only_a_person_approves(commands: list[Command]) -> None:
    """The code that may run, after any history, is the copy that a person approved last, unless that was revoked."""
    state = Registration()
    approved: Code | None = None
    for command in commands:
        for event in registration.decide(command, state):
            state = registration.evolve(state, event)
        match command:
            case Approve(code):
                approved = code
            case Revoke():
                approved = None
            case Discover(code):
                assert code.is_bundle(state.found)
            case _:
                raise AssertionError(command)
        assert state.approved == approved
        runs = approved if approved and approved.digest else None
        assert {state.may_run(code, "r") for code in (A, A_SEEN, A_VENDORED) if code.is_bundle(approved)} <= {runs}
        assert all(state.may_run(code, "r") is None for code in (A, B, C) if not code.is_bundle(approved))
        again = registration.decide(command, state)
        assert not [event for event in again if isinstance(event, Approved)]


EXAMPLES: dict[type[Event], Event] = {
    AutoRegistered: AutoRegistered("/s", "1", W),
    Registered: Registered("/s", "1", W),
    Approved: Approved("/s", "1", "d"),
    ApprovalRevoked: ApprovalRevoked("x"),
    Drifted: Drifted("/s", "1", "d"),
    Deregistered: Deregistered(),
}


STATES: dict[Status, Registration] = {
    "unknown": Registration(),
    "known": Registration(B, None, W),
    "approved": Registration(B, A, W),
}


def test_the_table_is_the_whole_truth() -> None:
    """An event in the table leads to the status named there; any other raises KeyError. So only an approval
    approves."""
    assert {status: state.status for status, state in STATES.items()} == {status: status for status in STATES}
    assert set(EXAMPLES) == set(EVENTS)
    assert deviations(registration.evolve, TABLE, STATES, EXAMPLES.values()) == []


def test_only_an_approval_approves() -> None:
    """An approval is the only event that leads to `approved` from another status."""
    leading = {(before, event) for (before, event), after in TABLE.items() if after == "approved"}
    assert {event for before, event in leading if before != "approved"} == {Approved}


@given(st.lists(st.builds(lambda kind, code: kind(code), st.sampled_from([
    lambda c: Discover(c, W), lambda c: Accept(c, "r1"), lambda c: Register(c, W), lambda c: Approve(c, W),
    lambda c: Revoke("x"), lambda c: Deregister(),
]), st.sampled_from([A, B, C, A_SEEN, A_VENDORED])), max_size=30))  # fmt: skip
def test_every_decided_event_can_be_folded(commands: list[Command]) -> None:
    """Commands in any order mean no event that their state would refuse."""
    state = Registration()
    for command in commands:
        for event in registration.AGGREGATE.decided(command, state):
            state = registration.evolve(state, event)


def test_foreign_events_cannot_follow() -> None:
    """An event of another aggregate raises KeyError: the journal is damaged."""
    with pytest.raises(KeyError):
        registration.evolve(Registration(), Activated())
