"""`omac skill new` and `omac skill check`: an author's first minutes."""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from polling import eventually
from real_omac import ECHO_SKILL, Omac, curl
from tiers import some
from valued_skill import piped, with_vault

from omac.adapters.skills import checking
from omac.adapters.skills.new_folder import create_skill
from omac.domain.skills.schema import schema


def new(omac: Omac, project: Path, name: str) -> Path:
    """Begin a skill, and return its folder."""
    project.mkdir(exist_ok=True)
    omac.ok("skill", "new", name, cwd=project)
    return project / ".agents" / "skills" / name


@pytest.mark.parametrize("name", some(["My.Skill_2", "slack", "9lives", "a-b"], of=4))
def test_a_new_skill_passes_and_runs(house: Omac, name: str) -> None:
    """A new skill has no problem, can be approved, comes online, and answers at the variable that its guide names."""
    project = house.root / f"new-{name}"
    source = new(house, project, name)
    assert sorted(os.listdir(source)) == ["SKILL.md", "omac.yaml", "sidecar.py"]
    assert house.ok("skill", "check", cwd=project) == f"{name}: ok\n"
    assert house.ok("skill", "check", str(source)) == f"{name}: ok\n"
    house.ok("register", name, cwd=project)
    server = house.serve()
    manifest = server.activate(project)
    (skill,) = manifest["skills"]
    assert skill["state"] == "ready"
    assert curl(f"{skill['base']}/hello").body == "hello\n"
    (variable,) = [word for word in (source / "SKILL.md").read_text().split('"$') if word.startswith("OMAC_")][:1]
    assert manifest["env"][variable.partition("/")[0]] == skill["base"]
    server.end()


def test_the_commented_values_work(house: Omac) -> None:
    """The commented examples of a secret and a setting work once their # signs are removed."""
    project = house.root / "commented"
    source = new(house, project, "slack")
    meta = source / "omac.yaml"
    meta.write_text(meta.read_text().replace("  # secrets", "  secrets").replace("  # config", "  config")
                    .replace("  #   ", "    "))  # fmt: skip
    assert house.ok("skill", "check", cwd=project) == "slack: ok\n"
    out = house.ok("config", "show", "slack", "--json", cwd=project)
    assert '"SLACK_TOKEN"' in out
    assert '"SLACK_GREETING"' in out


def test_a_new_skill_waits_for_its_secret(omac: Omac) -> None:
    """A new skill with a secret waits until that is stored, and its sidecar then uses it."""
    with_vault(omac)
    project = omac.root / "secretive"
    project.mkdir()
    omac.ok("skill", "new", "slack", "--secret", "SLACK_TOKEN", cwd=project)
    omac.ok("approve", "slack", cwd=project)
    serving = omac.serve()
    assert serving.skill(project, "slack")["missing"] == ["SLACK_TOKEN"]
    assert piped(omac, b"12345", "secrets", "set", "slack", "SLACK_TOKEN", cwd=project).status == 0
    eventually(lambda: serving.skill(project, "slack")["state"] == "ready", 20.0, "the skill with its secret")
    assert curl(f"{serving.skill(project, 'slack')['base']}/hello").body == "hello, with a secret of 5 characters\n"


def test_a_skill_that_asks_for_a_secret(house: Omac) -> None:
    """`--secret` declares a secret of the new skill, and its sidecar reads that variable."""
    project = house.root / "secretive"
    project.mkdir()
    out = house.ok("skill", "new", "slack", "--secret", "SLACK_TOKEN", "--secret", "SLACK_KEY", cwd=project)
    assert out.endswith("next: omac trust\n")
    assert house.ok("skill", "check", cwd=project) == "slack: ok\n"
    out = house.ok("config", "show", "slack", "--json", cwd=project)
    assert '"SLACK_TOKEN"' in out
    assert '"SLACK_KEY"' in out
    program = (project / ".agents/skills/slack/sidecar.py").read_text()
    assert 'os.environ["SLACK_TOKEN"]' in program
    compile(program, "sidecar.py", "exec")
    done = house.run("skill", "new", "mail", "--secret", "mail token", cwd=project)
    assert (done.status, done.out) == (2, "")
    assert "try: omac skill new mail --secret MAIL_TOKEN\n" in done.err
    house.ok("skill", "new", "twice", "--secret", "A_B", "--secret", "A_B", cwd=project)
    assert house.ok("skill", "check", ".agents/skills/twice", cwd=project) == "twice: ok\n"
    assert not (project / ".agents/skills/mail").exists()


def test_the_form_is_printed(house: Omac) -> None:
    """The command prints the schema, the commented example and the path of either, inside a sandbox too."""
    out = house.ok("skill", "schema")
    assert json.loads(out) == schema()
    assert Path(house.ok("skill", "schema", "--path").strip()).read_text() == out
    example = house.ok("skill", "schema", "--example", extra={"OMAC_SANDBOX": "1"})
    assert example == (ECHO_SKILL / "omac.yaml").read_text()
    assert Path(house.ok("skill", "schema", "--example", "--path").strip()).read_text() == example


def test_what_is_proposed_can_be_pasted(house: Omac) -> None:
    """The proposed commands work in a folder whose name a terminal would not show as it is."""
    project = house.root / "new\nline\x1b[2J's"
    new(house, project, "slack")
    proposed = [
        line.removeprefix("  try: ") for line in house.run("skill", "new", "slack", cwd=project).err.splitlines()[1:]
    ]
    assert [line.split()[0] for line in proposed] == ["omac", "ls"]
    assert subprocess.run(["bash", "-c", proposed[1]], capture_output=True, check=True).stdout.count(b"\n") == 6


def test_nothing_is_overwritten(house: Omac) -> None:
    """An existing skill, file or link stays as it is; a linked folder is not followed."""
    project = house.root / "twice"
    source = new(house, project, "slack")
    (source / "SKILL.md").write_text("mine")
    (project / ".agents/skills/link").symlink_to(house.root / "elsewhere")
    for name in ("slack", "link"):
        done = house.run("skill", "new", name, cwd=project)
        assert (done.status, done.out) == (2, "")
        assert "exists already; nothing was written" in done.err
    assert (source / "SKILL.md").read_text() == "mine"
    linked = house.root / "linked"
    linked.mkdir()
    (linked / ".agents").symlink_to(house.root / "twice" / ".agents")
    done = house.run("skill", "new", "mail", cwd=linked)
    assert (done.status, done.out) == (5, ""), done
    assert "is a link or no folder" in done.err
    assert not (project / ".agents/skills/mail").exists()


def test_a_place_where_nothing_can_be_written(house: Omac) -> None:
    """The error names the path, and its command lists a folder that exists."""
    done = house.run("skill", "new", "mail", cwd=Path("/proc"))
    assert (done.status, done.out) == (5, "")
    assert "omac: /proc/.agents cannot be written: " in done.err
    assert "  try: ls -ld /proc\n" in done.err


def test_a_place_that_is_no_project(house: Omac) -> None:
    """A skill is made neither in git's own folders nor in omac's, nor above the home; the project around is named."""
    project = house.root / "versioned"
    git = project / ".git"
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    subprocess.run(["git", "init", "-q", "--bare", str(house.root / "bare")], check=True)
    (house.state / "run").mkdir(mode=0o700, exist_ok=True)  # which another test has made, or not yet
    for folder, problem, named in (
        (git, "in a folder of git's own", project),
        (git / "objects" / "info", "in a folder of git's own", project),
        (house.root / "bare", "in a folder of git's own", "PROJECT"),
        (house.state / "run", "in omac's state directory", None),
        (Path("/"), "above your home folder", "PROJECT"),
    ):
        done = house.run("skill", "new", "hello", cwd=folder)
        assert (done.status, f"{folder} is {problem}; no skill was made" in done.err) == (2, True), done
        assert named is None or f"try: omac skill new hello --workdir {named}\n" in done.err
        assert not (folder / ".agents").exists()


def test_nothing_is_left_of_a_skill_that_could_not_be_made(tmp_path: Path) -> None:
    """A skill that could not be written leaves no files, and a second try succeeds."""
    with pytest.raises(OSError, match="lib/a") as caught:
        create_skill(str(tmp_path), "agents", "mail", {"SKILL.md": "x", "lib/a": "y"})
    assert caught.value.filename == str(tmp_path / ".agents/skills/mail/lib/a")
    assert list((tmp_path / ".agents/skills").iterdir()) == []
    assert create_skill(str(tmp_path), "agents", "mail", {"SKILL.md": "x"}) == str(tmp_path / ".agents/skills/mail")


def test_a_name_that_cannot_be(house: Omac) -> None:
    """The refusal of an impossible name proposes another one."""
    done = house.run("skill", "new", "../my skill")
    assert done.status == 2
    assert "try: omac skill new my-skill" in done.err
    assert not (house.folder / "my skill").exists()


def test_every_problem_is_reported_with_its_line(house: Omac) -> None:
    """Problems of both files are reported with their lines, and with the likely name for a mistyped key; the exit code
    is 3."""
    project = house.root / "wrong"
    source = new(house, project, "slack")
    (source / "omac.yaml").write_text(
        "name: slack\nsidecar:\n  command: [python3, other.py]\n  mont: slack\n  mount: Slack!\n"
        "  secrets:\n    - name: lower\n    - name: TOKEN\n      requird: true\n  health: {path: status}\n"
    )
    (source / "SKILL.md").write_text("---\nname: mail\n---\n")
    done = house.run("skill", "check", cwd=project)
    assert (done.status, done.err) == (3, "")
    lines = done.out.splitlines()
    assert lines[0] == "slack: 7 problems"
    for begin, text in (
        ("omac.yaml, line 4: an unknown key", "did you mean sidecar.mount?"),
        ("omac.yaml, line 5: sidecar.mount: ", "must be 1 to 63"),
        ("omac.yaml, line 7: sidecar.secrets[0].name: ", "must be 1 to 128"),
        ("omac.yaml, line 9: an unknown key", "did you mean sidecar.secrets[1].required?"),
        ("omac.yaml, line 10: sidecar.health.path: ", 'must begin with "/"'),
        ("SKILL.md, line 2: name: ", "as the skill is called"),
        ("SKILL.md, line 2: description: ", "is missing"),
    ):
        assert any(line.startswith(f"  {begin}") and text in line for line in lines), (begin, done.out)
    report = json.loads(house.run("skill", "check", "--json", cwd=project).out)
    assert [f"  {problem}" for problem in report["problems"]] == lines[1:]


@pytest.mark.full
def test_a_document_with_thousands_of_problems(house: Omac, tmp_path: Path) -> None:
    """Each of thousands of problems has its line, which are found in seconds: the document is composed once for all."""
    meta = "name: much\nsidecar: {command: [./run], mount: much}\n" + "".join(f"key{at}: 1\n" for at in range(2000))
    (tmp_path / "omac.yaml").write_text(meta)
    began = time.monotonic()
    done = house.run("skill", "check", str(tmp_path))
    assert time.monotonic() - began < 30, "one second for each would be half an hour"
    assert "omac.yaml, line 2002: " in done.out, done.out[-500:]


def test_names_that_only_case_tells_apart(house: Omac) -> None:
    """Skills whose names differ only in case have that problem, in a check of the project and in one of the skill."""
    project = house.root / "alike"
    new(house, house.root / "other", "Clock").rename(new(house, project, "clock").with_name("Clock"))
    done = house.run("skill", "new", "Clock", cwd=project)
    assert (done.status, "differs only in case from clock, which" in done.err) == (2, True), done
    assert "no skill was made\n  try: omac skill new Clock-2\n" in done.err
    source = new(house, project, "count")
    done = house.run("skill", "check", cwd=project)
    assert (done.status, "count: ok" in done.out) == (3, True), done
    beside = source.parent
    for name, twin in (("clock", "Clock"), ("Clock", "clock")):
        problem = f"the name {name} differs only in case from {twin}, which {beside / twin} has; rename one of the two"
        assert f"{name}: 1 problem\n  {problem}\n" in done.out
        checked = house.run("skill", "check", str(beside / name))
        assert (checked.status, checked.out) == (3, f"{name}: 1 problem\n  {problem}\n"), checked
    assert house.ok("skill", "check", str(source)) == "count: ok\n"


@pytest.mark.parametrize(
    ("name", "noted"),
    [("slack-2", False), ("Slack", True), ("my_slack", True), ("slack.2", True), ("a--b", True), ("a-", True)],
)
def test_a_name_that_some_agents_do_not_load(house: Omac, name: str, noted: bool) -> None:
    """A name beyond the form of Agent Skills is no problem of omac's: it is noted when the skill is made, and at each
    check."""
    project = house.root / f"named-{name}"
    project.mkdir()
    for words in (("new", name), ("check",)):
        done = house.run("skill", *words, cwd=project)
        assert (done.status, f"note: {name}: Agent Skills have no such name" in done.err) == (0, noted), done


def test_each_of_many_skills_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check compares each skill with all others by what it read once: three hundred are checked in seconds."""
    sources = []
    for name in ("one", "two", "three", "Three"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "omac.yaml").write_text(f"name: {name}\nsidecar: {{command: [./run], mount: same}}\n")
        sources.append(str(tmp_path / name))
    read: list[str] = []
    original = checking.document_of

    def recorded(source: str) -> dict[object, object]:
        read.append(source)
        return original(source)

    monkeypatch.setattr(checking, "document_of", recorded)
    neighbours = checking.Neighbours(sources)
    assert [len(neighbours.lookalikes(source)) for source in sources] == [0, 0, 1, 1]
    assert [len(neighbours.shared_mounts(source)) for source in sources] == [3, 3, 2, 2]
    assert sorted(read) == sorted(sources)


def test_what_only_the_folder_shows(house: Omac) -> None:
    """The check reports a missing script, a program that is not executable, a link out of the folder, and a missing
    SKILL.md."""
    project = house.root / "folder"
    source = new(house, project, "a")
    (source / "sidecar.py").unlink()
    (source / "SKILL.md").unlink()
    (source / "out").symlink_to("/etc/passwd")
    done = house.run("skill", "check", cwd=project)
    assert done.status == 3
    assert "  omac.yaml, line 7: sidecar.command: sidecar.py is no file in the skill's folder\n" in done.out
    assert "SKILL.md: is missing" in done.out
    assert "  out: " in done.out
    meta = source / "omac.yaml"
    meta.write_text(meta.read_text().replace('["python3", "sidecar.py"]', "[./run]"))
    (source / "run").write_text("#!/bin/sh\n")
    assert "./run is not executable: chmod +x ./run" in house.run("skill", "check", str(source)).out
    meta.write_text(meta.read_text().replace("[./run]", '["pyton3", "run"]'))
    assert "sidecar.command: pyton3 is in no folder of PATH: install it" in house.run("skill", "check", str(source)).out


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ('["sh", "-c", "exec python3 sidecar.py $SIDECAR_PORT"]', ""),
        ('["python3", "sidecar.py", "--port", "$SIDECAR_PORT"]', "$SIDECAR_PORT stays as it is"),
        ('["/nowhere/python3", "sidecar.py"]', "/nowhere/python3 does not exist"),
    ],
)
def test_what_a_command_means_without_a_shell(house: Omac, tmp_path: Path, command: str, problem: str) -> None:
    """The check reports a variable that no shell replaces and an absolute program that is missing, and takes the code
    behind -c for no file."""
    meta = new(house, tmp_path, "a") / "omac.yaml"
    meta.write_text(meta.read_text().replace('["python3", "sidecar.py"]', command))
    done = house.run("skill", "check", cwd=tmp_path)
    assert (done.status, done.out) == (0, "a: ok\n") if not problem else (done.status == 3 and problem in done.out), (
        done
    )


def test_an_install_script_that_is_missing(house: Omac, tmp_path: Path) -> None:
    """The check names the install script of each platform that is no file of the folder."""
    source = new(house, tmp_path, "a")
    with open(source / "omac.yaml", "a") as meta:
        meta.write("  install_scripts: {linux: install.sh, macos: sidecar.py}\n")
    problem = "omac.yaml: sidecar.install_scripts.linux: install.sh is no file in the skill's folder"
    assert house.run("skill", "check", cwd=tmp_path).out == f"a: 1 problem\n  {problem}\n"


@pytest.mark.parametrize("name", ["omac.yml", "OMAC.yaml"])
def test_a_file_that_is_called_almost_like_omac_yaml(house: Omac, tmp_path: Path, name: str) -> None:
    """The check reports a file that omac does not read for its name; who approves the skill is sent to the check."""
    source = new(house, tmp_path / "p", "a")
    (source / "omac.yaml").rename(source / name)
    done = house.run("skill", "check", cwd=tmp_path / "p")
    assert (done.status, done.out) == (3, f"a: 1 problem\n  {name}: is not read; rename it omac.yaml\n")
    assert f"  try: omac skill check {source}\n" in house.run("approve", "a", cwd=tmp_path / "p").err


@pytest.mark.parametrize(
    ("name", "read"), [("skill.md", "SKILL.md"), ("Skill.MD", "SKILL.md"), ("omac.yml", "omac.yaml")]
)
def test_a_folder_with_nothing_but_such_a_file(house: Omac, tmp_path: Path, name: str, read: str) -> None:
    """The check of a project finds a folder whose only file of a skill is not read for its name, and the folder's own
    check reports that file."""
    folder = tmp_path / "p" / ".agents" / "skills" / "a"
    folder.mkdir(parents=True)
    (folder / name).write_text("---\nname: a\ndescription: d\n---\n")
    for words in ((), (str(folder),)):
        done = house.run("skill", "check", *words, cwd=tmp_path / "p")
        assert (done.status, f"  {name}: is not read; rename it {read}\n" in done.out) == (3, True), done


def test_a_folder_that_is_not_discovered(house: Omac, tmp_path: Path) -> None:
    """The check reports the folders and links because of which `omac` proposes it; who approves a skill behind a link
    is sent to the link."""
    elsewhere = new(house, tmp_path / "elsewhere", "a").parent
    for name, base in (("whole", elsewhere), ("gone", Path("/nonexistent"))):
        (tmp_path / name / ".agents").mkdir(parents=True)
        (tmp_path / name / ".agents" / "skills").symlink_to(base)
        done = house.run("skill", "check", cwd=tmp_path / name)
        assert (done.status, ".agents/skills: 1 problem\n  " in done.out) == (3, True), done
        assert "broken: omac skill check" in house.ok(cwd=tmp_path / name)
    skills = tmp_path / "single" / ".agents" / "skills"
    skills.mkdir(parents=True)
    (skills / "a").symlink_to(elsewhere / "a")
    done = house.run("skill", "check", cwd=tmp_path / "single")
    problem = f"{skills / 'a'} leads out of the project; put the folder itself there"
    assert (done.status, done.out) == (3, f"a: 1 problem\n  {problem}\n"), done
    assert f"  try: ls -la {skills / 'a'}\n" in house.run("approve", "a", cwd=tmp_path / "single").err


@pytest.mark.parametrize("way", ["folder", "skill", "reverse", "both"])
def test_a_skill_that_two_folders_have_by_a_link(house: Omac, way: str) -> None:
    """A skill of the shared folder that an agent's own folder has as well, by a link in either direction, is one: it is
    listed, checked and approved once, for every agent."""
    project = house.root / f"by-{way}"
    source = new(house, project, "hello")
    shared, own = source.parent, project / ".claude" / "skills"
    own.parent.mkdir()
    if way == "folder":
        own.symlink_to("../.agents/skills")
    elif way == "skill":
        own.mkdir()
        (own / "hello").symlink_to("../../.agents/skills/hello")
    elif way == "reverse":
        shared.rename(own)
        shared.symlink_to("../.claude/skills")
    else:
        shared.rename(project / "skills")
        for link in (shared, own):
            link.symlink_to("../skills")
    assert house.ok("skill", "check", cwd=project) == "hello: ok\n"
    assert house.ok(cwd=project).count("not approved") == 1
    assert "approved: hello in" in house.ok("approve", "hello", cwd=project)
    for harness in ("claude", "codex"):
        (skill,) = map(json.loads, house.ok("list", "--json", "--harness", harness, cwd=project).splitlines())
        assert (skill["harness"], skill["state"]) == ("agents", "approved"), skill


def test_the_name_of_a_skill_is_no_folder(house: Omac, tmp_path: Path) -> None:
    """The name of a skill, as other commands take it, leads to the command with its folder."""
    source = new(house, tmp_path / "p", "a")
    (tmp_path / "p" / "src").mkdir()
    done = house.run("skill", "check", "a", cwd=tmp_path / "p" / "src")
    assert (done.status, done.err.splitlines()[1:]) == (2, [f"  try: omac skill check {source}"]), done


@pytest.mark.parametrize(
    ("first", "problem"),
    [
        ("#!/no/such/sh", "/no/such/sh does not exist: install it, or name another interpreter"),
        ("#!/usr/bin/env pyton3", "pyton3 is in no folder of PATH: install it"),
        ("#!/bin/sh\r", "ends with a carriage return, which becomes a part of the interpreter's name: remove it"),
        ("#!/usr/bin/env -S sh -e", ""),
        ("#!/bin/sh", ""),
    ],
)
def test_an_interpreter_that_is_missing(house: Omac, tmp_path: Path, first: str, problem: str) -> None:
    """The check reports a script that the system cannot start, because of its first line."""
    source = new(house, tmp_path / "p", "a")
    meta = source / "omac.yaml"
    meta.write_text(meta.read_text().replace('["python3", "sidecar.py"]', "[./run]"))
    (source / "run").write_bytes(f"{first}\n".encode())
    (source / "run").chmod(0o755)
    expected = f"a: 1 problem\n  ./run, line 1: {problem}\n" if problem else "a: ok\n"
    assert house.run("skill", "check", str(source)).out == expected


def test_two_skills_with_one_mount(house: Omac, tmp_path: Path) -> None:
    """Skills that an agent sees together and that have one mount have that problem; those of two agents have not."""
    project = tmp_path / "p"
    for name in ("a", "b"):
        meta = new(house, project, name) / "omac.yaml"
        meta.write_text(meta.read_text().replace(f"mount: {name}", "mount: same"))
    done = house.run("skill", "check", cwd=project)
    skills = project / ".agents" / "skills"
    problem = "omac.yaml: sidecar.mount: 'same' is also the mount of"
    assert (done.status, f"a: 1 problem\n  {problem} b, which {skills / 'b'} has; " in done.out) == (3, True), done
    assert f"b: 1 problem\n  {problem} a, which {skills / 'a'} has; " in done.out
    for name, folder in (("a", ".claude"), ("b", ".opencode")):
        (project / folder / "skills").mkdir(parents=True)
        (skills / name).rename(project / folder / "skills" / name)
    assert house.ok("skill", "check", cwd=project).count(": ok\n") == 2


def test_a_copied_skill_that_kept_its_name(house: Omac, tmp_path: Path) -> None:
    """A skill that was begun as a copy of another, and is therefore not used, has that problem."""
    project = tmp_path / "p"
    source = new(house, project, "a")
    shutil.copytree(source, source.with_name("b"))
    source.with_name("c").symlink_to("a")
    done = house.run("skill", "check", cwd=project)
    problem = f"a is also the name of {source.with_name('b')}; only {source} is used: rename one of the two"
    assert (done.status, f"a: 1 problem\n  omac.yaml: name: {problem}\n" in done.out) == (3, True), done
    assert f"  omac.yaml: name: a is also the name of {source}; only {source} is used: " in done.out
    assert "SKILL.md, line 2" not in done.out


def test_a_project_with_an_omac_yaml_of_its_own(house: Omac, tmp_path: Path) -> None:
    """An omac.yaml beside the skills folder does not make a skill of the project; its skills are checked."""
    source = new(house, tmp_path / "p", "a")
    (tmp_path / "p" / "omac.yaml").write_text("name: p\n")
    assert house.ok("skill", "check", cwd=tmp_path / "p") == "a: ok\n"
    (source / "SKILL.md").unlink()
    assert "SKILL.md: is missing" in house.run("skill", "check", str(source)).out


@pytest.mark.parametrize("meta", ["name: [", "", "- a", "\x1b[2J", "name: !!python/x y"])
def test_hostile_files_are_shown_and_not_obeyed(house: Omac, tmp_path: Path, meta: str) -> None:
    """A hostile file is reported as a problem, and its control characters do not reach the terminal."""
    (tmp_path / "omac.yaml").write_text(meta)
    done = house.run("skill", "check", str(tmp_path))
    assert done.status == 3
    assert "\x1b" not in done.out
    assert "omac.yaml" in done.out


def test_a_project_without_skills(house: Omac, tmp_path: Path) -> None:
    """The check of a project without skills proposes the command that begins one."""
    done = house.run("skill", "check", str(tmp_path))
    assert (done.status, done.out) == (4, "")
    assert "try: omac skill new" in done.err


def test_the_example_has_no_problem(house: Omac) -> None:
    """The example skill that the documents point to passes the check."""
    assert house.ok("skill", "check", str(ECHO_SKILL)) == "echo: ok\n"


def test_a_skill_is_written_inside_a_sandbox(house: Omac) -> None:
    """Both commands work inside a sandbox, without the host."""
    project = house.root / "inside"
    project.mkdir()
    done = house.run("skill", "new", "slack", cwd=project, extra={"OMAC_SANDBOX": "1"})
    assert done.status == 0
    assert house.run("skill", "check", cwd=project, extra={"OMAC_SANDBOX": "1"}).out == "slack: ok\n"
