"""The erasure of a directory: requested, done, and requested again."""

from functools import reduce

import pytest

from omac.domain.access.erasure import (
    Command,
    ErasureRequested,
    ReportErased,
    RequestErasure,
    Subject,
    SubjectErased,
    decide,
    evolve,
)
from omac.domain.kernel.event import Event
from omac.domain.kernel.refusal import Refusal

REQUEST = RequestErasure("w", ("k1",))


def after(*commands: Command) -> Subject:
    state = Subject()
    for command in commands:
        state = reduce(evolve, decide(command, state), state)
    return state


def test_it_is_requested_then_done() -> None:
    """The outcome of an erasure names the keys that were requested."""
    assert decide(REQUEST, Subject()) == [ErasureRequested("w", ("k1",))]
    assert decide(ReportErased(), after(REQUEST)) == [SubjectErased("w", ("k1",))]
    assert after(REQUEST, ReportErased()) == Subject(None, 1)
    assert after(REQUEST, ReportErased(), RequestErasure("w", ("k2",)), ReportErased()) == Subject(None, 2)


def test_a_killed_erasure_goes_on() -> None:
    """An erasure that was killed goes on with its own keys and those added since. A request for known keys records
    nothing."""
    assert decide(REQUEST, after(REQUEST)) == []
    assert decide(RequestErasure("w", ()), after(REQUEST)) == []
    assert decide(RequestErasure("w", ("k2",)), after(REQUEST)) == [ErasureRequested("w", ("k1", "k2"))]


def test_what_cannot_follow() -> None:
    """An outcome without its request is neither decided nor folded."""
    with pytest.raises(Refusal) as refused:
        decide(ReportErased(), Subject())
    assert refused.value.reason == "out-of-order"
    events: list[tuple[Subject, Event]] = [
        (Subject(), SubjectErased("w", ("k1",))),
        (after(REQUEST), SubjectErased("w", ("k2",))),
    ]
    for state, event in events:
        with pytest.raises(KeyError):
            evolve(state, event)
