"""services/access/call_batches.py: what comes in one pass is one record, and each call gets its own answer."""

import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from omac.domain.access.access import (
    AGGREGATE,
    BATCH_MAX,
    AccessAborted,
    AccessBatchAborted,
    AccessBatchCompleted,
    AccessBatchRequested,
    AccessCompleted,
    AccessRequested,
    access_id,
    position_of,
)
from omac.domain.kernel.event import Recorded
from omac.domain.kernel.refusal import Refusal
from omac.domain.skills.meta import FoundSkill
from omac.journal import commit_thread
from omac.journal.application import Journal
from omac.journal.event_kinds import SINCE
from omac.journal.format import BATCHES, Present
from omac.journal.opening import open_journal
from omac.projections.access.routes import ResolvedRoute
from omac.projections.evidence.accesses import audit_rows
from omac.services.access.port import Answer, Request
from omac.services.access.recorder import JournalAccessRecorder
from omac.services.kernel.recovery import recover

Serving = Callable[..., AbstractAsyncContextManager[Any]]
MakeSkill = Callable[..., FoundSkill]
Answers = dict[str, Any]  # the id of an access, or a Refusal


@pytest.fixture
def routes(skill: MakeSkill) -> Callable[[Any], Any]:
    """Return a function that brings two skills online, and returns their routes."""

    async def resolved(omac: Any) -> tuple[ResolvedRoute, ResolvedRoute]:
        omac.put_approved("/w/shop", skill("echo"), skill("mail"))
        token = (await omac.activate()).dir_token
        return omac.gate.resolve(token, "echo"), omac.gate.resolve(token, "mail")

    return resolved


async def ask(gate: JournalAccessRecorder, *asked: tuple[ResolvedRoute, str]) -> Answers:
    """Make requests in one pass, and return their answers by their paths, in the order in which these came."""
    answers: Answers = {}
    all_there = trio.Event()

    def answered(path: str, answer: int | Exception) -> None:
        assert path not in answers
        answers[path] = answer
        if len(answers) == len(asked):
            all_there.set()

    for route, path in asked:
        gate.admit_then(route, Request("GET", path), partial(answered, path))
    with trio.fail_after(10):
        await all_there.wait()
    return answers


def accesses(omac: Any) -> list[Recorded]:
    """Return the records of accesses."""
    return [record for record in omac.journal.records() if type(record.event) in AGGREGATE.events]


async def test_requests_of_one_pass_and_route_are_one_record(serving: Serving, routes: Any) -> None:
    """Requests of one route are one record, in their order; another route has its own."""
    async with serving() as omac:
        echo, mail = await routes(omac)
        answers = await ask(omac.gate, (echo, "/a"), (mail, "/m"), (echo, "/b"), (echo, "/c"))
        together, alone = accesses(omac)
        assert together.event == AccessBatchRequested("/w/shop", "echo", "echo", None, ("GET",) * 3, ("/a", "/b", "/c"))
        assert alone.event == AccessRequested("/w/shop", "mail", "mail", None, "GET", "/m")
        assert answers == {
            "/a": access_id(together.position, 0),
            "/b": access_id(together.position, 1),
            "/c": access_id(together.position, 2),
            "/m": alone.position,
        }


async def test_a_request_that_comes_later_is_a_record_of_its_own(serving: Serving, routes: Any) -> None:
    """A request does not wait for others."""
    async with serving() as omac:
        echo, _ = await routes(omac)
        for path in ("/a", "/b"):
            await ask(omac.gate, (echo, path))
        assert [type(record.event) for record in accesses(omac)] == [AccessRequested, AccessRequested]


async def test_a_record_has_a_bound(serving: Serving, routes: Any) -> None:
    """More requests than one record takes are several records."""
    async with serving() as omac:
        echo, _ = await routes(omac)
        answers = await ask(omac.gate, *((echo, f"/{number}") for number in range(BATCH_MAX + 2)))
        first, second = accesses(omac)
        assert (len(first.event.path), second.event.path) == (BATCH_MAX, (f"/{BATCH_MAX}", f"/{BATCH_MAX + 1}"))
        assert len(set(answers.values())) == BATCH_MAX + 2
        assert {position_of(answer) for answer in answers.values()} == {
            first.position,
            second.position,
        }


async def test_ends_of_one_pass_are_one_record(serving: Serving, routes: Any) -> None:
    """Ends are recorded together, whichever routes they are of; what ended early is a record of its own. The audit has
    a row for each call."""
    async with serving() as omac:
        echo, mail = await routes(omac)
        answers = await ask(omac.gate, (echo, "/a"), (echo, "/b"), (echo, "/c"), (mail, "/m"))
        for number, path in enumerate(("/m", "/c", "/a")):
            omac.gate.completed(answers[path], Answer(200 + number, number, 1, 2))
        omac.gate.aborted(answers["/b"], Answer(None, 0, 0, 7), "client-gone")
        assert len(accesses(omac)) == 2
        await omac.caught_up()
        completed, aborted = accesses(omac)[2:]
        begun, alone = (record.position for record in accesses(omac)[:2])
        assert completed.event == AccessBatchCompleted(
            (alone, begun, begun), (0, 2, 0), (200, 201, 202), (0, 1, 2), (1,) * 3, (2,) * 3
        )
        assert aborted.event == AccessBatchAborted((begun,), (1,), ("client-gone",), (None,), (0,), (0,), (7,))
        rows = [row for row in audit_rows(omac.journal.records()) if row.kind == "access"]
        assert [(row.path, row.outcome, row.status) for row in rows] == [
            ("/a", "completed", 202), ("/b", "aborted", None), ("/c", "completed", 201), ("/m", "completed", 200),
        ]  # fmt: skip
        assert not omac.engine.system.accesses.open


async def test_one_end_follows_from_its_request(serving: Serving, routes: Any) -> None:
    """An end that comes alone says which record it follows from, unless its request has a number there."""
    async with serving() as omac:
        echo, _ = await routes(omac)
        answers = await ask(omac.gate, (echo, "/a"), (echo, "/b"))
        for path in ("/a", "/b"):
            omac.gate.completed(answers[path], Answer(200, 0, 0, 1))
            await omac.caught_up()
        begun, first, second = accesses(omac)
        assert first.event == AccessCompleted(begun.position, 200, 0, 0, 1)
        assert first.causation == begun.position
        assert second.event == AccessBatchCompleted((begun.position,), (1,), (200,), (0,), (0,), (1,))


async def test_a_request_that_cannot_be_encoded_is_refused_alone(serving: Serving, routes: Any) -> None:
    """A path that no record can hold is refused, and those that came with it are recorded."""
    async with serving() as omac:
        echo, _ = await routes(omac)
        answers = await ask(omac.gate, (echo, "/a"), (echo, "/\udcff"), (echo, "/b"))
        refused = answers.pop("/\udcff")
        assert isinstance(refused, Refusal)
        assert refused.reason == "unfoldable"
        assert sorted(answers.values()) == [record.position for record in accesses(omac)][:2]


async def test_all_are_refused_where_the_journal_takes_nothing(
    serving: Serving, routes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request of a record that the journal refuses gets the reason, once, and nothing stays under way."""
    async with serving() as omac:
        echo, _ = await routes(omac)

        def full(*_: object, **__: object) -> Any:
            raise Refusal("journal-unavailable", "the disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(omac.journal.store, "insert_events", full)
            answers = await ask(omac.gate, (echo, "/a"), (echo, "/b"))
        assert [answer.reason for answer in answers.values() if isinstance(answer, Refusal)] == [
            "journal-unavailable",
            "journal-unavailable",
        ]
        assert not omac.engine.system.accesses.open


async def test_a_fault_is_told_to_each(serving: Serving, routes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault while a record is made is told to each request that it would have held, and calls go on."""
    async with serving() as omac:
        echo, _ = await routes(omac)

        def exhausted(*_: object) -> Any:
            raise MemoryError

        with monkeypatch.context() as patch:
            patch.setattr(omac.journal, "group", exhausted)
            answers = await ask(omac.gate, (echo, "/a"), (echo, "/b"))
        assert [type(answer) for answer in answers.values()] == [MemoryError, MemoryError]
        assert await ask(omac.gate, (echo, "/c")) == {"/c": omac.engine.system.position}


async def test_a_route_that_ended_meanwhile(serving: Serving, routes: Any) -> None:
    """Requests of a route that ends while they are recorded are refused, and each is recorded as aborted."""
    async with serving() as omac:
        echo, _ = await routes(omac)
        await omac.deactivate()
        answers = await ask(omac.gate, (echo, "/a"), (echo, "/b"))
        await omac.caught_up()
        assert [type(answer) for answer in answers.values()] == [Refusal, Refusal]
        rows = [row for row in audit_rows(omac.journal.records()) if row.kind == "access"]
        assert [(row.path, row.outcome) for row in rows] == [("/a", "aborted"), ("/b", "aborted")]


async def test_what_is_gathered_when_it_ends_is_written(serving: Serving, routes: Any, records: Any, path: str) -> None:
    """Ends that come in the last moment are recorded before omac ends."""
    async with serving() as omac:
        echo, _ = await routes(omac)
        answers = await ask(omac.gate, (echo, "/a"), (echo, "/b"))
        for answer in answers.values():
            omac.gate.completed(answer, Answer(200, 0, 0, 1))
    ended = [record.event for record in records(path) if isinstance(record.event, AccessBatchCompleted)]
    assert [[access for access, _ in event.each()] for event in ended] == [list(answers.values())]


def earlier(path: str) -> Journal:
    """Open the journal as a run of an omac from before call batches, which lives until it closes the journal."""
    return open_journal(path, "old", time.time_ns, present=Present("old", 4711, 1, "boot", "0.0.1", SINCE[BATCHES] - 1))


async def test_beside_an_earlier_omac_calls_are_recorded_alone(
    serving: Serving, routes: Any, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a run lives that would misread them, no call is refused for it: requests and ends are recorded one by one.
    They are batches again when it has ended."""
    monkeypatch.setattr(commit_thread, "BATCHES_S", 0.0)
    old = earlier(path)
    async with serving() as omac:
        echo, _ = await routes(omac)
        answers = await ask(omac.gate, (echo, "/a"), (echo, "/b"))
        for answer in answers.values():
            omac.gate.completed(answer, Answer(200, 0, 0, 1))
        await omac.caught_up()
        assert [type(record.event) for record in accesses(omac)] == [AccessRequested] * 2 + [AccessCompleted] * 2
        old.close()
        while type(accesses(omac)[-1].event) is not AccessBatchRequested:  # the guard of `serving` ends it
            await ask(omac.gate, (echo, "/c"), (echo, "/d"))


async def test_beside_an_earlier_omac_what_was_open_is_settled_alone(serving: Serving, routes: Any, path: str) -> None:
    """A server that was killed in the middle of several calls starts again while such a run lives."""
    old = earlier(path)
    async with serving() as omac:
        echo, _ = await routes(omac)
        await ask(omac.gate, (echo, "/a"), (echo, "/b"))
    async with serving("run2") as omac:
        await recover(omac.engine, omac.host, lambda run, _: run == "run2")
        assert [type(record.event) for record in accesses(omac)] == [AccessRequested] * 2 + [AccessAborted] * 2
    old.close()
