"""projections/aggregates.py: each aggregate's events folded, stream by stream."""

import pytest
from msgspec.structs import replace

from omac.domain.kernel.aggregate import Aggregate
from omac.domain.kernel.event import Cause, Event, Latest, Recorded
from omac.domain.kernel.ids import StreamId
from omac.domain.skills import registration
from omac.domain.skills.registration import AutoRegistered, Code, Registration
from omac.projections.aggregates import ENDED_KEPT, Aggregates

A, B = StreamId("registration/h/s/agents/a"), StreamId("registration/h/s/agents/b")


def recorded(stream: StreamId, position: int, version: int | None) -> Recorded:
    event = AutoRegistered("/s", f"sha256:{position}")
    return Recorded(position, stream, version, 0, f"run{position}", "omac", f"c{position}", None, event)


def test_streams_do_not_mix() -> None:
    """Each stream has its own state and version, and the position, the run and the conversation of its last record."""
    aggregates = Aggregates(registration.AGGREGATE)
    for record in (recorded(A, 1, 1), recorded(B, 2, 1), recorded(A, 3, 2)):
        aggregates.apply(record)
    assert aggregates[A] == Latest(Registration(Code("/s", "sha256:3")), 2, "run3", 3, "c3")
    assert aggregates[B] == Latest(Registration(Code("/s", "sha256:2")), 1, "run2", 2, "c2")


def test_what_never_happened_is_the_initial_state() -> None:
    """A stream without events has the initial state and no cause, and reading it adds no entry."""
    aggregates = Aggregates(registration.AGGREGATE)
    assert aggregates[A] == Latest(Registration())
    assert aggregates.entries == {}
    assert aggregates[A].cause() == Cause("omac", None, None)


def test_what_omac_does_next_follows_from_the_last_record() -> None:
    """The next event of omac follows from the last record, in the same conversation."""
    aggregates = Aggregates(registration.AGGREGATE)
    aggregates.apply(recorded(A, 7, 1))
    assert aggregates[A].cause() == Cause("omac", "c7", 7)


@pytest.mark.parametrize("version", [0, 1, 3, None])
def test_versions_have_no_gap(version: int | None) -> None:
    """An event that is missing, doubled or not of an aggregate is refused, and changes nothing."""
    aggregates = Aggregates(registration.AGGREGATE)
    aggregates.apply(recorded(A, 1, 1))
    before = replace(aggregates[A])
    with pytest.raises(KeyError):
        aggregates.apply(recorded(A, 2, version))
    assert aggregates[A] == before


def test_only_the_latest_that_ended_stay() -> None:
    """An event for an aggregate that left memory cannot follow, as for one that is known to have ended."""
    nothing: tuple[Event, ...] = ()
    aggregates = Aggregates(
        Aggregate(
            "run",
            nothing,
            lambda _command, _state: [],
            lambda state, event: (*state, event),
            (),
            has_ended=lambda state: len(state) == 2,
        )
    )
    streams = [StreamId(f"s{number}") for number in range(ENDED_KEPT + 1)]
    for at, stream in enumerate(streams):
        aggregates.apply(recorded(stream, 2 * at + 1, 1))
        assert stream in aggregates.entries
        aggregates.apply(recorded(stream, 2 * at + 2, 2))
    assert list(aggregates.entries) == streams[1:]
    with pytest.raises(KeyError):
        aggregates.apply(recorded(streams[0], 999, 3))
