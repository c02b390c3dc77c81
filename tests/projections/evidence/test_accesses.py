"""projections/evidence/accesses.py: every access once, from its request to its outcome."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omac.domain.access.access import (
    AccessAborted,
    AccessBatchAborted,
    AccessBatchCompleted,
    AccessBatchRequested,
    AccessCompleted,
    AccessRefused,
    AccessRequested,
    access_id,
    number_of,
    position_of,
)
from omac.domain.directories.events import Activated
from omac.domain.kernel import ids
from omac.domain.kernel.event import Event, Recorded
from omac.domain.kernel.ids import HostId
from omac.domain.kernel.run import RunStarted, RunStopped
from omac.projections.evidence.accesses import WAITING_MAX, Accesses, AuditRow, audit_rows, ended_rows

STREAM = ids.access_stream(HostId("h"))
REQUESTED = AccessRequested("/w", "echo", "echo", "s1", "GET", "/x")
REFUSED = AccessRefused("/w", None, "nope", None, "PUT", "/y", 404, "unknown-mount")


def recorded(position: int, event: Event, run: str = "run1") -> Recorded:
    return Recorded(position, STREAM, None, position * 1_000, run, "agent", None, None, event)


def records(*events: Event) -> list[Recorded]:
    return [recorded(position, event) for position, event in enumerate(events, 1)]


def test_a_completed_access() -> None:
    """A completed access is one row with the request, the answer, and the duration."""
    (row,) = audit_rows(records(REQUESTED, AccessCompleted(1, 200, 10, 20, 1_500_000)))
    assert row == AuditRow(1, 1_000, "/w", "echo", "s1", "GET", "/x", 200, 20, 10, 1.5, "completed", None, run="run1")


def test_an_aborted_access() -> None:
    """An aborted access has its reason; after a crash its measurements are missing."""
    rows = audit_rows(
        records(REQUESTED, REQUESTED, AccessAborted(1, "client-gone", 200, 1, 2, 3), AccessAborted(2, "x"))
    )
    assert [(r.outcome, r.reason, r.status, r.bytes, r.bytes_in, r.duration) for r in rows] == [
        ("aborted", "client-gone", 200, 2, 1, 0.000003),
        ("aborted", "x", None, 0, 0, None),
    ]


def test_a_refused_access() -> None:
    """A refused access is one row at once, with the reason that its caller got."""
    (row,) = audit_rows(records(REFUSED))
    assert row == AuditRow(
        1, 1_000, "/w", None, None, "PUT", "/y", 404, 0, 0, None, "refused", "unknown-mount", run="run1"
    )


def test_rows_come_in_the_order_of_requests() -> None:
    """Rows come in the order of requests, whatever the order of outcomes; a row without an outcome is open."""
    events = (
        REQUESTED,
        REQUESTED,
        REFUSED,
        REQUESTED,
        AccessCompleted(4, 200, 0, 0, 1),
        AccessCompleted(1, 200, 0, 0, 1),
    )
    rows = list(audit_rows(records(*events)))
    assert [(row.position, row.outcome) for row in rows] == [
        (1, "completed"),
        (2, "open"),
        (3, "refused"),
        (4, "completed"),
    ]


def test_rows_come_as_soon_as_they_can() -> None:
    """The first access comes without reading the whole journal."""
    endless = itertools.chain(records(REQUESTED, AccessCompleted(1, 200, 0, 0, 1)), _unread())
    assert next(audit_rows(endless)).position == 1


def _unread() -> Iterator[Recorded]:
    raise AssertionError("read too far")
    yield


@pytest.mark.parametrize("outcome", [AccessCompleted(99, 200, 0, 0, 1), AccessAborted(99, "x")])
def test_an_outcome_of_nothing_is_ignored(outcome: Event) -> None:
    """An outcome without its request is ignored, as when the request lies before the part of the journal that is
    read."""
    assert list(audit_rows(records(outcome))) == []
    accesses = Accesses()
    accesses.apply(recorded(1, outcome))
    assert (accesses.completed, accesses.aborted, accesses.open) == (0, 0, {})


@pytest.mark.parametrize("held_up", [False, True])
def test_the_first_outcome_counts(held_up: bool) -> None:
    """The first outcome of an access counts, in rows as in counts, whether or not its row waits for an older one."""
    before = (REQUESTED,) if held_up else (Activated(),)
    events = records(*before, REQUESTED, AccessCompleted(2, 200, 0, 0, 1), AccessAborted(2, "omac-killed"))
    assert [row.outcome for row in audit_rows(events) if row.position == 2] == ["completed"]
    accesses = Accesses()
    for record in events:
        accesses.apply(record)
    assert (accesses.completed, accesses.aborted) == (1, 0)


def test_a_refused_access_has_no_other_outcome() -> None:
    """A refused access was never forwarded, so that no later outcome counts."""
    rows = audit_rows(records(REQUESTED, REFUSED, AccessCompleted(2, 200, 0, 0, 1)))
    assert [row.outcome for row in rows] == ["open", "refused"]


def test_other_events_are_passed_over() -> None:
    """Other events between the accesses have no rows."""
    assert [row.position for row in audit_rows(records(Activated(), REFUSED, Activated()))] == [2]


def test_what_is_held_is_bounded_by_what_is_under_way() -> None:
    """Interleaved accesses hold no more records in memory than lie between the oldest open one and its outcome."""
    width, count = 16, 3_000
    born, rows, most = 0, 0, 0

    def stream() -> Iterator[Recorded]:
        nonlocal born
        position, waiting = 0, list[int]()
        while born < count:
            position += 1
            if len(waiting) == width:
                yield recorded(position, AccessCompleted(waiting.pop(0), 200, 0, 0, 1))
            else:
                born += 1
                waiting.append(position)
                yield recorded(position, REQUESTED)

    for _ in audit_rows(stream()):
        rows += 1
        most = max(most, born - rows)
    assert rows == count
    assert most <= width


@pytest.mark.parametrize("ends", [True, False])
def test_what_is_held_is_bounded_while_an_access_lasts(ends: bool) -> None:
    """An event stream may be open for days: the rows behind it come all the same. Its own comes once, where it ended,
    or last."""
    count = 2 * WAITING_MAX
    born = 0

    def stream() -> Iterator[Recorded]:
        nonlocal born
        yield recorded(1, REQUESTED)
        for position in range(2, 2 * count, 2):
            born += 1
            yield recorded(position, REQUESTED)
            yield recorded(position + 1, AccessCompleted(position, 200, 0, 0, 1))
        if ends:
            yield recorded(2 * count, AccessCompleted(1, 200, 7, 0, 1))
            yield recorded(2 * count + 1, AccessAborted(1, "omac-killed"))
        yield recorded(2 * count + 2, REFUSED)

    positions: list[int] = []
    for row in audit_rows(stream()):
        positions.append(row.position)
        assert born - len(positions) <= WAITING_MAX
        if row.position == 1:
            assert (row.outcome, row.bytes_in, row.at) == (("completed", 7, 1_000) if ends else ("open", 0, 1_000))
    last = [1, 2 * count + 2] if ends else [2 * count + 2, 1]
    assert positions == [*range(2, 2 * count, 2), *last]


def test_the_run_that_forwards_an_open_access_is_known() -> None:
    """The run that forwards an open access is known, for the recovery of a run that died."""
    accesses = Accesses()
    for position, run in ((1, "a"), (2, "b"), (3, "a")):
        accesses.apply(recorded(position, REQUESTED, run))
    accesses.apply(recorded(4, AccessCompleted(1, 200, 0, 0, 1), "a"))
    accesses.apply(recorded(5, REFUSED))
    assert accesses.open == {2: (STREAM, "b"), 3: (STREAM, "a")}
    assert (accesses.completed, accesses.aborted, accesses.refused) == (1, 0, 1)


EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.just(REQUESTED),
    st.just(REFUSED),
    st.builds(AccessCompleted, st.integers(1, 30), st.just(200), st.just(0), st.just(0), st.just(1)),
    st.builds(AccessAborted, st.integers(1, 30), st.just("x")),
)


@given(st.lists(EVENTS, max_size=40))
def test_rows_and_counts_agree(events: list[Any]) -> None:
    """Each request is one row, whatever a journal holds, and both read models agree."""
    journal = records(*events)
    rows = list(audit_rows(journal))
    requests = [r.position for r in journal if isinstance(r.event, AccessRequested | AccessRefused)]
    assert [row.position for row in rows] == requests
    accesses = Accesses()
    for record in journal:
        accesses.apply(record)
    outcomes = [row.outcome for row in rows]
    assert outcomes.count("completed") == accesses.completed
    assert outcomes.count("aborted") == accesses.aborted
    assert outcomes.count("refused") == accesses.refused
    assert [row.position for row in rows if row.outcome == "open"] == list(accesses.open)


@given(st.lists(EVENTS, max_size=40), st.integers(0, 5))
def test_a_small_window_loses_and_doubles_nothing(events: list[Any], window: int) -> None:
    """Each access comes once, however long rows wait, with the outcome it has when rows wait without a limit."""
    whole = sorted(audit_rows(records(*events)), key=lambda row: row.position)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("omac.projections.evidence.accesses.WAITING_MAX", window)
        assert sorted(audit_rows(records(*events)), key=lambda row: row.position) == whole


def test_a_row_names_the_agent_of_its_run() -> None:
    """A row has the agent that its run recorded when it began. A run that launched no agent, or that ended, has
    none."""
    begun = RunStarted("claude", "1.0", 42, 7, "boot", ("/w",), {"agent": "claude"}, "start")
    bare = RunStarted("opencode", "1.0", 43, 8, "boot", ("/w",), {}, "start")
    with_agent, without_agent = audit_rows([*of_run("r1", begun, REQUESTED), *of_run("r2", bare, REQUESTED, after=2)])
    assert (with_agent.client, without_agent.client) == ("claude", None)
    ended = [*of_run("r1", begun, RunStopped("x"), REQUESTED)]
    assert [row.client for row in audit_rows(ended)] == [None]


def completed_together(accesses: list[int]) -> AccessBatchCompleted:
    ones = (1,) * len(accesses)
    return AccessBatchCompleted(
        tuple(map(position_of, accesses)), tuple(map(number_of, accesses)), ones, ones, ones, ones
    )


def of_run(run: str, *events: Event, after: int = 0) -> list[Recorded]:
    """Return the events as a run recorded them."""
    stream = ids.run_stream(HostId("h"), ids.RunId(run))
    return [
        Recorded(number, stream, None, number, run, "omac", None, None, event)
        for number, event in enumerate(events, after + 1)
    ]


BATCH = AccessBatchRequested("/w", "echo", "echo", "s1", ("GET", "PUT", "GET"), ("/x", "/y", "/x"))
IDS = st.builds(access_id, st.integers(1, 12), st.sampled_from([0, 0, 1, 2]))
ENDS = st.lists(
    st.one_of(
        st.just(REQUESTED), st.just(REFUSED), st.just(BATCH),
        st.builds(AccessCompleted, st.integers(1, 12), *[st.just(1)] * 4),
        st.lists(IDS, min_size=2, max_size=4).map(completed_together),
    ),
    max_size=20,
)  # fmt: skip


@given(ENDS, st.integers(0, 20))
def test_rows_that_ended_are_final(events: list[Event], cut: int) -> None:
    """Records that are appended add rows behind those that ended. With the open ones, these are the rows of the
    audit."""
    whole = [(position, row) for position, rows in ended_rows(records(*events)) for row in rows]
    part = [(position, row) for position, rows in ended_rows(records(*events)[:cut]) for row in rows]
    assert whole[: len(part)] == part
    assert all(position > cut for position, _ in whole[len(part) :])
    assert [position for position, _ in whole] == sorted(position for position, _ in whole)
    ended = sorted(row.access for row in audit_rows(records(*events)) if row.outcome != "open")
    assert sorted(row.access for _, row in whole) == ended


def test_calls_that_were_recorded_together() -> None:
    """Requests in one record are rows of their own, in their order, each with the end that is its own."""
    ends = AccessBatchCompleted((1, 1), (2, 0), (200, 404), (1, 2), (3, 4), (5_000_000, 6))
    cut = AccessBatchAborted((1,), (1,), ("client-gone",), (None,), (0,), (0,), (None,))
    rows = list(audit_rows(records(BATCH, ends, cut)))
    assert [(row.position, row.number, row.method, row.path, row.outcome, row.status, row.bytes) for row in rows] == [
        (1, 0, "GET", "/x", "completed", 404, 4),
        (1, 1, "PUT", "/y", "aborted", None, 0),
        (1, 2, "GET", "/x", "completed", 200, 3),
    ]
    assert {(row.at, row.session, row.run) for row in rows} == {(1_000, "s1", "run1")}


def test_together_or_alone() -> None:
    """The counts of calls under way and ended are the same, whether they were recorded together or alone."""
    alone, together = Accesses(), Accesses()
    singles = [*[REQUESTED] * 3, AccessCompleted(2, 200, 1, 1, 1), AccessCompleted(1, 200, 1, 1, 1)]
    for record in records(*singles):
        alone.apply(record)
    for record in records(BATCH, completed_together([access_id(1, 1), access_id(1, 0), access_id(1, 1)])):
        together.apply(record)
    assert (len(together.open), together.completed) == (len(alone.open), alone.completed) == (1, 2)


def test_erased_paths_of_a_batch() -> None:
    """Requests whose paths are erased keep their methods and their outcomes."""
    erased = AccessBatchRequested("/w", "echo", "echo", "(erased)", ("GET", "PUT"), ("(erased)",))
    rows = list(audit_rows(records(erased, completed_together([access_id(1, 1), access_id(1, 0)]))))
    assert [(row.method, row.path, row.outcome) for row in rows] == [
        ("GET", "(erased)", "completed"),
        ("PUT", "(erased)", "completed"),
    ]
