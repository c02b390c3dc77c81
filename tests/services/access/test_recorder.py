"""services/access/recorder.py: an access is durable before it is forwarded, and has one fate."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from omac.adapters.facade.addressing import recorded_path
from omac.domain.access.access import AccessAborted, AccessCompleted, AccessRefused, AccessRequested
from omac.domain.kernel.event import Recorded
from omac.domain.kernel.ids import token_digest
from omac.domain.kernel.refusal import Refusal
from omac.domain.sidecars import sidecar
from omac.domain.sidecars.sidecar import Exit
from omac.domain.skills import registration
from omac.domain.skills.meta import FoundSkill
from omac.projections.access.routes import ResolvedRoute
from omac.projections.evidence.accesses import audit_rows
from omac.services.access.port import Answer, Request
from omac.services.access.recorder import PATH_MAX, JournalAccessRecorder
from omac.services.directories.control_call import Caller
from omac.services.kernel.refusals import SINGLES_MAX

Serving = Callable[..., AbstractAsyncContextManager[Any]]
MakeSkill = Callable[..., FoundSkill]
Records = Callable[[str], list[Any]]

GET = Request("GET", "/v1/things")


async def admit_polled(gate: JournalAccessRecorder, route: ResolvedRoute) -> int:
    """Admit a request as a connection without a task does, and return its access."""
    sender, receiver = trio.open_memory_channel[int | Exception](1)
    gate.admit_then(route, GET, sender.send_nowait)
    with trio.fail_after(10):
        answer = await receiver.receive()
    if isinstance(answer, Exception):
        raise answer
    return answer


async def admit_in_task(gate: JournalAccessRecorder, route: ResolvedRoute) -> int:
    """Admit a request as a task does."""
    return await gate.admit(route, GET)


Admit = Callable[[JournalAccessRecorder, ResolvedRoute], Awaitable[int]]
both_ways = pytest.mark.parametrize("admit", [admit_in_task, admit_polled])


@pytest.fixture
def online(skill: MakeSkill) -> Callable[..., Any]:
    """Return a function that brings /w/shop online with the skill `echo`, and returns a token of it."""

    async def activate(omac: Any, session: str | None = None) -> str:
        omac.put_approved("/w/shop", skill("echo"))
        token: str = (await omac.activate(session=session)).dir_token
        return token

    return activate


async def test_admission_is_durable_before_it_returns(serving: Serving, online: Any, records: Records) -> None:
    """A second reader finds the request, with its actor and content, before a byte may be forwarded."""
    async with serving() as omac:
        target = omac.gate.resolve(await online(omac), "echo")
        access = await omac.gate.admit(target, GET)
        (record,) = [r for r in records(omac.path) if isinstance(r.event, AccessRequested)]
        assert (record.position, record.actor, record.run) == (access, "agent", "run1")
        assert record.event == AccessRequested("/w/shop", "echo", "echo", None, "GET", "/v1/things")


async def test_the_target_is_where_the_sidecar_listens(serving: Serving, online: Any) -> None:
    """Port, limit and skill come from the recorded state."""
    async with serving() as omac:
        target = omac.gate.resolve(await online(omac), "echo")
        assert target.port == omac.host.process("echo").birth.port
        assert (target.dir, target.skill, target.mount, target.session) == ("/w/shop", "echo", "echo", None)


async def test_both_fates_are_recorded(serving: Serving, online: Any) -> None:
    """Completed and aborted accesses carry their bytes, time and reason, and follow from their request."""
    async with serving() as omac:
        target = omac.gate.resolve(await online(omac, "s1"), "echo")
        good = await omac.gate.admit(target, GET)
        bad = await omac.gate.admit(target, GET)
        omac.gate.completed(good, Answer(200, 1, 2, 3))
        omac.gate.aborted(bad, Answer(None, 4, 0, 5), "client-gone")
        await omac.caught_up()
        fates = [r for r in omac.journal.records() if isinstance(r.event, AccessCompleted | AccessAborted)]
        assert [r.event for r in fates] == [
            AccessCompleted(good, 200, 1, 2, 3),
            AccessAborted(bad, "client-gone", None, 4, 0, 5),
        ]
        assert [r.causation for r in fates] == [good, bad]
        rows = [row for row in audit_rows(omac.journal.records()) if row.kind == "access"]
        assert [(row.session, row.outcome) for row in rows] == [("s1", "completed"), ("s1", "aborted")]


@both_ways
@pytest.mark.parametrize("change", ["restart", "deactivation", "stop"])
async def test_a_way_lost_while_recording_is_not_taken(
    serving: Serving, online: Any, change: str, admit: Admit
) -> None:
    """A change while the request is made durable counts: the access is aborted and refused, not forwarded."""
    async with serving() as omac:
        target = omac.gate.resolve(await online(omac), "echo")
        if change == "restart":
            omac.host.process("echo").end(Exit(code=1))
            await omac.until(lambda: len(omac.host.processes) == 2)
            await omac.until(lambda: omac.sidecar("echo").status == "healthy")
        else:
            if change == "stop":
                omac.gate.stop()
            await omac.deactivate()
        with pytest.raises(Refusal) as caught:
            await admit(omac.gate, target)
        reason = {"restart": "sidecar-down", "deactivation": "unknown-mount", "stop": "stopping"}[change]
        assert caught.value.reason == reason
        await omac.caught_up()
        (row,) = [row for row in audit_rows(omac.journal.records()) if row.kind == "access"]
        assert (row.outcome, row.reason, row.status) == ("aborted", reason, caught.value.status)
        assert omac.status().accesses["open"] == 0


@both_ways
async def test_a_way_that_stays_while_recording_is_taken(serving: Serving, online: Any, admit: Admit) -> None:
    """A change of something else while the request is made durable does not refuse it."""
    async with serving() as omac:
        target = omac.gate.resolve(await online(omac), "echo")
        await omac.activate("/w/blog")
        access = await admit(omac.gate, target)
        assert list(omac.engine.system.accesses.open) == [access]


@both_ways
async def test_a_request_that_cannot_be_recorded_is_counted(
    serving: Serving, online: Any, records: Records, admit: Admit
) -> None:
    """The caller gets the journal's refusal, and the count of such requests is recorded as soon as it can be."""
    async with serving() as omac:
        target = omac.gate.resolve(await online(omac), "echo")
        omac.journal_fails(1, "access.requested")
        with pytest.raises(Refusal) as caught:
            await admit(omac.gate, target)
        assert caught.value.reason == "journal-unavailable"
        await omac.refusals.flush()
        (event,) = [r.event for r in records(omac.path) if isinstance(r.event, AccessRequested | AccessRefused)]
        assert event == AccessRefused(
            "/w/shop", "echo", "echo", None, "GET", "/v1/things", 503, "journal-unavailable", 1
        )


async def test_a_cancelled_admission_has_a_known_outcome(serving: Serving, online: Any) -> None:
    """A cancelled admission returns no access; what becomes durable of it is recorded as aborted."""
    async with serving() as omac:
        target = omac.gate.resolve(await online(omac), "echo")
        before = omac.engine.system.position
        with trio.CancelScope() as scope:
            scope.cancel()
            await omac.gate.admit(target, GET)
        assert scope.cancelled_caught
        await omac.until(lambda: omac.engine.system.position == before + 2)
        requested, aborted = omac.journal.records(before)
        assert isinstance(requested.event, AccessRequested)
        assert aborted.event == AccessAborted(requested.position, "journal-slow", 503, 0, 0, 0)
        assert omac.engine.system.accesses.open == {}


async def test_a_cancelled_admission_that_cannot_be_recorded_is_counted(
    serving: Serving, online: Any, records: Records
) -> None:
    """The count of requests that could not be recorded has those whose callers did not wait for that."""
    async with serving() as omac:
        target = omac.gate.resolve(await online(omac), "echo")
        omac.journal_fails(1, "access.requested")
        with trio.CancelScope() as scope:
            scope.cancel()
            await omac.gate.admit(target, GET)
        await omac.caught_up()
        await omac.refusals.flush()
        (event,) = [r.event for r in records(omac.path) if isinstance(r.event, AccessRequested | AccessRefused)]
        assert event == AccessRefused(
            "/w/shop", "echo", "echo", None, "GET", "/v1/things", 503, "journal-unavailable", 1
        )


async def test_a_refused_access_with_a_dead_token_is_recorded_without_it(
    serving: Serving, online: Any, records: Records
) -> None:
    """The path of such a request may hold part of a secret: neither token, mount nor path is recorded."""
    async with serving() as omac:
        token = await online(omac, "s1")
        await omac.deactivate()
        await omac.gate.refused(token, "echo", Request("GET", f"/{token}/x"), 404, "unknown-mount")
        (event,) = [r.event for r in records(omac.path) if isinstance(r.event, AccessRefused)]
        assert event == AccessRefused(None, None, "", None, "GET", "", 404, "unknown-mount")


async def test_a_refused_access_with_a_living_token_has_its_session(
    serving: Serving, online: Any, records: Records
) -> None:
    """The record has the session, a bounded part of the path, and the mount only of a skill: others may be secret."""
    async with serving() as omac:
        token = await online(omac, "s1")
        await omac.gate.refused(token, "nope" * 1_000, Request("GET", "/" + "x" * 5_000), 404, "unknown-mount")
        await omac.gate.refused(token, "echo", GET, 413, "body-too-large")
        unknown, large = [r.event for r in records(omac.path) if isinstance(r.event, AccessRefused)]
        assert (unknown.dir, unknown.skill, unknown.session) == ("/w/shop", None, "s1")
        assert (unknown.mount, len(unknown.path)) == ("", 1_024)
        assert large == AccessRefused("/w/shop", "echo", "echo", "s1", "GET", "/v1/things", 413, "body-too-large")


@pytest.mark.parametrize("known", [True, False])
async def test_a_flood_of_refusals_is_counted(serving: Serving, online: Any, records: Records, known: bool) -> None:
    """A loop of an agent, with its token or without, leaves a bounded number of events, and none is lost."""
    async with serving() as omac:
        token = await online(omac, "s1")
        for number in range(500):
            request = Request("POST", f"/{number}")
            await omac.gate.refused(token if known else "x", "echo", request, 413, "body-too-large")
        await omac.refusals.flush()
        events = [r.event for r in records(omac.path) if isinstance(r.event, AccessRefused)]
        assert sum(event.count for event in events) == 500
        assert len(events) == (SINGLES_MAX + 1 if known else 2)
        assert {event.skill for event in events} == {"echo" if known else None}


@pytest.mark.parametrize(("token", "mount"), [("", ""), ("nope", "echo"), ("\udcff", "\udcff")])
async def test_unknown_tokens_lead_nowhere(serving: Serving, online: Any, token: str, mount: str) -> None:
    """A token or mount that omac does not know, of any bytes, is refused as an unknown mount."""
    async with serving() as omac:
        await online(omac)
        with pytest.raises(Refusal) as caught:
            omac.gate.resolve(token, mount)
        assert caught.value.reason == "unknown-mount"


async def test_no_token_ever_reaches_the_journal(serving: Serving, online: Any) -> None:
    """The journal's files hold digests, so a reader of the journal can reach no skill."""
    async with serving() as omac:
        token = await online(omac, "s1")
        access = await omac.gate.admit(omac.gate.resolve(token, "echo"), GET)
        omac.gate.completed(access, Answer(200, 0, 0, 1))
        await omac.gate.refused(token, "other", GET, 404, "unknown-mount")
        await omac.gate.refused("dead" + token, token, Request("GET", f"/{token}"), 404, "unknown-mount")
        await omac.caught_up()
        content = b"".join(file.read_bytes() for file in Path(omac.path).parent.iterdir())
        assert token_digest(token).encode() in content
        for minted in omac.minted:
            assert minted.encode() not in content


@both_ways
async def test_after_the_end_nothing_is_admitted(serving: Serving, online: Any, admit: Admit) -> None:
    """A server that stops refuses in time, instead of letting its callers wait."""
    async with serving() as omac:
        target = omac.gate.resolve(await online(omac), "echo")
    with pytest.raises(Refusal) as caught:
        await admit(omac.gate, target)
    assert caught.value.reason == "stopping"


@pytest.mark.parametrize("stopping", [False, True])
async def test_a_way_in_use_is_cut_when_its_token_dies(serving: Serving, online: Any, stopping: bool) -> None:
    """A watched route is cut when its token dies, and a watch that begins later is cut at once."""
    async with serving() as omac:
        target = omac.gate.resolve(await online(omac), "echo")
        cuts: list[str] = []

        def cut(refusal: Refusal) -> None:
            cuts.append(refusal.reason)

        omac.gate.watch(target, cut)
        assert cuts == []
        if stopping:
            omac.gate.stop()
        await omac.deactivate()
        reason = "stopping" if stopping else "revoked"
        assert set(cuts) == {reason}
        omac.gate.unwatch(cut)
        cuts.clear()
        omac.gate.watch(target, cut)
        assert cuts == [reason]


async def test_a_sidecar_that_omac_stopped_is_not_blamed(serving: Serving, online: Any) -> None:
    """A call that fails because omac stops the sidecar fails with `sidecar-down`, also when the sidecar has ended."""
    async with serving() as omac:
        target = omac.gate.resolve(await online(omac), "echo")
        assert omac.gate.stopped(target) is None
        await omac.engine.execute(sidecar.AGGREGATE, omac.sidecar_stream("echo"), sidecar.RequestStop("it is replaced"))
        for status in ("stopping", "idle"):
            await omac.until(lambda status=status: omac.sidecar("echo").status == status)
            assert omac.gate.stopped(target).reason == "sidecar-down"


async def test_a_revoked_approval_cuts_before_its_sidecar_is_stopped(serving: Serving, online: Any) -> None:
    """A call is cut as revoked, one that fails with its sidecar fails as revoked, and no other begins, from the moment
    when the revocation is known, whatever the directory and the sidecar have recorded of it."""
    async with serving() as omac:
        token = await online(omac)
        target = omac.gate.resolve(token, "echo")
        cuts: list[tuple[str, str, str]] = []

        def cut(refusal: Refusal) -> None:
            with pytest.raises(Refusal) as anew:
                omac.gate.resolve(token, "echo")
            cuts.append((refusal.reason, anew.value.reason, omac.sidecar("echo").status))

        omac.gate.watch(target, cut)
        echo = omac.folders.skills["/w/shop"][0]
        omac.decide("/w/shop", echo, registration.Revoke("a person revoked it"))
        await omac.until(lambda: cuts)
        assert cuts[0] == ("revoked", "revoked", "healthy")
        assert omac.gate.stopped(target).reason == "revoked"
        await omac.until(lambda: omac.directory().status == "active_partial")
        assert omac.gate.stopped(target).reason == "revoked"


async def test_no_call_begins_in_a_sidecar_of_revoked_code(serving: Serving, online: Any) -> None:
    """No call begins in the sidecar of code whose approval was revoked, also where other code is approved before its
    stop is recorded."""
    async with serving() as omac:
        token = await online(omac)
        answers: list[tuple[str, str]] = []

        def call(record: Recorded) -> None:
            if isinstance(record.event, registration.Approved):
                with pytest.raises(Refusal) as caught:
                    omac.gate.resolve(token, "echo")
                answers.append((caught.value.reason, omac.sidecar("echo").status))

        omac.engine.observe(call)
        echo = omac.folders.skills["/w/shop"][0]
        omac.decide("/w/shop", echo, registration.Revoke("a person revoked it"))
        omac.put_approved("/w/shop", msgspec.structs.replace(echo, bundle_hash="sha256:2"))
        await omac.until(lambda: answers)
        assert answers == [("revoked", "healthy")]
        await omac.until(lambda: omac.sidecar("echo").status == "healthy" and len(omac.host.processes) == 2)
        omac.gate.resolve(token, "echo")


async def test_an_approval_of_other_code_revokes_no_call(serving: Serving, online: Any) -> None:
    """A call goes on in its sidecar's grace where a person approves changed code in the place of what runs."""
    async with serving() as omac:
        target = omac.gate.resolve(await online(omac), "echo")
        cuts: list[str] = []
        omac.gate.watch(target, lambda refusal: cuts.append(refusal.reason))
        changed = msgspec.structs.replace(omac.folders.skills["/w/shop"][0], bundle_hash="sha256:2")
        omac.put_approved("/w/shop", changed)
        await omac.until(lambda: omac.sidecar("echo").status == "stopping")
        assert omac.gate.stopped(target).reason == "sidecar-down"
        await omac.until(lambda: omac.sidecar("echo").status == "healthy" and len(omac.host.processes) == 2)
        assert cuts == []


async def test_the_end_of_a_session_cuts_its_own_calls_alone(serving: Serving, online: Any) -> None:
    """The calls of a session end with it; those of another session of the directory go on."""
    async with serving() as omac:
        cuts: list[tuple[str, str]] = []
        for session in ("s1", "s2"):
            target = omac.gate.resolve(await online(omac, session), "echo")
            omac.gate.watch(target, lambda refusal, session=session: cuts.append((session, refusal.reason)))
        await omac.directories.end_session("/w/shop", "s1", Caller("socket", "c"))
        await omac.until(lambda: cuts)
        assert cuts == [("s1", "revoked")]
        omac.gate.resolve(await online(omac, "s2"), "echo")


async def test_a_token_across_the_cut_of_a_path_is_not_on_record(serving: Serving, online: Any) -> None:
    """A path is scrubbed before it is cut, whether forwarded or refused: not even half a token is recorded."""
    async with serving() as omac:
        omac.directories._mint = lambda: "c0ffee" * 5 + "42"
        token = await online(omac)
        path = "/" + "z" * (PATH_MAX - 18) + "/" + token
        await omac.gate.admit(omac.gate.resolve(token, "echo"), Request("GET", path))
        await omac.gate.refused(token, "nope", Request("GET", path), 404, "unknown-mount")
        texts = [record.event.path for record in omac.journal.records() if hasattr(record.event, "method")]
        assert len(texts) == 2
        assert not [text for text in texts if token[:12] in text]


@pytest.mark.parametrize("spelling", ["lower", "upper", "encoded"])
async def test_a_token_across_the_cut_of_a_request_is_not_on_record(
    serving: Serving, online: Any, spelling: str
) -> None:
    """A token of another session, or the own token in another spelling, is scrubbed whole before a path is cut."""
    async with serving() as omac:
        omac.directories._mint = lambda: "c0ffee" * 5 + "42"
        token = await online(omac)
        spelled = {"lower": token, "upper": token.upper(), "encoded": "".join(f"%{ord(one):02X}" for one in token)}
        before = f"/{'z' * (PATH_MAX - 20)}/"
        path = recorded_path(f"{before}{spelled[spelling]}/tail", "d00d" * 8)
        await omac.gate.admit(omac.gate.resolve(token, "echo"), Request("GET", path))
        (text,) = [one.event.path for one in omac.journal.records() if hasattr(one.event, "method")]
        assert text == f"{before}[token]/tail"[:PATH_MAX]


async def test_too_many_kinds_of_refusals_are_recorded_by_no_name(
    serving: Serving, online: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that makes up sessions has neither its refusals recorded as another session's, nor those as its own."""
    monkeypatch.setattr("omac.services.kernel.refusals.KINDS_MAX", 2)
    async with serving() as omac:
        tokens = [await online(omac, session) for session in ("a", "b", "victim", "c")]
        for token in tokens:
            await omac.gate.refused(token, "echo", GET, 403, "foreign-origin")
        omac.journal_fails(1, "access.requested")
        with pytest.raises(Refusal):
            await omac.gate.admit(omac.gate.resolve(tokens[2], "echo"), GET)
        await omac.refusals.flush()
        refused = [record.event for record in omac.journal.records() if isinstance(record.event, AccessRefused)]
        assert [(event.session, event.dir, event.path, event.count) for event in refused] == [
            ("a", "/w/shop", "/v1/things", 1),
            ("b", "/w/shop", "/v1/things", 1),
            (None, None, "", 1),
            (None, None, "", 2),
        ]


async def test_a_mount_without_a_token_is_the_directorys_own_first(
    serving: Serving, online: Any, skill: MakeSkill
) -> None:
    """By the socket of one directory, a skill that all share answers only at a mount that no skill of its own has."""
    async with serving() as omac:
        shared = [skill(name, workdir="/home/u") for name in ("echo", "all")]
        omac.put_approved("", *shared)
        await online(omac)
        gate = JournalAccessRecorder(omac.engine, omac.refusals, omac.stream())
        assert [gate.resolve(None, mount).mount for mount in ("echo", "all")] == ["echo", "__global__/all"]
