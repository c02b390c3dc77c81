"""services/engine.py: decide on the live state, append, and continue when it is folded."""

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from omac.domain import ids, registration
from omac.domain.access import AccessRequested
from omac.domain.control import ControlCalled
from omac.domain.ids import HostId
from omac.domain.recorded import Cause, Draft, Event, Recorded
from omac.domain.refusal import Refusal
from omac.domain.registration import Code, Discover, Registration
from omac.journal.application import DECISIONS_MAX, Journal
from omac.journal.opening import open_journal
from omac.services.kernel.engine import together

Serving = Callable[..., AbstractAsyncContextManager[Any]]

HOST = HostId("host0001")
STREAM = ids.registration_stream(HOST, "scope", "agents", "echo")
OTHER_STREAM = ids.registration_stream(HOST, "scope", "agents", "other")


def found(number: int) -> Callable[[Registration], list[Event]]:
    return partial(registration.decide, Discover(Code("/s", f"sha256:{number}"), "/w"))


@pytest.fixture
def other(path: str, clock: Callable[[], int]) -> Iterator[Journal]:
    """Another process with the same journal."""
    journal = open_journal(path, "other", clock)
    yield journal
    journal.close()


def append(journal: Journal, number: int, stream: Any = STREAM) -> None:
    journal.execute(stream, Registration(), registration.evolve, found(number), Cause("person"))


async def test_a_decision_is_folded_when_execute_returns(serving: Serving) -> None:
    """Whoever appended sees its own events, with versions from 1, and what stands beside them."""
    async with serving(reactors=False) as omac:
        beside = Draft(ids.control_stream(HOST), None, ControlCalled("reload", "/w", "socket"))
        recorded = await omac.engine.execute(
            omac.engine.system.registrations, STREAM, found(1), Cause("person", "c1"), [beside]
        )
        assert [(r.position, r.version, r.correlation) for r in recorded] == [(1, None, "c1"), (2, 1, "c1")]
        assert omac.engine.system.registrations[STREAM].state.found == Code("/s", "sha256:1")
        assert omac.status().control["called"] == 1


async def test_no_events_no_record(serving: Serving) -> None:
    """A decision for nothing appends nothing, not even what would stand beside it."""
    async with serving(reactors=False) as omac:
        beside = Draft(ids.control_stream(HOST), None, ControlCalled("reload", "/w", "socket"))
        for _ in range(2):
            await omac.engine.execute(registration.AGGREGATE, STREAM, found(1))
        assert await omac.engine.execute(registration.AGGREGATE, STREAM, found(1), None, [beside]) == ()
        assert omac.journal.store.head() == 1


async def test_what_follows_names_what_it_follows_from(serving: Serving) -> None:
    """Without a cause of its own, an event follows from the last of its stream, in the same conversation."""
    async with serving(reactors=False) as omac:
        await omac.engine.execute(registration.AGGREGATE, STREAM, found(1), Cause("person", "c1"))
        (second,) = await omac.engine.execute(registration.AGGREGATE, STREAM, found(2))
        assert (second.actor, second.correlation, second.causation) == ("omac", "c1", 1)


async def test_one_decision_at_a_time_for_each_aggregate(serving: Serving) -> None:
    """Tasks that decide at once do not conflict: each decides on what the others recorded."""
    async with serving(reactors=False) as omac:
        async with trio.open_nursery() as tasks:
            for number in range(50):
                tasks.start_soon(omac.engine.execute, registration.AGGREGATE, STREAM, found(number))
        assert omac.engine.system.registrations[STREAM].version == 50


async def test_a_decision_is_made_anew_after_a_conflict(serving: Serving, other: Journal) -> None:
    """When another process was first, its events count in the second decision."""
    async with serving(reactors=False) as omac:
        seen: list[Code | None] = []

        def decide(state: Registration) -> list[Event]:
            seen.append(state.found)
            if len(seen) == 1:
                append(other, 1)
            return found(2)(state)

        (recorded,) = await omac.engine.execute(registration.AGGREGATE, STREAM, decide)
        assert seen == [None, Code("/s", "sha256:1")]
        assert (recorded.position, recorded.version) == (2, 2)


async def test_a_conflict_can_make_the_decision_needless(serving: Serving, other: Journal) -> None:
    """When another process was first with the same, nothing is left to do."""
    async with serving(reactors=False) as omac:

        def decide(state: Registration) -> list[Event]:
            append(other, 1)
            return found(1)(state)

        assert await omac.engine.execute(registration.AGGREGATE, STREAM, decide) == ()
        assert omac.journal.store.head() == 1


async def test_contention_is_refused(serving: Serving, other: Journal) -> None:
    """After five conflicts the caller hears of it; nothing was changed, and the next may try."""
    async with serving(reactors=False) as omac:
        tries: list[int] = []

        def decide(state: Registration) -> list[Event]:
            tries.append(1)
            append(other, len(tries))
            return found(1_000)(state)

        with pytest.raises(Refusal) as caught:
            await omac.engine.execute(registration.AGGREGATE, STREAM, decide)
        assert (caught.value.reason, len(tries)) == ("contention", DECISIONS_MAX)
        assert omac.journal.store.head() == DECISIONS_MAX
        await omac.engine.execute(registration.AGGREGATE, STREAM, found(1_000))


async def test_a_refused_decision_is_the_callers(serving: Serving) -> None:
    """It comes as itself, and the next decision on the aggregate is not held up."""
    async with serving(reactors=False) as omac:

        def refuse(_: Registration) -> list[Event]:
            raise Refusal("misuse", "no")

        with pytest.raises(Refusal, match="no"):
            await omac.engine.execute(registration.AGGREGATE, STREAM, refuse)
        await omac.engine.execute(registration.AGGREGATE, STREAM, found(1))


async def test_every_record_is_observed_once_in_order(serving: Serving, other: Journal) -> None:
    """Own records and those of other processes, after they were folded."""
    async with serving(reactors=False) as omac:
        seen: list[tuple[int, int]] = []
        omac.engine.observe(lambda record: seen.append((record.position, omac.engine.system.position)))
        for number in range(10):
            append(other, number, OTHER_STREAM)
            await omac.engine.execute(registration.AGGREGATE, STREAM, found(number))
        await omac.caught_up()
        assert seen == [(position, position) for position in range(1, 21)]


async def test_other_processes_are_noticed_without_asking(serving: Serving, other: Journal) -> None:
    """What another process appends wakes whoever waits for its stream."""
    async with serving(reactors=False) as omac:
        async with trio.open_nursery() as tasks:
            tasks.start_soon(omac.engine.moved, [STREAM])
            await wait_all_tasks_blocked()
            append(other, 1)
        assert omac.engine.system.registrations[STREAM].version == 1


async def test_moved_wakes_for_its_streams_only(serving: Serving) -> None:
    """One of several is enough, another is not; and nothing is left behind in memory."""
    async with serving(reactors=False) as omac:
        woken: list[str] = []

        async def wait(name: str, *streams: Any) -> None:
            await omac.engine.moved(streams)
            woken.append(name)

        async with trio.open_nursery() as tasks:
            tasks.start_soon(wait, "both", STREAM, OTHER_STREAM)
            tasks.start_soon(wait, "other", OTHER_STREAM)
            await wait_all_tasks_blocked()
            await omac.engine.execute(registration.AGGREGATE, STREAM, found(1))
            await wait_all_tasks_blocked()
            assert woken == ["both"]
            tasks.cancel_scope.cancel()
        assert omac.engine._moved == {}


async def test_moved_misses_nothing_since_the_look(serving: Serving) -> None:
    """With the position of the look, an event that came while its caller was suspended ends the wait at once."""
    async with serving(reactors=False) as omac:
        looked = omac.engine.system.position
        await omac.engine.execute(registration.AGGREGATE, STREAM, found(1))
        await omac.engine.moved([OTHER_STREAM, STREAM], looked)
        with trio.move_on_after(0) as patience:
            await omac.engine.moved([STREAM], omac.engine.system.position)
        assert patience.cancelled_caught
        with trio.move_on_after(0) as patience:
            await omac.engine.moved([OTHER_STREAM], looked)
        assert patience.cancelled_caught


async def test_a_log_is_appended_to_without_versions(serving: Serving) -> None:
    """`record` returns when the record is durable."""
    async with serving(reactors=False) as omac:
        event = AccessRequested("/w", "echo", "echo", None, "GET", "/")
        recorded: Recorded = await omac.engine.record(Draft(ids.access_stream(HOST), None, event), Cause("agent"))
        assert (recorded.position, recorded.version) == (omac.journal.store.head(), None)


async def test_together_raises_a_plain_refusal() -> None:
    """Not a group, and only after all others have ended."""
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
    """A fault of omac's own ends the call loudly."""

    async def call() -> None:
        await trio.lowlevel.checkpoint()
        raise ZeroDivisionError

    with pytest.raises(ExceptionGroup):
        await together([call])
