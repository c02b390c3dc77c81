"""tools/cli/listing.py and approve.py list skills and approvals with the present state of their code."""

import fcntl
import json
import re
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from real_omac import Done, Omac
from valued_skill import alone, valued, with_vault

from omac.domain.kernel.event import Recorded
from omac.domain.kernel.ids import StreamId
from omac.domain.skills.registration import ApprovalRevoked, Approved
from omac.journal.reader import ReadJournal


@pytest.fixture
def shop(omac: Omac) -> Path:
    """Return a project whose skill wants values, on a host whose secrets are in a vault."""
    with_vault(omac)
    return valued(omac)


def rows(omac: Omac, *flags: str, cwd: Path | None = None) -> list[dict[str, Any]]:
    """Return the rows that `omac list --json` prints."""
    return [json.loads(line) for line in omac.ok("list", "--json", *flags, cwd=cwd).splitlines()]


def states(omac: Omac, project: Path, *flags: str) -> dict[str, str]:
    """Return the state of each skill of a project, by name."""
    return {row["name"]: row["state"] for row in rows(omac, "--workdir", str(project), *flags)}


def approved(omac: Omac, *flags: str) -> list[dict[str, Any]]:
    """Return the rows that `omac approvals --json` prints."""
    return [json.loads(line) for line in omac.ok("approvals", "--json", *flags).splitlines()]


def registered(omac: Omac, project: Path, *flags: str) -> Done:
    """Register the project's skill."""
    where = flags or ("--workdir", str(project))
    done = alone(omac, "register", "slack", *where, extra={"OMAC_SECRET_TOKEN": "xoxb-1"})
    assert done.status == 0, done
    return done


def test_a_subfolder_of_a_project(omac: Omac) -> None:
    """In a subfolder of a project, commands about skills mean those of the project, as omac start does. A folder that
    is named is meant itself."""
    project, below = subfolder(omac)
    assert [(row["name"], row["dir"]) for row in rows(omac, cwd=below)] == [("echo", str(project))]
    assert omac.run("list", cwd=below).err == f"omac: in {project}, the project around the current directory\n"
    assert omac.ok("approve", "echo", cwd=below).startswith(f"approved: echo in {project}/.agents/skills/echo\n")
    assert omac.run("approve", "echo", "--workdir", ".", cwd=below).status == 4
    assert omac.ok("revoke", "echo", cwd=below).startswith("no longer approved: echo in ")


def test_the_skills_of_other_projects_take_no_time(omac: Omac, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host has known thousands of worktrees: the history of a registration is read where its times are shown."""
    projects = [omac.project(name, "echo") for name in ("one", "two", "three")]
    for project in projects:
        omac.ok("approve", "echo", cwd=project)
    read, history = [], ReadJournal.history

    def noted(journal: ReadJournal, stream: StreamId) -> list[Recorded]:
        read.append(stream)
        return history(journal, stream)

    monkeypatch.setattr(ReadJournal, "history", noted)
    (row,) = rows(omac, cwd=projects[0])
    assert row["registered_at"] is not None
    assert len(read) == 1
    assert [approval["since"] is None for approval in approved(omac)] == [False] * 3
    assert len(read) == 4


def test_two_skills_of_one_name(omac: Omac) -> None:
    """Skills of one name in the folders of several agents are listed with their folders."""
    project = omac.project("shop", "echo", "other")
    assert "FOLDER" not in omac.ok("list", cwd=project)
    shutil.copytree(project / ".agents", project / ".claude")
    lines = omac.ok("list", cwd=project).splitlines()
    assert lines[0].endswith("  FOLDER")
    assert [(line.split()[0], line.split()[-1]) for line in lines[1:]] == [
        ("echo", "agents"), ("echo", "claude"), ("other", "agents"), ("other", "claude"),
    ]  # fmt: skip


def test_a_subfolder_whose_skills_are_gone(omac: Omac) -> None:
    """A folder of a repository that had skills of its own keeps its registrations: they are revoked there."""
    project = omac.project("repository")
    subprocess.run(["git", "init", "-q", str(project)], check=True, env=omac.environment)
    below = omac.project("repository/part", "echo")
    omac.ok("approve", "echo", cwd=below)
    shutil.rmtree(below / ".agents")
    assert f"stale: echo: its folder {below}/.agents/skills/echo is gone" in omac.run("list", cwd=below).err
    assert omac.ok("revoke", "echo", cwd=below).startswith("no longer approved: echo in ")


@pytest.mark.full
def test_every_command_in_a_subfolder(omac: Omac) -> None:
    """Commands that inspect, try and remove skills mean the project around the current directory, as those that approve
    do."""
    project, below = subfolder(omac)
    assert omac.ok("skill", "check", cwd=below) == "echo: ok\n"
    omac.ok("approve", "echo", cwd=below)
    assert omac.ok("trust", cwd=below).startswith("echo: approved already\n")
    assert omac.ok("diff", "echo", cwd=below) == ""
    assert json.loads(omac.ok("config", "show", "echo", "--json", cwd=below))["workdir"] == str(project)
    server = omac.serve("--root", str(project))
    assert json.loads(omac.ok("activate", "--json", cwd=below))["dir"] == str(project)
    assert '"' in omac.ok("call", "echo", "/status", cwd=below)
    assert '[omac] sidecar "echo" starts' in omac.ok("logs", "echo", cwd=below)
    assert json.loads(omac.ok("reload", "--json", cwd=below))["dir"] == str(project)
    assert omac.ok("deactivate", cwd=below) == f"{project}: deactivated\n"
    server.end()
    assert omac.ok("deregister", "echo", "--yes", cwd=below).startswith(f"deregistered: echo in {project}/")


def subfolder(omac: Omac) -> tuple[Path, Path]:
    """Return a project with a skill, and a folder below it."""
    project = omac.project("shop", "echo")
    below = project / "src" / "deep"
    below.mkdir(parents=True)
    return project, below


def test_the_settings_of_a_subfolder(omac: Omac) -> None:
    """In a subfolder, omac settings show reads the settings file of the project around it."""
    project = omac.project("shop", "echo")
    (project / "src").mkdir()
    (project / ".omac").mkdir()
    (project / ".omac" / "settings.toml").write_text('git.refs = "branch"\n')
    shown = [json.loads(line) for line in omac.ok("settings", "show", "--json", cwd=project / "src").splitlines()]
    assert [row["value"] for row in shown if row["name"] == "git.refs"] == ["branch"]


def test_nothing_yet(omac: Omac) -> None:
    """The lists need neither a journal nor a skill, report that they are empty, and make no file."""
    assert omac.run("list") == (0, "", f"no skills in {omac.root}, and none that all projects share\n")
    for flags, message in (
        (["--workdir", str(omac.root)], f"no skills in {omac.root}\n"),
        (["--global"], "no skills that all projects share\n"),
    ):
        assert omac.run("list", *flags) == (0, "", message), "nothing is said of places that were not searched"
    assert omac.run("approvals") == (0, "", "nothing is approved\n")
    assert list(omac.state.iterdir()) == []


def test_a_journal_that_is_about_to_be_created(omac: Omac) -> None:
    """A journal's empty file, which another process has just made, counts as no journal."""
    project = omac.project("shop")
    before = states(omac, project)
    journal = omac.state / "journal.db"
    journal.parent.mkdir(mode=0o700, exist_ok=True)
    journal.touch(0o600, exist_ok=False)
    assert states(omac, project) == before != {}


def test_each_state(omac: Omac, shop: Path) -> None:
    """The list has each state of a skill, from not registered to approved and changed, and why a skill is broken."""
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
    """The list as JSON has an object for each skill, with stable fields."""
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


def test_a_branch_without_an_approved_skill(omac: Omac) -> None:
    """The proposed `--prune` says that it ends the approval, which a branch that has the skill needs."""
    shop = omac.project("branches", "echo")
    omac.ok("approve", "echo", cwd=shop)
    shutil.rmtree(shop / ".agents" / "skills" / "echo")
    prune = f"  try: omac deregister --prune --workdir {shop}"
    for command in ("list", "approvals"):
        assert f"{prune}  # ends approvals, on every branch\n" in omac.run(command, cwd=shop).err
    omac.ok("revoke", "echo", cwd=shop)
    assert f"{prune}\n" in omac.run("list", cwd=shop).err


def test_what_a_project_hides_and_what_lies_elsewhere(omac: Omac, shop: Path) -> None:
    """A project's skill hides a shared one of its name; `--all` lists other directories, and stale registrations."""
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


@pytest.mark.parametrize("file", ["omac.yaml", "sidecar.py"])
def test_a_file_that_another_program_has_a_lease_on(omac: Omac, shop: Path, file: str) -> None:
    """A file with a lease (fcntl(2)), which omac does not wait for, is a problem of its skill and not of omac."""
    leased = shop / ".agents" / "skills" / "slack" / file
    with leased.open("a") as opened:
        fcntl.fcntl(opened, fcntl.F_SETSIG, signal.SIGURG)  # it asks to give the lease up, and is ignored
        fcntl.fcntl(opened, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        done = omac.run("list", "--workdir", str(shop))
    assert done.status == 0, done
    assert re.search(f"{re.escape(str(leased))}.* cannot be .*Resource temporarily unavailable", done.err), done
    assert states(omac, shop) == {"slack": "not registered"}


@pytest.mark.full
@pytest.mark.parametrize("kind", ["many values", "long text", "sparse files"])
def test_a_project_full_of_skills(omac: Omac, shop: Path, kind: str) -> None:
    """omac lists a project that an agent filled with skills, each as large as one may be, in seconds."""
    more = {"many values": "more: [" + "1," * 4_800 + "]", "long text": "more: " + "b " * 125_000}.get(kind, "")
    for number in range(250):
        skill = shop / ".agents" / "skills" / f"z{number}"
        skill.mkdir()
        (skill / "omac.yaml").write_text(f"name: z{number}\nsidecar: {{command: [1], mount: z{number}}}\n{more}\n")
        with (skill / "file").open("wb") as file:
            file.truncate(2**30 - 2**20 if kind == "sparse files" else 0)
    began = time.monotonic()
    listed = states(omac, shop)
    assert time.monotonic() - began < 60, "each skill takes more than a second: all of them took minutes"
    assert listed["slack"] == "not registered"
    assert listed["z99"] == "broken"


def test_a_skill_whose_folder_was_renamed(omac: Omac, shop: Path) -> None:
    """A renamed folder needs another approval: each command names the folder that was approved, and claims no change
    of the files."""
    registered(omac, shop)
    old, new = (shop / ".agents" / "skills" / name for name in ("slack", "chat"))
    old.rename(new)
    assert f"slack: its files were approved in {old}; compare: " in omac.run("list", cwd=shop).err
    shown = omac.run("show", "slack", cwd=shop)
    assert f" in {old}, and not in this folder: sha256:" in shown.out
    assert "CHANGED" not in shown.out
    launched = omac.run("start", "--", "true", cwd=shop)
    assert f"its files were approved in {old}; in {new} they need approval again" in launched.err
    (fix,) = [line for line in launched.err.splitlines() if "try: " in line]
    assert alone(omac, *shlex.split(fix)[2:]).status == 0
    assert "slack" not in omac.run("list", cwd=shop).err


def test_approvals(omac: Omac, shop: Path) -> None:
    """An approval has a row with its time, and with whether the code on disk is still the approved one."""
    market, fair = valued(omac, "market"), valued(omac, "fair")
    for project in (shop, market, fair):
        registered(omac, project)
    (market / ".agents" / "skills" / "slack" / "more.py").write_text("pass\n")
    shutil.rmtree(fair)
    entries = approved(omac)
    assert [(row["scope"], row["code"]) for row in entries] == [
        (str(fair), "gone"), (str(market), "changed"), (str(shop), "ok")
    ]  # fmt: skip
    assert {row["harness"] for row in entries} == {"agents"}
    assert all(re.fullmatch("sha256:[0-9a-f]{64}", row[name]) for row in entries for name in ("bundle_hash", "digest"))
    assert {row["code"] for row in approved(omac, "--no-check")} == {None}
    text = omac.ok("approvals").splitlines()
    assert re.split("  +", text[0]) == ["SKILL", "SCOPE", "FOLDER", "SINCE", "CODE", "HASH", "SOURCE"]
    assert len(text) == 4
    for project in (shop, fair):  # also where the folder is gone
        omac.ok("approve", "slack", "--workdir", str(project), "--revoke")
    assert [(row["scope"], row["dir"]) for row in approved(omac)] == [(str(market), str(market))]


def test_unknown_keys_are_noted(omac: Omac, shop: Path) -> None:
    """A key that omac ignores is named by each command that reads the skill, which works all the same."""
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
    """Approval and revocation are recorded once each and printed as data; an invalid SKILL.md is reported."""
    source = shop / ".agents" / "skills" / "slack"
    (source / "SKILL.md").write_text("---\nname: slick\ndescription: x\n---\n")
    command = ("approve", "slack", "--workdir", str(shop), "--json")
    first = omac.run(*command)
    assert "note: slack: " in first.err
    assert "SKILL.md, line 2: name: 'slick' must be 'slack'" in first.err
    approval = json.loads(first.out)
    assert (approval["new"], approval["dir"], approval["source"]) == (True, str(shop), str(source))
    assert approval["digest"] == approved(omac)[0]["digest"]
    assert json.loads(omac.ok(*command)) == approval | {"new": False}
    revoked = json.loads(omac.ok(*command, "--revoke"))
    assert revoked == {
        "skill": "slack", "dir": str(shop), "repository": "", "source": str(source),
        "bundle_hash": approval["bundle_hash"], "digest": approval["digest"], "revoked": True,
    }  # fmt: skip
    assert omac.ok(*command[:-1], "--revoke") == f"was not approved: slack in {source}\n"
    assert (len(omac.events(Approved)), len(omac.events(ApprovalRevoked))) == (1, 1)
    assert omac.run("approve", "nobody", "--revoke").status == 4
    assert omac.run(*command, "--revoke", "--hash", "x").status == 2


def test_names_are_shown_and_not_obeyed(omac: Omac) -> None:
    """The lists escape a directory's name, which may have characters that a terminal obeys."""
    with_vault(omac)
    project = valued(omac, "evil\x1b]0;x\x07\n\x1b[2J")
    outputs = [registered(omac, project), omac.run("list", "--all", cwd=project), omac.run("approvals")]
    shutil.rmtree(project)
    outputs += [omac.run("list", "--all"), alone(omac, "deregister", "--prune", "--workdir", str(project))]
    for done in outputs:
        assert not {"\x1b", "\x07"} & set(done.out + done.err), done
    assert "\\x1b" in outputs[2].out


@pytest.mark.full
def test_a_comparison_means_one_of_two_skills(omac: Omac) -> None:
    """The command that compares a changed skill means it, also where another folder has one of that name."""
    project = omac.approved("shop")
    shutil.copytree(project / ".agents/skills/echo", project / ".claude/skills/echo")
    (project / ".agents/skills/echo/sidecar.py").write_text("# changed\n")
    (compare,) = re.findall("compare: omac (.*)", omac.run("list", cwd=project).err)
    done = omac.run(*shlex.split(compare), cwd=project)
    assert (done.status, "+# changed" in done.out) == (1, True), done
