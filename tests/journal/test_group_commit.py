"""The writer: many tasks, one transaction, one order, and no task left waiting."""

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast
from unittest import mock

import pytest
import trio
import trio.testing
from contract.journals import (
    LOG,
    admitted,
    called,
    commit_now,
    commits_of,
    journal_at,
    lock,
    run_python,
    sqlite_recorder,
    texts,
)
from contract.live import Live
from contract.media import needs_bubblewrap, small_disk
from contract.recorder import assert_whole, group, insert, log
from polling import until

from omac.domain.access.access import AccessAborted, access_ids, ends_together
from omac.domain.kernel import ids
from omac.domain.kernel.event import Cause, Draft, Recorded
from omac.domain.kernel.ids import HostId
from omac.domain.kernel.refusal import Refusal
from omac.journal import commit_thread, group_commit
from omac.journal.application import CommitGroup, Journal
from omac.journal.judgement import Conflict

CAUSE = Cause("agent", "conversation", 7)


@pytest.fixture
async def live(journal: Journal, nursery: trio.Nursery) -> Live:
    """Start a writer on an empty journal, which takes call batches already."""
    journal.store.take_batches()
    return await start(nursery, journal)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the writer give up on a locked store, and try again, after moments. Must come before `journal`."""
    monkeypatch.setattr("omac.journal.store.BUSY_MS", 20)
    monkeypatch.setattr("omac.journal.commit_thread.RETRY_S", 0.05)


async def start(
    nursery: trio.Nursery, journal: Journal, seen: int = 0, fold: Callable[..., None] | None = None
) -> Live:
    """Start a writer in the nursery."""
    live = Live(journal, seen, fold)
    await nursery.start(live.run)
    return live


class Callers:
    """Tasks that append one draft each; their outcomes are kept by the draft's text or stream."""

    def __init__(self, live: Live) -> None:
        self.live = live
        self.answers: dict[str, Sequence[Recorded] | BaseException] = {}

    async def append(self, name: str, *drafts: Draft) -> None:
        """Append and keep the outcome."""
        try:
            self.answers[name] = await self.live.writer.submit(drafts or (called(name),), CAUSE)
        except (Refusal, Conflict) as error:
            self.answers[name] = error

    def recorded(self, name: str) -> Sequence[Recorded]:
        """Return the records of a caller that was not refused."""
        answer = self.answers[name]
        assert not isinstance(answer, BaseException)
        return answer

    def reasons(self) -> list[str]:
        """Return the reasons of the callers that were refused."""
        return [answer.reason for answer in self.answers.values() if isinstance(answer, Refusal)]


def append_elsewhere(path: Path, *bodies: bytes, kind: str = "control.called") -> None:
    """Commit events of a log with another recorder."""
    recorder = sqlite_recorder(str(path))
    insert(recorder, [group(log(LOG, *bodies, kind=kind))])
    recorder.close()


BODY = b"\x01\x93\xa8activate\xa5other\xa6socket"


# ---- the order of things ----


async def test_every_task_gets_its_own_positions(live: Live, journal: Journal) -> None:
    """Each of many concurrent tasks gets the records of its own events, and all of them are gapless."""
    by_task: dict[int, list[Recorded]] = {}

    async def append(number: int) -> None:
        own = by_task[number] = []
        for turn in range(5):
            words = [f"{number}/{turn}/{n}" for n in range(number % 3 + 1)]
            recorded = await live.writer.submit([called(word) for word in words], CAUSE)
            assert texts(recorded) == words
            assert live.positions[-1] >= recorded[-1].position, "folded before the task goes on"
            own += recorded

    async with trio.open_nursery() as tasks:
        for number in range(100):
            tasks.start_soon(append, number)
    everyone = sorted((record for own in by_task.values() for record in own), key=lambda recorded: recorded.position)
    live.assert_whole(len(everyone))
    assert live.delivered == everyone == list(journal.records())


async def test_an_appender_gets_what_is_stored(live: Live, journal: Journal) -> None:
    """An appender gets what a reader will read: time, run, actor, correlation and causation."""
    (recorded,) = await live.writer.submit([admitted("a", 1)], CAUSE)
    expected = (1, "a", 1, recorded.at, "run-1", "agent", "conversation", 7)
    assert expected == (
        recorded.position, recorded.stream, recorded.version, recorded.at, recorded.run, recorded.actor,
        recorded.correlation, recorded.causation,
    )  # fmt: skip
    assert list(journal.records()) == [recorded]


async def test_events_that_wait_together_are_committed_together(live: Live, journal: Journal, path: Path) -> None:
    """Events that are queued while a commit is under way become one transaction and one wake-up."""
    commits = commits_of(journal.store)
    holder = lock(path)
    callers = Callers(live)
    async with trio.open_nursery() as tasks:
        for number in range(500):
            tasks.start_soon(callers.append, str(number))
        await trio.testing.wait_all_tasks_blocked()
        assert callers.answers == {}
        holder.close()
    live.assert_whole(500)
    assert len(commits) <= 3
    assert live.batches == len(commits)


async def test_fewer_transactions_than_appends(live: Live, journal: Journal) -> None:
    """Events that many tasks append in one pass of the loop are one transaction, with no delay to collect them."""
    commits = commits_of(journal.store)

    async def append(number: int) -> None:
        for turn in range(10):
            await live.writer.submit([called(f"{number}/{turn}")], CAUSE)

    async with trio.open_nursery() as tasks:
        for number in range(64):
            tasks.start_soon(append, number)
    live.assert_whole(640)
    assert len(commits) == 10


async def test_a_batch_has_a_bound(live: Live, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More callers than a transaction may hold are committed in several transactions, in the order they came."""
    monkeypatch.setattr(commit_thread, "BATCH_MAX", 3)
    holder = lock(path)
    for number in range(20):
        live.writer.submit_soon([called(str(number))], CAUSE)
    holder.close()
    await live.writer.catch_up()
    assert texts(live.delivered) == [str(number) for number in range(20)]
    assert live.batches >= 6


async def test_an_append_of_nothing(live: Live) -> None:
    """An append without events returns no records and uses no position."""
    assert await live.writer.submit([], CAUSE) == ()
    live.writer.submit_soon([], CAUSE)
    await live.writer.submit([called("x")], CAUSE)
    live.assert_whole(1)


async def test_an_event_that_cannot_be_encoded_is_refused_to_its_caller_only(live: Live) -> None:
    """An event that could not be read again is refused to its caller; the writer goes on for all others."""
    for draft in (Draft(LOG, None, CAUSE), called("\udcff"), called(cast(str, 7))):  # 7 is no text
        with pytest.raises(Refusal, match="cannot be recorded") as refused:
            await live.writer.submit([called("beside"), draft], CAUSE)
        assert refused.value.reason == "unfoldable"
        with pytest.raises(Refusal, match="cannot be recorded"):
            live.writer.submit_soon([draft], CAUSE)
    await live.writer.submit([called("x")], CAUSE)
    live.assert_whole(1)


async def test_a_writer_begins_at_its_position(journal: Journal, path: Path, nursery: trio.Nursery) -> None:
    """A writer delivers the events above the position it was given, and only those."""
    append_elsewhere(path, BODY, BODY, BODY)
    live = await start(nursery, journal, seen=2)
    await live.writer.submit([called("x")], CAUSE)
    assert live.positions == [3, 4]


# ---- conflicts ----


async def test_only_the_loser_gets_a_conflict(live: Live, path: Path) -> None:
    """Tasks that want one version in one transaction conflict, all but one; tasks that want something else get that."""
    holder = lock(path)
    callers = Callers(live)
    async with trio.open_nursery() as tasks:
        for number in range(3):
            tasks.start_soon(callers.append, f"same/{number}", admitted("a", 1, str(number)), called(f"same/{number}"))
            tasks.start_soon(callers.append, f"else/{number}", admitted(f"b/{number}", 1))
            tasks.start_soon(callers.append, f"log/{number}")
        await trio.testing.wait_all_tasks_blocked()
        holder.close()
    lost = [name for name, answer in callers.answers.items() if isinstance(answer, Conflict)]
    assert len(lost) == 2
    assert all(name.startswith("same/") for name in lost)
    live.assert_whole(2 + 3 + 3)


async def test_a_conflict_with_another_process(live: Live, path: Path) -> None:
    """A version that another process took is a conflict; after catching up, the other's event is there to decide on."""
    second = journal_at(path, "run-2")
    commit_now(second, [admitted("a", 1, "theirs")], CAUSE)
    second.close()
    with pytest.raises(Conflict):
        await live.writer.submit([admitted("a", 1, "ours")], CAUSE)
    await live.writer.catch_up()
    assert [(recorded.version, recorded.event.session) for recorded in live.delivered] == [(1, "theirs")]
    await live.writer.submit([admitted("a", 2, "ours")], CAUSE)
    live.assert_whole(2)


# ---- other processes ----

APPEND = """
    import sys, time
    from contract.journals import called, sqlite_recorder
    from contract.recorder import group, insert, log
    recorder = sqlite_recorder(sys.argv[1])
    for _ in range(int(sys.argv[2])):
        insert(recorder, [group(log("control/test", bytes.fromhex(sys.argv[3]), kind="control.called"))])
    print(time.monotonic())
    recorder.close()
"""


async def append_in_a_process(path: Path, times: int) -> float:
    """Commit `times` events one by one in another process; return when the last commit was done (monotonic)."""
    done = await trio.to_thread.run_sync(partial(run_python, APPEND, str(path), str(times), BODY.hex()))
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


async def test_noticed_at_once_when_idle(live: Live, path: Path, record_property: Callable[..., None]) -> None:
    """The writer folds another process's commit within moments, although no task here appends."""
    arrived: list[float] = []

    async def watch() -> None:
        await until(lambda: len(live.delivered) == 1)
        arrived.append(time.monotonic())

    async with trio.open_nursery() as tasks:
        tasks.start_soon(watch)
        committed = await append_in_a_process(path, 1)
    record_property("noticed_ms", round(1000 * (arrived[0] - committed), 1))
    assert arrived[0] - committed < 0.5
    assert live.delivered[0].event.dir == "other"


async def test_in_order_when_both_are_busy(live: Live, path: Path, journal: Journal) -> None:
    """The writer folds everything once, in one order, while another process and many tasks append at the same time."""
    finished = trio.Event()
    appended = 0

    async def append() -> None:
        nonlocal appended
        while not finished.is_set():
            await live.writer.submit([called("mine")], CAUSE)
            appended += 1

    async with trio.open_nursery() as tasks:
        for _ in range(8):
            tasks.start_soon(append)
        try:
            await append_in_a_process(path, 200)
        finally:
            finished.set()
    await live.writer.catch_up()
    live.assert_whole(200 + appended)
    assert live.delivered == list(journal.records())
    assert texts(live.delivered).count("other") == 200


async def test_catch_up(live: Live, path: Path) -> None:
    """A call to catch up folds everything committed before it; without news it just returns."""
    await live.writer.catch_up()
    for count in range(1, 6):
        append_elsewhere(path, BODY)
        await live.writer.catch_up()
        live.assert_whole(count)


async def test_catch_up_beside_appends(live: Live, path: Path) -> None:
    """A call to catch up in one batch with appends still delivers everything once."""
    holder = lock(path)
    callers = Callers(live)
    async with trio.open_nursery() as tasks:
        for number in range(10):
            tasks.start_soon(callers.append, str(number))
            tasks.start_soon(live.writer.catch_up)
        await trio.testing.wait_all_tasks_blocked()
        holder.close()
    live.assert_whole(10)


# ---- a store that cannot be written ----


@pytest.mark.usefixtures("impatient")
async def test_outcomes_are_kept_until_they_can_be_written(live: Live, journal: Journal, path: Path) -> None:
    """A locked store refuses awaited appends; those that no task awaits are written later, once and in order."""
    holder = lock(path)
    live.writer.submit_soon([called("one"), called("two")], CAUSE)
    with pytest.raises(Refusal) as refused:
        await live.writer.submit([called("asked")], CAUSE)
    assert refused.value.reason == "journal-unavailable"
    assert "locked" in refused.value.message
    live.writer.submit_soon([called("three")], CAUSE)
    with pytest.raises(Refusal):
        await live.writer.submit([called("asked again")], CAUSE)
    assert live.delivered == []
    holder.close()
    await until(lambda: len(live.delivered) >= 3)
    await live.writer.submit([called("four")], CAUSE)
    assert texts(live.delivered) == ["one", "two", "three", "four"]
    assert texts(list(journal.records())) == ["one", "two", "three", "four"]
    live.stop()
    await live.ended.wait()
    assert live.error is None


FULL = """
    import json, os, sys
    from itertools import count
    import trio
    from contract.journals import called
    from contract.live import Live
    from polling import until
    from omac.domain.kernel.event import Cause
    from omac.domain.kernel.refusal import Refusal
    from omac.journal import commit_thread
    from omac.journal.opening import open_journal

    folder = sys.argv[1]
    commit_thread.CHECKPOINT_EVENTS, commit_thread.RETRY_S = 5, 0.05
    result = {"refused": []}
    failures = []
    commit_thread.ProblemLog.met = lambda _, problem: failures.append(problem)  # what is met, be it logged or not

    async def main():
        journal = open_journal(folder + "/journal.db", "run", count(1).__next__)
        live = Live(journal)
        async with trio.open_nursery() as nursery:
            await nursery.start(live.run)
            await live.writer.submit([called("first")], Cause("agent"))
            with open(folder + "/ballast", "wb", buffering=0) as file:
                free = os.statvfs(folder)
                file.write(bytes(free.f_bavail * free.f_frsize - 60_000))
            written = 1
            for size in (3_000, 1):  # what a refused commit had of the log has room for a smaller one
                while len(result["refused"]) < (1 if size > 1 else 2):
                    try:
                        await live.writer.submit([called("x" * size)], Cause("agent"))
                        written += 1
                    except Refusal as refusal:
                        result["refused"].append([refusal.reason, refusal.message])
            live.writer.submit_soon([called("soon")], Cause("agent"))
            for _ in range(5):
                tries = len(failures)
                await until(lambda: len(failures) > tries)
                await live.writer.catch_up()
            result["alive while full"] = not live.ended.is_set()
            result["error"] = repr(live.error)
            os.unlink(folder + "/ballast")
            await until(lambda: live.delivered[-1].event.dir == "soon")
            (last,) = await live.writer.submit([called("last")], Cause("agent"))
            result["whole"] = live.positions == list(range(1, written + 3))
            result["last"] = last.position == written + 2
            live.stop()
        journal.close()

    trio.run(main)
    print(json.dumps(result))
"""


@needs_bubblewrap
@pytest.mark.full
def test_a_full_disk_does_not_end_it(tmp_path: Path) -> None:
    """A writer on a full disk refuses appends and keeps outcomes, and writes these when there is space."""
    done = run_python(FULL, str(tmp_path), wrap=small_disk(tmp_path, 1_000_000))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["alive while full"], report["error"]
    reason, message = report["refused"][0]
    assert reason == "journal-unavailable"
    assert "full" in message
    assert report["whole"]
    assert report["last"]


# ---- a store that cannot be read ----


class Unreadable:
    """A journal whose reads fail, as on a disk that does not answer, until `repair`; commits succeed."""

    def __init__(self, journal: Journal) -> None:
        self.failed = 0
        self._fault = mock.patch.object(journal.store.reader, "select", self._fail)
        self._fault.start()

    def repair(self) -> None:
        """Let the journal be read again."""
        self._fault.stop()

    def _fail(self, *_: object, **__: object) -> Sequence[object]:
        self.failed += 1
        raise Refusal("journal-unavailable", "disk I/O error")


@pytest.mark.usefixtures("impatient")
async def test_a_read_that_fails_after_the_commit(
    live: Live, journal: Journal, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A committed event is never reported as refused: its caller waits until the events before it can be read. That is
    logged once, whatever is committed meanwhile."""
    unreadable, callers = Unreadable(journal), Callers(live)
    append_elsewhere(path, BODY)
    async with trio.open_nursery() as tasks:
        tasks.start_soon(callers.append, "one")
        await until(lambda: journal.store.head() == 2)
        tasks.start_soon(callers.append, "two")
        await until(lambda: journal.store.head() == 3)
        failed = unreadable.failed
        await until(lambda: unreadable.failed > failed)
        with pytest.raises(Refusal, match="cannot be read right now"):
            await live.writer.catch_up()
        assert (callers.answers, live.delivered) == ({}, [])
        unreadable.repair()
    assert caplog.text.count("cannot be read yet") == 1
    assert {name: texts(callers.recorded(name)) for name in callers.answers} == {"one": ["one"], "two": ["two"]}
    assert texts(live.delivered) == ["other", "one", "two"]
    live.assert_whole(3)
    await live.writer.submit([called("three")], CAUSE)
    assert live.delivered == list(journal.records())
    live.stop()
    await live.ended.wait()
    assert live.error is None


@pytest.mark.usefixtures("impatient")
async def test_news_that_could_not_be_read_are_not_forgotten(
    live: Live, journal: Journal, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A commit of another process that could not be read is folded by itself once the store can be read again. Each
    time that it cannot is logged once, though nothing is committed here in between."""

    async def append_unread(times: int) -> None:
        unreadable = Unreadable(journal)
        append_elsewhere(path, BODY)
        await until(lambda: unreadable.failed >= 2)
        unreadable.repair()
        await until(lambda: len(live.delivered) == times)
        assert caplog.text.count("disk I/O error") == times

    await append_unread(1)
    await append_unread(2)
    live.stop()
    await live.ended.wait()
    assert live.error is None


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("repaired", [True, False])
async def test_committed_but_not_delivered_when_it_ends(
    live: Live, journal: Journal, path: Path, repaired: bool
) -> None:
    """A stopping writer reads a commit once more. If that fails, too, its caller learns that it may be recorded, not
    that it is not."""
    unreadable, callers = Unreadable(journal), Callers(live)
    append_elsewhere(path, BODY)
    async with trio.open_nursery() as tasks:
        tasks.start_soon(callers.append, "one")
        await until(lambda: journal.store.head() == 2)
        if repaired:
            unreadable.repair()
        live.stop()
    await live.ended.wait()
    answer = callers.answers["one"]
    if repaired:
        live.assert_whole(2)
        assert texts(callers.recorded("one")) == ["one"]
    else:
        assert isinstance(answer, Refusal)
        assert "the journal shows whether this was recorded" in answer.message
        unreadable.repair()
    assert texts(list(journal.records())) == ["other", "one"]


# ---- cancellation and backpressure ----


async def test_a_caller_that_may_go_gets_its_records_late(live: Live, path: Path) -> None:
    """A cancelled wait with `late` ends at once; records that become durable later are passed to `late`, and folded."""
    late: list[Sequence[Recorded]] = []
    holder = lock(path)
    with trio.move_on_after(0.01) as scope:
        await live.writer.submit([called("x"), called("y")], CAUSE, late=late.append)
    assert scope.cancelled_caught
    assert late == []
    holder.close()
    await live.writer.catch_up()
    assert [texts(records) for records in late] == [["x", "y"]]
    live.assert_whole(2)


async def test_a_caller_that_waits_is_not_answered_twice(live: Live) -> None:
    """A caller that waited for its records does not get them by `late`, too."""
    late: list[Sequence[Recorded]] = []
    (recorded,) = await live.writer.submit([called("x")], CAUSE, late=late.append)
    await live.writer.catch_up()
    assert (recorded.position, late) == (1, [])


@pytest.mark.usefixtures("impatient")
async def test_a_caller_that_went_away_hears_nothing_of_a_refusal(live: Live, path: Path) -> None:
    """A refused append does not call the `late` of a caller that went away, and the writer goes on."""
    late: list[Sequence[Recorded]] = []
    holder = lock(path)
    with trio.CancelScope() as scope:
        scope.cancel()
        await live.writer.submit([called("x")], CAUSE, late=late.append)
    with pytest.raises(Refusal):
        await live.writer.submit([called("asked")], CAUSE)
    holder.close()
    await live.writer.submit([called("y")], CAUSE)
    assert late == []
    live.assert_whole(1)
    live.stop()
    await live.ended.wait()


async def test_cancelled_before_it_asks(live: Live) -> None:
    """A task whose scope is cancelled already still gets its records: nothing is appended unknown to it."""
    with trio.CancelScope() as scope:
        scope.cancel()
        (recorded,) = await live.writer.submit([called("x")], CAUSE)
    assert recorded.position == 1
    assert not scope.cancelled_caught


async def test_cancelled_while_it_waits(live: Live, path: Path) -> None:
    """A task that is cancelled half-way gets its outcome all the same, and is cancelled at the next checkpoint."""
    holder, records = lock(path), list[Recorded]()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as tasks:

            async def append() -> None:
                records.extend(await live.writer.submit([called("x")], CAUSE))
                await trio.sleep_forever()

            tasks.start_soon(append)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
            holder.close()
    assert scope.cancelled_caught
    assert [recorded.position for recorded in records] == [1]


async def test_too_many_are_refused(live: Live, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer takes callers up to a bound; others are refused at once, and may append again later."""
    monkeypatch.setattr(group_commit, "QUEUE_MAX", 4)
    holder = lock(path)
    callers = Callers(live)
    async with trio.open_nursery() as tasks:
        for number in range(50):
            tasks.start_soon(callers.append, str(number))
        await trio.testing.wait_all_tasks_blocked()
        assert len(live.writer._unanswered) == 4
        assert callers.reasons() == ["journal-unavailable"] * 46
        with pytest.raises(Refusal, match="4 records wait for the journal"):
            await live.writer.catch_up()
        holder.close()
    live.assert_whole(4)
    accepted = {name for name, answer in callers.answers.items() if not isinstance(answer, Refusal)}
    assert set(texts(live.delivered)) == accepted
    for number in range(10):
        await live.writer.submit([called(str(number))], CAUSE)
    live.assert_whole(14)


# ---- what is gathered elsewhere ----


async def test_gathered_just_before_a_commit(live: Live, journal: Journal) -> None:
    """A gatherer submits once, when the loop has nothing left to run, and in time for that commit."""
    answers: list[Sequence[Recorded] | Exception] = []
    gathered: list[str] = []

    def submit() -> None:
        live.writer.submit_then([called("+".join(gathered))], CAUSE, answers.append)

    live.writer.gather(submit, is_awaited=True)
    gathered += ["a", "b"]
    callers = Callers(live)
    await callers.append("asked")
    await until(lambda: bool(answers))
    assert texts(list(journal.records())) == ["asked", "a+b"]
    assert live.batches == 1


async def test_gathered_and_not_awaited(live: Live, journal: Journal) -> None:
    """A gatherer for which nobody waits submits as soon as the loop has nothing else to do, so that nobody waits for
    that later; it is written soon, without a commit that somebody waits for."""
    submitted: list[str] = []

    def submit() -> None:
        submitted.append("soon")
        live.writer.submit_soon([called("soon")], CAUSE)

    live.writer.gather(submit, is_awaited=False)
    await trio.testing.wait_all_tasks_blocked()
    assert (submitted, texts(list(journal.records()))) == (["soon"], [])
    await until(lambda: texts(list(journal.records())) == ["soon"])


async def test_gathered_before_it_ends(live: Live, journal: Journal) -> None:
    """A gatherer submits before the writer ends, and what it submits is written; one that comes later does so at once,
    to be refused."""
    live.writer.gather(lambda: live.writer.submit_soon([called("last")], CAUSE), is_awaited=False)
    live.stop()
    await live.ended.wait()
    assert texts(list(journal.records())) == ["last"]
    submitted: list[str] = []
    live.writer.gather(lambda: submitted.append("late"), is_awaited=True)
    assert submitted == ["late"]


# ---- the end ----


async def test_what_is_queued_is_written_before_it_ends(live: Live, path: Path, journal: Journal) -> None:
    """A stopping writer takes no new callers, writes all that is queued, awaited or not, and then ends."""
    holder = lock(path)
    callers = Callers(live)
    async with trio.open_nursery() as tasks:
        for number in range(50):
            tasks.start_soon(callers.append, str(number))
        await trio.testing.wait_all_tasks_blocked()
        live.writer.submit_soon([called("soon")], CAUSE)
        live.stop()
        await trio.testing.wait_all_tasks_blocked()
        assert not live.ended.is_set()
        with pytest.raises(Refusal) as refused:
            await live.writer.submit([called("late")], CAUSE)
        assert refused.value.reason == "stopping"
        holder.close()
    await live.ended.wait()
    assert live.error is None
    assert callers.reasons() == []
    live.assert_whole(51)
    assert_whole(journal.store, 51)
    for call in (partial(live.writer.submit, [called("late")], CAUSE), live.writer.catch_up):
        with pytest.raises(Refusal) as refused:
            await call()
        assert refused.value.reason == "stopping"


@pytest.mark.usefixtures("impatient")
async def test_a_last_try_before_it_ends(
    live: Live, journal: Journal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outcomes that could not be written are tried once more at the end, however soon after the last try."""
    monkeypatch.setattr("omac.journal.commit_thread.RETRY_S", 60)
    holder = lock(path)
    live.writer.submit_soon([called("soon")], CAUSE)
    await until(lambda: bool(live.writer._thread._owed))
    holder.close()
    live.stop()
    await live.ended.wait()
    assert texts(list(journal.records())) == ["soon"]
    live.assert_whole(1)


@pytest.mark.usefixtures("impatient")
async def test_missing_outcomes_are_logged(
    live: Live, journal: Journal, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A writer whose store stays locked to the end stops, and logs how many outcomes are missing."""
    holder = lock(path)
    live.writer.submit_soon([called("soon")], CAUSE)
    live.stop()
    await live.ended.wait()
    live.writer.submit_soon([called("late"), called("later")], CAUSE)
    holder.close()
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert [line for line in errors if line.startswith("1 outcome could not be recorded")]
    assert [line for line in errors if line.startswith("2 outcomes came too late")]
    assert_whole(journal.store, 0)


@pytest.mark.usefixtures("impatient")
async def test_missing_outcomes_that_share_a_record_are_counted_one_by_one(
    live: Live, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log counts the outcomes of calls, however many of them one record would have held."""
    ended = ends_together([(access, AccessAborted(1, "stopping")) for access in access_ids(1, 7)], 5)
    whole, rest = (Draft(ids.access_stream(HostId("h")), None, event) for event in ended)
    holder = lock(path)
    live.writer.submit_soon([whole], CAUSE)
    live.stop()
    await live.ended.wait()
    live.writer.submit_soon([whole, rest], CAUSE)
    holder.close()
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert [line for line in errors if line.startswith("5 outcomes could not be recorded")]
    assert [line for line in errors if line.startswith("7 outcomes came too late")]


async def test_a_stuck_store_does_not_block_callers(
    live: Live, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The writer stops within a bound: callers that still wait are refused, although the store has not answered."""
    monkeypatch.setattr(group_commit, "STOP_S", 0.05)
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "omac-journal"]
    holder = lock(path)
    callers = Callers(live)
    with trio.fail_after(4):  # the store gives up after five seconds
        async with trio.open_nursery() as tasks:
            tasks.start_soon(callers.append, "x")
            await trio.testing.wait_all_tasks_blocked()
            live.stop()
        await live.ended.wait()
    assert callers.reasons() == ["journal-unavailable"]
    assert live.error is None
    assert "did not take the last records" in caplog.text
    holder.close()
    await trio.to_thread.run_sync(thread.join)
    assert live.delivered == []


@pytest.mark.usefixtures("impatient")
async def test_why_a_store_stalls(live: Live, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that is refused because omac ends gets the reason for which the store took nothing, where it gave one
    the last time."""
    commit, goes_on, callers = Journal.commit, threading.Event(), Callers(live)

    def stalling(journal: Journal, groups: Sequence[CommitGroup]) -> Any:
        goes_on.wait()
        return commit(journal, groups)

    async def append_while_stalled(name: str) -> None:
        goes_on.clear()
        async with trio.open_nursery() as tasks:
            tasks.start_soon(callers.append, name)
            await trio.testing.wait_all_tasks_blocked()
            live.writer.refuse_waiting(-1.0)
        goes_on.set()

    monkeypatch.setattr(Journal, "commit", stalling)
    await append_while_stalled("stalls")
    holder = lock(path)
    await callers.append("locked")
    await append_while_stalled("locked, and stalls")
    holder.close()
    await callers.append("free")
    await append_while_stalled("stalls again")
    assert callers.reasons() == ["stopping", "journal-unavailable", "journal-unavailable", "stopping"]
    assert "locked by another program" in str(callers.answers["locked, and stalls"])


async def test_what_is_gathered_when_a_fold_fails_is_refused(
    journal: Journal, path: Path, nursery: trio.Nursery
) -> None:
    """A writer that fails submits what is gathered, so that those who wait hear that it is refused."""

    def fail(_: Sequence[Recorded]) -> None:
        live.writer.gather(submit, is_awaited=True)
        raise ValueError("a fold")

    def submit() -> None:
        with pytest.raises(Refusal) as refused:
            live.writer.submit_then([called("late")], CAUSE, lambda _: None)
        reasons.append(refused.value.reason)

    reasons: list[str] = []
    live = await start(nursery, journal, fold=fail)
    with pytest.raises(Refusal):
        await live.writer.submit([called("a")], CAUSE)
    await live.ended.wait()
    assert reasons == ["stopping"]
    assert isinstance(live.error, ValueError)


async def test_a_gatherer_that_fails_ends_everything(live: Live) -> None:
    """A gatherer that fails ends the writer, and leaves nobody waiting."""

    def fail() -> None:
        raise ValueError("a gatherer")

    live.writer.gather(fail, is_awaited=False)
    with pytest.raises(Refusal) as refused:
        await live.writer.submit([called("a")], CAUSE)
    assert refused.value.reason in ("journal-unavailable", "stopping")
    await live.ended.wait()
    assert isinstance(live.error, ValueError)


async def test_a_fold_that_fails_ends_everything(journal: Journal, path: Path, nursery: trio.Nursery) -> None:
    """An error in a fold comes out of run(); no task is left waiting, and nothing is folded on top of it."""
    folded: list[int] = []

    def fold(records: Sequence[Recorded]) -> None:
        folded.extend(recorded.position for recorded in records)
        if any(recorded.event.dir == "poison" for recorded in records):
            raise ZeroDivisionError

    live = await start(nursery, journal, 0, fold)
    await live.writer.submit([called("fine")], CAUSE)
    callers = Callers(live)
    with trio.fail_after(10):
        async with trio.open_nursery() as tasks:
            for number in range(30):
                tasks.start_soon(callers.append, "poison" if number == 3 else str(number))
                tasks.start_soon(trio.lowlevel.checkpoint)
        await live.ended.wait()
    assert isinstance(live.error, ZeroDivisionError)
    assert len(callers.answers) == 30
    assert isinstance(callers.answers["poison"], Refusal)
    assert set(callers.reasons()) <= {"journal-unavailable", "stopping"}
    assert len(folded) == len(set(folded)), "nothing is folded twice"
    assert live.positions == folded[: len(live.positions)]
    poisoned = next(recorded.position for recorded in journal.records() if recorded.event.dir == "poison")
    after = [position for position in folded if position > poisoned]
    await trio.testing.wait_all_tasks_blocked()
    assert after == [position for position in folded if position > poisoned]


async def test_nothing_is_folded_after_a_fold_failed(journal: Journal, path: Path, nursery: trio.Nursery) -> None:
    """Batches that were committed behind the one that could not be folded are not given to the projections."""
    batches: list[list[str]] = []

    def fold(records: Sequence[Recorded]) -> None:
        batches.append(texts(records))
        failing.writer.submit_soon([called("behind")], CAUSE)  # committed while this error is on its way
        raise ZeroDivisionError

    failing = await start(nursery, journal, 0, fold)
    with pytest.raises(Refusal):
        await failing.writer.submit([called("poison")], CAUSE)
    await failing.ended.wait()
    await trio.testing.wait_all_tasks_blocked()
    assert batches == [["poison"]]
    assert isinstance(failing.error, ZeroDivisionError)


async def test_an_event_of_a_later_omac_ends_it_when_idle(live: Live, path: Path) -> None:
    """An event that cannot be understood ends the writer, with its position and the reason `journal-newer`."""
    await live.writer.submit([called("x")], CAUSE)
    append_elsewhere(path, b"\x01\x90", kind="thing.invented")
    with trio.fail_after(10):
        await live.ended.wait()
    assert isinstance(live.error, Refusal)
    assert live.error.reason == "journal-newer"
    assert "at position 2" in live.error.message
    live.assert_whole(1)


@pytest.mark.parametrize("queue_max", [3, 100])
async def test_an_event_of_a_later_omac_leaves_no_caller_waiting(
    live: Live, path: Path, monkeypatch: pytest.MonkeyPatch, queue_max: int
) -> None:
    """A writer that has to end in the middle of its work refuses all callers, also those that wait for a turn."""
    monkeypatch.setattr(group_commit, "QUEUE_MAX", queue_max)
    holder = lock(path)
    callers = Callers(live)
    with trio.fail_after(10):
        async with trio.open_nursery() as tasks:
            for number in range(20):
                tasks.start_soon(callers.append, str(number))
                tasks.start_soon(callers.append, f"aggregate/{number}", admitted(f"a/{number}", 1))
            await trio.testing.wait_all_tasks_blocked()
            id_ = holder.execute("INSERT INTO name(text) VALUES ('thing.invented') RETURNING id").fetchone()[0]
            holder.execute(
                "INSERT INTO event(position, stream, kind, at, run, actor, body) VALUES (1, ?, ?, 0, ?, ?, x'0190')",
                (id_, id_, id_, id_),
            )
            holder.execute("UPDATE head SET position = 1")
            holder.execute("COMMIT")
            holder.close()
        await live.ended.wait()
    assert len(callers.answers) == 40
    assert len(callers.reasons()) == 40
    assert isinstance(live.error, Refusal)
    assert live.error.reason == "journal-newer"


async def test_a_damaged_row_ends_it(live: Live, path: Path) -> None:
    """A row that cannot be decoded ends the writer as well: its state would be a guess."""
    append_elsewhere(path, b"\xc1")
    with trio.fail_after(10):
        await live.ended.wait()
    assert isinstance(live.error, Refusal)
    assert live.error.reason == "journal-damaged"


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM event WHERE position = 2",
        "DELETE FROM event WHERE position = 3",
        "UPDATE head SET position = 9",
        "UPDATE head SET position = 0",
    ],
)
async def test_a_gap_in_what_others_committed_ends_it(live: Live, path: Path, change: str) -> None:
    """A missing row among newly read ones, or a head that is not at the last row, is damage and ends the writer."""
    await live.writer.submit([called("x")], CAUSE)
    holder = lock(path)  # what follows is one commit to the feed
    for position in (2, 3):
        holder.execute(
            "INSERT INTO event (position, stream, kind, at, run, actor, body) "
            "SELECT ?, stream, kind, at, run, actor, body FROM event WHERE position = 1",
            (position,),
        )
    holder.execute("UPDATE head SET position = 3")
    holder.execute(change)
    holder.execute("COMMIT")
    holder.close()
    with trio.fail_after(10):
        await live.ended.wait()
    assert isinstance(live.error, Refusal)
    assert live.error.reason == "journal-damaged"
    assert any("omac journal repair" in command for command in live.error.fix)
    live.assert_whole(1)
