"""domain/directories/skill_plan.py: skills that run, and stubs with their reasons and fixes."""

import shlex
from typing import Any

import pytest
from msgspec.structs import replace

from omac.domain.credentials.credential import Credential, Stored
from omac.domain.directories.directory import ActivationPlan
from omac.domain.directories.events import MAX_BODY_BYTES, RouteStubbed, Skill
from omac.domain.directories.skill_plan import KnownSkill, SkillPolicy, Unapproved, plan
from omac.domain.kernel.hidden import Hidden
from omac.domain.sidecars.sidecar import Variable, environment
from omac.domain.skills.meta import Config, FoundSkill, Health, Limits, Meta, Secret, SidecarMeta
from omac.domain.skills.registration import Code, Registration
from omac.domain.skills.scope import SkillScope

W = "/home/u/shop"


def found_skill(name: str = "echo", base: str = "agents", **sidecar: Any) -> FoundSkill:
    sidecar = {"command": ("run",), "mount": name} | sidecar
    folder = f"{W}/.{base}/skills"
    return FoundSkill(name, base, folder, f"{folder}/{name}", "sha256:1", Meta(name, sidecar=SidecarMeta(**sidecar)))


def code(skill: FoundSkill, digest: str = "sha256:d") -> Code:
    return Code(skill.source, skill.bundle_hash, digest)


def planned(
    *skills: FoundSkill,
    approved: bool = True,
    unapproved: Unapproved = "refuse",
    host: dict[str, str] | None = None,
    harness: str = "opencode",
    credential: Credential = Credential(),  # noqa: B008  # frozen
    workdir: str = W,
) -> ActivationPlan:
    records = {
        skill.name: KnownSkill(Registration(code(skill), code(skill) if approved else None), credential)
        for skill in skills
    }
    return plan(skills, SkillScope(workdir, harness), records, SkillPolicy(unapproved), host or {}, "run1")


def test_an_approved_skill_runs() -> None:
    """The spec of an approved skill holds all that its start needs, without reading its files again."""
    health = Health("/up", 1, 2, 3)
    skill = found_skill(
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
    assert spec.digest == "sha256:d"


@pytest.mark.parametrize(("limit", "expected"), [(None, MAX_BODY_BYTES), (0, 0), (7, 7)])
def test_limits(limit: int | None, expected: int) -> None:
    """A skill's own body limit counts, even 0; without one, omac's limit counts."""
    assert planned(found_skill(limits=Limits(limit))).max_body_bytes == {"echo": expected}


def test_what_cannot_be_read_is_broken() -> None:
    """Rule 1: the stub of an unreadable skill gives the reason, and a command that opens the file to mend, or shows
    what is in the place of its folder. The skill keeps its mount."""
    broken = replace(found_skill("odd one"), meta=None, bundle_hash="", problem="omac.yaml, line 3: no YAML")
    result = planned(broken)
    assert result.specs == {}
    stub = result.stubs["odd one"]
    assert (stub.mount, stub.why, stub.detail, stub.missing) == ("", "skill-broken", "omac.yaml, line 3: no YAML", ())
    assert [shlex.split(command) for command in stub.fix] == [["${EDITOR:-vi}", f"{broken.source}/omac.yaml"]]
    link = replace(broken, problem=f"{broken.source} is a link that leads nowhere; remove it")
    assert planned(link).stubs["odd one"].fix == (f"ls -la '{broken.source}'",)
    clash = planned(replace(found_skill("echo"), meta=None, problem="x"), found_skill("other", mount="echo"))
    assert clash.skills["echo"].mount == "echo"
    assert "already that of 'echo'" in clash.stubs["other"].detail


def test_a_folder_of_skills_that_cannot_be_read_is_broken_too() -> None:
    """An unreadable skills folder has no omac.yaml of its own to mend, so its fix opens the folder."""
    folder = f"{W}/.agents/skills"
    result = planned(FoundSkill(".agents/skills", "agents", folder, folder, problem="leads out of the project"))
    assert result.skills[".agents/skills"].mount == ""
    (command,) = result.stubs[".agents/skills"].fix
    assert shlex.split(command)[-1] == folder


def test_a_skill_without_sidecar_is_no_sidecar() -> None:
    """A guidance skill that is discovered all the same gets a stub with that reason."""
    guidance = replace(found_skill(), meta=Meta("echo"))
    assert planned(guidance).stubs["echo"].detail == "it has no sidecar"


def test_of_two_with_one_mount_the_first_has_it() -> None:
    """Rule 2: the later skill is broken and has no mount, and its stub names the first skill."""
    result = planned(found_skill("a", mount="m"), found_skill("b", mount="m"), found_skill("c", mount="m"))
    assert list(result.specs) == ["a"]
    assert [result.skills[name].mount for name in "abc"] == ["m", "", ""]
    for name in "bc":
        assert result.stubs[name].mount == ""
        assert result.stubs[name].detail == "its mount 'm' is already that of 'a'"


def test_no_unapproved_skill_takes_the_mount_of_an_approved_one() -> None:
    """Rule 2: an approved skill keeps its mount, even if an agent writes a folder whose name comes first."""
    skills = found_skill("aaa", mount="m"), found_skill("echo", mount="m")
    records = {
        "aaa": KnownSkill(Registration(code(skills[0]))),
        "echo": KnownSkill(Registration(code(skills[1]), code(skills[1]))),
    }
    result = plan(skills, SkillScope(W, "opencode"), records, SkillPolicy("refuse"), {}, "run1")
    assert list(result.specs) == ["echo"]
    assert result.stubs["aaa"].detail == "its mount 'm' is already that of 'echo'"
    assert [result.skills[name].mount for name in ("aaa", "echo")] == ["", "m"]


def test_an_unapproved_skill_does_not_run() -> None:
    """Rule 3: the stub of an unapproved skill has the command that approves it."""
    result = planned(found_skill(), approved=False, harness="claude")
    assert result.specs == {}
    assert result.stubs["echo"] == RouteStubbed(
        "echo", "echo", "skill-broken", "not host-approved: no approval on this machine covers its code", (),
        (f"omac approve echo --workdir {W} --harness claude --hash sha256:d",),
    )  # fmt: skip


@pytest.mark.parametrize(
    "approved", [Code(f"{W}/.agents/skills/echo", "sha256:0", "d"), Code("/elsewhere", "sha256:1", "d")]
)
def test_code_that_drifted_does_not_run(approved: Code) -> None:
    """An approval covers one folder and one hash. The stub names both hashes in the form that --hash takes, and a
    command that compares the files."""
    skill = found_skill()
    records = {"echo": KnownSkill(Registration(code(skill), approved))}
    result = plan([skill], SkillScope(W), records, SkillPolicy(), {}, "run1")
    folder = "" if approved.source == skill.source else " in /elsewhere"
    assert result.stubs["echo"].detail == (
        f"not host-approved: its code is not what was approved{folder}; it needs approval again "
        "(approved d, found sha256:d)"
    )
    approve = f"omac approve echo --workdir {W} --harness opencode --hash sha256:d"
    assert result.stubs["echo"].fix == (f"omac diff echo --workdir {W} --harness opencode", approve)


def test_a_folder_that_was_renamed_does_not_run() -> None:
    """An approval covers one folder. The stub of the same files in another one names the folder that was approved."""
    skill = found_skill()
    was = Code("/elsewhere", skill.bundle_hash, "sha256:d")
    result = plan(
        [skill], SkillScope(W), {"echo": KnownSkill(Registration(code(skill), was))}, SkillPolicy(), {}, "run1"
    )
    assert result.stubs["echo"].detail == (
        f"not host-approved: its files were approved in /elsewhere; in {skill.source} they need approval again"
    )
    assert result.stubs["echo"].fix == (f"omac approve echo --workdir {W} --harness opencode --hash sha256:d",)


def test_allowed_but_unapproved_gets_nothing_of_the_host() -> None:
    """Rule 3: the spec of a skill that is allowed without approval marks it as unapproved. Its environment gets no
    declared host variable and no stored value."""
    skill = found_skill(
        env_passthrough=("AGENT",),
        secrets=(Secret("KEY", required=False, default_from_env="HOST_KEY"),),
        config=(Config("MODE", default="fast", default_from_env="HOST_MODE"),),
    )
    host = {"AGENT": "/run/agent", "HOST_KEY": "host's", "HOST_MODE": "host's"}
    stored = {"MODE": Hidden("stored"), "KEY": Hidden("stored")}
    approved = environment(planned(skill, host=host).specs["echo"], 1, host, stored)
    assert (approved["AGENT"], approved["KEY"], approved["MODE"]) == ("/run/agent", "stored", "stored")
    spec = planned(skill, approved=False, unapproved="allow", host=host).specs["echo"]
    assert not spec.approved
    variables = environment(spec, 1, host, stored)
    assert not variables.keys() & {"AGENT", "KEY"}
    assert variables["MODE"] == "fast"


def test_an_approval_without_a_copy_approves_nothing() -> None:
    """An approval from an omac that froze no copies approves nothing, since the code it covered cannot run any more."""
    skill = found_skill()
    records = {"echo": KnownSkill(Registration(code(skill, ""), code(skill, "")))}
    stub = plan([skill], SkillScope(W), records, SkillPolicy(), {}, "run1").stubs["echo"]
    assert "without a copy" in stub.detail
    assert stub.fix == (APPROVE.replace("sha256:d", "sha256:1"),)


@pytest.mark.parametrize(("run", "runs"), [("run1", True), ("run2", False)])
def test_changes_are_accepted_by_one_run(run: str, runs: bool) -> None:
    """A change that one run accepts runs in that run, from its own frozen copy, and in no other run."""
    skill = found_skill()
    approved, accepted = Code(skill.source, "sha256:0", "sha256:old"), code(skill, "sha256:new")
    records = {"echo": KnownSkill(Registration(accepted, approved, W, accepted, "run1"))}
    result = plan([skill], SkillScope(W), records, SkillPolicy(bundle_drift="accept"), {}, run)
    assert ("echo" in result.specs) == runs
    if runs:
        assert (result.specs["echo"].digest, result.specs["echo"].approved) == ("sha256:new", True)


def test_an_unregistered_skill() -> None:
    """The stub of a skill that discovery does not register has the command that registers it."""
    stub = plan(
        [found_skill()], SkillScope(""), {"echo": KnownSkill()}, SkillPolicy(auto_register=False), {}, "run1"
    ).stubs["echo"]
    assert stub.detail.startswith("not host-approved: it is not registered")
    assert stub.fix == ("omac register echo --global --harness opencode",)


STORED = Stored("hmac:1", "vault")


@pytest.mark.parametrize(
    ("credential", "variables"),
    [
        (Credential(), (Variable("S", None, "HS", secret=True), Variable("M", "fast", "HM"))),
        (
            Credential({"S": STORED}, {}, {"M": ""}),
            (Variable("S", secret=True, fingerprint="hmac:1", store="vault"), Variable("M", "", "HM")),
        ),
    ],
)
def test_a_stored_value_comes_before_the_default(credential: Credential, variables: tuple[Variable, ...]) -> None:
    """Rule 5: a given value comes before the default. A spec has a secret's fingerprint, so that a new secret is a new
    spec."""
    skill = found_skill(
        secrets=(Secret("S", default_from_env="HS", required=False),),
        config=(Config("M", default="fast", default_from_env="HM", required=False),),
    )
    assert planned(skill, credential=credential, host={"HS": "x"}).specs["echo"].variables == variables


def test_an_unapproved_skill_gets_no_values_of_its_name() -> None:
    """An unapproved skill gets neither the values given to its name nor a fix that would give it more."""
    skill = found_skill(secrets=(Secret("S"),))
    stub = planned(skill, approved=False, unapproved="allow", credential=Credential({"S": STORED})).stubs["echo"]
    assert stub.fix == (APPROVE,)
    optional = found_skill(secrets=(Secret("S", required=False),))
    spec = planned(optional, approved=False, unapproved="allow", credential=Credential({"S": STORED})).specs["echo"]
    assert (spec.stored, spec.digest) == ({}, "")


@pytest.mark.parametrize(
    ("field", "stored", "host", "problem"),
    [
        (Config("M", type="int"), {"M": "many"}, {}, "must be a whole number"),
        (Config("M", type="bool", default_from_env="HM"), {}, {"HM": "perhaps"}, "(in $HM)"),
        (Config("M", type="enum", choices=("a",)), {"M": "b"}, {}, "one of the choices"),
        (Config("M", pattern="^a+$", required=False), {"M": "b"}, {}, "M ("),
        (Secret("M", pattern="^a+$", default_from_env="HM"), {}, {"HM": "hunter2"}, "(in $HM)"),
    ],
)
def test_a_value_that_its_rules_refuse_is_missing(
    field: Secret | Config, stored: dict[str, str], host: dict[str, str], problem: str
) -> None:
    """A refused value is reported as missing, with the problem but never the secret itself, and the skill does not
    start."""
    fields = {"secrets": (field,)} if isinstance(field, Secret) else {"config": (field,)}
    stub = planned(found_skill(**fields), credential=Credential({}, {}, stored), host=host).stubs["echo"]
    assert stub.missing == ("M",)
    assert problem in stub.detail
    assert "hunter2" not in stub.detail


KEY = Secret("KEY", default_from_env="HOST_KEY")
SET = f"omac secrets set echo KEY --workdir {W} --harness opencode"
CONFIG = f"omac config set echo KEY --workdir {W} --harness opencode"
APPROVE = f"omac approve echo --workdir {W} --harness opencode --hash sha256:d"


@pytest.mark.parametrize(
    ("fields", "approved", "host", "missing", "fix"),
    [
        ({"secrets": (KEY,)}, True, {"HOST_KEY": "x"}, (), ()),
        ({"secrets": (KEY,)}, True, {}, ("KEY",), (SET,)),
        ({"secrets": (KEY,)}, True, {"HOST_KEY": ""}, ("KEY",), (SET,)),
        ({"secrets": (replace(KEY, required=False),)}, True, {}, (), ()),
        ({"secrets": (Secret("KEY"),)}, True, {"KEY": "x"}, ("KEY",), (SET,)),
        ({"config": (Config("KEY", default_from_env="HOST_KEY"),)}, True, {}, ("KEY",), (CONFIG,)),
        ({"config": (Config("KEY", default="x"),)}, True, {}, (), ()),
        ({"config": (Config("KEY", default="", default_from_env="HOST_KEY"),)}, True, {}, (), ()),
        ({"config": (Config("KEY", required=False),)}, True, {}, (), ()),
        ({"secrets": (KEY,)}, False, {"HOST_KEY": "x"}, ("KEY",), (APPROVE,)),
        ({"secrets": (KEY,)}, False, {}, ("KEY",), (APPROVE,)),
        ({"secrets": (KEY, replace(KEY, name="K2"))}, False, {}, ("KEY", "K2"), (APPROVE,)),
        ({"secrets": (KEY,), "config": (Config("B"),)}, True, {}, ("KEY", "B"), (SET, CONFIG.replace("KEY", "B"))),
    ],
)
def test_what_lacks_a_required_value_is_pending(
    fields: dict[str, Any], approved: bool, host: dict[str, str], missing: tuple[str, ...], fix: tuple[str, ...]
) -> None:
    """Rule 5: a stub names the missing values, in order, and the commands that mend them. An empty variable is no
    value."""
    result = planned(found_skill(**fields), approved=approved, unapproved="allow", host=host)
    assert ("echo" in result.specs) == (not missing)
    if missing:
        stub = result.stubs["echo"]
        assert (stub.why, stub.missing, stub.fix) == ("pending-credentials", missing, fix)
        assert stub.detail == "required values are missing or refused: " + ", ".join(f"{m} (not set)" for m in missing)


def test_a_plan_covers_every_skill_once() -> None:
    """Each skill of a plan either runs or is stubbed, whatever the others are like."""
    skills = [
        found_skill("a"),
        replace(found_skill("b"), problem="x", meta=None),
        found_skill("c", mount="a"),
        found_skill("d", secrets=(KEY,)),
    ]
    result = planned(*skills)
    assert result.specs.keys() | result.stubs.keys() == set("abcd") == result.skills.keys()
    assert not result.specs.keys() & result.stubs.keys()
    assert result.specs.keys() == result.max_body_bytes.keys()
