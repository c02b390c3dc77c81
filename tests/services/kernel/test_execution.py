"""services/kernel/execution.py: the one path of a change of state, the same over both of its carriers."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from typing import Any

import pytest
import trio
from contract.journals import decide_now
from msgspec.structs import replace

from omac.domain.access import control
from omac.domain.access.control import ControlCalled
from omac.domain.directories import directory
from omac.domain.directories.events import Activated
from omac.domain.kernel import ids
from omac.domain.kernel.aggregate import Addressed, Aggregate
from omac.domain.kernel.event import Cause, Event, Latest, Recorded, Spooled
from omac.domain.kernel.ids import HostId, RunId
from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.scrub import SCRUBBED
from omac.domain.skills import registration
from omac.domain.skills.registration import Approve, Approved, Code, Discover, Drifted, Registered, Registration
from omac.journal.application import Journal
from omac.journal.opening import open_journal
from omac.journal.reader import ReadJournal
from omac.services.kernel.engine import Engine
from omac.services.kernel.execution import DECISIONS_MAX, AlreadyRecorded, Execution
from omac.services.kernel.opened import OpenedJournal

HOST = HostId("host0001")
STREAM = ids.registration_stream(HOST, "scope", "agents", "echo")
TOKEN = "0123456789abcdef" * 2
REGISTRATION = registration.AGGREGATE
CALLED = Addressed(control.AGGREGATE, ids.control_stream(HOST), ControlCalled("reload", "/w", "socket"))
PERSON = Cause("person", "c1", 7)
Carrier = Callable[[], AbstractAsyncContextManager[Execution]]


def discover(number: int) -> Discover:
    """Return a command that decides one event, unless the same code was found last."""
    return Discover(Code("/s", f"sha256:{number}"), "/w")


@pytest.fixture(params=["engine", "opened journal"])
def carrier(request: pytest.FixtureRequest, path: str, clock: Callable[[], int]) -> Carrier:
    """Return a function that opens the carrier under test on the test's journal."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Execution]:
        with closing(open_journal(path, "run1", clock)) as journal:
            if request.param == "opened journal":
                yield OpenedJournal(journal, HOST)
                return
            engine = Engine(journal, HOST)
            async with trio.open_nursery() as nursery:
                await nursery.start(engine.keep_writing)
                yield engine
                nursery.cancel_scope.cancel()

    return opened


@pytest.fixture
def other(path: str, clock: Callable[[], int]) -> Iterator[Journal]:
    """Yield the journal as another process opens it."""
    with closing(open_journal(path, "other", clock)) as journal:
        yield journal


def records(path: str) -> list[Recorded]:
    """Return the durable records, as a reader of its own finds them."""
    with closing(ReadJournal(path)) as journal:
        return list(journal.records())


# ---- decided, folded, appended ----


async def test_what_is_decided_is_recorded_and_folded(carrier: Carrier, path: str) -> None:
    """Events have their cause and the events beside them on record; the entry has them when `execute` returns."""
    async with carrier() as execution:
        assert execution.entry(REGISTRATION, STREAM) == Latest(Registration())
        recorded = await execution.execute(REGISTRATION, STREAM, discover(1), PERSON, beside=[CALLED])
        assert list(recorded) == records(path)
        assert [(record.position, record.version, type(record.event)) for record in recorded] == [
            (1, None, ControlCalled),
            (2, 1, registration.AutoRegistered),
        ]
        assert {(record.run, record.actor, record.correlation, record.causation) for record in recorded} == {
            ("run1", "person", "c1", 7)
        }
        entry = execution.entry(REGISTRATION, STREAM)
        assert (entry.state.found, entry.version) == (Code("/s", "sha256:1"), 1)
        assert (execution.host, execution.run) == (HOST, RunId("run1"))


async def test_several_events_of_one_command_are_recorded_together(carrier: Carrier, path: str) -> None:
    """Each event of one command has the next version, and all have one time."""
    async with carrier() as execution:
        recorded = await execution.execute(REGISTRATION, STREAM, Approve(Code("/s", "sha256:1", "d"), "/w"))
        assert [(record.version, type(record.event)) for record in recorded] == [(1, Registered), (2, Approved)]
        assert len({record.at for record in records(path)}) == 1


async def test_a_command_that_decides_nothing_records_nothing(carrier: Carrier, path: str) -> None:
    """A command that decides nothing records nothing, not even the events beside it."""
    async with carrier() as execution:
        await execution.execute(REGISTRATION, STREAM, discover(1), PERSON)
        assert await execution.execute(REGISTRATION, STREAM, discover(1), PERSON, beside=[CALLED]) == ()
        assert len(records(path)) == 1


async def test_a_refusal_to_decide_is_the_callers(carrier: Carrier, path: str) -> None:
    """The caller gets the refusal itself, nothing is recorded, and the aggregate's next decision is not held up."""

    def refuse(_: object, __: Registration) -> list[Event]:
        raise Refusal("misuse", "not so")

    async with carrier() as execution:
        with pytest.raises(Refusal, match="not so"):
            await execution.execute(toy(refuse), STREAM, "anything", PERSON, beside=[CALLED])
        assert records(path) == []
        await execution.execute(REGISTRATION, STREAM, discover(1))


def toy(decide: Callable[[Any, Registration], list[Event]]) -> Aggregate[Registration, Any]:
    """Return a registration aggregate with another `decide`."""
    return Aggregate("registration", Registration(), decide, registration.evolve, registration.EVENTS)


@pytest.mark.parametrize(
    "lies",
    [[Drifted("/s", "1")], [Approved("/s", "1")], [Registered("/s", "1"), Drifted("/s", "1")], [Activated()]],
)
async def test_an_event_that_cannot_fold_is_never_durable(carrier: Carrier, path: str, lies: list[Event]) -> None:
    """A decision that contradicts its own fold is refused whole, with the events beside it; omac goes on."""
    async with carrier() as execution:
        with pytest.raises(Refusal, match="cannot follow") as refused:
            await execution.execute(toy(lambda *_: lies), STREAM, "lie", PERSON, beside=[CALLED])
        assert refused.value.reason == "unfoldable"
        with pytest.raises(Refusal, match="cannot follow"):
            await execution.record([CALLED, replace(CALLED, command=Activated())], PERSON)
        assert records(path) == []
        assert execution.entry(REGISTRATION, STREAM) == Latest(Registration())
        await execution.execute(REGISTRATION, STREAM, discover(1))
        assert [record.version for record in records(path)] == [1]


async def test_facts_are_appended_all_or_nothing(carrier: Carrier, path: str) -> None:
    """Facts are recorded without versions, in their order; an aggregate that is decided on its state is no log."""
    async with carrier() as execution:
        recorded = await execution.record([CALLED, CALLED], PERSON)
        assert [(record.position, record.version) for record in recorded] == [(1, None), (2, None)]
        assert list(recorded) == records(path)
        with pytest.raises(AssertionError, match="registration is decided on its state"):
            await execution.record([Addressed(REGISTRATION, STREAM, discover(1))], PERSON)


async def test_no_living_token_is_recorded(carrier: Carrier, path: str, other: Journal) -> None:
    """A living token is scrubbed from every text, of a fact or of a decided event."""
    request = directory.RequestActivation("/w", "opencode", ids.token_digest(TOKEN))
    decide_now(other, directory.AGGREGATE, ids.directory_stream(HOST, ids.workdir_id("/w")), request)
    async with carrier() as execution:
        called = ControlCalled("reload", f"/{TOKEN.upper()}", "socket")
        await execution.record([replace(CALLED, command=called)], PERSON)
        await execution.execute(REGISTRATION, STREAM, Discover(Code(f"/s/{TOKEN}", "sha256:1"), "/w"), PERSON)
        assert [getattr(record.event, "dir", getattr(record.event, "source", "")) for record in records(path)][1:] == [
            f"/{SCRUBBED}",
            f"/s/{SCRUBBED}",
        ]


# ---- when others are first ----


async def test_a_conflict_is_decided_again(carrier: Carrier, path: str, other: Journal) -> None:
    """The decision is repeated on the state that other processes made; the events beside it are recorded once."""
    async with carrier() as execution:
        turns: list[Code | None] = []

        def command_now() -> Discover:
            turns.append(execution.entry(REGISTRATION, STREAM).state.found)
            if len(turns) < DECISIONS_MAX:
                decide_now(other, REGISTRATION, STREAM, discover(len(turns)))
            return discover(1_000)

        recorded = await execution.execute_latest(REGISTRATION, STREAM, command_now, PERSON, beside=[CALLED])
        assert turns == [None, *(Code("/s", f"sha256:{number}") for number in range(1, DECISIONS_MAX))]
        assert [(record.position, record.version) for record in recorded] == [(5, None), (6, 5)]
        assert [type(record.event) for record in records(path)].count(ControlCalled) == 1


async def test_a_conflict_can_make_a_decision_needless(carrier: Carrier, path: str, other: Journal) -> None:
    """A decision that another process was first to record leaves nothing to record."""
    async with carrier() as execution:

        def command_now() -> Discover:
            decide_now(other, REGISTRATION, STREAM, discover(1))
            return discover(1)

        assert await execution.execute_latest(REGISTRATION, STREAM, command_now, beside=[CALLED]) == ()
        assert [record.run for record in records(path)] == ["other"]


async def test_contention_is_given_up(carrier: Carrier, path: str, other: Journal) -> None:
    """The caller gets a refusal after five decisions, nothing of them is recorded, and the next command can succeed."""
    async with carrier() as execution:
        turns: list[int] = []

        def command_now() -> Discover:
            turns.append(1)
            decide_now(other, REGISTRATION, STREAM, discover(len(turns)))
            return discover(1_000)

        with pytest.raises(Refusal) as refused:
            await execution.execute_latest(REGISTRATION, STREAM, command_now, beside=[CALLED])
        assert (refused.value.reason, len(turns)) == ("contention", DECISIONS_MAX)
        assert STREAM in refused.value.message
        assert {record.run for record in records(path)} == {"other"}
        assert DECISIONS_MAX == 5
        await execution.execute(REGISTRATION, STREAM, discover(1_000))


async def test_side_by_side(carrier: Carrier, path: str) -> None:
    """Tasks that change different aggregates and logs at once get their own records, and no task waits for ever."""
    by_task: dict[int, list[Recorded]] = {}

    async def call(execution: Execution, number: int) -> None:
        stream = ids.registration_stream(HOST, "scope", "agents", f"skill{number}")
        decided = [*await execution.execute(REGISTRATION, stream, discover(number), PERSON, beside=[CALLED])]
        by_task[number] = [*decided, *await execution.record([CALLED], PERSON)]
        assert execution.entry(REGISTRATION, stream).version == 1

    async with carrier() as execution, trio.open_nursery() as tasks:
        for number in range(20):
            tasks.start_soon(call, execution, number)
    everything = sorted((record for own in by_task.values() for record in own), key=lambda record: record.position)
    assert everything == records(path)
    assert [record.position for record in everything] == list(range(1, 61))


async def test_one_aggregate_changed_by_many_at_once(carrier: Carrier, path: str) -> None:
    """Each of a few tasks has its event recorded, on top of the others' events, within its number of decisions."""
    async with carrier() as execution:
        async with trio.open_nursery() as tasks:
            for number in range(DECISIONS_MAX):
                tasks.start_soon(execution.execute, REGISTRATION, STREAM, discover(number))
        assert execution.entry(REGISTRATION, STREAM).version == DECISIONS_MAX
    assert [record.version for record in records(path)] == list(range(1, DECISIONS_MAX + 1))


# ---- what comes from a spool, and when ----


def file(name: str, happened: int = 77, run: str = "program") -> Spooled:
    """Return one file of a spool."""
    return Spooled(HOST, name, run, happened, frozenset({name}))


async def test_a_file_of_a_spool_is_recorded_once(carrier: Carrier, path: str, other: Journal) -> None:
    """The second decision on a file raises AlreadyRecorded, in the same process and with another process between."""
    async with carrier() as execution:
        await execution.execute(REGISTRATION, STREAM, discover(1), PERSON, spooled=file("f"))
        for stream in (STREAM, ids.registration_stream(HOST, "scope", "agents", "another")):
            with pytest.raises(AlreadyRecorded):
                await execution.execute(REGISTRATION, stream, discover(2), PERSON, spooled=file("f"))
        third = OpenedJournal(other, HOST)
        await third.execute(REGISTRATION, STREAM, discover(3), PERSON, spooled=file("g"))
        with pytest.raises(AlreadyRecorded):
            await execution.execute(REGISTRATION, STREAM, discover(4), PERSON, spooled=file("g"))
        assert len(records(path)) == 2


async def test_the_files_that_are_recorded_are_known(carrier: Carrier) -> None:
    """The recorded files of a host are known, so that their own effects are not taken for a fault of theirs."""
    async with carrier() as execution:
        assert execution.recorded_files(HOST) == frozenset()
        await execution.execute(REGISTRATION, STREAM, discover(1), PERSON, spooled=file("f"))
        assert execution.recorded_files(HOST) == {"f"}
        assert execution.recorded_files(HostId("host0002")) == frozenset()


async def test_two_files_of_one_name_at_once(carrier: Carrier, path: str) -> None:
    """The first of two files in one commit is recorded, the other raises AlreadyRecorded, and no other is harmed."""
    outcomes: list[str] = []

    async def call(execution: Execution, number: int, name: str) -> None:
        stream = ids.registration_stream(HOST, "scope", "agents", f"skill{number}")
        try:
            await execution.execute(REGISTRATION, stream, discover(1), PERSON, spooled=file(name))
        except AlreadyRecorded:
            outcomes.append("there already")
        else:
            outcomes.append(f"recorded {name}")

    async with carrier() as execution, trio.open_nursery() as tasks:
        for number, name in enumerate(("f", "f", "f", "g")):
            tasks.start_soon(call, execution, number, name)
    assert sorted(outcomes) == ["recorded f", "recorded g", "there already", "there already"]
    assert len(records(path)) == 2


async def test_recorded_time_never_runs_back(carrier: Carrier, path: str, other: Journal) -> None:
    """Recorded time does not run back, with the clock or for an earlier event, which keeps its own time beside it."""
    other.clock = lambda: 2_000_000_000 * 10**9  # a process whose clock is far ahead
    decide_now(other, REGISTRATION, STREAM, discover(1))
    async with carrier() as execution:
        recorded = [
            *await execution.execute(REGISTRATION, STREAM, discover(2), PERSON, spooled=file("f", 77)),
            *await execution.execute(REGISTRATION, STREAM, discover(3), PERSON),
        ]
        assert [(record.at, record.happened, record.moment, record.run) for record in recorded] == [
            (2_000_000_000 * 10**9, 77, 77, "program"),
            (2_000_000_000 * 10**9, None, 2_000_000_000 * 10**9, "run1"),
        ]
        assert records(path)[1:] == recorded
