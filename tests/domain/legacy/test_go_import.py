"""omac.domain.legacy.go_import: the values that are imported, those that stay, and the limits of a project's files."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from omac.domain.credentials.credential import Credential, Default, Stored
from omac.domain.kernel.hidden import Hidden
from omac.domain.kernel.ids import workdir_id
from omac.domain.legacy.go_import import (
    BY_AGENT,
    FoundHere,
    KeychainSecret,
    Old,
    OldApproval,
    OldEntry,
    OldValues,
    Seen,
    Step,
    approval_for,
    judge_absent,
    judge_approval,
    judge_defaults,
    judge_registration,
    judge_secrets,
    judge_settings,
    keychain_services,
    loose_of,
    matching,
)
from omac.domain.skills.bundle import TreeFile
from omac.domain.skills.meta import Config, FoundSkill, Meta, Secret, SidecarMeta
from omac.domain.skills.registration import Code, Registration
from omac.domain.skills.scope import SkillScope

HASH, OTHER = "sha256:" + "a" * 64, "sha256:" + "b" * 64
SOURCE = "/w/.opencode/skills/slack"
SIDECAR = SidecarMeta(
    ("run",), "slack", secrets=(Secret("TOKEN", pattern="^x"),), config=(Config("PORT", type="int", required=False),)
)
SKILL = FoundSkill("slack", "opencode", "/w/.opencode/skills", SOURCE, HASH, Meta("slack", sidecar=SIDECAR))
PRESENT = FoundHere(SkillScope("/w"), SKILL)
APPROVED = FoundHere(
    SkillScope("/w"), SKILL, Registration(Code(SOURCE, HASH, "d"), Code(SOURCE, HASH, "d")), Credential(taken=("GONE",))
)
ENTRY = OldEntry("slack", SOURCE, HASH, ("TOKEN",), "registry", False)
APPROVAL = OldApproval("slack", SOURCE, SOURCE, SOURCE, HASH, "approvals")
SEEN = Seen(HASH, "sha256:d", {})
TOKEN = KeychainSecret("omac/slack", Hidden("x-secret"))


def verdicts(steps: list[Step]) -> list[tuple[str, str]]:
    """Return the names and verdicts of the steps."""
    return [(step.name, step.verdict) for step in steps]


def test_a_discovered_skill_is_registered_once() -> None:
    """A discovered skill is registered, unless the same code is registered already. A skill that cannot be read is
    skipped."""
    assert judge_registration(PRESENT, ENTRY).verdict == "take"
    assert judge_registration(APPROVED, ENTRY).verdict == "there"
    broken = FoundSkill("slack", "opencode", "/w", SOURCE, problem="line 3 is wrong")
    assert judge_registration(FoundHere(SkillScope("/w"), broken), ENTRY) == Step(
        "registration", "skip", "registry", why="line 3 is wrong"
    )
    guide = FoundSkill("slack", "opencode", "/w", SOURCE, HASH, Meta("slack"))
    assert judge_registration(FoundHere(SkillScope("/w"), guide), ENTRY).verdict == "skip"


@pytest.mark.parametrize(
    ("approval", "why"),
    [
        (None, "not approved"),
        (replace(APPROVAL, bundle_hash=OTHER), "has changed"),
        (replace(APPROVAL, path="/v/s", folder="/v/s", source="/v/s"), "another folder"),
        (replace(APPROVAL, path="/v/s/x", folder="/v/s/x"), "another folder"),
        (replace(APPROVAL, source="/v/s"), "another folder"),
        (replace(APPROVAL, name="slack2"), "not approved"),
    ],
)
def test_an_approval_holds_for_name_folder_and_hash(approval: OldApproval | None, why: str) -> None:
    """An approval of another name, folder or hash does not count, and the command that approves by hand names this
    code."""
    step = judge_approval(PRESENT, Old(approvals=(approval,) if approval else ()), SEEN, {})
    assert step.verdict == "skip"
    assert why in step.why
    assert step.fix == (f"omac approve slack --workdir /w --harness opencode --hash {SEEN.digest}",)


def test_an_approval_through_links() -> None:
    """An approval holds for a project that is reached by a link or has links in it, as long as the folder is this
    one."""
    old = Old(approvals=(replace(APPROVAL, path="/link/.opencode/skills/slack"),))
    assert judge_approval(PRESENT, old, SEEN, {}).verdict == "take"
    inside = FoundHere(SkillScope("/w"), replace(SKILL, source="/w/lib/slack"))
    old = Old(approvals=(replace(APPROVAL, source="/w/lib/slack"),))
    assert judge_approval(inside, old, SEEN, {}).verdict == "take"


def test_an_approval_that_holds() -> None:
    """An approval that holds is imported. A skill that is approved already needs no old approval."""
    old = Old(approvals=(APPROVAL,))
    assert judge_approval(PRESENT, old, SEEN, {}).verdict == "take"
    assert judge_approval(APPROVED, Old(), None, {}).verdict == "there"


@pytest.mark.parametrize(
    ("loose", "kept", "verdict"),
    [
        ({}, {}, "take"),
        ({}, {"node_modules/a": b"1"}, "take"),
        ({"node_modules/a": b"1"}, {"node_modules/a": b"1"}, "take"),
        ({"node_modules/a": b"2"}, {"node_modules/a": b"1"}, "skip"),
        ({"node_modules/a": b"1"}, {}, "skip"),
    ],
)
def test_what_the_hash_leaves_out(loose: dict[str, bytes], kept: dict[str, bytes], verdict: str) -> None:
    """Files that the hash leaves out must be as they were when the old omac made its copy, since the hash does not
    cover them."""
    assert judge_approval(PRESENT, Old(approvals=(APPROVAL,)), Seen(HASH, "d", loose), kept).verdict == verdict


def test_links_were_not_in_the_old_hash() -> None:
    """A skill with links has the old hash with a part of its own; its links are compared with the copy."""
    skill = FoundSkill("slack", "opencode", "/w", SOURCE, HASH + "+0123456789abcdef", SKILL.meta)
    present, old = FoundHere(SkillScope("/w"), skill), Old(approvals=(APPROVAL,))
    current = Seen(skill.bundle_hash, "d", loose_of({}, {"lib": "src"}))
    assert judge_approval(present, old, current, loose_of({}, {"lib": "src"})).verdict == "take"
    assert judge_approval(present, old, current, loose_of({}, {"lib": "dist"})).verdict == "skip"


def test_a_skill_that_changes_during_the_inspection() -> None:
    """A skill that changes during the inspection is not approved; nor is an unreadable one, which is reported with the
    reason."""
    old = Old(approvals=(APPROVAL,))
    assert judge_approval(PRESENT, old, Seen(OTHER, "d", {}), {}).verdict == "skip"
    assert "a FIFO" in judge_approval(PRESENT, old, "p: is a FIFO", {}).why


def test_what_a_hash_leaves_out() -> None:
    """The hash leaves out folders of dependencies, compiled Python, backups and links. Files that a desktop writes do
    not count."""
    names = ("a.py", "a.pyc", "node_modules/m.js", ".DS_Store", "sub/.DS_Store", "b~")
    files = {name: TreeFile(name, name.encode(), False) for name in names}
    assert loose_of(files, {"l": "a.py"}).keys() == {"a.pyc", "node_modules/m.js", "b~", "l"}


def test_where_secrets_were() -> None:
    """The services are the project's own, then that of the path as it was typed, then that of no project."""
    own, typed = f"omac/{workdir_id('/w')}/slack", f"omac/{workdir_id('/link')}/slack"
    assert keychain_services(SkillScope("/w"), "/link", "slack") == [own, typed, "omac/slack"]
    assert keychain_services(SkillScope("/w"), "/w", "slack") == [own, "omac/slack"]
    assert keychain_services(SkillScope(""), "/w", "slack") == ["omac/slack"]


def test_secrets_go_to_approved_code() -> None:
    """Approved code gets only the secrets that it declares. Without an approval no secret is imported, and the fix sets
    it by hand."""
    held = {"TOKEN": TOKEN, "GONE": TOKEN, "OTHER": TOKEN, "PORT": TOKEN}
    names = ("TOKEN", "GONE", "OTHER", "PORT", "ABSENT")
    steps = judge_secrets(APPROVED, True, names, held)
    assert verdicts(steps) == [("GONE", "there"), ("OTHER", "skip"), ("PORT", "skip"), ("TOKEN", "take")]
    (step,) = judge_secrets(PRESENT, False, (), {})
    assert (step.verdict, step.fix) == ("skip", ("omac secrets set slack TOKEN --workdir /w --harness opencode",))


def test_a_secret_that_its_rules_refuse() -> None:
    """A secret that its rules refuse is skipped, and its value is not shown."""
    (step,) = judge_secrets(APPROVED, True, (), {"TOKEN": KeychainSecret("omac/slack", Hidden("hunter2"))})
    assert step.verdict == "skip"
    assert "pattern" in step.why
    assert "hunter2" not in repr(step)


def test_settings_in_the_order_of_their_files() -> None:
    """The first file that has a setting counts; its value gets the spelling of the sidecar."""
    project, user = OldValues("p", {"slack": {"PORT": "+8"}}), OldValues("u", {"slack": {"PORT": "9"}})
    assert judge_settings(PRESENT, True, (project, user)) == [Step("setting", "take", "p", "PORT", "8")]
    assert judge_settings(PRESENT, True, (user,), project)[0].verdict == "skip"
    (step,) = judge_settings(PRESENT, False, (user,))
    assert (step.verdict, step.fix) == ("skip", ("omac config set slack PORT 9 --workdir /w --harness opencode",))
    for text, name in (("x", "PORT"), ("1", "TOKEN"), ("1", "NEW")):
        (step,) = judge_settings(PRESENT, True, (OldValues("p", {"slack": {name: text}}),))
        assert step.verdict == "skip"
        assert step.value is None


def test_unseen_settings() -> None:
    """An agent can have written the project's settings. Unseen ones do not count, and those of the user do."""
    project, user = OldValues("p", {"slack": {"PORT": "8"}}), OldValues("u", {"slack": {"PORT": "9"}})
    unseen_values, seen_values, vouched_values = (
        replace(project, project="unseen"),
        replace(project, project="seen"),
        replace(project, project="confirmed"),
    )
    first, second = judge_settings(PRESENT, True, (unseen_values, user))
    by_hand = "omac config set slack PORT 8 --workdir /w --harness opencode"
    assert first == Step("setting", "skip", "p", "PORT", "8", BY_AGENT, (by_hand,))
    assert second == Step("setting", "take", "u", "PORT", "9")
    for counted in (seen_values, vouched_values):
        assert judge_settings(PRESENT, True, (counted, user)) == [Step("setting", "take", "p", "PORT", "8", BY_AGENT)]
        assert verdicts(judge_settings(PRESENT, False, (counted, user))) == [("PORT", "skip")]
    present = FoundHere(SkillScope("/w"), SKILL, given=Credential(config={"PORT": "8"}))
    assert verdicts(judge_settings(present, True, (unseen_values,))) == [("PORT", "there")]


def test_a_setting_too_long_to_be_seen() -> None:
    """A setting of more than a screenful does not count as seen, but the user may vouch for its file."""
    sidecar = SidecarMeta(("run",), "slack", config=(Config("URL"),))
    present = FoundHere(SkillScope("/w"), replace(SKILL, meta=Meta("slack", sidecar=sidecar)))
    for length, states in ((1_000, ("take", "take")), (1_001, ("skip", "take"))):
        values = OldValues("p", {"slack": {"URL": "-" * length}})
        for project, state in zip(("seen", "confirmed"), states, strict=True):
            (step,) = judge_settings(present, True, (replace(values, project=project),))
            assert step.verdict == state
            assert all(command.endswith(" -- " + "-" * length) for command in step.fix)


def test_newer_values_stay() -> None:
    """Values that were given since stay, whatever the old omac has."""
    credential = Credential({"TOKEN": Stored("f", "vault")}, config={"PORT": "1"})
    present = FoundHere(SkillScope("/w"), SKILL, given=credential)
    assert verdicts(judge_secrets(present, True, (), {"TOKEN": TOKEN})) == [("TOKEN", "there")]
    values = OldValues("p", {"slack": {"PORT": "9"}})
    assert verdicts(judge_settings(present, True, (values,))) == [("PORT", "there")]


def test_what_is_remembered() -> None:
    """Defaults come from the user's file and keychain, are checked, and replace no other default."""
    values = OldValues("u", {}, {"slack": {"PORT": "9", "NEW": "1"}})
    assert judge_defaults(PRESENT, {}, values, {"TOKEN": TOKEN}) == [
        Step("default", "take", "keychain omac/slack", "TOKEN"),
        Step("default", "take", "u", "PORT", "9"),
    ]
    remembered = {"PORT": Default(HASH, "1"), "TOKEN": Default(HASH, None, Stored("f", "vault"))}
    assert verdicts(judge_defaults(PRESENT, remembered, values, {})) == [("PORT", "there")]
    refused = OldValues("u", {}, {"slack": {"PORT": "x"}})
    assert verdicts(judge_defaults(PRESENT, {}, refused, {})) == [("PORT", "skip")]


def test_what_is_not_there() -> None:
    """An absent skill is listed once. Settings of a project for other skills, or as defaults, are not imported."""
    project = OldValues("p", {"slack": {"PORT": "1"}, "gone": {"PORT": "1"}}, {"slack": {"PORT": "1"}})
    groups = judge_absent(Old((ENTRY, ENTRY, OldEntry("gone", "/g", HASH, (), "r", True)), project=project), set())
    assert [(group.skill, group.scope, group.source) for group in groups] == [
        ("gone", "missing", ""),
        ("gone", "missing", "/g"),
        ("slack", "defaults", ""),
        ("slack", "missing", ""),
        ("slack", "missing", SOURCE),
    ]
    assert all(step.verdict == "skip" for group in groups for step in group.steps)
    assert matching(Old((ENTRY,)), SKILL) == [ENTRY]


PROJECT_VALUES = st.dictionaries(
    st.sampled_from(["slack", "gone"]), st.dictionaries(st.sampled_from(["PORT", "TOKEN"]), st.text(max_size=9))
)


@given(
    entries=st.lists(
        st.builds(
            OldEntry,
            st.sampled_from(["slack", "gone"]),
            st.sampled_from([SOURCE, "/elsewhere"]),
            st.sampled_from([HASH, OTHER]),
            st.lists(st.sampled_from(["TOKEN", "PORT", "X"])).map(tuple),
            st.just("p"),
            st.booleans(),
        )
    ),
    project=st.builds(OldValues, st.just("p"), PROJECT_VALUES, PROJECT_VALUES),
)
def test_no_file_of_a_project_leads_to_values(entries: list[Any], project: OldValues) -> None:
    """The files of a project lead to no more than a registration without the user's approval, whatever an agent writes
    there."""
    old = Old(tuple(entries), project=project)
    assert approval_for(old, PRESENT) is None
    approval = judge_approval(PRESENT, old, SEEN, {})
    steps = [approval, *judge_secrets(PRESENT, approval.verdict != "skip", ("TOKEN", "X"), {})]
    steps += judge_settings(PRESENT, approval.verdict != "skip", (old.project, old.user))
    steps += judge_defaults(PRESENT, {}, old.user, {})
    steps += [step for group in judge_absent(old, set()) for step in group.steps]
    assert all(step.verdict == "skip" for step in steps)
