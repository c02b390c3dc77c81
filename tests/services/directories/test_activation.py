"""services/directories/activation.py: directories come online, follow their skills, and go offline whole."""

import itertools
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
import pytest
import trio

from omac.domain.directories.events import ReloadRequested
from omac.domain.directories.skill_plan import SkillPolicy
from omac.domain.kernel.refusal import Refusal
from omac.domain.sidecars.sidecar import Exit
from omac.domain.skills.meta import FoundSkill

Serving = Callable[..., AbstractAsyncContextManager[Any]]
MakeSkill = Callable[..., FoundSkill]
Kinds = Callable[..., list[str]]


async def test_the_first_activation_mounts_what_is_approved(serving: Serving, skill: MakeSkill, kinds: Kinds) -> None:
    """An activation registers, spawns, probes and mounts skills; only then is the directory activated."""
    async with serving() as omac:
        omac.put_approved("/w/shop", skill("echo"))
        manifest = await omac.activate()
        assert (manifest.state, omac.skill_states()) == ("active", {"echo": "ready"})
        assert omac.host.transcript == ["spawn echo"]
        assert kinds(omac.path, "directory", "skill.ap", "route", "sidecar") == [
            "skill.approved",
            "directory.activation-requested",
            "skill.appeared",
            "sidecar.spawn-requested",
            "sidecar.started",
            "sidecar.healthy",
            "route.mounted",
            "directory.activated",
        ]


async def test_a_directory_without_skills_is_active(serving: Serving) -> None:
    """A directory without skills has nothing to wait for, and is active at once."""
    async with serving() as omac:
        assert (await omac.activate()).state == "active"


async def test_unapproved_skills_are_stubbed_and_never_started(serving: Serving, skill: MakeSkill) -> None:
    """Discovery does not imply trust: an unapproved skill has a reason and the command that approves it."""
    async with serving() as omac:
        omac.folders.put("/w/shop", skill("echo"))
        manifest = await omac.activate()
        (entry,) = manifest.skills
        assert (manifest.state, entry["state"]) == ("active_partial", "broken")
        assert entry["fix"] == ["omac approve echo --workdir /w/shop --harness opencode --hash sha256:frozen"]
        assert omac.host.transcript == []


async def test_unapproved_skills_run_where_a_person_allowed_it(serving: Serving, skill: MakeSkill) -> None:
    """A policy with `allow` holds for the run; the spec records that the skill is not approved."""
    async with serving(policy=SkillPolicy("allow")) as omac:
        omac.folders.put("/w/shop", skill("echo"))
        assert (await omac.activate()).state == "active"
        assert not omac.sidecar("echo").spec.approved


async def test_an_approval_by_another_process_makes_the_skill_ready(serving: Serving, skill: MakeSkill) -> None:
    """The running omac notices an approval without another call, reloads, and follows from the approval."""
    async with serving() as omac:
        echo = skill("echo")
        omac.folders.put("/w/shop", echo)
        token = (await omac.activate()).dir_token
        omac.approve("/w/shop", echo)
        await omac.until(lambda: omac.directory().status == "active")
        assert omac.skill_states() == {"echo": "ready"}
        assert omac.directory().generation == 2
        again = await omac.activate()
        assert again.dir_token == token
        (reload,) = [r for r in omac.journal.records() if isinstance(r.event, ReloadRequested)]
        approved = [r.position for r in omac.journal.records() if r.run == "approver"]
        assert (reload.actor, reload.causation) == ("omac", approved[-1])


async def test_an_approval_during_an_activation_is_not_lost(serving: Serving, skill: MakeSkill) -> None:
    """The activation may have judged before the approval: omac judges the skill again after it."""
    async with serving() as omac:
        echo, slow = skill("echo"), skill("slow")
        omac.folders.put("/w/shop", echo, slow)
        omac.approve("/w/shop", slow)
        omac.host.silent.add("slow")
        async with trio.open_nursery() as callers:
            callers.start_soon(omac.activate)
            await omac.until(lambda: omac.sidecar("slow").status == "started")
            omac.approve("/w/shop", echo)
            await omac.until(lambda: omac.engine.system.position == omac.journal.store.head())
            omac.host.let(omac.host.silent, "slow")
        await omac.until(lambda: omac.skill_states() == {"echo": "ready", "slow": "ready"})


async def test_many_approvals_cost_few_reloads(serving: Serving, skill: MakeSkill) -> None:
    """A reload that began after an approval has seen it: no other reload is requested."""
    async with serving() as omac:
        skills = [skill(f"s{n}") for n in range(8)]
        omac.folders.put("/w/shop", *skills)
        await omac.activate()
        omac.approve("/w/shop", *skills)
        await omac.until(lambda: omac.directory().status == "active")
        await omac.until(lambda: omac.engine.system.position == omac.journal.store.head())
        assert set(omac.skill_states().values()) == {"ready"}
        assert sorted(omac.host.transcript) == sorted(f"spawn {approved.name}" for approved in skills), "each once"
        assert omac.directory().generation <= 1 + len(skills)


async def test_an_approval_while_the_journal_is_away_counts_later(
    serving: Serving, skill: MakeSkill, caplog: pytest.LogCaptureFixture
) -> None:
    """omac requests the reload that an approval calls for until it can be recorded, and logs once why it cannot."""
    async with serving() as omac:
        echo = skill("echo")
        omac.folders.put("/w/shop", echo)
        await omac.activate()
        omac.journal_fails(2, "directory.reload-requested")
        omac.approve("/w/shop", echo)
        with caplog.at_level(logging.ERROR):
            await omac.until(lambda: omac.skill_states() == {"echo": "ready"})
        assert [record.name for record in caplog.records].count("omac.activation") == 1, caplog.text


async def test_concurrent_activations_are_one(serving: Serving, skill: MakeSkill, kinds: Kinds) -> None:
    """Callers that ask during an activation share its outcome: one request, one token, one spawn."""
    async with serving() as omac:
        omac.put_approved("/w/shop", skill("echo"))
        tokens: list[str] = []

        async def ask() -> None:
            tokens.append((await omac.activate()).dir_token)

        async with trio.open_nursery() as callers:
            for _ in range(20):
                callers.start_soon(ask)
        assert len(tokens) == 20
        assert len(set(tokens)) == 1
        assert kinds(omac.path, "directory") == ["directory.activation-requested", "directory.activated"]
        assert kinds(omac.path, "control") == ["control.called"]
        assert omac.host.transcript == ["spawn echo"]


@pytest.mark.parametrize(
    "problem", [PermissionError(13, "Permission denied", "/w/shop"), Refusal("directory-missing", "it is gone")]
)
async def test_a_failed_activation_ends_and_can_be_repeated(
    serving: Serving, skill: MakeSkill, kinds: Kinds, problem: Exception
) -> None:
    """Callers get the problem of discovery as their refusal; afterwards an activation can succeed."""
    async with serving() as omac:
        omac.folders.put("/w/shop", skill("echo"))
        omac.folders.problem = problem
        with pytest.raises(Refusal) as caught:
            await omac.activate()
        assert caught.value.reason == "activation-failed"
        assert str(problem) in caught.value.message
        await omac.until(lambda: omac.directory().status == "offline")
        assert omac.engine.system.tokens.streams == {}
        assert kinds(omac.path, "directory")[-2:] == ["directory.activation-failed", "directory.deactivated"]
        omac.folders.problem = None
        assert (await omac.activate()).state == "active_partial"


async def test_a_skill_that_changed_is_replaced_on_reload(serving: Serving, skill: MakeSkill) -> None:
    """The old sidecar has ended before the new one starts, and the tokens stay."""
    async with serving() as omac:
        old, new = skill("echo", "1"), skill("echo", "2")
        omac.put_approved("/w/shop", old)
        token = (await omac.activate()).dir_token
        omac.put_approved("/w/shop", new)
        manifest = await omac.reload()
        await omac.until(lambda: omac.directory().status == "active")
        assert manifest.dir_token == token
        assert omac.host.transcript == ["spawn echo", "stop echo", "stopped echo", "spawn echo"]
        assert omac.sidecar("echo").spec.bundle_hash == "sha256:2"
        assert omac.host.running() == ["echo"]


async def test_a_skill_that_drifted_is_stopped(serving: Serving, skill: MakeSkill) -> None:
    """Unapproved code does not go on running behind an old approval once discovery has seen it."""
    async with serving() as omac:
        omac.put_approved("/w/shop", skill("echo"))
        await omac.activate()
        omac.folders.put("/w/shop", skill("echo", "2"))
        assert (await omac.reload()).state == "active_partial"
        await omac.until(lambda: omac.host.running() == [])
        assert "not what was approved" in omac.status().directories[0].skills[0].detail


async def test_a_skill_that_vanished_is_unmounted_and_stopped(serving: Serving, skill: MakeSkill, kinds: Kinds) -> None:
    """The route of a vanished skill is unmounted and its sidecar stops; the other skills are not touched."""
    async with serving() as omac:
        echo, other = skill("echo"), skill("other")
        omac.put_approved("/w/shop", echo, other)
        await omac.activate()
        omac.folders.put("/w/shop", other)
        assert (await omac.reload()).state == "active"
        await omac.until(lambda: omac.host.running() == ["other"])
        assert "route.unmounted" in kinds(omac.path)
        assert omac.skill_states() == {"other": "ready"}
        assert omac.host.transcript.count("spawn other") == 1


async def test_deactivation_during_an_activation_calls_it_off(serving: Serving, skill: MakeSkill) -> None:
    """A caller that waits for the activation gets a refusal, and no sidecar keeps running."""
    async with serving() as omac:
        omac.put_approved("/w/shop", skill("slow"))
        omac.host.silent.add("slow")
        refusals: list[tuple[str, tuple[str, ...]]] = []

        async def ask() -> None:
            with pytest.raises(Refusal) as caught:
                await omac.activate()
            refusals.append((caught.value.reason, caught.value.fix))

        async with trio.open_nursery() as callers:
            callers.start_soon(ask)
            await omac.until(lambda: omac.sidecar("slow").status == "started")
            await omac.deactivate()
        assert refusals == [("directory-offline", ("omac activate /w/shop",))]
        assert omac.host.running() == []
        assert omac.directory().status == "offline"


async def test_deactivation_during_discovery_calls_it_off(serving: Serving, skill: MakeSkill) -> None:
    """Skills that discovery finds afterwards are not adopted; no sidecar starts for a directory that goes offline."""
    async with serving() as omac:
        omac.put_approved("/w/shop", skill("echo"))
        omac.folders.held = True
        async with trio.open_nursery() as callers:

            async def ask() -> None:
                with pytest.raises(Refusal, match="taken offline"):
                    await omac.activate()

            callers.start_soon(ask)
            await omac.until(lambda: omac.folders.discovered)
            callers.start_soon(omac.deactivate)
            await omac.until(lambda: omac.directory().status == "deactivating")
            omac.folders.go_on()
        assert omac.host.transcript == []


async def test_offline_is_recorded_after_the_last_sidecar_stopped(
    serving: Serving, skill: MakeSkill, kinds: Kinds
) -> None:
    """A sidecar that is slow to end holds up the deactivation; the tokens are dead all the same."""
    async with serving() as omac:
        omac.put_approved("/w/shop", skill("slow"))
        await omac.activate()
        omac.host.stubborn.add("slow")
        async with trio.open_nursery() as callers:
            callers.start_soon(omac.deactivate)
            await omac.until(lambda: "stop slow" in omac.host.transcript)
            assert omac.directory().status == "deactivating"
            assert omac.engine.system.tokens.streams == {}
            omac.host.let(omac.host.stubborn, "slow")
        order = kinds(omac.path, "sidecar.stopped", "directory.deactivated")
        assert order == ["sidecar.stopped", "directory.deactivated"]


async def test_an_activation_waits_for_the_deactivation_before_it(serving: Serving, skill: MakeSkill) -> None:
    """Two lives of a directory do not overlap, and the second has another token."""
    async with serving() as omac:
        omac.put_approved("/w/shop", skill("slow"))
        first = await omac.activate()
        omac.host.stubborn.add("slow")
        second: list[Any] = []

        async def again() -> None:
            second.append(await omac.activate())

        async with trio.open_nursery() as callers:
            callers.start_soon(omac.deactivate)
            await omac.until(lambda: omac.directory().status == "deactivating")
            callers.start_soon(again)
            await omac.until(lambda: "stop slow" in omac.host.transcript)
            omac.host.let(omac.host.stubborn, "slow")
        assert second[0].dir_token != first.dir_token
        assert omac.host.transcript == ["spawn slow", "stop slow", "stopped slow", "spawn slow"]


async def test_a_sidecar_that_gives_up_is_stubbed_until_a_reload(serving: Serving, skill: MakeSkill) -> None:
    """The directory stays usable in part and reports the command that mends it, and that command works."""
    async with serving() as omac:
        echo, other = skill("echo"), skill("other")
        omac.put_approved("/w/shop", echo, other)
        await omac.activate()
        omac.host.failing.add("echo")
        omac.host.process("echo").end(Exit(code=3))
        await omac.until(lambda: omac.directory().status == "active_partial")
        assert omac.skill_states() == {"echo": "broken", "other": "ready"}
        (broken,) = [entry for entry in omac.status().directories[0].skills if entry.name == "echo"]
        assert broken.fix == ("omac logs echo --workdir /w/shop", "omac reload /w/shop")
        assert "gave up" in broken.detail
        omac.host.failing.clear()
        assert (await omac.reload()).state == "active"
        assert omac.skill_states() == {"echo": "ready", "other": "ready"}
        assert omac.host.transcript.count("spawn other") == 1


async def test_a_sidecar_that_gives_up_while_activating_does_not_hold_up_the_others(
    serving: Serving, skill: MakeSkill
) -> None:
    """An activation always ends, and one skill never keeps the others from coming online."""
    async with serving() as omac:
        echo, other = skill("echo"), skill("other")
        omac.put_approved("/w/shop", echo, other)
        omac.host.failing.add("echo")
        assert (await omac.activate()).state == "active_partial"
        await omac.until(lambda: omac.skill_states() == {"echo": "broken", "other": "ready"})
        assert (await omac.reload()).state == "active_partial"
        await omac.until(lambda: omac.skill_states() == {"echo": "broken", "other": "ready"})


async def test_a_sidecar_that_recovers_by_itself_completes_the_activation(serving: Serving, skill: MakeSkill) -> None:
    """A partially active directory becomes active as soon as the last skill is healthy."""
    async with serving() as omac:
        omac.put_approved("/w/shop", skill("echo"))
        omac.host.unhealthy.add("echo")
        assert (await omac.activate()).state == "active_partial"
        omac.host.unhealthy.clear()
        await omac.until(lambda: omac.directory().status in ("active", "active_partial") and omac.host.running())
        if omac.sidecar("echo").status == "gave_up":
            await omac.reload()
        await omac.until(lambda: omac.directory().status == "active")


async def test_the_journal_coming_back_resumes_an_activation(
    serving: Serving, skill: MakeSkill, caplog: pytest.LogCaptureFixture
) -> None:
    """An owner whose append was refused tries again, and logs why once; it neither gives up nor ends omac."""
    async with serving() as omac:
        omac.put_approved("/w/shop", skill("echo"))
        steps = ("skill.appeared", "sidecar.spawn-requested", "sidecar.started", "route.mounted", "directory.activated")
        for kind in steps:
            omac.journal_fails(2, kind)
        with caplog.at_level(logging.ERROR):
            assert (await omac.activate()).state == "active"
        own = [record for record in caplog.records if record.name in ("omac.activation", "omac.supervision")]
        assert len(own) == len(steps) - 1, caplog.text  # the last two are one transaction


async def test_a_reload_is_never_swallowed_by_a_settling_sidecar(serving: Serving, skill: MakeSkill) -> None:
    """A requested activation ends only after its own discovery, even if its sidecars settle at that moment."""
    async with serving() as omac:
        omac.put_approved("/w/shop", skill("echo"))
        await omac.activate()
        for round_ in range(10):
            before = omac.folders.discovered
            omac.host.process("echo").end(Exit(code=1))
            await omac.reload()
            assert omac.folders.discovered == before + 1, round_
            await omac.until(lambda: omac.sidecar("echo").status in ("healthy", "gave_up"))
            if omac.sidecar("echo").status == "gave_up":
                await omac.reload()


@pytest.mark.full
async def test_commotion_ends_in_order(serving: Serving, skill: MakeSkill, replayed: Callable[[str], Any]) -> None:
    """Activations, sessions, reloads, crashes and deactivations run at once: no owner waits for ever, no process is
    left running, and the journal replays to the status of the live system."""
    async with serving() as omac:
        workdirs = [f"/w/p{n}" for n in range(4)]
        for workdir in workdirs:
            skills = [skill(f"s{n}", workdir=workdir) for n in range(3)]
            omac.put_approved(workdir, *skills)

        refused: set[str] = set()

        async def drive(workdir: str, number: int) -> None:
            for turn in range(25):
                for call in (omac.activate, omac.reload, omac.deactivate)[(turn + number) % 2 :]:
                    try:
                        if call == omac.activate:
                            await omac.activate(workdir, f"session{number}-{turn}")
                        else:
                            await call(workdir)
                    except Refusal as refusal:
                        refused.add(refusal.reason)

        async def crash() -> None:
            for number in itertools.count():
                await trio.lowlevel.checkpoint()  # catching up cannot be cancelled
                await omac.engine.catch_up()
                if omac.host.processes:
                    omac.host.processes[number % len(omac.host.processes)].end(Exit(code=1))

        with trio.CancelScope() as crashing:
            async with trio.open_nursery() as everyone:
                everyone.start_soon(crash)
                async with trio.open_nursery() as drivers:
                    for workdir in workdirs:
                        for number in range(2):
                            drivers.start_soon(drive, workdir, number)
                crashing.cancel()
        await omac.directories.deactivate_all("the test ends")
        await omac.caught_up()
        assert refused <= {"directory-offline"}
        assert {omac.directory(workdir).status for workdir in workdirs} == {"offline"}
        assert omac.host.running() == []
        assert msgspec.json.encode(replayed(omac.path)) == msgspec.json.encode(omac.status())


async def test_what_is_recorded_after_the_reactors_ended_finds_no_owner(serving: Serving, skill: MakeSkill) -> None:
    """An approval in the very last moment does not end the journal's writer."""
    async with serving() as omac:
        echo = skill("echo")
        omac.folders.put("/w/shop", echo)
        await omac.activate()
        await omac.end_reactors()
        omac.approve("/w/shop", echo)
        await omac.caught_up()
        assert omac.status().registry[0].approved
        assert omac.directory().generation == 1
