"""services/access/buffered.py: calls ahead of their records, held to the limits of calls all the same."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
import trio

from omac.domain.kernel.refusal import Refusal
from omac.domain.settings.owner_limits import OwnerLimits
from omac.domain.skills.meta import FoundSkill
from omac.services.access.buffered import BufferedAccessRecorder
from omac.services.access.port import Answer, Request
from omac.services.access.recorder import JournalAccessRecorder

Serving = Callable[..., AbstractAsyncContextManager[Any]]
MakeSkill = Callable[..., FoundSkill]

GET = Request("GET", "/")
OK = Answer(200, 0, 2, 1)


@pytest.fixture
def buffered(skill: MakeSkill) -> Callable[..., Any]:
    """Return a function that brings /w/shop online with the skill `echo`; it returns a token of the directory, and a
    recorder that allows one call."""

    async def make(omac: Any) -> tuple[str, BufferedAccessRecorder]:
        omac.put_approved("/w/shop", skill("echo"))
        token = (await omac.activate()).dir_token
        strict = JournalAccessRecorder(omac.engine, omac.refusals, owner=OwnerLimits(concurrent=1))
        return token, BufferedAccessRecorder(strict)

    return make


async def test_a_call_that_has_ended_counts_no_longer(serving: Serving, buffered: Any) -> None:
    """An ended call does not count while its record is under way; a running one counts before and after its record."""
    async with serving() as omac:
        token, recorder = await buffered(omac)
        numbers: list[int | Exception] = []
        for end in (recorder.completed, lambda number, answer: recorder.aborted(number, answer, "client-gone")):
            recorder.admit_then(recorder.resolve(token, "echo"), GET, numbers.append)
            with pytest.raises(Refusal, match="1 call is under way"):
                recorder.resolve(token, "echo")
            end(numbers[-1], OK)
        recorder.admit_then(recorder.resolve(token, "echo"), GET, numbers.append)
        assert len(set(numbers)) == 3
        await omac.caught_up()
        with pytest.raises(Refusal, match="1 call is under way"):
            recorder.resolve(token, "echo")
        recorder.completed(numbers[-1], OK)
        recorder.resolve(token, "echo")


async def test_calls_that_begin_at_once(serving: Serving, buffered: Any) -> None:
    """No call gets in between the check of a limit and the call that counts for it."""
    async with serving() as omac:
        token, recorder = await buffered(omac)
        admitted: list[int] = []
        refused: list[str] = []

        async def call() -> None:
            try:
                admitted.append(await recorder.admit(recorder.resolve(token, "echo"), GET))
            except Refusal as refusal:
                refused.append(refusal.reason)

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(call)
        assert (len(admitted), refused) == (1, ["too-many-calls"] * 4)
        recorder.completed(admitted[0], OK)


async def test_calls_go_ahead_again_when_the_journal_is_back(serving: Serving, buffered: Any) -> None:
    """Behind a record that the journal refused, one call waits for its own; the next goes ahead again."""
    async with serving() as omac:
        token, recorder = await buffered(omac)
        omac.journal_fails(1, "access.requested")
        numbers: list[int] = []
        for _ in range(3):
            numbers.append(await recorder.admit(recorder.resolve(token, "echo"), GET))
            recorder.completed(numbers[-1], OK)
            await omac.caught_up()
        assert [number < 0 for number in numbers] == [True, False, True]
