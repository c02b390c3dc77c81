"""services/kernel/owners.py: no error of the system ends an owner."""

import errno
import logging

import pytest
import trio
import trio.testing

from omac.domain.kernel.ids import StreamId
from omac.services.kernel.owners import RETRY_S, Owners, Retries, retried


async def test_an_error_of_the_system_is_tried_again(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """An error of the system, also out of a nursery, is logged once in a row, in words; another try follows a pause."""
    tries: list[float] = []

    async def flaky() -> None:
        tries.append(trio.current_time())
        if len(tries) < 4:
            async with trio.open_nursery():
                raise OSError(errno.EMFILE, "Too many open files")

    with caplog.at_level(logging.ERROR):
        await retried("the spool", flaky)
    assert [tries[n + 1] - tries[n] for n in range(3)] == pytest.approx([RETRY_S] * 3)
    assert [record.getMessage() for record in caplog.records] == ["the spool: Too many open files; omac goes on trying"]


async def test_other_errors_end_their_task() -> None:
    """A bug ends its task."""
    with pytest.raises(KeyError):
        async with Retries("x").attempt():
            raise KeyError("bug")


async def test_what_runs_beside_the_owners_is_tried_again(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """A task beside the owners that meets an error of the system leaves the owners alone."""
    done = trio.Event()
    failures = [OSError(errno.ENFILE, "none left")]

    async def own(_: StreamId) -> None:
        await trio.sleep_forever()

    async def beside() -> None:
        if failures:
            raise failures.pop()
        done.set()

    owners = Owners(own, lambda _: True)
    await nursery.start(owners.run)
    owners.need(StreamId("directory/h/w"))
    owners.also(beside)
    await done.wait()
    assert StreamId("directory/h/w") in owners
    nursery.cancel_scope.cancel()
