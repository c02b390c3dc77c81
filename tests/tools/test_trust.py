"""`omac trust` at a terminal: each skill is shown, and approved as it was shown."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from programs import program_at
from real_omac import Done, Omac
from tiers import spread
from valued_skill import typed, valued, with_vault

YES = (("Approve it?", b"y\n"), ("ECHO_SECRET", b"\n"), ("ECHO_GREETING", b"\n"))  # with values left as they are


def trust(omac: Omac, project: Path, *answers: tuple[str, bytes]) -> Done:
    """Answer the questions of `omac trust`, in their order."""
    return typed(omac, answers, "trust", str(project))


def states(omac: Omac, project: Path) -> dict[str, str]:
    """Return each skill of the project and its state, from `omac list`."""
    rows = map(json.loads, omac.ok("list", "--workdir", str(project), "--json").splitlines())
    return {row["name"]: row["state"] for row in rows}


def test_skills_are_approved_one_after_the_other(omac: Omac) -> None:
    """Each skill is shown with its command and its files. Yes approves it, no leaves it, and the end counts both."""
    project = omac.project("shop", "echo", "mail", "news")
    done = trust(omac, project, *YES, ("Approve it?", b"n\n"), *YES)
    assert done.status == 0
    assert states(omac, project) == {"echo": "approved", "mail": "not registered", "news": "approved"}
    for text in (
        f"[1 of 3]\r\necho in {project}/.agents/skills/echo\r\n",
        "it runs as you: python3 sidecar.py\r\n",
        " KiB  sidecar.py\r\n",
        "2 approved, 0 approved before, 1 not approved\r\n",
        "next: omac start ",
    ):
        assert text in done.out, text
    again = trust(omac, project, ("Approve it?", b"\n"))
    assert "echo: approved already\r\n" in again.out
    assert "0 approved, 2 approved before, 1 not approved" in again.out
    assert states(omac, project)["mail"] == "not registered"


def test_the_end_of_the_input_approves_nothing_and_asks_no_more(omac: Omac) -> None:
    """^D at the first skill leaves all of them as they are."""
    project = omac.project("shop", "echo", "mail")
    done = trust(omac, project, ("Approve it?", b"\x04"))
    assert (done.status, done.out.count("Approve it?")) == (0, 1), done
    assert "0 approved, 0 approved before, 2 not approved\r\n" in done.out


@pytest.mark.parametrize(("agents", "start"), [((), "{} -- bash"), (("claude",), "claude {}")])
def test_what_comes_next_is_there(omac: Omac, agents: tuple[str, ...], start: str) -> None:
    """The next command starts an installed agent in the project, or a shell if no agent is installed."""
    project = omac.project("shop")
    programs = omac.folder / "programs"
    programs.mkdir()
    for name, program in (("python3", "python3"), *((agent, "true") for agent in agents)):
        (programs / name).symlink_to(str(shutil.which(program)))
    omac.environment["PATH"] = str(programs)
    done = trust(omac, project, *YES)
    whole = f"next: omac start {start.format(f'--workdir {project}')}"
    assert f"{whole}\r\n  or, where a server runs: omac activate {project}\r\n" in done.out


def test_the_name_of_a_skill_is_no_folder(omac: Omac) -> None:
    """`omac trust` takes a folder; where a skill is named instead, the command for one skill is proposed."""
    project = omac.project("shop")
    done = omac.run("trust", "echo", cwd=project)
    assert done.status == 2
    assert f"{project}/echo does not exist" in done.err
    assert "  try: omac approve echo  # if that is the name of a skill\n" in done.err
    assert "omac approve" not in omac.run("trust", "./echo", cwd=project).err


def test_a_changed_skill_is_shown_by_its_difference(omac: Omac) -> None:
    """A changed skill is shown as its difference to the approved copy; then the new code is approved."""
    project = omac.approved("shop")
    program = project / ".agents/skills/echo/sidecar.py"
    program.write_text(program.read_text() + "# changed\x1b[2J\n")
    done = trust(omac, project, *YES)
    assert "CHANGED after it was approved" in done.out
    assert "+# changed\\x1b[2J" in done.out
    assert "\x1b[2J" not in done.out
    assert "22 KiB" not in done.out
    assert states(omac, project) == {"echo": "approved"}
    assert omac.run("diff", "echo", cwd=project).status == 0


def remove_tree(copy: Path) -> None:
    """Remove a read-only folder."""
    subprocess.run(["chmod", "-R", "u+w", str(copy)], check=True)
    shutil.rmtree(copy)


@pytest.mark.parametrize("damage", [remove_tree, lambda copy: (copy / "sidecar.py").chmod(0o644)])
def test_an_approved_copy_that_is_lost(omac: Omac, damage: Callable[[Path], object]) -> None:
    """A skill whose approved copy is missing or changed is not approved anywhere. `omac trust` makes the copy again of
    the same files without a question, and so does the command that the list names; of other files it asks."""
    project = omac.approved("shop")
    (copy,) = (path for path in (omac.state / "frozen").iterdir() if path.is_dir())
    damage(copy)
    command = f"omac approve echo --workdir {project} --harness opencode --hash sha256:{copy.name}"
    listed = omac.run("list", "--workdir", str(project))
    assert "  not approved  " in listed.out
    assert f"{copy}" in listed.err
    assert f"; approve it again: {command}\n" in listed.err
    assert f"  try: {command}\n" in omac.run("approvals").err
    overview = omac.ok(cwd=project)
    assert "skills   echo  its copy or its interpreter is not what was approved\n" in overview
    assert "next     omac trust  " in overview
    shown = omac.run("show", "echo", "--workdir", str(project))
    assert f"  it does not run: the approved copy {copy} " in shown.out
    assert f"  try: {command.replace(' --harness opencode', '')}\n" in shown.err
    done = omac.run("trust", str(project))
    assert (done.status, "echo: approved already\n" in done.out) == (0, True), done
    assert f"echo: the approved copy {copy} " in done.err
    assert states(omac, project) == {"echo": "approved"}
    damage(copy)
    assert omac.ok(*command.split()[1:]).startswith("already approved: echo in ")
    assert states(omac, project) == {"echo": "approved"}
    damage(copy)
    (project / ".agents/skills/echo/node_modules").mkdir()
    (project / ".agents/skills/echo/node_modules/new").write_text("x")
    assert omac.run(*command.split()[1:]).status == 9
    assert omac.run("trust", str(project)).status == 2
    assert states(omac, project) == {"echo": "not approved"}


def test_an_interpreter_that_is_another_program(omac: Omac) -> None:
    """A skill whose interpreter was replaced is not approved anywhere; `omac trust` asks, and the command that the list
    names approves it with the present one."""
    project, program = omac.root / "shop", omac.folder / "own-python"
    program_at(program, "#!/bin/sh\nexec python3 sidecar.py\n")
    omac.skill(project, "echo", f"name: echo\nsidecar:\n  command: [{program}, x]\n")
    omac.approve(project)
    program.write_text("#!/bin/sh\nexec python3 -I sidecar.py\n")
    listed = omac.run("list", "--workdir", str(project))
    says = f"echo: its interpreter {program} is not the program that was approved; approve it again: "
    assert says in listed.err
    assert states(omac, project) == {"echo": "not approved"}
    done = omac.run("trust", str(project))
    assert (done.status, "omac trust needs a terminal to ask about echo\n" in done.err) == (2, True), done
    command = listed.err.partition(says)[2].splitlines()[0]
    said = omac.ok(*command.split()[1:])
    assert said.startswith("approved again, with another interpreter than before: echo in ")
    assert "approved before:" not in said
    assert states(omac, project) == {"echo": "approved"}


def test_a_changed_command_is_not_shown_with_the_program_of_the_earlier_one(omac: Omac) -> None:
    """The program that ran the approved code is named as such, apart from the one that would run the present code."""
    project = omac.root / "shop"
    omac.skill(project, "echo", "name: echo\nsidecar: {command: [sleep, '9'], mount: echo}\n")
    omac.approve(project)
    was, now = (str(Path(found).resolve()) for found in (shutil.which("sleep"), shutil.which("cat")) if found)
    assert f"  it runs as you: sleep 9\n  by {was}\n" in omac.ok("show", "echo", "--workdir", str(project))
    (project / ".agents/skills/echo/omac.yaml").write_text("name: echo\nsidecar: {command: [cat], mount: echo}\n")
    shown = f"  it runs as you: cat\n  approved before, by {was}\n  agents call it by "
    assert shown in omac.ok("show", "echo", "--workdir", str(project))
    done = trust(omac, project, ("Approve it?", b"n\n"))
    assert shown + f"$OMAC_ECHO_BASE\n  by {now}\n" in done.out.replace("\r\n", "\n")


def test_an_interpreter_that_agents_of_a_server_may_change(omac: Omac) -> None:
    """The list says of an interpreter below a server's root what the server says, and approving it again is refused."""
    project, program = omac.root / "shop", omac.root / "tools" / "own-python"
    program_at(program, "#!/bin/sh\nexec python3 sidecar.py\n")
    omac.skill(project, "echo", f"name: echo\nsidecar:\n  command: [{program}, x]\n")
    omac.ok("approve", "echo", cwd=project)
    assert states(omac, project) == {"echo": "approved"}
    (skill,) = omac.serve().activate(project)["skills"]
    says = f"its interpreter {program} can be changed by an agent"
    assert says in skill["detail"]
    assert states(omac, project) == {"echo": "not approved"}
    assert says in omac.run("list", "--workdir", str(project)).err
    done = omac.run("approve", "echo", cwd=project)
    assert (done.status, f"{program}, which an agent may change" in done.err) == (3, True), done


@pytest.mark.parametrize("command", ["[python3, {}]", "[{}, x]"], ids=["script", "interpreter"])
def test_a_program_in_the_tool_cache_of_an_agent(omac: Omac, command: str) -> None:
    """A skill that runs by a file of the tool cache, which an agent can change, is not approved."""
    project = omac.root / "shop"
    project.mkdir()
    make = "printf '#!/bin/sh\\n' > $OMAC_CACHE_DIR/x.py; chmod +x $OMAC_CACHE_DIR/x.py; echo $OMAC_CACHE_DIR"
    cache = omac.ok("sandbox", "run", "--", "sh", "-c", make, cwd=project).splitlines()[-1]
    omac.skill(project, "echo", f"name: echo\nsidecar:\n  command: {command.format(cache + '/x.py')}\n")
    done = omac.run("approve", "echo", cwd=project)
    assert (done.status, f"{cache}/x.py, which an agent may change" in done.err) == (3, True), done


@pytest.mark.parametrize(("folder", "command"), spread([".claude", ".claude/hooks"], ["[python3, {}]", "[{}, x]"]))
def test_a_program_in_the_own_folder_of_an_agent(omac: Omac, folder: str, command: str) -> None:
    """A program that lies where an agent keeps its files is one that it may change, unless its sandbox pins it."""
    script = Path(omac.environment["HOME"]) / folder / ("x.py" if "python" in command else "x")
    program_at(script, "#!/bin/sh\n")
    project = omac.root / "shop"
    omac.skill(project, "echo", f"name: echo\nsidecar:\n  command: {command.format(script)}\n")
    done = omac.run("approve", "echo", cwd=project, within=("env",))
    status = 3 if folder == ".claude" else 0
    assert (done.status, f"{script}, which an agent may change" in done.err) == (status, status == 3), done


def test_a_folder_of_path_that_an_agent_keeps(omac: Omac) -> None:
    """A name leads to no program in a folder of PATH where an agent keeps its files."""
    program = Path(omac.environment["HOME"]) / ".codex" / "bin" / "python3"
    program.parent.mkdir(parents=True)
    program.symlink_to("/bin/sh")
    project = omac.project("shop")
    path = f"PATH={program.parent}:{os.environ['PATH']}"
    done = omac.run("approve", "echo", cwd=project, within=("env", path))
    assert (done.status, "/python3" in done.out, str(program) in done.out) == (0, True, False), done


def test_a_change_meanwhile_is_refused(omac: Omac, tmp_path: Path) -> None:
    """Only the copy that was shown is approved: files changed meanwhile are not."""
    project = omac.project("shop")
    program = project / ".agents/skills/echo/sidecar.py"
    waits = tmp_path / "watch.sh"
    waits.write_text(
        f"while ! [ -d {omac.state}/frozen ] || ! ls {omac.state}/frozen | grep -q '^[0-9a-f]*$'; do sleep 0.02; done\n"
        f"echo '# planted' >> {program}\ntouch {tmp_path}/planted\n"
    )
    omac.environment["PAGER"] = "cat"
    watcher = subprocess.Popen(["sh", str(waits)])
    try:
        done = typed(omac, [("Approve it?", b"f\n"), YES[0]], "trust", str(project))
    finally:
        watcher.wait(30)
    assert (tmp_path / "planted").exists()
    assert "# planted" not in done.out
    assert "echo is not approved" in done.out
    assert done.status == 1
    assert f"try: omac trust {project}" in done.out
    assert "0 approved, 0 approved before, 1 not approved" in done.out
    assert states(omac, project)["echo"] != "approved"


@pytest.mark.full
def test_values_are_asked_for_and_offered_to_the_same_files(omac: Omac) -> None:
    """A secret is typed unseen. A project with the same files is offered it; other files of that name are not."""
    with_vault(omac)
    first, second, third = valued(omac, "first"), valued(omac, "second"), valued(omac, "third")
    (third / ".agents/skills/slack/sidecar.py").write_text("# somebody else's\n")
    secret = b"abcd-12345"
    values = (
        ("TOKEN", secret + b"\n"), ("PEM", b"\n"), ("SPARE", b"\n"), ("REGION", b"\n"), ("LIMIT", b"\n"),
        ("MODE", b"\n"), ("HOST_SIDE", b"\n"), ("NOTE", b"\n"),
    )  # fmt: skip
    done = trust(omac, first, ("Approve it?", b"y\n"), *values)
    assert "1 approved" in done.out, done.out
    assert secret.decode() not in done.out
    offered = trust(omac, second, ("Approve it?", b"y\n"), ("The same files got TOKEN in another project", b"y\n"))
    assert "taken from saved defaults: TOKEN" in offered.out, offered.out
    refused = trust(omac, third, ("Approve it?", b"y\n"), *values)
    assert "The same files" not in refused.out
    assert "1 approved" in refused.out
    assert states(omac, second) == {"slack": "approved"}


@pytest.mark.full
def test_the_passphrase_is_typed_once_for_all_skills(omac: Omac) -> None:
    """A slip at the vault's passphrase is asked about again, and the right one serves every skill behind it."""
    project = omac.project("shop", "echo")
    for name in ("mail", "news"):
        meta = f'name: {name}\nsidecar: {{command: ["true"], mount: {name}, secrets: [{{name: {name.upper()}}}]}}\n'
        omac.skill(project, name, meta)
    passphrase = b"correct-horse\n"
    again = [("the new vault", passphrase), ("the same again", passphrase)]
    assert typed(omac, again, "vault", "init").status == 0
    vault = "passphrase (secret, required): of the vault"
    answers = [
        ("Approve it?", b"n\n"), ("Approve it?", b"y\n"), (vault, b"correct-house\n"), ("2 more tries", passphrase),
        ("MAIL (secret", b"m\n"), ("Approve it?", b"y\n"), ("NEWS (secret", b"n\n"),
    ]  # fmt: skip
    done = trust(omac, project, *answers)
    assert "2 approved, 0 approved before, 1 not approved" in done.out, done.out
    assert done.out.count(vault) == 2, done.out


def test_without_a_terminal_the_single_commands_are_named(omac: Omac) -> None:
    """omac without a terminal approves nothing, and proposes a command to paste for each skill."""
    project = omac.project("shop", "echo", "mail")
    omac.approve(project, "mail")
    (project / ".agents/skills/mail/new").write_text("x")
    omac.skill(project, "wrong", "name: [")
    done = omac.run("trust", str(project))
    assert (done.status, done.out) == (2, "")
    assert "omac trust needs a terminal to ask about echo, mail, wrong" in done.err
    for command in (
        f"omac show echo --workdir {project}",
        f"omac diff mail --workdir {project}",
        f"omac skill check {project}/.agents/skills/wrong",
    ):
        assert f"  try: {command}" in done.err, command
    assert "omac register" not in done.err, "nothing was shown yet"
    assert "omac approve" not in done.err
    assert states(omac, project)["echo"] == "not registered"


@pytest.mark.skipif(not Path("/usr/bin/less").exists(), reason="less is not installed")
@pytest.mark.parametrize("pager", ["", "less -X", "it's"])
def test_files_are_read_in_a_pager(omac: Omac, pager: str) -> None:
    """A pager shows the files screen by screen; then the question is asked again."""
    project = omac.project("shop")
    omac.environment |= {"TERM": "vt100", "PAGER": pager}
    done = trust(omac, project, ("Approve it?", b"f\n"), ("3  description", b"q"), ("Approve it?", b"n\n"))
    assert "|    1  ---" in done.out
    assert "  527      main()" not in done.out
    assert "1 not approved" in done.out


@pytest.mark.skipif(not Path("/usr/bin/less").exists(), reason="less is not installed")
def test_an_interrupt_is_the_pagers(omac: Omac) -> None:
    """Ctrl-C in the pager is the pager's to obey, which stays; killing it would leave a terminal that does not echo."""
    project = omac.project("shop")
    omac.environment["TERM"] = "vt100"
    reads = (("3  description", b"\x03"), (":", b"q"))
    done = trust(omac, project, ("Approve it?", b"f\n"), *reads, ("Approve it?", b"n\n"))
    assert (done.status, "1 not approved" in done.out) == (0, True), done


def test_nothing_to_do(omac: Omac) -> None:
    """A project whose skills are approved needs no terminal; for one without skills omac proposes how to begin."""
    project = omac.approved("shop")
    assert "echo: approved already" in omac.ok("trust", str(project))
    empty = omac.root / "empty"
    empty.mkdir()
    done = omac.run("trust", str(empty))
    assert done.status == 0
    assert "try: omac skill new hello" in done.err


def test_quitting_leaves_the_rest(omac: Omac) -> None:
    """Skills without an answer stay unapproved when the user quits."""
    project = omac.project("shop", "a", "b", "c")
    done = trust(omac, project, *YES, ("Approve it?", b"q\n"))
    assert "1 approved, 0 approved before, 2 not approved" in done.out
    assert states(omac, project) == {"a": "approved", "b": "not registered", "c": "not registered"}


@pytest.mark.full
def test_an_approved_skill_without_its_values_is_counted_as_approved(omac: Omac) -> None:
    """An approved skill that waits for values is asked about, and counted as approved before, whatever the answer; an
    approval that fails after a yes is exit code 1."""
    project = valued(omac)
    omac.ok("approve", "slack", "--workdir", str(project))
    question = "It waits for TOKEN. Set this now?"
    for answer in (b"n\n", b"q\n"):
        done = trust(omac, project, (question, answer))
        assert "0 approved, 1 approved before, 0 not approved, 1 without required values\r\n" in done.out
        assert done.status == 0
    failed = trust(omac, project, (question, b"y\n"))  # no keychain, no vault
    assert "slack got no values: " in failed.out
    assert "0 approved, 1 approved before, 0 not approved, 1 without required values\r\n" in failed.out
    assert (failed.status, "next: " in failed.out) == (1, False)


def test_skills_of_the_home_folder_are_shared_by_all_projects(omac: Omac) -> None:
    """A skill that is made and approved in the home folder, which is no project, is approved for all projects."""
    home = Path(omac.environment["HOME"])
    project = omac.project("shop")
    made = omac.ok("skill", "new", "hi", cwd=home)
    assert made.endswith("all projects share it, because it is in your home folder\nnext: omac trust\n")
    assert "skills   hi  not approved\n" in omac.ok(cwd=home)
    assert "shared by all projects" in omac.run("trust", cwd=home).err
    done = trust(omac, home, ("Approve it?", b"y\n"))
    assert "in your home folder: these skills are shared by all projects\r\n" in done.out
    assert "1 approved, 0 approved before, 0 not approved\r\nnext: cd ~/projects/shop && omac" in done.out
    assert json.loads(omac.ok("list", "--json", cwd=project).splitlines()[-1])["state"] == "approved"
    assert "skills   hi  approved\n" in omac.ok(cwd=home)
    assert json.loads(omac.ok("show", "hi", "--json", cwd=home))["dir"] == ""
    omac.ok("revoke", "hi", cwd=home)
    assert json.loads(omac.ok("list", "--json", cwd=project).splitlines()[-1])["state"] == "not approved"


@pytest.mark.full
def test_a_shared_skill_is_approved_by_the_command_that_a_launch_proposes(omac: Omac) -> None:
    """A skill of the home folder that is not approved is approved by the command that `omac start` prints in a
    project, which `omac trust` of the project would not find."""
    project = omac.project("shop")
    omac.ok("skill", "new", "hi", cwd=Path(omac.environment["HOME"]))
    started = typed(omac, (), "start", "--workdir", str(project), "--", "true")
    assert "omac: hi is not approved: " in started.out, started
    lines = started.out.splitlines()
    (said,) = [number for number, line in enumerate(lines) if line.startswith("omac: hi is not approved: ")]
    assert lines[said + 1] == "  try: omac trust ~"
    done = typed(omac, [("Approve it?", b"y\n")], "trust", omac.environment["HOME"])
    assert "1 approved" in done.out, done
    assert omac.run("trust", "--global").err.endswith("Error: No such option: --global\n  try: omac trust ~\n")
    assert "omac: hi" not in typed(omac, (), "start", "--workdir", str(project), "--", "true").out


@pytest.mark.full
def test_many_files_are_counted_while_they_are_copied(omac: Omac) -> None:
    """A terminal shows how many files were copied, in a line that is gone before anything else is shown."""
    project = omac.project("shop")
    modules = project / ".agents/skills/echo/node_modules"
    modules.mkdir()
    for number in range(8000):
        (modules / f"{number}.js").touch()
    done = trust(omac, project, *YES)
    assert " files copied\r\x1b[Kecho in " in done.out, done.out[:2000]
    assert "1 approved" in done.out
    assert "files copied" not in omac.run("approve", "echo", "--workdir", str(project)).err


def test_a_skill_that_is_not_used_is_named(omac: Omac) -> None:
    """A copied skill that kept its name is named, as only the other one is shown; where nothing is to be approved,
    too."""
    project = omac.approved("shop")
    source = project / ".agents/skills/echo"
    shutil.copytree(source, source.with_name("other"))
    unused = f"echo is also the name of {source.with_name('other')}; only {source} is used: rename one of the two"
    assert f"note: echo: omac.yaml: name: {unused}\n" in omac.run("trust", str(project)).err


@pytest.mark.full
def test_an_unclear_answer_approves_nothing(omac: Omac) -> None:
    """A word that only begins like yes is asked about again. A whole yes approves; three slips leave the skill as it
    is."""
    project = omac.project("shop")
    slips = [("Approve it?", answer) for answer in (b"your call\n", b"yf\n", b"x\n")]
    done = trust(omac, project, *slips)
    assert done.out.count("  type y, f, q or n\r\n") == 3
    assert "0 approved, 0 approved before, 1 not approved" in done.out
    trust(omac, project, slips[0], ("Approve it?", b"Yes\n"), *YES[1:])
    assert states(omac, project) == {"echo": "approved"}
