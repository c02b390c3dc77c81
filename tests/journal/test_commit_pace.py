"""When the writer's thread is woken, and when it looks at what others did: beside the loop both cost it time."""

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
from omac.journal import group_commit
from omac.journal.application import Journal

CAUSE = Cause("agent")
BUSY_S = 0.8


@pytest.fixture
async def live(journal: Journal, nursery: trio.Nursery) -> Live:
    """A writer on an empty journal, running."""
    live = Live(journal)
    await nursery.start(live.run)
    return live


@asynccontextmanager
async def commits_follow(live: Live, *, watched: bool = True) -> AsyncIterator[None]:
    """Tasks that append without a pause, and files that are said to have changed each time, where they are watched."""

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


async def test_what_nobody_waits_for_shares_a_commit(
    live: Live, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays with the loop, over many passes, until somebody waits for something else."""
    monkeypatch.setattr(group_commit, "RIDE_S", 60.0)
    commits = commits_of(journal.store)
    for number in range(10):
        live.writer.submit_soon([called(str(number))], CAUSE)
        await trio.sleep(0.002)
    assert live.delivered == []
    await live.writer.submit([called("awaited")], CAUSE)
    assert texts(live.delivered) == [*map(str, range(10)), "awaited"]
    assert len(commits) == 1


async def test_what_nobody_waits_for_waits_for_moments(live: Live) -> None:
    """Nobody else comes: it is written all the same, each time."""
    for word in ("one", "two", "three"):
        began, batches = time.monotonic(), live.batches
        live.writer.submit_soon([called(word)], CAUSE)
        while live.batches == batches:
            await trio.sleep(0.001)
        assert time.monotonic() - began >= group_commit.RIDE_S
    assert texts(live.delivered) == ["one", "two", "three"]


async def test_looks_are_few_while_commits_follow(live: Live, journal: Journal) -> None:
    """Whatever the files say: each commit brings what others appended. Afterwards there is one soon."""
    looks = mock.Mock(wraps=journal.store.changed_by_others)
    with mock.patch.object(journal.store, "changed_by_others", looks):
        async with commits_follow(live):
            began = time.monotonic()
            await trio.sleep(BUSY_S)
            most = (time.monotonic() - began) / group_commit.BUSY_POLL_S + 1
            assert live.batches > 2 * most
            assert 1 <= looks.call_count <= most
        seen = looks.call_count
        await until(lambda: looks.call_count > seen)


@pytest.mark.parametrize("watched", [True, False])
async def test_the_log_is_moved_while_commits_follow(
    live: Live, journal: Journal, monkeypatch: pytest.MonkeyPatch, watched: bool
) -> None:
    """Else it would grow until a commit has to wait for it."""
    monkeypatch.setattr(group_commit, "CHECKPOINT_EVENTS", 5)
    monkeypatch.setattr(group_commit, "WATCHED_POLL_S", 0.2)
    moved = mock.Mock(wraps=journal.store.checkpoint)
    with mock.patch.object(journal.store, "checkpoint", moved):
        async with commits_follow(live, watched=watched):
            await until(lambda: moved.call_count >= 2)
