"""services/kernel/engine.py: executed events are folded, observed, and wake the tasks that wait for them."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, closing
from functools import partial
from typing import Any

import pytest
import trio
from contract.journals import decide_now
from trio.testing import wait_all_tasks_blocked

from omac.domain.access import access, control
from omac.domain.access.access import AccessRequested
from omac.domain.access.control import ControlCalled
from omac.domain.kernel import ids
from omac.domain.kernel.aggregate import Addressed
from omac.domain.kernel.event import Cause, Recorded
from omac.domain.kernel.ids import HostId
from omac.domain.kernel.refusal import Refusal
from omac.domain.skills import registration
from omac.domain.skills.registration import Code, Discover
from omac.journal.application import Journal
from omac.journal.opening import open_journal
from omac.services.kernel.engine import CATCH_UP_S, together

Serving = Callable[..., AbstractAsyncContextManager[Any]]

HOST = HostId("host0001")
STREAM = ids.registration_stream(HOST, "scope", "agents", "echo")
OTHER_STREAM = ids.registration_stream(HOST, "scope", "agents", "other")


BESIDE = Addressed(control.AGGREGATE, ids.control_stream(HOST), ControlCalled("reload", "/w", "socket"))


def discover(number: int) -> Discover:
    return Discover(Code("/s", f"sha256:{number}"), "/w")


@pytest.fixture
def other(path: str, clock: Callable[[], int]) -> Iterator[Journal]:
    """Yield the journal as another process opens it."""
    journal = open_journal(path, "other", clock)
    yield journal
    journal.close()


def append(journal: Journal, number: int, stream: Any = STREAM) -> None:
    decide_now(journal, registration.AGGREGATE, stream, discover(number))


async def test_a_decision_is_folded_when_execute_returns(serving: Serving) -> None:
    """An appending caller sees its own events, with versions from 1, and the events beside them."""
    async with serving(reactors=False) as omac:
        recorded = await omac.engine.execute(
            registration.AGGREGATE, STREAM, discover(1), Cause("person", "c1"), beside=[BESIDE]
        )
        assert [(r.position, r.version, r.correlation) for r in recorded] == [(1, None, "c1"), (2, 1, "c1")]
        assert omac.engine.system.registrations[STREAM].state.found == Code("/s", "sha256:1")
        assert omac.status().control["called"] == 1


async def test_no_events_no_record(serving: Serving) -> None:
    """A decision without events appends nothing, not even the events beside it."""
    async with serving(reactors=False) as omac:
        for _ in range(2):
            await omac.engine.execute(registration.AGGREGATE, STREAM, discover(1))
        assert await omac.engine.execute(registration.AGGREGATE, STREAM, discover(1), beside=[BESIDE]) == ()
        assert omac.journal.store.head() == 1


async def test_what_follows_names_what_it_follows_from(serving: Serving) -> None:
    """An event without a cause of its own follows from the last of its stream, in the same conversation."""
    async with serving(reactors=False) as omac:
        await omac.engine.execute(registration.AGGREGATE, STREAM, discover(1), Cause("person", "c1"))
        (second,) = await omac.engine.execute(registration.AGGREGATE, STREAM, discover(2))
        assert (second.actor, second.correlation, second.causation) == ("omac", "c1", 1)


async def test_one_decision_at_a_time_for_each_aggregate(serving: Serving) -> None:
    """Tasks that decide at once do not conflict: each decides on the state that the others recorded."""
    async with serving(reactors=False) as omac:
        async with trio.open_nursery() as tasks:
            for number in range(50):
                tasks.start_soon(omac.engine.execute, registration.AGGREGATE, STREAM, discover(number))
        assert omac.engine.system.registrations[STREAM].version == 50


async def test_every_record_is_observed_once_in_order(serving: Serving, other: Journal) -> None:
    """Observers see own records and those of other processes, after these were folded."""
    async with serving(reactors=False) as omac:
        positions: list[tuple[int, int]] = []
        omac.engine.observe(lambda record: positions.append((record.position, omac.engine.system.position)))
        for number in range(10):
            append(other, number, OTHER_STREAM)
            await omac.engine.execute(registration.AGGREGATE, STREAM, discover(number))
        await omac.caught_up()
        assert positions == [(position, position) for position in range(1, 21)]


async def test_other_processes_are_noticed_without_asking(serving: Serving, other: Journal) -> None:
    """An event that another process appends wakes the tasks that wait for its stream."""
    async with serving(reactors=False) as omac:
        async with trio.open_nursery() as tasks:
            tasks.start_soon(omac.engine.moved, [STREAM], omac.engine.system.position)
            await wait_all_tasks_blocked()
            append(other, 1)
        assert omac.engine.system.registrations[STREAM].version == 1


async def test_a_reader_sees_what_was_committed_before(serving: Serving, other: Journal) -> None:
    """A reader that asks right after the commit of another process sees that commit."""
    async with serving(reactors=False) as omac:
        for number in range(1, 20):
            append(other, number)
            await omac.engine.catch_up_for_reading()
            assert omac.engine.system.position == number


async def test_a_reader_does_not_wait_for_a_journal_that_stalls(serving: Serving, path: str) -> None:
    """A reader waits half a second for the journal, and no longer; the append that stalls is made in the end."""
    async with serving(reactors=False) as omac:
        with closing(sqlite3.connect(path, isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            async with trio.open_nursery() as tasks:
                tasks.start_soon(omac.engine.execute, registration.AGGREGATE, STREAM, discover(1))
                await wait_all_tasks_blocked()
                began = trio.current_time()
                await omac.engine.catch_up_for_reading()
                assert CATCH_UP_S <= trio.current_time() - began < CATCH_UP_S + 2
                assert omac.engine.system.position == 0
                holder.execute("ROLLBACK")
        assert omac.engine.system.position == 1


async def test_moved_wakes_for_its_streams_only(serving: Serving) -> None:
    """An event in one of a task's streams wakes it, one in another stream does not; nothing is left in memory."""
    async with serving(reactors=False) as omac:
        woken: list[str] = []

        async def wait(name: str, *streams: Any) -> None:
            await omac.engine.moved(streams, omac.engine.system.position)
            woken.append(name)

        async with trio.open_nursery() as tasks:
            tasks.start_soon(wait, "both", STREAM, OTHER_STREAM)
            tasks.start_soon(wait, "other", OTHER_STREAM)
            await wait_all_tasks_blocked()
            await omac.engine.execute(registration.AGGREGATE, STREAM, discover(1))
            await wait_all_tasks_blocked()
            assert woken == ["both"]
            tasks.cancel_scope.cancel()
        assert omac.engine._moved == {}


async def test_moved_misses_nothing_since_its_position(serving: Serving) -> None:
    """A wait from a position read before ends at once for an event that came while its caller was suspended."""
    async with serving(reactors=False) as omac:
        looked = omac.engine.system.position
        await omac.engine.execute(registration.AGGREGATE, STREAM, discover(1))
        await omac.engine.moved([OTHER_STREAM, STREAM], looked)
        with trio.move_on_after(0) as patience:
            await omac.engine.moved([STREAM], omac.engine.system.position)
        assert patience.cancelled_caught
        with trio.move_on_after(0) as patience:
            await omac.engine.moved([OTHER_STREAM], looked)
        assert patience.cancelled_caught


async def test_until_asks_at_once_and_after_each_event(serving: Serving) -> None:
    """A condition that holds already ends the wait; another is evaluated again only when its stream gets an event."""
    async with serving(reactors=False) as omac:
        versions: list[int] = []

        def holds() -> bool:
            versions.append(omac.engine.system.registrations[STREAM].version)
            return versions[-1] == 2

        await omac.engine.until([STREAM], lambda: True)
        async with trio.open_nursery() as tasks:
            tasks.start_soon(omac.engine.until, [STREAM], holds)
            for number in (1, 2):
                await wait_all_tasks_blocked()
                await omac.engine.execute(registration.AGGREGATE, STREAM, discover(number))
                await omac.engine.execute(registration.AGGREGATE, OTHER_STREAM, discover(number))
        assert versions == [0, 1, 2]
        assert omac.engine._moved == {}


async def test_a_log_is_appended_to_without_versions(serving: Serving) -> None:
    """`record` returns when the record is durable."""
    async with serving(reactors=False) as omac:
        event = AccessRequested("/w", "echo", "echo", None, "GET", "/")
        fact = Addressed(access.AGGREGATE, ids.access_stream(HOST), event)
        recorded: Recorded
        (recorded,) = await omac.engine.record([fact], Cause("agent"))
        assert (recorded.position, recorded.version) == (omac.journal.store.head(), None)
        omac.engine.record_soon([fact, fact], Cause("agent"))
        await omac.caught_up()
        assert omac.status().accesses["open"] == 3


async def test_together_raises_a_plain_refusal() -> None:
    """The caller gets a plain refusal, not a group, and only after all other calls have ended."""
    ended: list[int] = []

    async def call(number: int) -> None:
        await trio.lowlevel.checkpoint()
        if number % 2:
            raise Refusal("contention", f"number {number}")
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        ended.append(number)

    with pytest.raises(Refusal, match="number"):
        await together(partial(call, number) for number in range(6))
    assert sorted(ended) == [0, 2, 4]
    await together(())


async def test_what_is_no_refusal_is_not_hidden() -> None:
    """A fault of omac's own reaches the caller."""

    async def call() -> None:
        await trio.lowlevel.checkpoint()
        raise ZeroDivisionError

    with pytest.raises(ExceptionGroup):
        await together([call])
