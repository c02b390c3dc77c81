"""services/directories/requests.py: the requests of drivers, their answers, and their records."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import msgspec
import pytest
import trio

from omac.domain.access.control import PERSON, ControlCalled, ControlRefused
from omac.domain.directories.events import DeactivationRequested, SessionEnded
from omac.domain.kernel.ids import token_digest
from omac.domain.kernel.refusal import Refusal
from omac.domain.skills.meta import FoundSkill
from omac.services.access.port import Request

Serving = Callable[..., AbstractAsyncContextManager[Any]]
MakeSkill = Callable[..., FoundSkill]
Kinds = Callable[..., list[str]]


async def put(omac: Any, *skills: FoundSkill) -> None:
    omac.put_approved("/w/shop", *skills)


async def test_the_manifest_keeps_the_contract(serving: Serving, skill: MakeSkill) -> None:
    """The manifest has URLs for reachable skills, reasons and fixes for others, and variables for the shell."""
    async with serving() as omac:
        ready, pending, unread = skill("echo-rest"), skill("mail", needs="MAIL_KEY"), skill("odd")
        await put(omac, ready, pending)
        unread = msgspec.structs.replace(unread, meta=None, bundle_hash="", problem="omac.yaml: not YAML")
        omac.folders.put("/w/shop", ready, pending, unread)
        manifest = msgspec.json.decode(msgspec.json.encode(await omac.activate()))
        briefing = manifest.pop("context").splitlines()[-3:]
        assert briefing == [
            "* echo-rest: $OMAC_ECHO_REST_BASE; guide: .agents/skills/echo-rest/SKILL.md",
            "* mail: not available (pending credentials, required values are missing or refused: KEY (not set)); "
            "a person can mend it on the host: omac secrets set mail KEY --workdir /w/shop --harness opencode; "
            "guide: .agents/skills/mail/SKILL.md",
            "* odd: not available (broken, omac.yaml: not YAML); a person can mend it on the host: "
            "${EDITOR:-vi} /w/shop/.agents/skills/odd/omac.yaml; guide: .agents/skills/odd/SKILL.md",
        ]
        (token,) = omac.minted
        base = f"http://127.0.0.1:9/{token}"
        assert manifest == {
            "dir": "/w/shop",
            "dir_token": token,
            "state": "active_partial",
            "skills": [
                {
                    "name": "echo-rest", "scope": "workdir", "mount": "echo-rest", "state": "ready",
                    "base": f"{base}/echo-rest",
                    "socket_base": f"http+unix://%2Frun%2Fomac%2Ffacade.sock/{token}/echo-rest",
                },
                {
                    "name": "mail", "scope": "workdir", "mount": "mail", "state": "pending_credentials",
                    "missing": ["KEY"],
                    "fix": ["omac secrets set mail KEY --workdir /w/shop --harness opencode"],
                    "detail": "required values are missing or refused: KEY (not set)",
                },
                {
                    "name": "odd", "scope": "workdir", "mount": "odd", "state": "broken", "missing": [],
                    "fix": ["${EDITOR:-vi} /w/shop/.agents/skills/odd/omac.yaml"], "detail": "omac.yaml: not YAML",
                },
            ],
            "env": {
                "OMAC_SKILLS": "echo-rest",
                "OMAC_ECHO_REST_BASE": f"{base}/echo-rest",
                f"OMAC_D_{token.upper()}_ECHO_REST_BASE": f"{base}/echo-rest",
                "OMAC_MAIL_BASE": f"{base}/mail",
                f"OMAC_D_{token.upper()}_MAIL_BASE": f"{base}/mail",
                "OMAC_ODD_BASE": f"{base}/odd",
                f"OMAC_D_{token.upper()}_ODD_BASE": f"{base}/odd",
            },
        }  # fmt: skip


async def test_a_restarting_skill_keeps_its_urls(serving: Serving, skill: MakeSkill) -> None:
    """The skill will be back under its URLs, and the manifest gives the reason why it is away."""
    async with serving() as omac:
        await put(omac, skill("echo"))
        await omac.activate()
        omac.host.silent.add("echo")
        omac.host.process("echo").end(msgspec.structs.replace(omac.host.process("echo")._exit, code=1))
        await omac.until(lambda: omac.sidecar("echo").status == "started")
        (entry,) = (await omac.activate()).skills
        assert entry["state"] == "restarting"
        assert entry["base"].endswith("/echo")
        assert "exited with status 1" in entry["detail"]
        assert entry["fix"] == ["omac logs echo --workdir /w/shop"]


async def test_sessions_get_tokens_of_their_own(serving: Serving, skill: MakeSkill) -> None:
    """Every session keeps a token of its own; callers that name no session share the launch token."""
    async with serving() as omac:
        await put(omac, skill("echo"))
        manifests = [await omac.activate(session=session) for session in (None, "a", "b", "a", None)]
        launch, a, b, a_again, launch_again = [manifest.dir_token for manifest in manifests]
        assert (a, launch) == (a_again, launch_again)
        assert len({launch, a, b}) == 3
        assert omac.status().directories[0].sessions == ("a", "b")
        assert [omac.gate.resolve(token, "echo").session for token in (launch, a, b)] == [None, "a", "b"]


async def test_the_audit_names_the_session(serving: Serving, skill: MakeSkill) -> None:
    """The token alone determines which session used a skill."""
    async with serving() as omac:
        await put(omac, skill("echo"))
        token = (await omac.activate(session="s1")).dir_token
        await omac.gate.admit(omac.gate.resolve(token, "echo"), Request("GET", "/"))
        assert [r.event.session for r in omac.journal.records() if r.actor == "agent"] == ["s1"]


async def test_sessions_at_once_each_get_one(serving: Serving, skill: MakeSkill) -> None:
    """Each session gets one token, though sessions ask several times each while the directory comes online."""
    async with serving() as omac:
        await put(omac, skill("echo"))
        by_session: dict[str, set[str]] = {}

        async def ask(session: str) -> None:
            by_session.setdefault(session, set()).add((await omac.activate(session=session)).dir_token)

        async with trio.open_nursery() as callers:
            for number in range(24):
                callers.start_soon(ask, f"s{number % 8}")
        assert [len(tokens) for tokens in by_session.values()] == [1] * 8
        assert len(set.union(*by_session.values())) == 8
        assert omac.directories._minted == {}
        assert len(omac.directories._tokens) == 9


async def test_the_oldest_of_too_many_sessions_ends(
    serving: Serving, skill: MakeSkill, monkeypatch: pytest.MonkeyPatch, replayed: Callable[[str], Any]
) -> None:
    """The ended session's token leads nowhere, also after a replay, and is forgotten; a new request gets another."""
    monkeypatch.setattr("omac.domain.directories.directory.SESSIONS_MAX", 2)
    async with serving() as omac:
        await put(omac, skill("echo"))
        a, b, c = [(await omac.activate(session=session)).dir_token for session in ("a", "b", "c")]
        with pytest.raises(Refusal, match="unknown skill mount"):
            omac.gate.resolve(a, "echo")
        assert [omac.gate.resolve(token, "echo").session for token in (b, c)] == ["b", "c"]
        assert a not in omac.directories._tokens.values()
        again = (await omac.activate(session="a")).dir_token
        assert again not in (a, b, c)
        assert omac.status().directories[0].sessions == ("a", "c")
        assert len(omac.directories._tokens) == 3
        assert msgspec.json.encode(replayed(omac.path)) == msgspec.json.encode(omac.status())


async def test_no_number_of_sessions_ends_that_of_a_person(
    serving: Serving, skill: MakeSkill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The URL that `omac url` printed leads on while an agent makes up more sessions than there may be."""
    monkeypatch.setattr("omac.domain.directories.directory.SESSIONS_MAX", 2)
    async with serving() as omac:
        await put(omac, skill("echo"))
        persons = (await omac.activate(session=PERSON)).dir_token
        for number in range(4):
            await omac.activate(session=f"s{number}")
        assert omac.gate.resolve(persons, "echo").session == PERSON
        assert omac.status().directories[0].sessions == (PERSON, "s3")


@pytest.mark.parametrize("session", ["", "x" * 201, "a\nb", "a\x1b[2J", "\ud800", " ", "s\u3164"])
async def test_a_sessions_name_is_checked(serving: Serving, session: str) -> None:
    """A session's name has one to 200 visible characters; a bad name is refused and changes nothing."""
    async with serving() as omac:
        with pytest.raises(Refusal) as caught:
            await omac.activate(session=session)
        assert caught.value.reason == "bad-request"
        assert omac.directory().status == "offline"
        assert (await omac.activate(session="x" * 200)).state == "active"


async def test_deactivation_kills_every_token(serving: Serving, skill: MakeSkill) -> None:
    """A deactivation also kills the tokens of sessions, in memory too; tokens of other directories live on."""
    async with serving() as omac:
        await put(omac, skill("echo"))
        omac.folders.put("/w/blog", echo := skill("echo", workdir="/w/blog"))
        omac.approve("/w/blog", echo)
        tokens = [(await omac.activate(session=session)).dir_token for session in (None, "a", "b")]
        blog_token = (await omac.activate("/w/blog")).dir_token
        assert await omac.deactivate() == "/w/shop"
        for token in tokens:
            with pytest.raises(Refusal, match="unknown skill mount"):
                omac.gate.resolve(token, "echo")
        assert omac.gate.resolve(blog_token, "echo").dir == "/w/blog"
        assert list(omac.directories._tokens.values()) == [blog_token]


async def test_a_deactivation_elsewhere_does_not_cost_a_fresh_token(serving: Serving) -> None:
    """A token that is on its way to the journal while another directory goes offline is not forgotten."""
    async with serving() as omac:
        await omac.activate("/w/blog")
        for life in range(5):
            workdirs = [f"/w/{life}-{number}" for number in range(8)]
            async with trio.open_nursery() as callers:
                for workdir in workdirs:
                    callers.start_soon(omac.deactivate, "/w/blog")
                    callers.start_soon(omac.activate, workdir)
                    callers.start_soon(omac.activate, workdir, "s1")
            for workdir in workdirs:
                assert (await omac.activate(workdir)).dir_token in omac.minted
            await omac.activate("/w/blog")


async def test_a_failed_grant_leaves_no_token_behind(serving: Serving) -> None:
    """Repeated requests while the journal is away do not fill the memory."""
    async with serving() as omac:
        omac.journal_fails(3, "directory.activation-requested")
        for _ in range(3):
            with pytest.raises(Refusal, match="the disk is full"):
                await omac.activate()
        await omac.activate()
        assert list(omac.directories._tokens.values()) == omac.minted[-1:]
        assert omac.directories._minted == {}


async def test_the_end_of_a_session_leaves_others(serving: Serving, skill: MakeSkill) -> None:
    """The end of a session is recorded with the call that asked for it. An unknown session and an offline directory
    change nothing; a name that no session can have is refused."""
    async with serving() as omac:
        await put(omac, skill("echo"))
        caller = omac.calls_by("bridge", "c7")
        for session in ("a", "b"):
            await omac.activate(session=session)
        assert await omac.directories.end_session("/w/shop", "a", caller) == ("/w/shop", True)
        assert omac.status().directories[0].sessions == ("b",)
        records = list(omac.journal.records())
        assert [type(record.event) for record in records[-2:]] == [ControlCalled, SessionEnded]
        assert {record.correlation for record in records[-2:]} == {"c7"}
        assert records[-2].event.session == records[-1].event.session == "a"
        head = omac.journal.store.head()
        assert await omac.directories.end_session("/w/shop", "a", caller) == ("/w/shop", True)
        assert await omac.directories.end_session("/w/blog", "a", caller) == ("/w/blog", True)
        assert omac.journal.store.head() == head
        with pytest.raises(Refusal) as caught:
            await omac.directories.end_session("/w/shop", "", caller)
        assert caught.value.reason == "bad-request"


async def test_a_reload_keeps_tokens(serving: Serving, skill: MakeSkill) -> None:
    """A URL with a token from before a reload still works after it."""
    async with serving() as omac:
        await put(omac, skill("echo"))
        token = (await omac.activate(session="a")).dir_token
        launch = (await omac.reload()).dir_token
        assert launch == omac.minted[0]
        assert omac.gate.resolve(token, "echo").session == "a"


async def test_a_reload_during_an_activation_discovers_again(serving: Serving, skill: MakeSkill) -> None:
    """Discovery that is under way may have come too early for the change, so a reload runs it again."""
    async with serving() as omac:
        await put(omac, skill("slow"))
        omac.host.silent.add("slow")
        async with trio.open_nursery() as callers:
            callers.start_soon(omac.activate)
            await omac.until(lambda: omac.sidecar("slow").status == "started")
            await put(omac, skill("slow"), skill("late"))
            callers.start_soon(omac.reload)
            omac.host.let(omac.host.silent, "slow")
        assert omac.skill_states() == {"late": "ready", "slow": "ready"}


async def test_a_reload_activates_what_is_offline(serving: Serving, skill: MakeSkill) -> None:
    """A reload activates an offline directory, each time with a fresh token; several at once share the activation."""
    async with serving() as omac:
        await put(omac, skill("echo"))
        tokens: list[str] = []

        async def reload() -> None:
            tokens.append((await omac.reload()).dir_token)

        async with trio.open_nursery() as callers:
            callers.start_soon(reload)
            callers.start_soon(reload)
        assert omac.skill_states() == {"echo": "ready"}
        assert len(set(tokens)) == 1
        await omac.deactivate()
        await reload()
        assert len(set(tokens)) == 2
        assert omac.gate.resolve(tokens[-1], "echo").skill == "echo"
        called = [r.event.action for r in omac.journal.records() if isinstance(r.event, ControlCalled)]
        assert called.count("deactivate") == 1
        assert set(called) == {"reload", "deactivate"}


async def test_a_reload_of_what_cannot_be_activated_fails(serving: Serving) -> None:
    """A reload fails with the same reason as an activation."""
    async with serving() as omac:
        omac.folders.gone.add("/w/shop")
        with pytest.raises(Refusal) as caught:
            await omac.reload()
        assert caught.value.reason == "directory-missing"


async def test_granted_calls_are_recorded_with_their_change(serving: Serving, skill: MakeSkill) -> None:
    """A granted call is recorded in its change's transaction, before any effect, with its caller and conversation."""
    async with serving() as omac:
        await put(omac, skill("echo"))
        await omac.directories.activate("/w/shop", omac.calls_by("tcp", "c1"), "s1")
        await omac.directories.reload("/w/shop", omac.calls_by("socket", "c2"))
        await omac.directories.deactivate("/w/shop", omac.calls_by("socket", "c3"))
        records = list(omac.journal.records())
        called = [record for record in records if isinstance(record.event, ControlCalled)]
        assert [(r.event.action, r.event.listener, r.actor, r.correlation) for r in called] == [
            ("activate", "tcp", "bridge", "c1"),
            ("activate", "tcp", "bridge", "c1"),
            ("reload", "socket", "person", "c2"),
            ("deactivate", "socket", "person", "c3"),
        ]
        for record in called:
            change = records[record.position]
            assert (change.at, change.correlation) == (record.at, record.correlation)
        assert {record.correlation for record in records if record.stream.startswith("sidecar")} == {"c1", "c3"}


async def test_calls_that_change_nothing_are_not_recorded(serving: Serving, skill: MakeSkill) -> None:
    """Activating an active directory for a known session, deactivating an offline one, and reading record nothing."""
    async with serving() as omac:
        await omac.deactivate()
        assert omac.journal.store.head() == 0
        await put(omac, skill("echo"))
        await omac.activate(session="s1")
        head = omac.journal.store.head()
        await omac.activate()
        await omac.activate(session="s1")
        assert omac.directories.listing() == [{"dir": "/w/shop", "state": "active"}]
        assert omac.directories.global_skills() == []
        await omac.caught_up()
        assert omac.journal.store.head() == head


async def test_refused_calls_are_recorded_with_their_reason(serving: Serving) -> None:
    """A refused call is recorded with the caller's text, of any bytes, cut to a bound."""
    async with serving() as omac:
        for action, written, reason in (
            (omac.activate, "/etc", "outside-roots"),
            (omac.deactivate, "/etc/" + "x" * 2_000, "outside-roots"),
            (omac.reload, "/etc", "outside-roots"),
            (omac.reload, "/\udcff", "outside-roots"),
        ):
            with pytest.raises(Refusal) as caught:
                await action(written)
            assert caught.value.reason == reason
        await omac.caught_up()
        refusals = [r.event for r in omac.journal.records() if isinstance(r.event, ControlRefused)]
        assert [(event.action, event.reason) for event in refusals] == [
            ("activate", "outside-roots"),
            ("deactivate", "outside-roots"),
            ("reload", "outside-roots"),
            ("reload", "outside-roots"),
        ]
        assert (len(refusals[1].dir), refusals[3].dir) == (1_024, "/?")
        assert omac.status().control == {"called": 0, "refused": 4}


async def test_a_directory_that_is_gone_from_disk_can_be_deactivated(serving: Serving) -> None:
    """A directory that no longer exists on disk can be deactivated, so that its tokens do not outlive it."""
    async with serving() as omac:
        await omac.activate()
        omac.folders.gone.add("/w/shop")
        assert await omac.deactivate() == "/w/shop"
        with pytest.raises(Refusal) as caught:
            await omac.deactivate()
        assert caught.value.reason == "directory-missing"


async def test_all_directories_of_a_run_go_offline_together(serving: Serving, skill: MakeSkill, kinds: Kinds) -> None:
    """No process runs at the end, and the reason is recorded."""
    async with serving() as omac:
        for workdir in ("/w/a", "/w/b", "/w/c"):
            echo = skill("echo", workdir=workdir)
            omac.put_approved(workdir, echo)
            await omac.activate(workdir)
        await omac.deactivate("/w/c")
        await omac.directories.deactivate_all("asked by SIGTERM")
        assert omac.host.running() == []
        assert omac.directories.listing() == []
        whys = [r.event.why for r in omac.journal.records() if isinstance(r.event, DeactivationRequested)]
        assert whys == ["asked for", "asked by SIGTERM", "asked by SIGTERM"]


async def test_a_deactivation_does_not_wait_for_the_next_activation(serving: Serving, skill: MakeSkill) -> None:
    """Many callers turn a directory on and off at once, and each of them gets an answer."""
    async with serving() as omac:
        await put(omac, skill("echo"))
        answers: list[str] = []

        async def call(action: Callable[[], Any]) -> None:
            for _ in range(10):
                try:
                    await action()
                    answers.append("granted")
                except Refusal as refusal:
                    answers.append(refusal.reason)

        async with trio.open_nursery() as callers:
            for action in (omac.activate, omac.deactivate, partial(omac.activate, session="s"), omac.deactivate):
                callers.start_soon(call, action)
        assert len(answers) == 40
        assert set(answers) <= {"granted", "directory-offline"}


async def test_the_journal_knows_digests_only(serving: Serving, skill: MakeSkill) -> None:
    """Tokens are minted and kept in memory; the folded state is keyed by their SHA-256."""
    async with serving() as omac:
        await put(omac, skill("echo"))
        await omac.activate(session="s1")
        assert set(omac.engine.system.tokens.streams) == {token_digest(token) for token in omac.minted}
