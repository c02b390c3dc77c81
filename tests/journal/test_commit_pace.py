"""The pace of the writer's thread: when it wakes, and when it checks for others' events; both cost the loop time."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from unittest import mock

import pytest
import trio
from contract.journals import called, commits_of, texts
from contract.live import Live
from polling import until

from omac.domain.kernel.event import Cause
from omac.journal import commit_thread, group_commit
from omac.journal.application import Journal

CAUSE = Cause("agent")
BUSY_S = 0.8


@pytest.fixture
async def live(journal: Journal, nursery: trio.Nursery) -> Live:
    """Start a writer on an empty journal, which takes call batches already."""
    journal.store.take_batches()
    live = Live(journal)
    await nursery.start(live.run)
    return live


@asynccontextmanager
async def commits_follow(live: Live, *, watched: bool = True) -> AsyncIterator[None]:
    """Append in several tasks without a pause; where the files are `watched`, report a change of them each time."""

    async def append() -> None:
        while True:
            await live.writer.submit([called("one")], CAUSE)
            if watched:
                live.writer.poll()
            await trio.lowlevel.checkpoint()  # an append cannot be cancelled

    async with trio.open_nursery() as tasks:
        for _ in range(4):
            tasks.start_soon(append)
        yield
        tasks.cancel_scope.cancel()


async def test_events_that_no_task_awaits_share_a_commit(
    live: Live, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events that no task awaits stay with the loop over many passes, and share the commit of the next awaited one."""
    monkeypatch.setattr(group_commit, "RIDE_S", 60.0)
    commits = commits_of(journal.store)
    for number in range(10):
        live.writer.submit_soon([called(str(number))], CAUSE)
        await trio.sleep(0.002)
    assert live.delivered == []
    await live.writer.submit([called("awaited")], CAUSE)
    assert texts(live.delivered) == [*map(str, range(10)), "awaited"]
    assert len(commits) == 1


async def test_events_that_no_task_awaits_wait_for_a_moment(live: Live) -> None:
    """An event that no task awaits is written after a moment, each time, although no other event follows."""
    for word in ("one", "two", "three"):
        began, batches = time.monotonic(), live.batches
        live.writer.submit_soon([called(word)], CAUSE)
        while live.batches == batches:
            await trio.sleep(0.001)
        assert time.monotonic() - began >= group_commit.RIDE_S
    assert texts(live.delivered) == ["one", "two", "three"]


async def test_checks_are_few_while_commits_follow(live: Live, journal: Journal) -> None:
    """The writer rarely checks for others' events while commits follow each other, although the files change: each
    commit brings these events. Soon after the last commit it checks again."""
    checks = mock.Mock(wraps=journal.store.changed_by_others)
    with mock.patch.object(journal.store, "changed_by_others", checks):
        async with commits_follow(live):
            began = time.monotonic()
            await trio.sleep(BUSY_S)
            most = (time.monotonic() - began) / commit_thread.BUSY_POLL_S + 1
            assert live.batches > 2 * most
            assert 1 <= checks.call_count <= most
        count = checks.call_count
        await until(lambda: checks.call_count > count)


@pytest.mark.parametrize("watched", [True, False])
async def test_the_log_is_moved_while_commits_follow(
    live: Live, journal: Journal, monkeypatch: pytest.MonkeyPatch, watched: bool
) -> None:
    """The writer moves the log into the file between commits; else it would grow until a commit has to wait for it."""
    monkeypatch.setattr(commit_thread, "CHECKPOINT_EVENTS", 5)
    monkeypatch.setattr(commit_thread, "WATCHED_POLL_S", 0.2)
    moved = mock.Mock(wraps=journal.store.checkpoint)
    with mock.patch.object(journal.store, "checkpoint", moved):
        async with commits_follow(live, watched=watched):
            await until(lambda: moved.call_count >= 2)
