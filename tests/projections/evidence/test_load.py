"""projections/evidence/load.py: the rate of calls to each skill within a window."""

from typing import Any

import pytest

from omac.projections.evidence.accesses import AuditRow
from omac.projections.evidence.load import RecentCalls

S = 10**9


def row(ended_s: float, skill: str = "echo", *, duration: float | None = 0.5, **fields: Any) -> AuditRow:
    """Return a call that ended, in seconds after an epoch of its own."""
    values: dict[str, Any] = {
        "position": 1,
        "at": round((ended_s - (duration or 0)) * S),
        "dir": "/w/shop",
        "skill": skill,
        "session": "s1",
        "method": "GET",
        "path": "/",
        "status": 200,
        "bytes": 10,
        "bytes_in": 1,
        "duration": duration,
        "outcome": "completed",
        "reason": None,
    }
    return AuditRow(**values | fields)


def test_calls_are_counted_by_skill_and_session() -> None:
    """Calls are listed with the busiest skill and session first; those under way are listed without a rate."""
    calls = RecentCalls(10)
    for second in range(5):
        calls.end(row(91 + second), 100 * S)
    calls.end(row(95, session="s2"), 100 * S)
    calls.end(row(95, "other", kind="sandbox"), 100 * S)
    busy, less, waiting = calls.load(100 * S, [row(0, "slow", outcome="open", duration=None)])
    assert (busy.skill, busy.session, busy.rate, busy.failed, busy.under_way) == ("echo", "s1", 0.5, 0, 0)
    assert (busy.bytes, busy.bytes_in) == (50, 5)
    assert (less.session, less.rate) == ("s2", 0.1)
    assert (waiting.skill, waiting.rate, waiting.under_way, waiting.median, waiting.p99) == ("slow", 0.0, 1, None, None)


@pytest.mark.parametrize(("ended_s", "counts"), [(89.9, False), (90.0, True), (100.0, True)])
def test_a_window_has_an_end(ended_s: float, counts: bool) -> None:
    """A call that ended before the window is forgotten; a long call counts where it ends."""
    calls = RecentCalls(10)
    calls.end(row(ended_s, duration=80), 100 * S)
    assert bool(calls.load(100 * S, [])) is counts
    assert calls.load(200 * S, []) == []


def test_a_time_that_the_clock_has_not_reached() -> None:
    """While a journal is ahead of the clock, a call counts from when it was seen, and is forgotten as any other."""
    calls = RecentCalls(10)
    calls.end(row(5_000), 99 * S)
    assert [call.rate for call in calls.load(100 * S, [])] == [0.1]
    assert calls.load(110 * S, []) == []


@pytest.mark.parametrize(
    ("fields", "failed"),
    [
        ({}, 0),
        ({"status": 404}, 0),
        ({"status": 503}, 1),
        ({"outcome": "aborted", "status": None}, 1),
        ({"outcome": "refused", "status": 404, "duration": None}, 1),
        ({"outcome": "refused", "status": 404, "duration": None, "count": 3}, 3),
    ],
)
def test_what_failed(fields: dict[str, Any], failed: int) -> None:
    """A skill's own 4xx is an answer; a 5xx, an abort and a refusal are failures."""
    calls = RecentCalls(10)
    calls.end(row(99, **fields), 100 * S)
    assert calls.load(100 * S, [])[0].failed == failed


def test_durations_are_by_nearest_rank() -> None:
    """The median of an even number of calls is the lower one; a single call is its own median and p99."""
    calls = RecentCalls(10)
    for milliseconds in range(1, 101):
        calls.end(row(99, duration=milliseconds / 1000), 100 * S)
    calls.end(row(99, "once", duration=0.25), 100 * S)
    many, once = calls.load(100 * S, [])
    assert (many.median, many.p99) == (0.05, 0.099)
    assert (once.median, once.p99) == (0.25, 0.25)
