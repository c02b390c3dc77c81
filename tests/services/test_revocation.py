"""Revocations hold at once, and are recorded as soon as the journal returns; grants are recorded first."""

import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
import pytest
import trio
from tiers import some

from omac.domain.directories.directory import AGGREGATE, RequestDeactivation
from omac.domain.kernel.refusal import Refusal
from omac.domain.sidecars.sidecar import StopRequested
from omac.domain.skills import registration
from omac.domain.skills.meta import FoundSkill
from omac.services.access.port import Request

Serving = Callable[..., AbstractAsyncContextManager[Any]]
MakeSkill = Callable[..., FoundSkill]
Kinds = Callable[..., list[str]]


async def online(omac: Any, skill: FoundSkill) -> str:
    """Bring a directory with one running skill online, and return its token."""
    omac.put_approved("/w/shop", skill)
    token: str = (await omac.activate()).dir_token
    return token


async def away(omac: Any, *kinds: str) -> Callable[[], None]:
    """Let the store refuse these kinds until the returned function is called."""
    insert = omac.journal.store.insert_events

    def refuse(events: Any, **groups: Any) -> Any:
        if any(event.topic in kinds for event in events):
            raise Refusal("journal-unavailable", "the disk is full")
        return insert(events, **groups)

    omac.journal.store.insert_events = refuse

    def back() -> None:
        omac.journal.store.insert_events = insert

    await trio.lowlevel.checkpoint()
    return back


async def test_a_revoked_skill_stops_while_the_journal_is_away(
    serving: Serving, skill: MakeSkill, kinds: Kinds
) -> None:
    """The process of a revoked skill ends before its stop can be recorded; the journal gets the stop later, once."""
    async with serving() as omac:
        await online(omac, echo := skill("echo"))
        back = await away(omac, "sidecar.stop-requested", "directory.reload-requested")
        omac.decide("/w/shop", echo, registration.Revoke("a person revoked it"))
        await omac.until(lambda: not omac.host.running())
        assert omac.sidecar("echo").status == "healthy", "nothing of it is recorded yet"
        back()
        await omac.until(lambda: omac.sidecar("echo").status == "idle")
        await omac.until(lambda: omac.directory().status == "active_partial")
    assert kinds(omac.path, "sidecar.stop", "sidecar.exited") == [
        "sidecar.stop-requested", "sidecar.exited", "sidecar.stopped",
    ]  # fmt: skip


async def test_a_stop_names_what_was_revoked(serving: Serving, skill: MakeSkill) -> None:
    """The recorded stop of a skill whose approval was revoked names the approval, and no value."""
    async with serving() as omac:
        await online(omac, echo := skill("echo"))
        omac.decide("/w/shop", echo, registration.Revoke("a person revoked it"))
        await omac.until(lambda: omac.sidecar("echo").status == "idle")
        stops = [record.event.why for record in omac.journal.records() if isinstance(record.event, StopRequested)]
    assert stops == ["its code is no longer approved"]


@pytest.mark.full
async def test_a_deactivated_directory_leads_nowhere_while_the_journal_is_away(
    serving: Serving, skill: MakeSkill, kinds: Kinds
) -> None:
    """The tokens of a deactivated directory are dead and its sidecars end while the journal is away. The caller learns
    that the deactivation is not recorded; it is recorded later."""
    async with serving() as omac:
        token = await online(omac, skill("echo"))
        way = omac.gate.resolve(token, "echo")
        cuts: list[str] = []
        back = await away(omac, "directory.deactivation-requested", "sidecar.stop-requested")

        def cut(refusal: Refusal) -> None:
            cuts.append(refusal.reason)

        omac.gate.watch(way, cut)
        done = await omac.directories.deactivate("/w/shop", omac.caller)
        omac.gate.unwatch(cut)
        assert (done.dir, done.recorded) == ("/w/shop", False)
        assert cuts
        with pytest.raises(Refusal, match="unknown skill mount"):
            omac.gate.resolve(token, "echo")
        with pytest.raises(Refusal, match=r"unknown skill mount|the disk is full"):  # beside its next try
            await omac.gate.admit(way, Request("GET", "/"))
        await omac.until(lambda: not omac.host.running())
        assert omac.directory().status == "active"
        with pytest.raises(Refusal, match="is being taken offline"):
            await omac.activate()
        tasks = len(omac.engine._tasks.child_tasks)
        for _ in range(3):  # the same again is the same one
            assert omac.engine.revoke(AGGREGATE, omac.stream(), RequestDeactivation("again")) is not None
        assert len(omac.engine._tasks.child_tasks) == tasks
        back()
        await omac.until(lambda: omac.directory().status == "offline")
    assert kinds(omac.path, "directory.deactivat") == ["directory.deactivation-requested", "directory.deactivated"]


async def test_a_revocation_is_tried_again_for_as_long_as_it_takes(
    serving: Serving, skill: MakeSkill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """omac retries in a loop, more often than Python has frames: recursion ended a server after some minutes."""
    monkeypatch.setattr("omac.services.kernel.engine.RETRY_S", 0.0)
    async with serving() as omac:
        await online(omac, skill("echo"))
        omac.journal_fails(1_500, "directory.deactivation-requested")
        await omac.directories.deactivate("/w/shop", omac.caller)
        await omac.until(lambda: omac.directory().status == "offline")


async def test_a_store_is_unlocked_after_that_is_recorded(serving: Serving, kinds: Kinds) -> None:
    """A grant waits for its record: without one the store stays locked."""
    opened: list[int] = []
    async with serving() as omac:
        back = await away(omac, "control.called")
        with pytest.raises(Refusal) as refused:
            await omac.locking.unlock(omac.caller, lambda: opened.append(omac.journal.store.head()))
        assert refused.value.reason == "journal-unavailable"
        assert not opened
        back()
        await omac.locking.unlock(omac.caller, lambda: opened.append(omac.journal.store.head()))
        called = kinds(omac.path).index("control.called") + 1
        assert opened[0] >= called


@pytest.mark.full
async def test_a_slow_skill_does_not_delay_the_token(serving: Serving, skill: MakeSkill) -> None:
    """An activation is answered within a bound; a skill that is slow reports so, and becomes ready by itself."""
    async with serving() as omac:
        fast, slow = skill("fast"), skill("slow")
        omac.put_approved("/w/shop", fast, slow)
        omac.host.silent.add("slow")
        began = trio.current_time()
        manifest = await omac.activate()
        assert trio.current_time() - began < 6.0
        states = {entry["name"]: entry["state"] for entry in manifest.skills}
        assert (manifest.state, states) == ("activating", {"fast": "ready", "slow": "restarting"})
        assert omac.gate.resolve(manifest.dir_token, "fast").skill == "fast"
        omac.host.let(omac.host.silent, "slow")
        await omac.until(lambda: omac.directory().status == "active")


async def test_an_admission_does_not_wait_for_a_stalled_journal(
    serving: Serving, skill: MakeSkill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An admission is refused within a bound; if its request becomes durable all the same, its outcome follows."""
    monkeypatch.setattr("omac.services.access.recorder.RECORD_S", 0.05)
    async with serving() as omac:
        token = await online(omac, skill("echo"))
        insert = omac.journal.store.insert_events
        stalled, go_on = trio.Event(), threading.Event()
        loop = trio.lowlevel.current_trio_token()

        def stall(events: Any, **groups: Any) -> Any:
            if any(event.topic == "access.requested" for event in events):
                loop.run_sync_soon(stalled.set)
                assert go_on.wait(20)
            return insert(events, **groups)

        omac.journal.store.insert_events = stall
        with pytest.raises(Refusal) as refused:
            await omac.gate.admit(omac.gate.resolve(token, "echo"), Request("GET", "/"))
        assert refused.value.reason == "journal-unavailable"
        await stalled.wait()
        go_on.set()
        await omac.caught_up()
        await omac.until(lambda: omac.engine.system.accesses.aborted == 1)
        assert not omac.engine.system.accesses.open


@pytest.mark.full
@pytest.mark.parametrize("reason", some(["journal-newer", "journal-damaged", "journal-in-use"], of=3))
async def test_a_deactivation_holds_although_it_cannot_be_recorded(
    serving: Serving, skill: MakeSkill, reason: Any
) -> None:
    """A deactivation holds with a full disk, a damaged journal, and a journal that a later omac changed."""
    async with serving() as omac:
        token = await online(omac, skill("echo"))
        insert = omac.journal.store.insert_events

        def refuse(events: Any, **groups: Any) -> Any:
            if any(event.topic == "directory.deactivation-requested" for event in events):
                raise Refusal(reason, "it cannot be appended to")
            return insert(events, **groups)

        omac.journal.store.insert_events = refuse
        assert (await omac.directories.deactivate("/w/shop", omac.caller)).recorded is False
        await omac.until(lambda: not omac.host.running())
        with pytest.raises(Refusal, match="unknown skill mount"):
            omac.gate.resolve(token, "echo")


async def test_a_session_is_not_called_by_a_token(serving: Serving, skill: MakeSkill) -> None:
    """A session name with a token is refused: scrubbed from the record, it could not name the session."""
    async with serving() as omac:
        omac.directories._mint = lambda: "c0ffee" * 5 + "42"
        token = await online(omac, skill("echo"))
        head = omac.journal.store.head()
        with pytest.raises(Refusal, match="holds a routing token"):
            await omac.activate(session=f"a{token}")
        assert [record.event.reason for record in omac.journal.records(head)] == ["bad-request"]


async def test_the_first_shared_skill_is_noticed(serving: Serving, skill: MakeSkill) -> None:
    """An approval of a shared skill brings it online, though no skill was shared when omac began."""
    async with serving() as omac:
        await omac.activate()
        source = "/home/u/.agents/skills/echo"
        shared = msgspec.structs.replace(
            skill("echo"), source=source, skills_dir="/home/u/.agents/skills", scope="global"
        )
        omac.put_approved("", shared)
        await omac.until(lambda: [entry["name"] for entry in omac.directories.global_skills()] == ["echo"])


@pytest.mark.full
async def test_a_session_ends_while_the_journal_is_away(serving: Serving, skill: MakeSkill) -> None:
    """An ended session's token leads nowhere, and its calls under way are cut; directory and other sessions stay."""
    async with serving() as omac:
        await online(omac, skill("echo"))
        ended, living = [(await omac.activate(session=session)).dir_token for session in ("s1", "s2")]
        cut: list[Refusal] = []
        back = await away(omac, "directory.session-ended")
        omac.gate.watch(omac.gate.resolve(ended, "echo"), cut.append)
        done = await omac.directories.end_session("/w/shop", "s1", omac.calls_by("bridge", "c9"))
        assert not done.recorded
        assert [refusal.reason for refusal in cut] == ["revoked"]
        omac.gate.unwatch(cut.append)
        with pytest.raises(Refusal, match="unknown"):
            omac.gate.resolve(ended, "echo")
        with pytest.raises(Refusal) as caught:
            await omac.activate(session="s1")
        assert caught.value.reason == "directory-offline"
        assert omac.gate.resolve(living, "echo").session == "s2"
        assert omac.sidecar("echo").status == "healthy"
        back()
        await omac.until(lambda: omac.status().directories[0].sessions == ("s2",))
        assert (await omac.activate(session="s1")).dir_token not in (ended, living)
