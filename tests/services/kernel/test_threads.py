"""Work in threads, also where the system refuses to start one."""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from omac.services.kernel.threads import NO_THREAD, run_in_thread

STACK_BYTES = 1 << 46  # more than any address space has room for: pthread_create(3) fails with EAGAIN


@asynccontextmanager
async def no_threads() -> AsyncIterator[None]:
    """Keep the system from starting a thread of this process, and keep threads busy that wait for work."""
    ended, refused = threading.Event(), trio.Event()

    async def hold() -> None:
        try:
            await trio.to_thread.run_sync(ended.wait)
        except RuntimeError:
            refused.set()

    before = threading.stack_size(STACK_BYTES)
    try:
        async with trio.open_nursery() as nursery:
            while not refused.is_set():
                nursery.start_soon(hold)
                await trio.testing.wait_all_tasks_blocked(0.01)
            try:
                yield
            finally:
                ended.set()
    finally:
        threading.stack_size(before)


async def test_the_refusal_of_a_thread_has_the_text_of_python() -> None:
    """The text by which omac recognizes the refusal is that of this Python."""
    async with no_threads():
        with pytest.raises(RuntimeError, match=NO_THREAD):
            threading.Thread(target=int).start()


async def test_the_work_is_done_when_there_is_a_thread(caplog: pytest.LogCaptureFixture) -> None:
    """The work is done once, and the wait is logged once."""
    done: list[int] = []

    def work(number: int) -> int:
        done.append(number)
        return number + 1

    async def wait() -> None:
        assert await run_in_thread(work, 1) == 2

    async with trio.open_nursery() as nursery, no_threads():
        nursery.start_soon(wait)
        await trio.sleep(0.5)
        assert not done
    assert done == [1]
    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_a_waiting_caller_can_be_cancelled() -> None:
    """A caller that gives up gets no thread later."""
    done: list[int] = []
    async with no_threads():
        with trio.move_on_after(0.3) as scope:
            await run_in_thread(done.append, 1)
        assert scope.cancelled_caught
    await trio.sleep(0.3)
    assert not done


async def test_what_the_work_raises_is_raised() -> None:
    """A RuntimeError of the work itself is raised too, and the work is not done again."""
    times: list[int] = []

    def work() -> None:
        times.append(1)
        raise RuntimeError(NO_THREAD)

    with pytest.raises(RuntimeError, match=NO_THREAD):
        await run_in_thread(work)
    assert times == [1]
