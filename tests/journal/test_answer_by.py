"""Another way than Trio's for the journal's answers into the loop, as the facade has one: no answer overtakes another,
and none is lost when the way changes."""

from collections import deque
from collections.abc import Callable, Sequence

import pytest
import trio
from contract.journals import called, texts
from contract.live import Live

from omac.domain.kernel.event import Cause, Recorded
from omac.domain.kernel.refusal import Refusal
from omac.journal.application import Journal

CAUSE = Cause("agent", "conversation", 7)
TASKS, TURNS = 20, 30


class OtherWay:
    """A way into the loop that goes as far as `bring` lets it."""

    def __init__(self) -> None:
        self.waiting: deque[Callable[[], None]] = deque()

    def call_soon(self, happens: Callable[[], None]) -> None:
        self.waiting.append(happens)

    async def has_any(self) -> None:
        """Return when something waits to be brought."""
        with trio.fail_after(5):
            while not self.waiting:
                await trio.sleep(0.001)

    def bring(self) -> None:
        while self.waiting:
            self.waiting.popleft()()


@pytest.fixture
async def live(journal: Journal, nursery: trio.Nursery) -> Live:
    """Start a writer on an empty journal."""
    live = Live(journal)
    await nursery.start(live.run)
    return live


async def append(live: Live, word: str, answers: list[str | Refusal]) -> None:
    """Append an event, and add its text as it was recorded, or why it was not, to `answers`."""
    try:
        recorded = await live.writer.submit([called(word)], CAUSE)
    except Refusal as refusal:
        answers.append(refusal)
    else:
        answers += texts(recorded)


async def test_the_other_way_is_the_only_one(live: Live) -> None:
    """Answers come by the other way, and not before; then by Trio's again."""
    way, answers = OtherWay(), list[str | Refusal]()
    live.writer.answer_by(way.call_soon)
    async with trio.open_nursery() as tasks:
        tasks.start_soon(append, live, "one", answers)
        await way.has_any()
        await trio.sleep(0.02)
        assert (answers, live.delivered) == ([], [])
        way.bring()
        await trio.sleep(0.001)
        assert answers == ["one"]
        live.writer.answer_by(None)
        await append(live, "two", answers)
    assert not way.waiting
    live.assert_whole(2)


async def test_what_is_under_way_comes_when_the_way_ends(live: Live) -> None:
    """Answers that the other way has not brought come at once when it ends, and nothing comes twice."""
    way, answers = OtherWay(), list[str | Refusal]()
    live.writer.answer_by(way.call_soon)
    async with trio.open_nursery() as tasks:
        tasks.start_soon(append, live, "one", answers)
        await way.has_any()
        live.writer.answer_by(None)
        live.assert_whole(1)
    way.bring()
    live.assert_whole(1)
    assert answers == ["one"]


async def test_the_way_changes_under_load(live: Live, journal: Journal) -> None:
    """While tasks append, the way changes again and again: each gets its own records, folded in their order."""
    way = OtherWay()
    is_over = False

    async def append_all(task: int) -> None:
        answers = list[str | Refusal]()
        for turn in range(TURNS):
            await append(live, f"{task}/{turn}", answers)
            assert answers[-1] == f"{task}/{turn}"

    async def change() -> None:
        while not is_over:
            live.writer.answer_by(way.call_soon)
            for _ in range(3):
                await trio.sleep(0.001)
                way.bring()
            live.writer.answer_by(None)
            await trio.sleep(0.002)

    async with trio.open_nursery() as changing:
        changing.start_soon(change)
        with trio.fail_after(30):
            async with trio.open_nursery() as tasks:
                for task in range(TASKS):
                    tasks.start_soon(append_all, task)
        is_over = True
    live.assert_whole(TASKS * TURNS)


async def test_an_end_overtakes_no_answer(live: Live) -> None:
    """A writer that ends gives the answers that are under way, by whichever way, before it refuses the others."""
    way, answers = OtherWay(), list[str | Refusal]()
    live.writer.answer_by(way.call_soon)
    async with trio.open_nursery() as tasks:
        tasks.start_soon(append, live, "one", answers)
        await way.has_any()
        live.stop()
        with trio.fail_after(5):
            await live.ended.wait()
    assert answers == ["one"]
    assert live.error is None
    live.assert_whole(1)


async def test_a_fault_in_an_answer_ends_the_writer(live: Live) -> None:
    """A fault of whoever is called with an answer ends omac's writing, by either way, instead of being lost."""
    way = OtherWay()
    live.writer.answer_by(way.call_soon)

    def answered(_answer: Sequence[Recorded] | Exception) -> None:
        raise ValueError("wrong")

    live.writer.submit_then([called("one")], CAUSE, answered)
    await way.has_any()
    way.bring()
    with trio.fail_after(5):
        await live.ended.wait()
    assert isinstance(live.error, ValueError)


async def test_faults_of_many_leave_nobody_waiting(live: Live) -> None:
    """A task that waits gets its answer, though all fail who are called with theirs."""
    way, answers = OtherWay(), list[str | Refusal]()
    live.writer.answer_by(way.call_soon)

    def answered(_answer: Sequence[Recorded] | Exception) -> None:
        raise ValueError("wrong")

    with trio.fail_after(5):
        async with trio.open_nursery() as tasks:
            for number in range(20):
                live.writer.submit_then([called(str(number))], CAUSE, answered)
            tasks.start_soon(append, live, "task", answers)
            await way.has_any()
            way.bring()
    await live.ended.wait()
    assert isinstance(live.error, ValueError)
    (answer,) = answers
    assert isinstance(answer, Refusal)
    assert answer.reason == "journal-unavailable"
