"""tools/cli/listing.py and approve.py: what is there, what people vouched for, and what became of it since."""

import json
import re
import shutil
from collections.abc import Mapping
from copy import copy
from pathlib import Path
from typing import Any

import pytest
from real_omac import Done, Omac
from valued_skill import piped, valued, with_vault

from omac.domain.skills.registration import ApprovalRevoked, Approved


@pytest.fixture
def shop(omac: Omac) -> Path:
    """A project whose skill wants values, where secrets are kept in a vault."""
    with_vault(omac)
    return valued(omac)


def rows(omac: Omac, *flags: str, cwd: Path | None = None) -> list[dict[str, Any]]:
    """What `omac list --json` says."""
    return [json.loads(line) for line in omac.ok("list", "--json", *flags, cwd=cwd).splitlines()]


def states(omac: Omac, project: Path, *flags: str) -> dict[str, str]:
    """The state of each skill of a project, by name."""
    return {row["name"]: row["state"] for row in rows(omac, "--workdir", str(project), *flags)}


def approved(omac: Omac, *flags: str) -> list[dict[str, Any]]:
    """What `omac approvals --json` says."""
    return [json.loads(line) for line in omac.ok("approvals", "--json", *flags).splitlines()]


def alone(omac: Omac, *arguments: str, stdin: bytes = b"", extra: Mapping[str, str] | None = None) -> Done:
    """Run a command where there is no terminal, with `extra` in its environment."""
    mine = copy(omac)
    mine.environment = omac.environment | dict(extra or {})
    return piped(mine, stdin, *arguments)


def registered(omac: Omac, project: Path, *flags: str) -> Done:
    """Register its skill."""
    where = flags or ("--workdir", str(project))
    done = alone(omac, "register", "slack", *where, extra={"OMAC_SECRET_TOKEN": "xoxb-1"})
    assert done.status == 0, done
    return done


def test_nothing_yet(omac: Omac) -> None:
    """Neither a journal nor a skill is needed, and none is made."""
    assert omac.run("list") == (0, "", f"no skills in {omac.root}, and none that all projects share\n")
    for flags, said in (
        (["--workdir", str(omac.root)], f"no skills in {omac.root}\n"),
        (["--global"], "no skills that all projects share\n"),
    ):
        assert omac.run("list", *flags) == (0, "", said), "nothing is said of places that were not searched"
    assert omac.run("approvals") == (0, "", "nothing is approved\n")
    assert list(omac.state.iterdir()) == []


def test_a_journal_that_is_about_to_be_created(omac: Omac) -> None:
    """Is none yet, as for a command that begins a moment earlier: another process has made the file, and no table."""
    project = omac.project("shop")
    before = states(omac, project)
    journal = omac.state / "journal.db"
    journal.parent.mkdir(mode=0o700, exist_ok=True)
    journal.touch(0o600, exist_ok=False)
    assert states(omac, project) == before != {}


def test_each_state(omac: Omac, shop: Path) -> None:
    """From not registered to approved, changed and not approved; what is broken says why."""
    skills = shop / ".agents" / "skills"
    omac.skill(shop, "bad", "name: bad\nsidecar: {command: []}\n")
    (skills / "words").mkdir()
    (skills / "words" / "SKILL.md").write_text("---\nname: words\ndescription: only words\n---\n")
    assert states(omac, shop) == {"bad": "broken", "slack": "not registered"}
    registered(omac, shop)
    assert states(omac, shop, "--all") == {"bad": "broken", "slack": "approved", "words": "guidance"}
    (skills / "slack" / "sidecar.py").write_text("pass\n")
    assert states(omac, shop)["slack"] == "changed"
    omac.ok("approve", "slack", "--workdir", str(shop), "--revoke")
    (skills / "slack" / "sidecar.py").unlink()
    done = omac.run("list", "--workdir", str(shop))
    assert "bad: " in done.err
    assert "sidecar.command" in done.err
    lines = [re.split(r"  +", line) for line in done.out.splitlines()]
    assert lines[0] == ["NAME", "SCOPE", "MOUNT", "SECRETS", "STATE", "REGISTERED"]
    assert lines[1] == ["bad", "workdir", "-", "-", "broken", "-"]
    assert lines[2][:5] == ["slack", "workdir", "/chat/", "1/3", "not approved"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", lines[2][5])
    serving = omac.serve()
    serving.activate(shop)
    assert states(omac, shop)["slack"] == "not approved"  # the server has registered the code it found


def test_as_data(omac: Omac, shop: Path) -> None:
    """One object a skill, with stable fields."""
    registered(omac, shop)
    (row,) = rows(omac, "--workdir", str(shop))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", row.pop("registered_at"))
    assert re.fullmatch("sha256:[0-9a-f]{64}", row.pop("bundle_hash"))
    assert row == {
        "name": "slack",
        "scope": "workdir",
        "dir": str(shop),
        "harness": "agents",
        "mount": "chat",
        "source": str(shop / ".agents" / "skills" / "slack"),
        "state": "approved",
        "secrets": ["TOKEN", "PEM", "SPARE"],
        "secrets_given": ["TOKEN"],
        "hidden": False,
        "detail": "",
        "secrets_from_host": [],
        "repository": "",
    }


def test_what_a_project_hides_and_what_lies_elsewhere(omac: Omac, shop: Path) -> None:
    """A project's skill hides a shared one of its name; `--all` shows other directories, and what is stale."""
    home = Path(omac.environment["HOME"]) / ".agents" / "skills"
    shutil.copytree(shop / ".agents" / "skills", home)
    market, fair = valued(omac, "market"), valued(omac, "fair")
    registered(omac, shop, "--global")
    for project in (market, fair):
        registered(omac, project)
    (market / ".agents" / "skills" / "slack" / "omac.yaml").unlink()
    shutil.rmtree(fair)
    assert [(row["scope"], row["state"], row["hidden"]) for row in rows(omac, cwd=shop)] == [
        ("workdir", "not registered", False),
        ("global", "approved", True),
    ]
    assert [row["scope"] for row in rows(omac, "--global", cwd=shop)] == ["global"]
    everywhere = omac.run("list", "--all", cwd=shop)
    assert "approved, hidden by the project's" in everywhere.out
    assert any(line.endswith(str(market)) and " broken " in line for line in everywhere.out.splitlines())
    assert f"stale: slack: its folder {fair}/.agents/skills/slack is gone" in everywhere.err
    assert f"  try: omac deregister --prune --workdir {fair}\n" in everywhere.err
    assert "stale" not in omac.run("list", cwd=shop).err


def test_approvals(omac: Omac, shop: Path) -> None:
    """One row each: since when, and whether the code on disk still is what was approved."""
    market, fair = valued(omac, "market"), valued(omac, "fair")
    for project in (shop, market, fair):
        registered(omac, project)
    (market / ".agents" / "skills" / "slack" / "more.py").write_text("pass\n")
    shutil.rmtree(fair)
    found = approved(omac)
    assert [(row["scope"], row["code"]) for row in found] == [
        (str(fair), "gone"), (str(market), "changed"), (str(shop), "ok")
    ]  # fmt: skip
    assert {row["harness"] for row in found} == {"agents"}
    assert all(re.fullmatch("sha256:[0-9a-f]{64}", row[name]) for row in found for name in ("bundle_hash", "digest"))
    assert {row["code"] for row in approved(omac, "--no-check")} == {None}
    text = omac.ok("approvals").splitlines()
    assert re.split("  +", text[0]) == ["SKILL", "SCOPE", "FOLDER", "SINCE", "CODE", "HASH", "SOURCE"]
    assert len(text) == 4
    for project in (shop, fair):  # also where the folder is gone
        omac.ok("approve", "slack", "--workdir", str(project), "--revoke")
    assert [row["scope"] for row in approved(omac)] == [str(market)]


def test_unknown_keys_are_noted(omac: Omac, shop: Path) -> None:
    """A key that omac ignores is named wherever a person looks at the skill, which works all the same."""
    meta = shop / ".agents" / "skills" / "slack" / "omac.yaml"
    many = "".join(f"  key{number}: 1\n" for number in range(10))
    meta.write_text(meta.read_text() + f"  install_script: {{linux: x}}\n{many}")
    noted = (
        "note: slack: omac.yaml has an unknown key 'install_script' in sidecar, which is ignored; "
        "did you mean sidecar.install_scripts?"
    )
    for command in ("list", "approve slack", "register slack --no-secrets --no-fields"):
        done = omac.run(*command.split(), "--workdir", str(shop), "--json")
        assert done.status == 0, done
        assert noted in done.err.splitlines()
        assert done.err.count("note: slack: omac.yaml has an unknown key") == 10
        assert "note: slack: omac.yaml has 1 more unknown key, which is ignored" in done.err
        assert "install_script'" not in done.out


def test_approving_and_revoking(omac: Omac, shop: Path) -> None:
    """Each is recorded once, and can be read by programs; a SKILL.md that breaks its contract is told of."""
    source = shop / ".agents" / "skills" / "slack"
    (source / "SKILL.md").write_text("---\nname: slick\ndescription: x\n---\n")
    command = ("approve", "slack", "--workdir", str(shop), "--json")
    first = omac.run(*command)
    assert "note: slack: " in first.err
    assert "SKILL.md, line 2: name: 'slick' must be 'slack'" in first.err
    told = json.loads(first.out)
    assert (told["new"], told["dir"], told["source"]) == (True, str(shop), str(source))
    assert told["digest"] == approved(omac)[0]["digest"]
    assert json.loads(omac.ok(*command)) == told | {"new": False}
    revoked = json.loads(omac.ok(*command, "--revoke"))
    assert revoked == {
        "skill": "slack", "dir": str(shop), "repository": "", "source": str(source),
        "bundle_hash": told["bundle_hash"], "digest": told["digest"], "revoked": True,
    }  # fmt: skip
    assert omac.ok(*command[:-1], "--revoke") == f"was not approved: slack in {source}\n"
    assert (len(omac.events(Approved)), len(omac.events(ApprovalRevoked))) == (1, 1)
    assert omac.run("approve", "nobody", "--revoke").status == 4
    assert omac.run(*command, "--revoke", "--hash", "x").status == 2


def test_names_are_shown_and_not_obeyed(omac: Omac) -> None:
    """A directory may be called like a terminal's command."""
    with_vault(omac)
    project = valued(omac, "evil\x1b]0;x\x07\n\x1b[2J")
    shown = [registered(omac, project), omac.run("list", "--all", cwd=project), omac.run("approvals")]
    shutil.rmtree(project)
    shown += [omac.run("list", "--all"), alone(omac, "deregister", "--prune", "--workdir", str(project))]
    for done in shown:
        assert not {"\x1b", "\x07"} & set(done.out + done.err), done
    assert "\\x1b" in shown[2].out
