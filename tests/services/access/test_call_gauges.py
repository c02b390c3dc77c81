"""services/access/call_gauges.py: how many calls may be under way, and how many may begin."""

from typing import Any

import pytest

from omac.domain.directories.events import CallLimits
from omac.domain.kernel.ids import StreamId, TokenDigest
from omac.domain.kernel.refusal import Refusal
from omac.projections.access.routes import ResolvedRoute
from omac.services.access.call_gauges import CallGauges


def way(skill: str = "echo", directory: str = "/w", **limits: Any) -> ResolvedRoute:
    """A route to a skill with these limits."""
    streams = (StreamId(f"directory/h/{directory}"),)
    return ResolvedRoute(directory, skill, skill, None, 4711, 10, TokenDigest("t"), streams, CallLimits(**limits))


class Clock:
    """A clock that stands still until it is told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def refused(gauges: CallGauges, route: ResolvedRoute) -> bool:
    """Whether one more call would be over a limit."""
    try:
        gauges.check(route)
    except Refusal as refusal:
        return (refusal.reason, refusal.status, refusal.skill) == ("too-many-calls", 429, route.skill)
    return False


def test_no_limit() -> None:
    """Nothing is counted for a skill without limits."""
    gauges = CallGauges(Clock())
    for number in range(10_000):
        gauges.check(way())
        gauges.reserve(way())
        gauges.begin(way(), number)


def test_calls_under_way() -> None:
    """Each that ends makes room, and so does one that could not be recorded; other skills and directories have their
    own."""
    gauges, route = CallGauges(Clock()), way(concurrent=2)
    for access in (1, 2):
        gauges.check(route)
        gauges.reserve(route)
        gauges.begin(route, access)
    assert refused(gauges, route)
    assert not refused(gauges, way("other", concurrent=2))
    assert not refused(gauges, way(directory="/v", concurrent=2))
    gauges.end(1)
    gauges.end(1)
    gauges.check(route)
    gauges.reserve(route)
    assert refused(gauges, route)
    gauges.release(route)
    assert not refused(gauges, route)


@pytest.mark.parametrize("per_second", [1, 3, 50])
def test_calls_by_second(per_second: int) -> None:
    """A burst of as many at once, then one each time its share of a second is over; after a pause a burst again."""
    clock = Clock()
    gauges, route = CallGauges(clock), way(per_second=per_second)
    assert [refused(gauges, route) for _ in range(per_second + 2)] == [False] * per_second + [True, True]
    for _ in range(3):
        clock.now += 1.001 / per_second
        assert [refused(gauges, route) for _ in range(2)] == [False, True]
    clock.now += 60
    assert [refused(gauges, route) for _ in range(per_second + 1)] == [False] * per_second + [True]


def test_what_is_remembered_is_bounded() -> None:
    """Skills that were called once, long ago, take no room."""
    clock = Clock()
    gauges = CallGauges(clock)
    for number in range(5_000):
        clock.now += 2
        gauges.check(way(f"s{number}", per_second=1))
    assert len(gauges._next) <= 1_000
