"""services/kernel/refusals.py: refusals of strangers are recorded, in bounded form."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from contract.journals import lock
from polling import until

from omac.domain.access import access
from omac.domain.access.access import AccessRefused
from omac.domain.guard import denial
from omac.domain.guard.denial import GuardDenied
from omac.domain.kernel import ids
from omac.domain.kernel.aggregate import Addressed
from omac.domain.kernel.event import Cause
from omac.domain.kernel.ids import HostId
from omac.services.kernel import refusals

Serving = Callable[..., AbstractAsyncContextManager[Any]]
LOG = ids.access_stream(HostId("host0001"))
AGENT = Cause("agent")


def refused(path: str = "/") -> Addressed[Any, Any]:
    """Return a refused call of a stranger."""
    return Addressed(access.AGGREGATE, LOG, AccessRefused(None, None, "", None, "GET", path, 404, "unknown-mount"))


def counts(omac: Any) -> list[tuple[str, int]]:
    """Return the path of the first call and the number of calls, of each record."""
    events = [record.event for record in omac.journal.records()]
    return [(event.path, event.count) for event in events if isinstance(event, AccessRefused)]


async def test_the_first_is_recorded_at_once_and_the_rest_together(serving: Serving) -> None:
    """Each kind and interval has one event, with the number of counted calls and the first of them."""
    async with serving(reactors=False) as omac:
        await omac.refusals.note(refused("/first"), AGENT, "a")
        assert counts(omac) == [("/first", 1)]
        for number in range(1_000):
            await omac.refusals.note(refused(f"/{number}"), AGENT, "a")
        assert counts(omac) == [("/first", 1)]
        await omac.refusals.flush()
        assert counts(omac) == [("/first", 1), ("/first", 1_000)]
        assert omac.status().accesses["refused"] == 1_001


async def test_kinds_are_counted_apart(serving: Serving) -> None:
    """Each kind has a first call, and a count of its own."""
    async with serving(reactors=False) as omac:
        for kind in "abab":
            await omac.refusals.note(refused(f"/{kind}"), AGENT, kind)
        assert counts(omac) == [("/a", 1), ("/b", 1)]
        await omac.refusals.flush()
        assert counts(omac)[2:] == [("/a", 1), ("/b", 1)]


async def test_an_interval_without_any_ends_the_count(serving: Serving) -> None:
    """The next call is a first one again; an interval without refusals records nothing."""
    async with serving(reactors=False) as omac:
        await omac.refusals.note(refused("/old"), AGENT, "a")
        for _ in range(3):
            await omac.refusals.flush()
        await omac.refusals.note(refused("/new"), AGENT, "a")
        assert counts(omac) == [("/old", 1), ("/new", 1)]


async def test_each_interval_records_what_it_counted(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    """The count of each interval is recorded without another call."""
    monkeypatch.setattr(refusals, "INTERVAL_S", 0.05)
    async with serving(reactors=False) as omac, trio.open_nursery() as nursery:
        await omac.refusals.note(refused(), AGENT, "a")
        await omac.refusals.note(refused(), AGENT, "a")
        nursery.start_soon(omac.refusals.run)
        await until(lambda: len(counts(omac)) == 2)
        assert counts(omac) == [("/", 1), ("/", 1)]
        nursery.cancel_scope.cancel()


async def test_what_cannot_be_recorded_is_kept(serving: Serving) -> None:
    """Refusals are counted on while the journal is away; then all are recorded, each once."""
    async with serving(reactors=False) as omac:
        omac.journal_fails(2, "access.refused")
        for _ in range(5):
            await omac.refusals.note(refused(), AGENT, "a")
        assert counts(omac) == []
        await omac.refusals.flush()
        assert counts(omac) == []
        await omac.refusals.note(refused(), AGENT, "a")
        await omac.refusals.flush()
        assert counts(omac) == [("/", 6)]
        await omac.refusals.flush()
        assert counts(omac) == [("/", 6)]


async def test_a_refusal_waits_for_no_slow_journal(
    serving: Serving, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refused caller is answered in time; a record that the journal accepts late is counted once."""
    monkeypatch.setattr(refusals, "FIRST_S", 0.02)
    async with serving(reactors=False) as omac:
        holder = lock(Path(path))
        try:
            with trio.fail_after(2):
                await omac.refusals.note(refused(), AGENT, "a")
                await omac.refusals.note(refused(), AGENT, "a")
        finally:
            holder.close()
        await omac.caught_up()
        assert counts(omac) == [("/", 1)]
        await omac.refusals.flush()
        assert counts(omac) == [("/", 1), ("/", 1)]
        await omac.refusals.flush()
        assert sum(count for _, count in counts(omac)) == 2


async def test_the_kinds_are_bounded(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded for any number of kinds; calls beyond the bound are counted, and none is lost."""
    monkeypatch.setattr(refusals, "KINDS_MAX", 3)
    async with serving(reactors=False) as omac:
        for kind in range(10):
            await omac.refusals.note(refused(f"/{kind}"), AGENT, kind)
        assert counts(omac) == [("/0", 1), ("/1", 1), ("/2", 1), ("/3", 1)]
        await omac.refusals.flush()
        assert counts(omac)[4:] == [("/3", 6)]


async def test_what_one_log_is_full_of_hides_nothing_of_another(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that makes up claims takes no place from the records of its own refusals."""
    monkeypatch.setattr(refusals, "KINDS_MAX", 3)
    async with serving(reactors=False) as omac:
        for number in range(20):
            event = GuardDenied("claude", "Write", f"/{number}", "/w", origin="bridge")
            claim = Addressed(denial.AGGREGATE, ids.guard_stream(HostId("host0001")), event)
            await omac.refusals.note(claim, AGENT, number, kinds_max=2)
        await omac.refusals.note(refused("/seen"), AGENT, "a")
        assert counts(omac) == [("/seen", 1)]
        await omac.refusals.flush()
        claims = [record.event for record in omac.journal.records() if isinstance(record.event, GuardDenied)]
        assert [(event.path, event.count) for event in claims] == [("/0", 1), ("/1", 1), ("/2", 1), ("/2", 17)]


async def test_a_known_caller_is_recorded_one_by_one_up_to_a_bound(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that is refused again and again fills no disk; the next interval counts from the beginning."""
    monkeypatch.setattr(refusals, "SINGLES_MAX", 3)
    async with serving(reactors=False) as omac:
        for number in range(10):
            await omac.refusals.note(refused(f"/{number}"), AGENT, "a", stranger=False)
        assert counts(omac) == [("/0", 1), ("/1", 1), ("/2", 1)]
        await omac.refusals.flush()
        assert counts(omac)[3:] == [("/0", 7)]
        await omac.refusals.note(refused("/new"), AGENT, "a", stranger=False)
        assert counts(omac)[4:] == [("/new", 1)]
