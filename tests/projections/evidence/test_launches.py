"""projections/evidence/launches.py: each launch once, with its end."""

from typing import Any

import msgspec
import pytest

from omac.domain.access.access import AccessCompleted, AccessRequested
from omac.domain.guard.denial import GuardDenied
from omac.domain.kernel import ids
from omac.domain.kernel.event import Event
from omac.domain.kernel.ids import HostId, LaunchId
from omac.domain.sandbox.launch import Denied, Launched, LaunchExited, LaunchRequested
from omac.projections.evidence.accesses import AuditRow, audit_rows

HOST = HostId("host1")
STREAM = ids.sandbox_stream(HOST, LaunchId("aa"))
REQUESTED = LaunchRequested("/w", "claude", "bubblewrap", "ab" * 32, ("sh", "-c", "echo a"), "host", 1, 2, "boot")
HOW = "sh -c 'echo a'; for claude, by bubblewrap, network host, policy abababababab"
DENIED = Denied("/w", "claude", ("true",), "git-unsafe", "its .git leads out")


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ((REQUESTED,), ("open", None, None, None, HOW)),
        ((REQUESTED, Launched(7)), ("open", None, None, None, HOW)),
        ((REQUESTED, Launched(7), LaunchExited(0)), ("completed", 0, 2.0, None, HOW)),
        ((REQUESTED, LaunchExited(127)), ("completed", 127, 1.0, None, HOW)),
        (
            (REQUESTED, Launched(7), LaunchExited(1, ("/w/x: a hook", "/w/y: a link"))),
            ("completed", 1, 2.0, None, f"{HOW}; found: /w/x: a hook, /w/y: a link"),
        ),
        ((REQUESTED, Launched(7), LaunchExited(None, (), "killed")), ("aborted", None, None, "killed", HOW)),
        ((REQUESTED, DENIED), ("refused", None, None, "git-unsafe", f"{HOW}; its .git leads out")),
        ((DENIED,), ("refused", None, None, "git-unsafe", "true; its .git leads out")),
    ],
)
def test_a_launch_is_one_row(history: Any, events: tuple[Event, ...], expected: tuple[Any, ...]) -> None:
    """A launch is one row with the position and time of its beginning, whether or how it ended."""
    history.append(STREAM, *events)
    (row,) = audit_rows(history.records)
    assert (row.outcome, row.status, row.duration, row.reason, row.detail) == expected
    assert (row.position, row.at, row.kind, row.dir, row.actor) == (1, 10**9, "sandbox", "/w", "omac")


def test_nothing_waits_for_a_launch_to_end(history: Any) -> None:
    """A launch comes where it ended, and last if it has not ended. The rows of other events do not wait for it."""
    history.append(STREAM, REQUESTED)
    access = history.log(ids.access_stream(HOST), AccessRequested("/w", "echo", "echo", None, "GET", "/"))
    history.log(ids.access_stream(HOST), AccessCompleted(access, 200, 1, 2, 3))
    history.append(ids.sandbox_stream(HOST, LaunchId("bb")), REQUESTED)
    history.append(ids.sandbox_stream(HOST, LaunchId("bb")), LaunchExited(0))
    rows = audit_rows(history.records)
    assert next(rows).kind == "access"
    assert [(row.position, row.outcome) for row in rows] == [(4, "completed"), (1, "open")]


def test_the_run_of_a_launch_is_the_one_it_was_begun_in(history: Any) -> None:
    """A launch belongs to the run that began it, not to the next one, which records the end of a killed launch."""
    history.append(STREAM, REQUESTED, Launched(7), LaunchExited(None))
    records = [msgspec.structs.replace(record, run=run) for record, run in zip(history.records, "aab", strict=True)]
    assert [(row.run, row.outcome) for row in audit_rows(records)] == [("a", "aborted")]
    assert [row.run for row in audit_rows(records[:2])] == ["a"]


def test_an_end_without_a_beginning_is_no_launch(history: Any) -> None:
    """An end without a beginning is no row, since a reader may have only part of a journal."""
    history.append(STREAM, REQUESTED, Launched(7), LaunchExited(0))
    assert list(audit_rows(history.records[1:])) == []


def test_a_clock_that_was_set_back_makes_no_negative_time(history: Any) -> None:
    """The duration of a launch is at least zero."""
    history.append(STREAM, REQUESTED, LaunchExited(0))
    (row,) = audit_rows(reversed_times(history.records))
    assert row.duration == 0


def test_what_was_spooled_has_the_times_it_happened_at(history: Any) -> None:
    """A spooled launch has the times at which it happened, not those of its record, which may be long after; so has a
    denial of the guard."""
    history.append(STREAM, REQUESTED, Launched(7), LaunchExited(0))
    history.log(ids.guard_stream(HOST), GuardDenied("claude", "Write", "/repo/x", "/repo/tree"))
    records = [msgspec.structs.replace(record, at=9_000 * 10**9, happened=record.at) for record in history.records]
    launch, denial = audit_rows(records)
    assert (launch.at, launch.duration, denial.at) == (10**9, 2.0, 4 * 10**9)


def reversed_times(records: list[Any]) -> list[Any]:
    return [msgspec.structs.replace(record, at=100 - record.position) for record in records]


@pytest.mark.parametrize(
    ("event", "detail"),
    [
        (
            GuardDenied("claude", "Write", "/repo/x", "/repo/tree", "/repo/tree/x", "s1"),
            "Write of claude to /repo/x, /repo/tree/x was probably meant",
        ),
        (
            GuardDenied("codex", "apply_patch", "/etc/x", "/repo/tree", "", "s1", "bridge"),
            "apply_patch of codex to /etc/x, as claimed from inside",
        ),
    ],
)
def test_a_denial_of_the_guard(history: Any, event: GuardDenied, detail: str) -> None:
    """A denial of the guard has the write and its path, the session, and the path that was probably meant."""
    history.log(ids.guard_stream(HOST), event)
    assert list(audit_rows(history.records)) == [
        AuditRow(
            1, 10**9, "/repo/tree", None, "s1", "", "", None, 0, 0, None, "refused", "outside-worktree",
            "guard.denied", "omac", detail, run="run1",
        )
    ]  # fmt: skip
