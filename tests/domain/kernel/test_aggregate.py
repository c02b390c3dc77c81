"""domain/kernel/aggregate.py: decided events fold, or are refused before they can be appended."""

from typing import Any

import pytest

from omac.domain.access import control
from omac.domain.access.control import ControlCalled
from omac.domain.aggregates import AGGREGATES
from omac.domain.directories.events import Activated
from omac.domain.kernel.aggregate import Aggregate, log
from omac.domain.kernel.event import Event
from omac.domain.kernel.refusal import Refusal
from omac.journal.event_kinds import KINDS


class Counted(Event, frozen=True):
    """An event that counts one more."""

    number: int


def evolve(state: int, event: Event) -> int:
    """Return the next number. Raises KeyError for an event that does not follow."""
    if not isinstance(event, Counted) or event.number != state + 1:
        raise KeyError(f"{event} after {state}")
    return event.number


def counting(*numbers: int) -> Aggregate[int, Any]:
    """Return an aggregate that decides on these numbers, whatever the command is."""
    return Aggregate("run", 0, lambda command, state: [Counted(number) for number in numbers], evolve, (Counted,))


def test_what_is_decided_folds() -> None:
    """Each event is folded on the state that the ones before it made."""
    assert counting(4, 5, 6).decided("count", 3) == [Counted(4), Counted(5), Counted(6)]
    assert counting().decided("count", 3) == []


@pytest.mark.parametrize("numbers", [(1,), (5,), (4, 4), (4, 6)])
def test_what_does_not_fold_is_refused(numbers: tuple[int, ...]) -> None:
    """An event that does not fold is a defect of omac. The message names the event and its aggregate, and reports that
    nothing was recorded."""
    with pytest.raises(
        Refusal, match=r"Counted, from str for a run, cannot follow in this state .* nothing was"
    ) as refused:
        counting(*numbers).decided("count", 3)
    assert (refused.value.reason, bool(refused.value.fix)) == ("unfoldable", True)


def test_an_event_of_another_aggregate_is_refused() -> None:
    """An event of another aggregate is refused even if the fold would accept it."""
    lying: Aggregate[int, Any] = Aggregate(
        "run", 0, lambda command, state: [Activated()], lambda state, event: state, (Counted,)
    )
    with pytest.raises(Refusal, match="no event of a run") as refused:
        lying.decided("lie", 0)
    assert refused.value.reason == "unfoldable"


def test_what_is_scrubbed_is_what_folds() -> None:
    """The scrubbed events are the ones that must fold, and the ones that are returned."""
    assert counting(9).decided("count", 3, lambda event: Counted(4)) == [Counted(4)]
    with pytest.raises(Refusal):
        counting(4).decided("count", 3, lambda event: Counted(9))


def test_a_refusal_to_decide_is_the_callers() -> None:
    """A refusal to decide reaches the caller unchanged."""

    def refuse(command: object, state: int) -> list[Event]:
        raise Refusal("misuse", "not so")

    with pytest.raises(Refusal, match="not so"):
        Aggregate("run", 0, refuse, evolve, (Counted,)).decided("x", 0)


def test_a_log_records_the_fact_itself() -> None:
    """A log has nothing to decide: it records the fact itself, and accepts only its own kinds of facts."""
    called = ControlCalled("reload", "/w", "socket")
    assert control.AGGREGATE.decided(called, None) == [called]
    with pytest.raises(Refusal) as refused:
        log("control", (ControlCalled,)).decided(Activated(), None)
    assert refused.value.reason == "unfoldable"


def test_every_event_belongs_to_one_aggregate() -> None:
    """Each kind of event that the journal knows belongs to exactly one aggregate."""
    owned = [event for aggregate in AGGREGATES for event in aggregate.events]
    assert len(owned) == len(set(owned))
    assert set(owned) == {event for _, event in KINDS.values()}
    assert len({aggregate.name for aggregate in AGGREGATES}) == len(AGGREGATES)
