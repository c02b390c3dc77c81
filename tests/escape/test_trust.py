"""omac runs no program, interpreter or module on the host that an agent can write.

Each plant lies where a sandboxed program may write, and the host must not run it. Each has a twin, which works: the
same act of a trusted program, or the same plant where it is the user's own business.
"""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from programs import program_at
from real_omac import COMMAND, Omac
from real_sandbox import SYSTEM_PYTHON, Box, Done, box, installed, readable_package
from tiers import some

from omac.domain.sidecars.sidecar import Healthy
from omac.domain.skills.registration import Approved

PLANTED = ("sitecustomize", "usercustomize", "shutil", "subprocess", "gc", "omac", "select", "runpy")
# A module that says so when the host imports it; inside, and for what looks for the real one, it is not there.
MODULE = """\
import os
if os.environ.get("OMAC_SANDBOX") != "1":
    open({mark!r}, "a").write(__name__ + " ")
raise ImportError(__name__)
"""
PROGRAM = """\
#!/bin/sh
[ "$OMAC_SANDBOX" = 1 ] || echo "$0 $*" >> {mark}
exec {real} "$@"
"""
# As Python audits it: a module is looked for that was not loaded yet (sys.audit events, "import").
LATE = """\
import os, sys
def late(event, arguments):
    if event == "import" and os.stat(sys.argv[-1]).st_size:
        os.write(2, f"LATE {arguments[0]}\\n".encode())
sys.addaudithook(late)
sys.path.insert(0, PACKAGE)
from omac.tools.entry import main
main()
"""


@pytest.fixture
def world(world: Box) -> Box:
    """Return a user's world, with a project that is a repository."""
    host(world, "git init -q . && git commit -q --allow-empty -m first && mkdir src bin")
    return world


def host(world: Box, script: str, **extra: str) -> Done:
    """Run a script of the user's outside any sandbox."""
    done = world.host("/bin/sh", "-ec", script, extra=extra)
    assert done.status == 0, done
    return done


def marked(world: Box) -> str:
    """Return the names of the plants that ran on the host."""
    mark = world.home / "MARK"
    return mark.read_text() if mark.exists() else ""


def plant_modules(world: Box, folder: Path) -> None:
    """Leave modules in a folder that come before others of the same name, if an import searches the folder."""
    for name in PLANTED:
        world.give(folder / f"{name}.py", MODULE.format(mark=str(world.home / "MARK")))


def plant_program(world: Box, name: str, folder: Path) -> None:
    """Leave a program in a folder that does what the real one does and notes each call of it on the host."""
    real = shutil.which(name)
    world.give(folder / name, PROGRAM.format(mark=world.home / "MARK", real=real), 0o755)


@pytest.mark.full
@pytest.mark.parametrize("way", ["absolute", "relative", "current"])
def test_modules_of_the_project_are_not_imported(world: Box, way: str) -> None:
    """omac's commands load no module that an agent left on PYTHONPATH or in the current folder, from their first line
    on; python itself would."""
    program = str(installed(world))
    source = world.workdir if way == "current" else world.workdir / "src"
    plant_modules(world, source)
    search = {"absolute": str(source), "relative": "src", "current": ""}[way]
    for words in (
        "sandbox run --help",
        "sandbox run -- true",
        "sandbox run --explain -- true",
        "hook pre-tool-use </dev/null",
    ):
        host(world, f"{program} {words} || [ $? = 2 ]", PYTHONPATH=search, PYTHONSTARTUP=f"{source}/shutil.py")
        assert marked(world) == "", words
    world.host(
        str(world.home / "tools" / "omac" / "bin" / "python"), "-c", "import subprocess", extra={"PYTHONPATH": search}
    )
    assert marked(world), "the plant would not have run anywhere"


def test_modules_left_during_a_launch_are_not_imported(world: Box) -> None:
    """omac imports no module that a program leaves on PYTHONPATH, even when it has to run git to copy refs back."""
    program = str(installed(world))
    host(world, "git branch old; git branch kept; git pack-refs --all; git worktree add -q ../linked -b feature")
    plant_modules(world, world.workdir / "ready")
    tree = world.home / "linked"
    grant = f"--workdir {tree} --allow {world.workdir}/src --read {world.workdir}/ready"
    leave = f"cp {world.workdir}/ready/* {world.workdir}/src && git branch -qD old"
    run = f"{program} sandbox run {grant} -- sh -ec {shlex.quote(leave)}"
    host(world, run, PYTHONPATH=f"{world.workdir}/src")
    assert marked(world) == ""
    assert host(world, "ls src").out.split(), "nothing was left: the case this test is about"
    assert "old" not in host(world, "git branch").out, "the refs came home"
    assert "kept" in host(world, "git branch").out


@pytest.mark.full
@pytest.mark.parametrize("tree", some(["linked", "plain"], of=2))
def test_everything_is_loaded_before_the_program_begins(world: Box, tree: str) -> None:
    """omac imports nothing once the program runs, even if the program can write omac's own folder, a checkout that the
    agent works on. The code that ends a launch is the code that began it."""
    host(world, "git branch old; git pack-refs --all; git worktree add -q ../linked -b feature")
    folder = world.workdir if tree == "plain" else world.home / "linked"
    begun = world.give(folder / "begun")
    checkout = folder / "checkout"
    shutil.copytree(readable_package(), checkout)
    for path in (checkout, *checkout.rglob("*")):
        os.chown(path, world.uid, world.uid)
    world.give(folder / "evil.py", MODULE.format(mark=str(world.home / "MARK")))
    line = [sys.executable if world.uid == os.geteuid() else SYSTEM_PYTHON, "-I", "-c"]
    line += [
        LATE.replace("PACKAGE", repr(str(checkout))),
        "sandbox",
        "run",
        "--workdir",
        str(folder),
        "--",
        "sh",
        "-ec",
    ]
    script = f"echo . >> {begun}; find checkout -name '*.py' -exec cp evil.py {{}} ';'; git branch -qD old; git status"
    done = world.host(*line, script, "sh", str(begun))
    assert done.status == 0, done
    assert "LATE" not in done.err, done.err
    assert f"{checkout}/omac is part of omac, and the program may change it" in done.err
    assert marked(world) == ""
    world.host(*line, "true", "sh", str(begun))
    assert marked(world), "the plant would not have run anywhere"


@pytest.mark.parametrize("name", ["bwrap", "git"])
def test_programs_of_the_project_do_not_run_on_the_host(world: Box, name: str) -> None:
    """omac runs the system's program although a folder of the project comes first on PATH, and names that folder.
    Inside, the program that the agent wrote runs."""
    plant_program(world, name, world.workdir / "bin")
    host(world, "git branch old; git pack-refs --all; git worktree add -q ../linked -b feature")
    path = f"{world.workdir}/bin:{world.environment['PATH']}"
    grants = ("--allow", str(world.workdir / "bin"))
    linked = world.home / "linked"
    done = world.run("git", "branch", "-qD", "old", options=grants, extra={"PATH": path}, workdir=linked)
    assert done.status == 0, done
    assert marked(world) == ""
    warnings = [line for line in done.err.splitlines() if "PATH leads to" in line]
    assert warnings == [
        f"omac: PATH leads to {world.workdir}/bin: the program can write there what your shell runs next; "
        "omac runs nothing of it"
    ]
    if world.uid == os.geteuid():  # another user's copy lacks what this command needs
        assert "[ok] git" in world.host(*world.omac("sandbox", "doctor"), extra={"PATH": path}).out
        assert marked(world) == ""
    twin = world.run("sh", "-c", f"command -v {name}", options=grants, extra={"PATH": path}, workdir=linked)
    assert twin.out == f"{world.workdir}/bin/{name}\n"
    world.host("/bin/sh", "-c", f"{name} --version", extra={"PATH": path})
    assert marked(world), "the plant would not have run anywhere"


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("bin:/usr/bin:/bin", "bin"),
        ("/usr/bin:/bin:", "."),
        ("{project}/a:{project}/b:.:x:{home}/link:/bin", "{project}/a, {project}/b, {home}/link and 2 more"),
        ("{home}/link:/usr/bin:/bin", "{home}/link"),
    ],
)  # fmt: skip
def test_folders_of_path_that_can_be_written_are_named(world: Box, path: str, named: str) -> None:
    """A single warning covers all writable folders of PATH; a relative or missing one counts as the project's."""
    (world.home / "link").symlink_to(world.workdir / "bin")
    names = {"project": str(world.workdir), "home": str(world.home)}
    done = world.run("true", extra={"PATH": path.format(**names)})
    (line,) = done.err.splitlines()
    assert line.startswith(f"omac: PATH leads to {named.format(**names)}: "), line


def test_python_m_omac_becomes_isolated(world: Box) -> None:
    """`python -m omac` imports nothing of omac from the current folder; Python's own first imports are its affair."""
    installed(world)
    mark = str(world.home / "MARK")
    for name in ("shutil", "subprocess", "gc"):
        world.give(world.workdir / f"{name}.py", MODULE.format(mark=mark))
    python = world.home / "tools" / "omac" / "bin" / "python"
    done = host(world, f"{python} -m omac sandbox run -- {SYSTEM_PYTHON} -I -c 'print(1)'", PYTHONPATH=".")
    assert done.out == "1\n"
    assert marked(world) == ""
    world.host(str(python), "-c", "import shutil", extra={"PYTHONPATH": "."})
    assert marked(world), "the plant would not have run anywhere"


def test_no_folder_is_named_where_none_can_be_written(world: Box) -> None:
    """A PATH of the user's own folders causes no warning."""
    done = world.run("true", extra={"PATH": f"{world.home}/bin:/usr/local/bin:/usr/bin:/bin"})
    assert done == Done(0, "", "")


@pytest.mark.full
def test_a_server_has_loaded_everything_when_its_agent_begins(omac: Omac) -> None:
    """`omac start` imports nothing once its agent runs, even after a crash, a reload or errors that the agent causes.
    The agent could write such imports, as the interpreter is in the project."""
    project = omac.approved("p")
    mark = project / "begun"
    mark.touch()
    call = 'curl -s -o /dev/null -H "Authorization: Bearer $T" $OMAC_CONTROL_BASE/__omac__'
    agent = f"""\
echo . >> $1; T=$(cat /run/omac/bridge.token); body="{{\\"dir\\":\\"$PWD\\"}}"
curl -s $OMAC_ECHO_BASE/crash -o /dev/null; curl -s $OMAC_ECHO_BASE/../nosuch -o /dev/null
for action in reload deactivate activate nosuch; do {call}/$action -d "$body"; done; {call}/status; echo done"""
    begin = LATE.replace("PACKAGE", repr(str(Path(__file__).parents[2] / "src")))
    line = [sys.executable, "-I", "-c", f"import sys; sys.base_prefix = {str(project / 'python')!r}\n{begin}"]
    words = ["start", "--workdir", str(project), "--", "sh", "-ec", agent, "sh", str(mark)]
    done = subprocess.run(
        [*line, *words], env=omac.environment, cwd=project, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done
    assert "LATE" not in done.stderr, done.stderr


LEFT = """\
echo . >> "$1"
git init -q more && touch more/x && git -C more add x && git -C more commit -qm x
for n in $(seq 20); do git init -q r$n; done
git init -q nested && git -C nested config core.fsmonitor ./x && git init -q --bare bare.git && ln -s /etc link
git config user.name Else; git branch side; git config alias.x '!true'; echo x > .npmrc
mkdir .vscode; echo > .vscode/tasks.json
printf DIRC > .git/index; mkdir -p .git/odd .git/rebase-merge; echo 'exec true' > .git/rebase-merge/git-rebase-todo
ln -s /etc .git/refs/heads/etc; echo '* x' > .git/packed-refs; mkfifo .git/HEAD.lock; sleep 0.3
"""


@pytest.mark.parametrize("tree", some(["../linked", "."], of=2))
def test_a_launch_has_loaded_everything_when_its_program_begins(tree: str) -> None:
    """`omac sandbox run` imports nothing once its program runs, whatever files the program leaves. The program could
    write such imports."""
    with box() as world:
        host(world, "git init -q . && git commit -q --allow-empty -m first && git worktree add -q ../linked -b feature")
        mark = world.workdir / "begun"
        mark.touch()
        package = readable_package()
        line = [sys.executable, "-I", "-c", LATE.replace("PACKAGE", repr(package)), "sandbox", "run"]
        grants = ["--workdir", str(world.workdir / tree), "--allow", package, "--allow", str(world.workdir)]
        done = world.host(*line, *grants, "--", "sh", "-c", LEFT, "sh", str(mark))
    assert "set aside" in done.err, done
    assert "is part of omac, and the program may change it" in done.err
    assert "LATE" not in done.err, done.err


FAKE = """\
#!/bin/sh
[ "$OMAC_SANDBOX" = 1 ] || env > {mark}
exec {real} "$@"
"""


def agent(omac: Omac, project: Path, path: str, script: str) -> subprocess.CompletedProcess[str]:
    """Return the result of an agent's shell script under `omac start`, with this PATH."""
    extra = {"PATH": path}
    line = [*COMMAND, "start", "--workdir", str(project), "--", "/bin/sh", "-ec", script]
    environment = omac.environment | extra
    return subprocess.run(line, env=environment, cwd=project, capture_output=True, text=True, timeout=60)


ACTIVATE_AGAIN = """\
until [ -e asked ]; do sleep 0.05; done
for action in deactivate activate; do
    curl -s --unix-socket $1/run/*/control.sock http://localhost/__omac__/$action -d "{\\"dir\\":\\"$PWD\\"}"
done >activated
touch done
"""


@pytest.mark.full
@pytest.mark.parametrize("again", some(["a crash", "a new activation"], of=2))
def test_a_sidecar_is_not_started_by_the_projects_interpreter(omac: Omac, again: str) -> None:
    """An agent replaces the interpreter of the project's active virtual environment and has the sidecar start again:
    the approved interpreter runs on the host. Inside, the agent's own runs."""
    project = omac.project("p")
    tools = project / ".venv" / "bin"
    tools.mkdir(parents=True)
    real = shutil.which("python3", path="/usr/bin:/bin")
    (tools / "python3").symlink_to(str(real))
    path = f"{tools}:/usr/local/bin:/usr/bin:/bin"
    assert not omac.run("approve", "echo", "--workdir", str(project), extra={"PATH": path}).status
    mark, fake = omac.folder / "MARK", FAKE.format(mark=omac.folder / "MARK", real=real)
    restart = {
        "a crash": "curl -s $OMAC_ECHO_BASE/crash -o /dev/null",
        "a new activation": "touch asked; until [ -e done ]; do sleep 0.05; done",
    }[again]
    ready = "[ $(curl -s -o /dev/null -w '%{http_code}' $OMAC_ECHO_BASE/status) = 200 ]"
    script = f"""\
rm .venv/bin/python3; cat > .venv/bin/python3 <<'EOF'
{fake}EOF
chmod +x .venv/bin/python3; {restart}
for i in $(seq 50); do {ready} && break; sleep 0.1; done; command -v python3"""
    with subprocess.Popen(["sh", "-c", ACTIVATE_AGAIN, "sh", str(omac.state)], cwd=project) as person:
        done = agent(omac, project, path, script)
        person.kill()
    assert not mark.exists(), mark.read_text()
    assert (done.returncode, done.stdout) == (0, f"{tools}/python3\n"), done
    starts = [record for record in omac.events() if isinstance(record.event, Healthy)]
    assert len(starts) == 2, "it was not started again: the case this test is about"
    assert f"PATH leads to {tools}" in done.stderr
    subprocess.run([str(tools / "python3"), "-c", ""], env=omac.environment, check=True)
    assert mark.exists(), "the plant would not have run anywhere"


@pytest.mark.full
@pytest.mark.parametrize("way", ["a setting", "env"])
def test_a_skill_cannot_choose_where_its_interpreter_is(omac: Omac, way: str) -> None:
    """A skill whose omac.yaml sets PATH would run by an interpreter that an agent can replace, and not by the one that
    its approval shows: it cannot be approved, and its twin without PATH can."""
    project = omac.root / "p"
    folders = f"{project}/bin:/usr/bin:/bin"
    plain = "name: echo\nsidecar:\n  command: [python3, sidecar.py]\n"
    meta = omac.skill(project, "echo", plain) / "omac.yaml"
    if way == "env":
        meta.write_text(plain.replace("[", f"[env, 'PATH={folders}', "))
    else:
        meta.write_text(f"{plain}  config: [{{name: PATH, default: '{folders}'}}]\n")
    words = ("approve", "echo", "--workdir", str(project))
    outcome = omac.run(*words)
    assert outcome.status != 0, outcome
    assert "PATH" in outcome.err
    meta.write_text(plain)
    assert omac.run(*words).status == 0


@pytest.mark.full
def test_an_interpreter_that_changed_needs_attention(omac: Omac) -> None:
    """A user's own interpreter on PATH is approved with a skill and runs. When it is replaced, the skill reports that
    and the command to type; approved again, it runs."""
    project = omac.project("p")
    tools = omac.folder / "tools"
    tools.mkdir()
    real = shutil.which("python3", path="/usr/bin:/bin")
    own = program_at(tools / "python3", f'#!/bin/sh\nexec {real} "$@"\n')
    path = {"PATH": f"{tools}:/usr/local/bin:/usr/bin:/bin"}
    words = ("approve", "echo", "--workdir", str(project))
    assert f"by {own}, /bin/sh\n" in omac.run(*words, extra=path).out
    status = own.stat()
    (approved,) = [record.event for record in omac.events() if isinstance(record.event, Approved)]
    recorded = (approved.interpreters or ())[0]
    assert (recorded.name, recorded.path, recorded.device, recorded.inode) == (
        "python3", str(own), status.st_dev, status.st_ino,
    )  # fmt: skip
    look = ("start", "--workdir", str(project), "--", "sh", "-c", "curl -s $OMAC_ECHO_BASE/status")
    assert omac.run(*look, extra=path).out == '{"status": "ok"}\n'
    own.write_text(f'#!/bin/sh\nenv > {omac.folder}/MARK\nexec {real} "$@"\n')
    outcome = omac.run(*look, extra=path)
    assert f"its interpreter {own} is not the program that was approved; approve it again" in outcome.err
    assert f"try: omac approve echo --workdir {project} --harness opencode" in outcome.err
    assert not (omac.folder / "MARK").exists()
    assert omac.run(*words, extra=path).status == 0
    assert omac.run(*look, extra=path).out == '{"status": "ok"}\n'
    assert (omac.folder / "MARK").exists(), "it runs, now that a person approved it"


@pytest.mark.full
def test_bubblewrap_of_the_project_does_not_begin_a_sidecar(omac: Omac) -> None:
    """A server makes a sidecar's namespace by the system's bwrap, not by a bwrap of the project, first on PATH."""
    project = omac.approved("p")
    fake, mark = project / "bin" / "bwrap", omac.folder / "MARK"
    program_at(fake, FAKE.format(mark=mark, real=shutil.which("bwrap")))
    path = f"{fake.parent}:/usr/local/bin:/usr/bin:/bin"
    done = agent(omac, project, path, "curl -s $OMAC_ECHO_BASE/status; command -v bwrap")
    assert done.stdout == f'{{"status": "ok"}}\n{fake}\n', done
    assert not mark.exists()
    subprocess.run(["bwrap", "--version"], env=omac.environment | {"PATH": path}, check=True)
    assert mark.exists(), "the plant would not have run anywhere"


@pytest.mark.parametrize("way", ["flag", "profile", "neither"])
def test_a_granted_folder_has_no_interpreter(omac: Omac, way: str) -> None:
    """A user's folder, first on PATH, has the approved interpreter. omac refuses that interpreter when the folder is
    granted to the agent, by flag or profile, and runs it otherwise."""
    project = omac.project("p")
    tools = omac.folder / "tools"
    tools.mkdir()
    own = program_at(tools / "python3", f'#!/bin/sh\nexec {shutil.which("python3", path="/usr/bin:/bin")} "$@"\n')
    profile = omac.folder / "profile.toml"
    profile.write_text(f'allow = ["{tools}"]\n')
    path = {"PATH": f"{tools}:/usr/local/bin:/usr/bin:/bin"}
    assert omac.run("approve", "echo", "--workdir", str(project), extra=path).status == 0
    grant = {"flag": ("--allow", str(tools)), "profile": ("--profile", str(profile)), "neither": ()}[way]
    words = ("start", "--workdir", str(project), *grant, "--", "sh", "-c", "curl -s $OMAC_ECHO_BASE/status")
    done = omac.run(*words, extra=path)
    assert (done.out == '{"status": "ok"}\n') == (way == "neither"), done
    assert (f"its interpreter {own} can be changed by an agent" in done.err) == (way != "neither"), done
