"""services/skills/registrar.py, with its reactors: skills are found, given values, adopted, accepted and shared."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
import pytest
import trio

from omac.domain.credentials import credential
from omac.domain.directories import directory
from omac.domain.directories.skill_plan import SkillPolicy
from omac.domain.kernel import ids
from omac.domain.kernel.event import Recorded
from omac.domain.kernel.hidden import Hidden
from omac.domain.kernel.refusal import Refusal
from omac.domain.sidecars.sidecar import Exit
from omac.domain.skills import registration
from omac.domain.skills.meta import Config, FoundSkill, Secret, SidecarMeta
from omac.domain.skills.registration import Approve, Code
from omac.domain.skills.repository import WorktreeFolder
from omac.services.credentials.values import Values
from omac.services.directories import activation, requests

Serving = Callable[..., AbstractAsyncContextManager[Any]]
MakeSkill = Callable[..., FoundSkill]
Read = Callable[[str], list[Recorded]]


def wants(skill: FoundSkill, *fields: Secret | Config) -> FoundSkill:
    """Return the skill with these values declared."""
    assert skill.meta is not None
    assert skill.meta.sidecar is not None
    secrets = tuple(field for field in fields if isinstance(field, Secret))
    config = tuple(field for field in fields if isinstance(field, Config))
    sidecar: SidecarMeta = msgspec.structs.replace(skill.meta.sidecar, secrets=secrets, config=config)
    return msgspec.structs.replace(skill, meta=msgspec.structs.replace(skill.meta, sidecar=sidecar))


def shared(skill: FoundSkill) -> FoundSkill:
    """Return the skill as one that all directories share."""
    source = f"/home/u/.agents/skills/{skill.name}"
    return msgspec.structs.replace(skill, source=source, skills_dir="/home/u/.agents/skills", scope="global")


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengthen the wait for shared skills, so that a disk that stalls for a second does not shorten a manifest."""
    for module in (activation, requests):
        monkeypatch.setattr(module, "SHARED_S", 15.0)


async def test_a_secret_makes_a_pending_skill_ready_with_the_same_token(serving: Serving, skill: MakeSkill) -> None:
    """A secret given by another process needs no call; the sidecar gets it, and only its fingerprint is recorded."""
    async with serving() as omac:
        slack = wants(skill("slack"), Secret("TOKEN"), Config("MODE", default="slow"))
        omac.put_approved("/w/shop", slack)
        before = await omac.activate()
        assert omac.skill_states() == {"slack": "pending_credentials"}
        await omac.give("/w/shop", "slack", Values({"TOKEN": Hidden("hunter2")}, {"MODE": "fast"}))
        await omac.until(lambda: omac.skill_states() == {"slack": "ready"})
        assert (await omac.activate()).dir_token == before.dir_token
        assert omac.host.secrets["slack"] == {"TOKEN": "hunter2"}
        assert not [r for r in omac.journal.records() if b"hunter2" in msgspec.msgpack.encode(r.event)]


async def test_a_changed_value_restarts_a_ready_sidecar(serving: Serving, skill: MakeSkill) -> None:
    """A changed secret or setting restarts the sidecar; an equal value given again changes nothing."""
    async with serving() as omac:
        slack = wants(skill("slack"), Secret("TOKEN"), Config("MODE", required=False))
        omac.put_approved("/w/shop", slack)
        await omac.give("/w/shop", "slack", Values({"TOKEN": Hidden("one")}))
        await omac.activate()
        for values in (Values({"TOKEN": Hidden("two")}), Values({}, {"MODE": "fast"})):
            first = omac.sidecar("slack").birth
            await omac.give("/w/shop", "slack", values)
            await omac.until(lambda: omac.sidecar("slack").birth not in (None, first) and ready(omac))  # noqa: B023
        assert omac.host.secrets["slack"] == {"TOKEN": "two"}
        birth, generation = omac.sidecar("slack").birth, omac.directory().generation
        await omac.give("/w/shop", "slack", Values({"TOKEN": Hidden("two")}))
        await omac.until(lambda: omac.directory().generation > generation and omac.directory().status == "active")
        assert omac.sidecar("slack").birth == birth


def ready(omac: Any) -> bool:
    """Return whether the directory is active and all its skills are ready."""
    return omac.directory().status == "active" and set(omac.skill_states().values()) == {"ready"}


async def test_a_value_taken_back_stops_the_sidecar(serving: Serving, skill: MakeSkill) -> None:
    """A removed value stops the sidecar, and the stub names the missing value and the command that sets it."""
    async with serving() as omac:
        slack = wants(skill("slack"), Secret("TOKEN"))
        omac.put_approved("/w/shop", slack)
        await omac.give("/w/shop", "slack", Values({"TOKEN": Hidden("one")}))
        await omac.activate()
        await omac.take("/w/shop", "slack", "TOKEN")
        await omac.until(lambda: omac.skill_states() == {"slack": "pending_credentials"} and not omac.host.running())
        route = omac.directory().routes["slack"]
        assert route.missing == ("TOKEN",)
        assert route.fix == ("omac secrets set slack TOKEN --workdir /w/shop --harness opencode",)
        await omac.reload()
        assert omac.skill_states() == {"slack": "pending_credentials"}, "what is remembered is not adopted again"


@pytest.mark.parametrize("command", [registration.Revoke("x"), registration.Deregister()])
async def test_a_revoked_approval_stops_the_sidecar(
    serving: Serving, skill: MakeSkill, command: registration.Command
) -> None:
    """A revoked skill stops at once, without a call."""
    async with serving() as omac:
        echo = skill("echo")
        omac.put_approved("/w/shop", echo)
        await omac.activate()
        omac.decide("/w/shop", echo, command)
        await omac.until(lambda: omac.skill_states() == {"echo": "broken"} and not omac.host.running())


@pytest.mark.parametrize(
    ("problem", "lies", "missing", "fix"),
    [
        (Refusal("keychain-locked", "it is locked", fix=["omac unlock"]), False, ("A", "B"), "omac unlock"),
        (Refusal("keychain-timeout", "it does not answer"), False, ("A", "B"), "omac reload /w/shop"),
        (None, True, ("B",), "omac secrets set slack B --workdir /w/shop --harness opencode"),
    ],
)
async def test_secrets_that_cannot_be_read_make_a_skill_pending(
    serving: Serving, skill: MakeSkill, problem: Refusal | None, lies: bool, missing: tuple[str, ...], fix: str
) -> None:
    """A store that is locked, slow or lying keeps only its skill from starting; a mended one lets a reload start it."""
    async with serving() as omac:
        slack, echo = wants(skill("slack"), Secret("A"), Secret("B")), skill("echo")
        omac.put_approved("/w/shop", slack, echo)
        await omac.give("/w/shop", "slack", Values({"A": Hidden("one"), "B": Hidden("two")}))
        omac.secrets.problem = problem
        if lies:
            stored = omac.secrets.values[credential.service(ids.workdir_id("/w/shop"), "slack")]
            stored["B"] = Hidden("planted")
        await omac.activate()
        assert omac.skill_states() == {"slack": "pending_credentials", "echo": "ready"}
        route = omac.directory().routes["slack"]
        assert route.missing == missing
        assert fix in route.fix
        omac.secrets.problem = None
        await omac.give("/w/shop", "slack", Values({"B": Hidden("two")}))
        await omac.until(lambda: ready(omac))


async def test_two_directories_never_share_a_secret(serving: Serving, skill: MakeSkill) -> None:
    """Skills may have equal names, other code and other values: each sidecar gets its own secret."""
    async with serving() as omac:
        for workdir in ("/w/a", "/w/b"):
            slack = wants(skill("slack", code=workdir[-1], workdir=workdir), Secret("TOKEN"))
            omac.put_approved(workdir, slack)
        await omac.give("/w/a", "slack", Values({"TOKEN": Hidden("of a")}))
        await omac.activate("/w/a")
        assert omac.host.secrets["slack"] == {"TOKEN": "of a"}
        await omac.activate("/w/b")
        assert omac.directory("/w/b").routes["slack"].why == "pending-credentials"
        await omac.give("/w/b", "slack", Values({"TOKEN": Hidden("of b")}))
        await omac.until(lambda: omac.directory("/w/b").status == "active")
        assert omac.host.secrets["slack"] == {"TOKEN": "of b"}


@pytest.mark.parametrize(
    ("digest", "approved", "adopted"),
    [("sha256:frozen", True, True), ("sha256:frozen", False, False), ("sha256:other", True, False)],
)
async def test_defaults_are_adopted_by_approved_code_only(
    serving: Serving, skill: MakeSkill, records: Read, digest: str, approved: bool, adopted: bool
) -> None:
    """Defaults are adopted without a person only where the code that got the value is the approved code."""
    async with serving() as omac:
        await omac.give("/w/a", "slack", Values({"TOKEN": Hidden("hunter2")}, {"MODE": "fast"}), digest)
        slack = wants(skill("slack", workdir="/w/b"), Secret("TOKEN"), Config("MODE"))
        omac.folders.put("/w/b", slack)
        if approved:
            omac.approve("/w/b", slack)
        await omac.activate("/w/b")
        assert (omac.host.secrets.get("slack") == {"TOKEN": "hunter2"}) == adopted
        events = [r.event for r in records(omac.path) if isinstance(r.event, credential.DefaultAdopted)]
        names = {"TOKEN", "MODE"} if adopted else set()
        assert {event.name for event in events} == names
        if adopted:
            assert omac.sidecar("slack", "/w/b").spec.variables[1].default == "fast"


async def test_discovery_registers_unless_set_otherwise(serving: Serving, skill: MakeSkill) -> None:
    """An unregistered skill with `serve.auto_register = false` is broken, and its fix is the command to register it."""
    async with serving(policy=SkillPolicy(auto_register=False)) as omac:
        echo = skill("echo")
        omac.folders.put("/w/shop", echo)
        await omac.activate()
        assert omac.status().registry == ()
        assert omac.directory().routes["echo"].fix == ("omac register echo --workdir /w/shop --harness opencode",)
        omac.approve("/w/shop", echo)
        await omac.until(lambda: omac.skill_states() == {"echo": "ready"})


@pytest.mark.parametrize("drift", ["refuse", "accept"])
async def test_changed_code(serving: Serving, skill: MakeSkill, records: Read, drift: Any) -> None:
    """Changed code is recorded as drifted; it runs only in a run that accepts it, from a copy of its own."""
    async with serving(policy=SkillPolicy(bundle_drift=drift)) as omac:
        old, new = skill("echo"), skill("echo", code="2")
        omac.put_approved("/w/shop", old)
        omac.folders.put("/w/shop", new)
        await omac.activate()
        assert omac.skill_states() == {"echo": "ready" if drift == "accept" else "broken"}
        drifted = [r.event for r in records(omac.path) if isinstance(r.event, registration.Drifted)]
        assert [event.accepted_by for event in drifted] == (["", "run1"] if drift == "accept" else [""])
        await omac.deactivate()
    async with serving("run2") as omac:
        omac.folders.put("/w/shop", new)
        await omac.activate()
        assert omac.skill_states() == {"echo": "broken"}, "the next run starts from what was approved"


async def test_a_planted_copy_is_never_accepted(serving: Serving, skill: MakeSkill) -> None:
    """A policy that accepts changes is for the folder that was approved, not for another one with that name."""
    async with serving(policy=SkillPolicy(bundle_drift="accept")) as omac:
        old = skill("echo")
        omac.approve("/w/shop", old)
        omac.folders.put("/w/shop", msgspec.structs.replace(old, source="/w/shop/.agents/skills/other"))
        await omac.activate()
        assert omac.skill_states() == {"echo": "broken"}


async def test_changes_in_what_the_hash_leaves_out(serving: Serving, skill: MakeSkill, records: Read) -> None:
    """The approved copy goes on running; the difference of the folder is recorded once."""
    async with serving() as omac:
        echo = skill("echo")
        omac.put_approved("/w/shop", echo)
        await omac.activate()
        omac.folders.digests[echo.source] = "sha256:planted"
        await omac.reload()
        await omac.reload()
        assert omac.skill_states() == {"echo": "ready"}
        assert omac.sidecar("echo").spec.digest == "sha256:frozen"
        drifted = [r.event for r in records(omac.path) if isinstance(r.event, registration.Drifted)]
        assert [event.digest for event in drifted] == ["sha256:planted"]


async def test_a_damaged_copy_does_not_run(serving: Serving, skill: MakeSkill) -> None:
    """The copy is checked before every start."""
    async with serving() as omac:
        echo = skill("echo")
        omac.put_approved("/w/shop", echo)
        omac.frozen.damaged.add(echo.source)
        await omac.activate()
        assert omac.skill_states() == {"echo": "broken"}
        assert "the approved copy is not what was approved" in omac.directory().routes["echo"].detail


async def test_shared_skills_run_once_and_are_in_every_manifest(serving: Serving, skill: MakeSkill) -> None:
    """A shared skill has one sidecar, below the reserved name of each token; its values are unscoped."""
    async with serving() as omac:
        weather = shared(wants(skill("weather"), Secret("KEY")))
        omac.put_approved("", weather)
        await omac.give("", "weather", Values({"KEY": Hidden("hunter2")}))
        assert list(omac.secrets.values) == ["omac/weather"], "kept unscoped, and not mirrored"
        manifests = [await omac.activate("/w/a"), await omac.activate("/w/b")]
        assert omac.host.running() == ["weather"]
        for manifest in manifests:
            (entry,) = manifest.skills
            base = f"http://127.0.0.1:9/{manifest.dir_token}/__global__/weather"
            assert (entry["scope"], entry["state"], entry["base"]) == ("global", "ready", base)
            assert manifest.env == {
                "OMAC_SKILLS": "__global__/weather", "OMAC_WEATHER_BASE": base, "OMAC_G_WEATHER_BASE": base,
            }  # fmt: skip
        assert [entry["state"] for entry in omac.directories.global_skills()] == ["ready"]
        assert {listed["dir"] for listed in omac.directories.listing()} == {"/w/a", "/w/b"}
        await omac.deactivate("/w/a")
        await omac.deactivate("/w/b")
        assert omac.host.running() == ["weather"], "it is the server's"
        await omac.directories.deactivate_all("the end")
        assert omac.host.running() == []


async def test_a_skill_of_the_directory_hides_a_shared_one(serving: Serving, skill: MakeSkill) -> None:
    """A directory's skill hides a shared one: of its name in manifest and variables, of its mount in flat variables."""
    async with serving() as omac:
        own, other = skill("weather"), skill("other", mount="mail")
        omac.folders.put("", shared(skill("weather", code="2")), shared(skill("mail", code="2")))
        omac.put_approved("/w/shop", own, other)
        for shared_skill in omac.folders.skills[""]:
            omac.approve("", shared_skill)
        manifest = await omac.activate()
        assert [(entry["name"], entry["scope"]) for entry in manifest.skills] == [
            ("other", "workdir"), ("weather", "workdir"), ("mail", "global"),
        ]  # fmt: skip
        base = f"http://127.0.0.1:9/{manifest.dir_token}"
        assert manifest.env["OMAC_WEATHER_BASE"] == f"{base}/weather"
        assert manifest.env["OMAC_MAIL_BASE"] == f"{base}/mail"
        assert manifest.env["OMAC_G_MAIL_BASE"] == f"{base}/__global__/mail"
        assert "OMAC_G_WEATHER_BASE" not in manifest.env


async def test_shared_skills_come_and_go(serving: Serving, skill: MakeSkill) -> None:
    """A shared skill is found with an activation; an approval or change by another process counts at once; a removed
    one ends with the next reload."""
    async with serving() as omac:
        await omac.activate("/w/a")
        assert not omac.engine.system.directories[ids.directory_stream(omac.engine.host, ids.GLOBAL)].version
        weather = shared(skill("weather"))
        omac.folders.put("", weather)
        (entry,) = (await omac.activate("/w/b")).skills
        assert entry["state"] == "broken"
        assert entry["fix"] == ["omac approve weather --global --harness opencode --hash sha256:frozen"]
        omac.approve("", weather)
        await omac.until(lambda: omac.host.running() == ["weather"])
        omac.folders.put("")
        await omac.directories.reload_shared(omac.caller)
        await omac.until(lambda: not omac.host.running())
        assert (await omac.activate("/w/c")).skills == []


@pytest.mark.parametrize("taken", ["approval", "secret"])
async def test_what_is_taken_back_ends_the_sidecar_at_once(serving: Serving, skill: MakeSkill, taken: str) -> None:
    """A revocation ends the sidecar even during a long discovery, and it does not start again before that ends."""
    async with serving() as omac:
        slack = wants(skill("slack"), Secret("TOKEN"))
        omac.put_approved("/w/shop", slack)
        await omac.give("/w/shop", "slack", Values({"TOKEN": Hidden("one")}))
        await omac.activate()
        omac.folders.held = True
        if taken == "approval":
            omac.decide("/w/shop", slack, registration.Revoke("x"))
        else:
            await omac.take("/w/shop", "slack", "TOKEN")
        await omac.until(lambda: not omac.host.running())
        await omac.until(lambda: omac.directory().status == "activating")
        assert omac.host.transcript.count("spawn slack") == 1
        omac.folders.go_on()
        await omac.until(lambda: omac.directory().status == "active_partial")
        assert omac.host.transcript.count("spawn slack") == 1


async def test_what_lost_its_approval_before_its_start_is_not_started(serving: Serving, skill: MakeSkill) -> None:
    """A plan may be older than a revocation, so each start checks the approval again. People read that the skill is not
    approved, with the command that approves it."""
    async with serving() as omac:
        omac.put_approved("/w/shop", skill("echo"))
        await omac.activate()
        registrations = omac.engine.system.registrations
        (stream,) = registrations.entries
        entry = registrations.entries[stream]
        registrations.entries[stream] = msgspec.structs.replace(entry, state=registration.Registration())
        omac.host.process("echo").end(Exit(1))
        await omac.until(lambda: omac.sidecar("echo").status == "gave_up")
        assert omac.host.transcript.count("spawn echo") == 1
        assert omac.sidecar("echo").detail == "not host-approved: its code is no longer approved"
        await omac.until(lambda: omac.directory().status == "active_partial")
        (route,) = omac.directory().routes.values()
        assert route.fix[0].startswith("omac approve echo --workdir /w/shop --harness ")


async def test_an_approved_skill_is_starting_until_its_sidecar_answers(serving: Serving, skill: MakeSkill) -> None:
    """A stub holds until another plan replaces it: calls and the status name no approval that is given meanwhile."""
    async with serving() as omac:
        slow = skill("slow")
        omac.folders.put("/w/shop", slow)
        token = (await omac.activate()).dir_token
        assert omac.skill_states() == {"slow": "broken"}
        omac.host.silent.add("slow")
        omac.approve("/w/shop", slow)
        await omac.until(lambda: omac.sidecar("slow").status == "started")
        with pytest.raises(Refusal, match="its sidecar is starting") as refused:
            omac.gate.resolve(token, "slow")
        assert refused.value.reason == "sidecar-down"
        assert omac.skill_states() == {"slow": "restarting"}


async def test_shared_skills_may_go_offline_during_discovery(serving: Serving, skill: MakeSkill) -> None:
    """The directory comes online, and other directories are not harmed."""
    async with serving() as omac:
        omac.folders.put("", shared(skill("weather")))
        await omac.activate("/w/a")
        omac.folders.put("", shared(skill("weather", code="2")))
        omac.folders.held_shared = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(omac.activate, "/w/b")
            await omac.until(lambda: omac.directory("/w/b").status == "activating")
            stream = ids.directory_stream(omac.engine.host, ids.GLOBAL)
            await omac.engine.execute(directory.AGGREGATE, stream, directory.RequestDeactivation("x"))
            omac.folders.go_on()
        assert omac.directory("/w/b").status == "active"
        assert (await omac.activate("/w/c")).state == "active"


async def test_changes_that_cannot_be_copied_break_one_skill(serving: Serving, skill: MakeSkill) -> None:
    """Changed code that cannot be copied breaks one skill, also in a run that accepts changes."""
    async with serving(policy=SkillPolicy(bundle_drift="accept")) as omac:
        old, other = skill("echo"), skill("other")
        omac.put_approved("/w/shop", old, other)
        omac.folders.put("/w/shop", skill("echo", code="2"), other)
        omac.frozen.problem = Refusal("skill-invalid", "it holds a FIFO")
        await omac.activate()
        assert omac.skill_states() == {"echo": "broken", "other": "ready"}


async def test_unlocking_reloads_waiting_directories(serving: Serving, skill: MakeSkill) -> None:
    """An unlocked store makes omac reload the directories that wait for it, and no others."""
    async with serving() as omac:
        slack = wants(skill("slack", workdir="/w/a"), Secret("A"))
        omac.put_approved("/w/a", slack)
        await omac.give("/w/a", "slack", Values({"A": Hidden("one")}))
        omac.secrets.problem = Refusal("vault-locked", "it is locked", fix=["omac unlock"])
        await omac.activate("/w/a")
        await omac.activate("/w/b")
        omac.secrets.problem = None
        assert await omac.locking.unlock(omac.caller, lambda: None) == ["/w/a"]
        await omac.until(lambda: omac.directory("/w/a").status == "active")
        assert omac.directory("/w/b").generation == 1


def test_codes_are_bundles_of_one_folder() -> None:
    """`is_bundle` compares folder and hash, not the digest."""
    code = Code("/s", "sha256:1", "d")
    assert code.is_bundle(Code("/s", "sha256:1"))
    assert not code.is_bundle(Code("/t", "sha256:1", "d"))
    assert not code.is_bundle(None)


@pytest.mark.parametrize(("code", "state"), [("1", "ready"), ("an agent's", "broken")])
async def test_files_exchanged_while_they_are_read_have_no_approval_by_repository(
    serving: Serving, skill: MakeSkill, code: str, state: str
) -> None:
    """An agent's omac.yaml is not obeyed where the approved files are back before their digest is taken."""
    async with serving() as omac:
        echo = skill("echo", code)
        part = WorktreeFolder("/w/main/.git", 1, 2)
        omac.repositories.parts["/w/shop"] = part
        omac.folders.put("/w/shop", echo)  # the digest that is taken later is that of the approved copy
        omac.decide("/w/main", echo, Approve(Code(echo.source, "sha256:1", "sha256:frozen"), "/w/main"), part.scope)
        await omac.activate()
        assert omac.skill_states() == {"echo": state}
        assert bool(omac.host.running()) == (state == "ready")
