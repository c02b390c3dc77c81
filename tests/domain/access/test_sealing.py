"""Seals: requested, then sealed or failed; the next request closes a seal that was killed."""

import pytest

from omac.domain.access.sealing import (
    AGGREGATE,
    Command,
    PruneFailed,
    PruneRequested,
    ReportPruned,
    ReportSealed,
    ReportSealFailure,
    RequestPrune,
    RequestSeal,
    SealFailed,
    Sealing,
    SealRequested,
    SegmentPruned,
    SegmentSealed,
    decide,
    evolve,
)
from omac.domain.kernel.refusal import Refusal

REQUEST = RequestSeal(1, 7, "f")
SEALED = ReportSealed(9, "ab", "cd", "n")


def after(*commands: Command) -> Sealing:
    """Return the state after these commands."""
    state = AGGREGATE.initial
    for command in commands:
        for event in AGGREGATE.decided(command, state):
            state = evolve(state, event)
    return state


def test_a_seal() -> None:
    """The outcome of a seal repeats its request and adds the result."""
    assert decide(SEALED, after(REQUEST)) == [SegmentSealed(1, 7, "f", 9, "ab", "cd", "n")]
    assert after(REQUEST, SEALED) == Sealing(SegmentSealed(1, 7, "f", 9, "ab", "cd", "n"))
    assert after(REQUEST, ReportSealFailure("full")) == Sealing()


def test_a_killed_seal() -> None:
    """A request after a killed seal first records that seal as failed, and may ask for other positions."""
    again = RequestSeal(1, 9, "g")
    assert decide(again, after(REQUEST)) == [
        SealFailed("omac was killed before it was sealed"),
        SealRequested(1, 9, "g"),
    ]
    assert after(REQUEST, again, SEALED).sealed == SegmentSealed(1, 9, "g", 9, "ab", "cd", "n")


@pytest.mark.parametrize("request_", [RequestSeal(1, 9, "g"), RequestSeal(7, 9, "g"), RequestSeal(9, 8, "g")])
def test_positions_are_sealed_once(request_: RequestSeal) -> None:
    with pytest.raises(Refusal, match="do not follow"):
        decide(request_, after(REQUEST, SEALED))


@pytest.mark.parametrize("last", [6, 7, 9])
def test_a_seal_whose_file_was_lost(last: int) -> None:
    """A seal whose file was lost can be requested again, up to any position; the record gives the reason."""
    state = after(REQUEST, SEALED)
    again = RequestSeal(1, last, "g", is_again=True)
    lost, failed, request = decide(again, state)
    assert (lost, request) == (SealRequested(1, 7, "f"), SealRequested(1, last, "g"))
    assert isinstance(failed, SealFailed)
    assert "f was lost before it was listed" in failed.why
    assert after(REQUEST, SEALED, again, SEALED).sealed == SegmentSealed(1, last, "g", 9, "ab", "cd", "n")
    assert after(REQUEST, SEALED, again, again, SEALED) == after(REQUEST, SEALED, again, SEALED)
    with pytest.raises(Refusal, match="do not follow"):
        decide(RequestSeal(2, 9, "g", is_again=True), state)


@pytest.mark.parametrize("outcome", [SEALED, ReportSealFailure("x")])
def test_no_outcome_without_a_request(outcome: ReportSealed | ReportSealFailure) -> None:
    for state in (Sealing(), after(REQUEST, SEALED)):
        with pytest.raises(Refusal, match="no seal is under way"):
            decide(outcome, state)


def test_what_cannot_follow() -> None:
    """A fold raises KeyError for an event that cannot follow: the journal is damaged."""
    for state, event in (
        (Sealing(), SealFailed("x")),
        (Sealing(), SegmentSealed(1, 7, "f", 9, "ab", "cd", "n")),
        (after(REQUEST), SealRequested(1, 7, "f")),
        (after(REQUEST), SegmentSealed(1, 8, "f", 9, "ab", "cd", "n")),
        (after(REQUEST, SEALED), SealRequested(7, 9, "g")),
    ):
        with pytest.raises(KeyError):
            evolve(state, event)


PRUNE = RequestPrune(1, 7, "p")
PRUNED = ReportPruned(5, "ab", 3, "cd")


def test_a_prune() -> None:
    """A prune leaves the last seal as it is. The next request records a killed prune as failed."""
    state = after(REQUEST, SEALED, PRUNE)
    assert decide(PRUNED, state) == [SegmentPruned(1, 7, "p", 5, "ab", 3, "cd")]
    assert decide(PRUNE, state) == [PruneFailed("omac was killed before it was pruned"), PruneRequested(1, 7, "p")]
    done = after(REQUEST, SEALED, PRUNE, PRUNED)
    assert (done.sealed, done.prune_requested) == (after(REQUEST, SEALED).sealed, None)
    with pytest.raises(Refusal, match="pruned already"):
        decide(PRUNE, done)
    with pytest.raises(Refusal, match="no prune is under way"):
        decide(PRUNED, done)
    with pytest.raises(KeyError):
        evolve(done, PruneFailed("x"))
