"""domain/planning.py: what runs, what is answered with a reason, and how that is mended."""

import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from omac.domain.directory import MAX_BODY_BYTES, Plan, RouteStubbed, Skill
from omac.domain.planning import Unapproved, approve_command, plan
from omac.domain.registration import Code, Registration
from omac.domain.sidecar import Variable, environment
from omac.domain.skill import Config, FoundSkill, Health, Limits, Meta, Secret, SidecarMeta

W = "/home/u/shop"


def found(name: str = "echo", base: str = "agents", **sidecar: Any) -> FoundSkill:
    sidecar = {"command": ("run",), "mount": name} | sidecar
    folder = f"{W}/.{base}/skills"
    return FoundSkill(name, base, folder, f"{folder}/{name}", "sha256:1", Meta(name, sidecar=SidecarMeta(**sidecar)))


def code(skill: FoundSkill) -> Code:
    return Code(skill.source, skill.bundle_hash)


def planned(
    *skills: FoundSkill,
    approved: bool = True,
    unapproved: Unapproved = "refuse",
    host: dict[str, str] | None = None,
    harness: str = "opencode",
) -> Plan:
    known = {one.name: Registration(code(one), code(one) if approved else None) for one in skills}
    return plan(skills, W, harness, known, unapproved, host or {})


def test_an_approved_skill_runs() -> None:
    """Its spec holds all that starting it takes, without another look at its files."""
    health = Health("/up", 1, 2, 3)
    skill = found(
        command=("run", "${SIDECAR_PORT}"),
        health=health,
        env_passthrough=("HOME",),
        secrets=(Secret("KEY", required=False, default_from_env="HOST_KEY"),),
        config=(Config("MODE", default="fast"),),
    )
    result = planned(skill)
    spec = result.specs["echo"]
    assert result.stubs == {}
    assert result.skills == {"echo": Skill("echo", "agents", f"{W}/.agents/skills/echo", "sha256:1", "echo")}
    assert (spec.skill, spec.mount, spec.workdir, spec.approved) == ("echo", "echo", W, True)
    assert (spec.source, spec.skills_dir) == (f"{W}/.agents/skills/echo", f"{W}/.agents/skills")
    assert (spec.command, spec.health, spec.passthrough) == (("run", "${SIDECAR_PORT}"), health, ("HOME",))
    assert spec.variables == (Variable("KEY", None, "HOST_KEY", secret=True), Variable("MODE", "fast"))


@pytest.mark.parametrize(("limit", "expected"), [(None, MAX_BODY_BYTES), (0, 0), (7, 7)])
def test_limits(limit: int | None, expected: int) -> None:
    """A skill's own limit, even one of nothing, else omac's."""
    assert planned(found(limits=Limits(limit))).max_body_bytes == {"echo": expected}


def test_what_cannot_be_read_is_broken() -> None:
    """Rule 1: it says why, and opens the file that is to be mended; its mount stays its own."""
    broken = replace(found("odd one"), meta=None, bundle_hash="", problem="line 3: not YAML")
    result = planned(broken)
    assert result.specs == {}
    stub = result.stubs["odd one"]
    assert (stub.mount, stub.why, stub.detail, stub.missing) == ("", "skill-broken", "line 3: not YAML", ())
    assert [shlex.split(command) for command in stub.fix] == [["${EDITOR:-vi}", f"{broken.source}/omac.yaml"]]
    named = planned(replace(found("echo"), meta=None, problem="x"), found("other", mount="echo"))
    assert named.skills["echo"].mount == "echo"
    assert "already that of the skill 'echo'" in named.stubs["other"].detail


def test_a_folder_of_skills_that_cannot_be_read_is_broken_too() -> None:
    """It has no omac.yaml of its own that an editor could mend."""
    folder = f"{W}/.agents/skills"
    result = planned(FoundSkill(".agents/skills", "agents", folder, folder, problem="leads out of the project"))
    assert result.skills[".agents/skills"].mount == ""
    (command,) = result.stubs[".agents/skills"].fix
    assert shlex.split(command)[-1] == folder


def test_a_skill_without_sidecar_is_no_sidecar() -> None:
    """Guidance that was found all the same is answered with that."""
    guidance = replace(found(), meta=Meta("echo"))
    assert planned(guidance).stubs["echo"].detail == "it has no sidecar"


def test_of_two_with_one_mount_the_first_has_it() -> None:
    """Rule 2: the later is broken, has no mount, and names the first."""
    result = planned(found("a", mount="m"), found("b", mount="m"), found("c", mount="m"))
    assert list(result.specs) == ["a"]
    assert [result.skills[name].mount for name in "abc"] == ["m", "", ""]
    for name in "bc":
        assert result.stubs[name].mount == ""
        assert result.stubs[name].detail == "its mount 'm' is already that of the skill 'a'"


def test_an_unapproved_skill_does_not_run() -> None:
    """Rule 3: and the command that approves it is at hand."""
    result = planned(found(), approved=False, harness="claude")
    assert result.specs == {}
    assert result.stubs["echo"] == RouteStubbed(
        "echo", "echo", "skill-broken", "not host-approved: nobody has vouched for its code on this machine", (),
        (f"omac approve echo --workdir {W} --harness claude --hash sha256:1",),
    )  # fmt: skip


@pytest.mark.parametrize("approved", [Code(f"{W}/.agents/skills/echo", "sha256:0"), Code("/elsewhere", "sha256:1")])
def test_code_that_drifted_does_not_run(approved: Code) -> None:
    """An approval is for one folder and one hash; both are named, so that a person can compare."""
    skill = found()
    result = plan([skill], W, "opencode", {"echo": Registration(code(skill), approved)}, "refuse", {})
    assert result.stubs["echo"].detail == (
        f"not host-approved: its code is not what was approved (approved {approved.bundle_hash} in {approved.source}, "
        f"found sha256:1 in {skill.source})"
    )


def test_allowed_but_unapproved_gets_nothing_of_the_host() -> None:
    """Rule 3: its spec says that nobody approved it, so its environment holds no declared variable."""
    skill = found(env_passthrough=("HOME",), config=(Config("MODE", default="fast", default_from_env="HOST_MODE"),))
    host = {"HOME": "/home/u", "HOST_MODE": "secret"}
    spec = planned(skill, approved=False, unapproved="allow", host=host).specs["echo"]
    assert not spec.approved
    variables = environment(spec, 1, host)
    assert "HOME" not in variables
    assert variables["MODE"] == "fast"


KEY = Secret("KEY", default_from_env="HOST_KEY")
EXPORT = "export HOST_KEY=...  # where omac serve is started, then start it again"
EDIT = f"${{EDITOR:-vi}} {W}/.agents/skills/echo/omac.yaml  # give KEY a default_from_env"
APPROVE = f"omac approve echo --workdir {W} --hash sha256:1"


@pytest.mark.parametrize(
    ("fields", "approved", "host", "missing", "fix"),
    [
        ({"secrets": (KEY,)}, True, {"HOST_KEY": "x"}, (), ()),
        ({"secrets": (KEY,)}, True, {}, ("KEY",), (EXPORT,)),
        ({"secrets": (KEY,)}, True, {"HOST_KEY": ""}, ("KEY",), (EXPORT,)),
        ({"secrets": (replace(KEY, required=False),)}, True, {}, (), ()),
        ({"secrets": (Secret("KEY"),)}, True, {"KEY": "x"}, ("KEY",), (EDIT,)),
        ({"config": (Config("KEY", default_from_env="HOST_KEY"),)}, True, {}, ("KEY",), (EXPORT,)),
        ({"config": (Config("KEY", default="x"),)}, True, {}, (), ()),
        ({"config": (Config("KEY", default="", default_from_env="HOST_KEY"),)}, True, {}, (), ()),
        ({"config": (Config("KEY", required=False),)}, True, {}, (), ()),
        ({"secrets": (KEY,)}, False, {"HOST_KEY": "x"}, ("KEY",), (APPROVE,)),
        ({"secrets": (KEY,)}, False, {}, ("KEY",), (APPROVE, EXPORT)),
        ({"secrets": (KEY, replace(KEY, name="K2"))}, False, {}, ("KEY", "K2"), (APPROVE, EXPORT)),
        ({"secrets": (KEY,), "config": (Config("B"),)}, True, {}, ("KEY", "B"), (EXPORT, EDIT.replace("KEY", "B"))),
    ],
)
def test_what_lacks_a_required_value_is_pending(
    fields: dict[str, Any], approved: bool, host: dict[str, str], missing: tuple[str, ...], fix: tuple[str, ...]
) -> None:
    """Rule 4: it names what is missing, in order, and what mends it; an empty variable is no value."""
    result = planned(found(**fields), approved=approved, unapproved="allow", host=host)
    assert ("echo" in result.specs) == (not missing)
    if missing:
        stub = result.stubs["echo"]
        assert (stub.why, stub.missing, stub.fix) == ("pending-credentials", missing, fix)
        assert stub.detail == f"required values are missing: {', '.join(missing)}"


@given(st.text(min_size=1).filter(lambda text: "\0" not in text))
def test_the_approve_command_survives_a_shell(path: str) -> None:
    """Spaces, quotes, dollars: pasted into a shell, it is the command that is meant."""
    command = shlex.split(approve_command(found(), path, "opencode"))
    assert command == ["omac", "approve", "echo", "--workdir", path, "--hash", "sha256:1"]


def test_a_plan_covers_every_skill_once() -> None:
    """Each is either to run or stubbed, whatever the others are like."""
    skills = [
        found("a"),
        replace(found("b"), problem="x", meta=None),
        found("c", mount="a"),
        found("d", secrets=(KEY,)),
    ]
    result = planned(*skills)
    assert result.specs.keys() | result.stubs.keys() == set("abcd") == result.skills.keys()
    assert not result.specs.keys() & result.stubs.keys()
    assert result.specs.keys() == result.max_body_bytes.keys()
