"""services/access/call_gauges.py: how many calls may be under way, and how many may begin."""

from typing import Any

import pytest

from omac.domain.directories.events import CallLimits
from omac.domain.kernel.ids import StreamId, TokenDigest
from omac.domain.kernel.refusal import Refusal
from omac.domain.settings.owner_limits import OwnerLimits, SkillBounds
from omac.projections.access.routes import ResolvedRoute
from omac.services.access.call_gauges import CallGauges


def limited(**limits: Any) -> ResolvedRoute:
    """Return a route to echo with these limits."""
    return way(**limits)


def way(skill: str = "echo", directory: str = "/w", *, shared: bool = False, **limits: Any) -> ResolvedRoute:
    """Return a route to a skill with these limits; `shared`: one that all directories share."""
    streams = (StreamId(f"directory/h/{directory}"), *((StreamId("directory/h/global"),) if shared else ()))
    return ResolvedRoute(directory, skill, skill, None, 4711, 10, TokenDigest("t"), streams, CallLimits(**limits))


class Clock:
    """A clock that moves only when the test moves it."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def refused(gauges: CallGauges, route: ResolvedRoute) -> bool:
    """Return whether one more call would be over a limit."""
    try:
        gauges.check(route)
    except Refusal as refusal:
        return (refusal.reason, refusal.status, refusal.skill) == ("too-many-calls", 429, route.skill)
    return False


def test_no_limit() -> None:
    """Calls of a skill without limits are not counted."""
    gauges = CallGauges(Clock())
    for number in range(10_000):
        gauges.check(way())
        gauges.begin(gauges.reserve(way()), number)


def test_calls_under_way() -> None:
    """Each call that ends, or cannot be recorded, makes room; other skills and directories have their own limits."""
    gauges, route = CallGauges(Clock()), way(concurrent=2)
    for access in (1, 2):
        gauges.check(route)
        gauges.begin(gauges.reserve(route), access)
    assert refused(gauges, route)
    assert not refused(gauges, way("other", concurrent=2))
    assert not refused(gauges, way(directory="/v", concurrent=2))
    gauges.end(1)
    gauges.end(1)
    gauges.check(route)
    counted = gauges.reserve(route)
    assert refused(gauges, route)
    gauges.release(counted)
    assert not refused(gauges, route)


def test_a_shared_skill_has_one_limit() -> None:
    """Calls of a skill that all directories share count together, wherever they come from."""
    gauges = CallGauges(Clock())
    gauges.reserve(way(directory="/w", shared=True, concurrent=1))
    assert refused(gauges, way(directory="/v", shared=True, concurrent=1))
    assert not refused(gauges, way(directory="/v", concurrent=1))


@pytest.mark.parametrize("per_second", [1, 3, 50])
def test_calls_by_second(per_second: int) -> None:
    """A skill takes a burst of its limit, then a call after each share of a second; a pause allows another burst."""
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


def message(gauges: CallGauges, route: ResolvedRoute) -> str:
    """Return the refusal of a call that is over a limit, with the command that mends it."""
    with pytest.raises(Refusal) as caught:
        gauges.check(route)
    return f"{caught.value.message}: {caught.value.fix[0].partition('  #')[0]}"


def test_calls_of_all_skills_under_way() -> None:
    """The owner's limit counts the calls of all skills; each call that ends makes room for any other."""
    gauges = CallGauges(Clock(), OwnerLimits(concurrent=3))
    for access, skill in enumerate("abc", 1):
        gauges.check(way(skill))
        gauges.begin(gauges.reserve(way(skill)), access)
    limit = "the limit of your settings for all skills"
    assert message(gauges, way("d")) == (
        f"d: 3 calls are under way, {limit}; try again: omac settings set limits.all_concurrent_calls NUMBER"
    )
    gauges.end(2)
    assert not refused(gauges, way("d"))
    gauges.release(gauges.reserve(way("d", concurrent=1)))
    gauges.begin(gauges.reserve(way("d", concurrent=1)), 4)
    assert refused(gauges, way("a"))
    gauges.end(1)
    assert refused(gauges, way("d", concurrent=1)), "its own limit holds, too"
    gauges.end(4)
    assert not refused(gauges, way("d", concurrent=1))


def test_calls_of_all_skills_by_second() -> None:
    """A call that one limit refuses counts for no other."""
    clock = Clock()
    gauges = CallGauges(clock, OwnerLimits(per_second=4))
    assert [refused(gauges, way("a", per_second=2)) for _ in range(6)] == [False, False, True, True, True, True]
    assert [refused(gauges, way("b")) for _ in range(3)] == [False, False, True]
    assert message(gauges, way("b")) == (
        "b: 4 calls began within a second, the limit of your settings for all skills; try again: "
        "omac settings set limits.all_calls_per_second NUMBER"
    )
    clock.now += 0.501
    assert [refused(gauges, way("a", per_second=2)) for _ in range(2)] == [False, True]
    assert [refused(gauges, way("b")) for _ in range(2)] == [False, True]


@pytest.mark.parametrize(
    ("own", "owners", "expected"),
    [
        (1, None, "the limit of its omac.yaml; try again: omac show echo --workdir /w"),
        (1, 5, "the limit of its omac.yaml; try again: omac show echo --workdir /w"),
        (None, 1, "the limit of your settings; try again: omac settings set limits.{} NUMBER"),
        (5, 1, "the limit of your settings; try again: omac settings set limits.{} NUMBER"),
    ],
)
@pytest.mark.parametrize(
    ("field", "name", "what"),
    [
        ("concurrent", "concurrent_calls", "1 call of it is under way"),
        ("per_second", "calls_per_second", "1 call of it began within a second"),
    ],
)
def test_whose_limit_it_is(
    own: int | None, owners: int | None, expected: str, field: str, name: str, what: str
) -> None:
    """The stricter limit of the skill's and the owner's holds, and the refusal names it."""
    gauges, route = CallGauges(Clock()), limited(**{field: own}).within(SkillBounds(**{field: owners}))
    gauges.check(route)
    gauges.reserve(route)
    assert message(gauges, route) == f"echo: {what}, {expected.format(name)}"
