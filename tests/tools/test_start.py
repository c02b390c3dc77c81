"""`omac start`: one command in one directory with its skills, from the first line of its output to nothing left.

Most of these run without a sandbox, for what they are about is omac's own; what needs one says so.
"""

import json
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from polling import eventually
from real_omac import Omac, curl
from started import BARE, SHOW, WAIT, started, told

from omac.domain.access.control import ControlRefused
from omac.domain.directories.events import ActivationRequested, Deactivated, ReloadRequested
from omac.domain.kernel.run import RunRecovered, RunStarted, RunStopped
from omac.domain.sidecars.sidecar import SpawnRequested


@pytest.fixture
def shop(omac: Omac) -> Path:
    """A project with an approved skill."""
    project = omac.project("shop")
    omac.approve(project)
    return project


@pytest.fixture
def agent(omac: Omac) -> Path:
    """A program called claude on PATH that shows how it was called."""
    folder = omac.folder / "bin"
    folder.mkdir()
    omac.environment["PATH"] = f"{folder}:{omac.environment['PATH']}"
    program = folder / "claude"
    program.write_text('#!/bin/sh\necho claude "$@"\nenv | grep ^OMAC_HARNESS=\n')
    program.chmod(0o755)
    return program


def test_a_person_with_settings(omac: Omac, shop: Path) -> None:
    """The sandbox's own process reads them too, with the libraries that it takes: it could not from a checkout."""
    omac.ok("settings", "set", "serve.auto_register", "false")
    done = omac.run("start", "--workdir", str(shop), "--", "true")
    assert (done.status, done.err) == (0, ""), done


def sharing(omac: Omac) -> None:
    """A skill that all projects share, approved."""
    source = Path(omac.environment["XDG_CONFIG_HOME"]) / "opencode" / "skills" / "common"
    echo = omac.project("source") / ".agents" / "skills" / "echo"
    source.parent.mkdir(parents=True)
    echo.rename(source)
    meta = source / "omac.yaml"
    meta.write_text(meta.read_text().replace("name: echo\n", "name: common\n").replace("mount: echo", "mount: common"))
    omac.ok("approve", "common", "--global")


def test_a_command_has_the_skills_of_its_directory(omac: Omac, shop: Path) -> None:
    """By flat names: by TCP, by the Unix socket, and those of a skill that is not ready. Only the command writes to
    stdout, its exit status is omac's, and afterwards nothing is left, neither running nor online."""
    omac.skill(shop, "late-one", "name: late-one\nsidecar:\n  command: [python3, sidecar.py]\n")
    script = 'curl -sS "$OMAC_ECHO_BASE/echo/by-tcp" >&2; env; exit 23'
    done = omac.run(*BARE, "--workdir", str(shop), "--", "sh", "-c", script)
    assert done.status == 23, done
    given = dict(line.split("=", 1) for line in done.out.splitlines())
    run = given["OMAC_RUN"]
    base, socket = given["OMAC_ECHO_BASE"], given["OMAC_SOCKET"]
    token = base.split("/")[3]
    assert (given["OMAC_WORKDIR"], given["OMAC_SKILLS"], given["OMAC_HARNESS"]) == (str(shop), "echo", "opencode")
    assert base == f"{given['OMAC_BASE']}{token}/echo"
    assert given["OMAC_ECHO_SOCKET_BASE"] == f"http+unix://{socket.replace('/', '%2F')}/{token}/echo"
    assert given["OMAC_LATE_ONE_BASE"] == f"{given['OMAC_BASE']}{token}/late-one"
    assert os.path.dirname(socket) == str(omac.state / "run" / run)
    assert '"path": "/echo/by-tcp"' in done.err
    assert not (omac.state / "run" / "current").is_symlink()
    assert omac.left() == []
    status = json.loads(omac.ok("status", "--json"))
    assert (status["runs"], status["directories"], status["sidecars"]) == ([], [], [])
    (began,) = omac.events(RunStarted)
    assert (began.event.command, began.event.roots, began.run) == ("start", (str(shop),), run)
    assert [row["path"] for row in omac.audit()] == ["/echo/by-tcp"]


@pytest.mark.parametrize(
    ("script", "status"),
    [("true", 0), ("exit 37", 37), ("kill -KILL $$", 137), ("kill -TERM $$", 143)],
)
def test_the_exit_status_is_the_commands(house: Omac, script: str, status: int) -> None:
    """Its own, or 128 and the number of the signal that killed it; a second run is no worse for the first."""
    assert house.run(*BARE, "--", "sh", "-c", script).status == status


@pytest.mark.full
def test_nobody_reads_what_it_reports(omac: Omac, shop: Path) -> None:
    """Where the reader of stderr is gone, the exit status is the command's, and the end is recorded."""
    unread = ("bash", "-c", '"$@" 2> >(exec 0<&-; sleep 1)', "bash")
    script = "sleep 0.5; curl -s $OMAC_ECHO_BASE/echo; exit 23"
    done = omac.run("start", "--workdir", str(shop), "--", "sh", "-c", script, within=unread)
    assert done.status == 23, done
    assert [one.event for one in omac.events(RunStopped)]
    assert omac.left() == []


def test_an_agent_by_name_or_a_command(omac: Omac, agent: Path) -> None:
    """With a harness, the words after -- are its arguments, behind omac's own; without one they are the command,
    whatever it is called; the harness that was named is the one that skills are looked for."""
    cases: list[tuple[list[str], str, str]] = [
        (["claude", "--", "--resume", "-x"], "claude --resume -x", "claude"),
        (["claude"], "claude", "claude"),
        (["cc", "--", "--"], "claude --", "claude"),
        (["--", "claude", "--", "start"], "claude -- start", "opencode"),
    ]
    for words, line, harness in cases:
        done = omac.run(*BARE, *words)
        assert done.status == 0, done
        launched, *rest = done.out.splitlines()
        assert re.sub(r" --settings {.*}", "", launched) == line, words
        assert ("--settings" in launched) == (words[0] != "--")
        assert rest == [f"OMAC_HARNESS={harness}"], words


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["--", "no-such-program"], 4, ["no-such-program is not installed", "try: command -v no-such-program"]),
        (["--", "./no/such"], 4, ["./no/such does not exist", "try: ls -la .\n"]),
        (["--", "/etc/passwd"], 4, ["/etc/passwd cannot be executed", "try: ls -la /etc/passwd\n"]),
        (["codex"], 4, ["codex is not installed", "try: npm install -g @openai/codex"]),
        (["emacs"], 2, ["unknown harness 'emacs'", "claude"]),
        (["--"], 2, ["the command after -- is missing"]),
        (["--allow", "/x", "--", "true"], 2, ["--allow configures the sandbox"]),
        (["--workdir", "/no-such-place", "--", "true"], 2, ["--workdir /no-such-place"]),
        (["--workdir", "/etc/hostname", "--", "true"], 2, ["/etc/hostname"]),
        (
            ["--unapproved", "maybe", "--", "true"],
            2,
            ["--unapproved takes refuse, confine or allow", "try: omac start --no-sandbox --unapproved refuse -- true"],
        ),
        (["claude", "bash"], 2, ["unexpected extra argument"]),
    ],
)
def test_what_cannot_be_started_is_said_before_anything_is(
    house: Omac, words: list[str], status: int, says: list[str]
) -> None:
    """With the exit code, what is wrong and how to mend it; no sidecar was asked for."""
    spawned = len(house.events(SpawnRequested)) if (house.state / "journal.db").exists() else 0
    done = house.run(*BARE, *words, extra={"PATH": f"{os.path.dirname(sys.executable)}:/usr/bin:/bin"})
    assert done.status == status, done
    for text in says:
        assert text.lower() in done.err.lower()
    assert "Traceback" not in done.err
    if (house.state / "journal.db").exists():
        assert len(house.events(SpawnRequested)) == spawned


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        (("start", "--network", "wrong", "--", "true"), ["omac start --network host -- true"]),
        (("start", "--limit", "pids=x", "--explain"), ["omac start --limit pids=200 --explain"]),
        (("start", "--limit", "tmp=1G", "--limit", "pids=x"), ["omac start --limit pids=200"]),
        (("continue", "--deny-name", "a/b"), ["omac continue --deny-name '*.pem'", "omac continue --deny PATH"]),
        (("serve", "--open-port", "0"), ["omac serve --open-port 8080"]),
    ],
)
def test_a_wrong_value_for_its_sandbox(house: Omac, line: tuple[str, ...], fix: list[str]) -> None:
    """What is offered is a line of the command that was typed, not of `omac sandbox run`."""
    done = house.run(*line)
    assert (done.status, done.err.splitlines()[1:]) == (2, [f"  try: {one}" for one in fix]), done


@pytest.mark.parametrize("sandbox", [(), ("--no-sandbox",)])
def test_a_slip_in_a_projects_settings(omac: Omac, sandbox: tuple[str, ...]) -> None:
    """The run and the sandbox that it launches read the file; one of them reports the slip."""
    file = omac.project("shop") / ".omac" / "settings.toml"
    file.parent.mkdir()
    file.write_text("[serve]\nunapproved = 'maybe'\n[git]\nhooks = 'maybe'\n")
    done = omac.run("start", *sandbox, "--workdir", str(omac.root / "shop"), "--", "true")
    slips = [line.partition(": ")[2] for line in done.err.splitlines() if str(file) in line]
    told = [
        f"{file}: {name} takes {words}, not 'maybe'; ignored"
        for name, words in (
            ("git.hooks", "deny or read"),
            ("serve.unapproved", "refuse, confine or allow"),
        )
    ]
    assert (done.status, sorted(slips)) == (0, told), done


def test_the_audit_tells_two_runs_apart(omac: Omac) -> None:
    """What was launched in one directory by two runs without sessions, by the ids of the runs."""
    for word in ("one", "two"):
        omac.ok("start", "--", "echo", word)
    rows = [json.loads(line) for line in omac.ok("audit", "--kind", "sandbox", "--json").splitlines()]
    assert len({row["run"] for row in rows}) == 2
    for row, word in zip(rows, ("one", "two"), strict=True):
        (only,) = omac.ok("audit", "--kind", "sandbox", "--run", row["run"], "--json").splitlines()
        assert (json.loads(only), f"echo {word};" in only) == (row, True)
    counts = omac.ok("audit", "--count-by", "run", "--kind", "sandbox", "--csv")
    assert sorted(counts.splitlines()[1:]) == sorted(f"{row['run']},1" for row in rows)


def test_without_a_sandbox_it_says_so(house: Omac) -> None:
    """Loudly, on stderr, what that means."""
    done = house.run(*BARE, "--", "true")
    assert "WITHOUT A SANDBOX" in done.err
    assert done.out == ""


def test_what_is_not_ready_comes_online_while_it_runs(omac: Omac) -> None:
    """The command runs all the same; the fix on stderr, pasted in another terminal, makes the skill answer under the
    name it had from the beginning."""
    project = omac.project("p")
    run = started(omac, project, SHOW)
    base = told(run)["OMAC_ECHO_BASE"]
    assert "omac: echo is not approved: no approval on this machine covers its code\n" in run.said()
    assert curl(f"{base}/echo").status == 502
    fix = next(line.removeprefix("  try: ") for line in run.said().splitlines() if line.startswith("  try: omac app"))
    omac.ok(*shlex.split(fix)[1:])
    eventually(lambda: curl(f"{base}/echo").status == 200, 10.0, "the skill to come online")


@pytest.mark.full
def test_a_reload_reaches_every_run(omac: Omac, shop: Path) -> None:
    """`omac reload DIR` means that directory wherever it is online; where it is not, the server activates it."""
    run = started(omac, shop, f"echo ready; {WAIT}")
    told(run)
    generation = len(omac.events(SpawnRequested))
    assert omac.ok("reload", str(shop)).startswith(f"{shop}: active\n")
    assert len(omac.events(SpawnRequested)) == generation  # looked at, and found as it was
    server = omac.serve()
    server.activate(shop)
    assert omac.ok("reload", str(shop)).count(f"{shop}: active\n") == 2
    elsewhere = omac.project("elsewhere")
    assert omac.ok("reload", str(elsewhere)).startswith(f"{elsewhere}: active_partial\n")
    assert omac.events(ControlRefused) == []


def test_an_activation_looks_again_at_code_that_was_restored(omac: Omac, shop: Path) -> None:
    """A refusal for code that is there no longer is not repeated; one that still holds is, and nothing is recorded."""
    server = omac.serve()
    server.activate(shop)
    sidecar = shop / ".agents/skills/echo/sidecar.py"
    approved = sidecar.read_bytes()
    sidecar.write_bytes(approved + b"# a change\n")
    assert omac.ok("reload", str(shop)).startswith(f"{shop}: active_partial\n")
    before = len(omac.events(ReloadRequested))
    assert omac.ok("activate", str(shop)).startswith(f"{shop}: active_partial\n")
    assert len(omac.events(ReloadRequested)) == before
    sidecar.write_bytes(approved)
    assert omac.ok("activate", str(shop)).startswith(f"{shop}: active\n")


class Several:
    """A server and two starts, all with one directory online; a skill of its own and one that all share."""

    def __init__(self, omac: Omac) -> None:
        sharing(omac)
        self.project = omac.project("shop")
        omac.approve(self.project)
        self.server = omac.serve()
        manifest = self.server.activate(self.project)
        skills = {skill["name"]: skill["base"] for skill in manifest["skills"]}
        self.starts = [started(omac, self.project, SHOW) for _ in range(2)]
        given = [told(start) for start in self.starts]
        self.bases = [
            (skills["echo"], skills["common"]),
            *((one["OMAC_ECHO_BASE"], one["OMAC_COMMON_BASE"]) for one in given),
        ]
        self.runs = [self.server.ready["run"], *(one["OMAC_RUN"] for one in given)]


@pytest.mark.full
def test_one_directory_in_several_runs(omac: Omac) -> None:
    """A server and two starts have the same directory, each with tokens and sidecars of its own, of what all share
    too. No token of one opens anything at another, and the end of one, in order or by kill -9, takes nothing from the
    others; the next run settles what was killed, and nothing else."""
    several = Several(omac)

    def works(at: int) -> bool:
        return all(curl(f"{base}/echo").status == 200 for base in several.bases[at])

    assert [works(at) for at in range(3)] == [True] * 3
    status = json.loads(omac.ok("status", "--json"))
    assert sorted(run["command"] for run in status["runs"]) == ["serve", "start", "start"]
    assert [one["dir"] for one in status["directories"]] == [str(several.project)] * 3
    assert Counter(one["skill"] for one in status["sidecars"]) == {"echo": 3, "common": 3}
    assert len({one["pid"] for one in status["sidecars"]}) == 6
    for mine in range(3):
        for other in range(3):
            facade, token = several.bases[mine][0].split("/")[2], several.bases[other][0].split("/")[3]
            answers = [curl(f"http://{facade}/{token}/{mount}/echo") for mount in ("echo", "__global__/common")]
            assert [answer.status for answer in answers] == ([200] * 2 if mine == other else [404] * 2)

    several.starts[0].end(signal.SIGKILL)
    assert several.starts[1].end() == 143
    assert works(0)
    done = omac.run(*BARE, "--workdir", str(several.project), "--", "sh", "-c", 'curl -sS "$OMAC_ECHO_BASE/echo"')
    assert done.status == 0, done
    (recovered,) = omac.events(RunRecovered)
    assert recovered.stream.endswith(several.runs[1])
    assert (recovered.event.directories, recovered.event.sidecars) == (2, 2)
    assert works(0)
    listed = several.server.call("dirs").json()["dirs"]
    assert listed == [{"dir": str(several.project), "state": "active"}]
    assert several.server.end() == 0
    eventually(lambda: not omac.left(), 1.0, "nothing to be left")


@pytest.mark.full
def test_a_server_comes_and_goes_beside_a_start(omac: Omac, shop: Path) -> None:
    """A start needs no server, keeps none from beginning, and does not miss one that is killed; what the next server
    settles is the dead server's, though the start has the same directory online."""
    run = started(omac, shop, SHOW)
    base = told(run)["OMAC_ECHO_BASE"]
    first = omac.serve()
    first.activate(shop)
    assert omac.run("serve", "--no-inner").status == 5  # one server, as ever
    first.end(signal.SIGKILL)
    second = omac.serve()
    assert second.call("dirs").json() == {"dirs": []}
    assert [one.event.directories for one in omac.events(RunRecovered)] == [1]
    assert second.activate(shop)["state"] == "active"
    assert curl(f"{base}/echo").status == 200
    assert run.end() == 143
    assert curl(f"{second.skill(shop)['base']}/echo").status == 200


@pytest.mark.full
def test_a_server_lives_without_its_run_folder(omac: Omac, shop: Path) -> None:
    """A cleaner of /tmp takes the folders of all runs: no other run takes the server for dead, a second server is
    refused, and the end of each is recorded once, so that the journal can be read for ever."""
    server = omac.serve()
    base = server.skill(shop)["base"]
    server.process.send_signal(signal.SIGSTOP)  # so that it does not notice before the others look
    shutil.rmtree(omac.state / "run")
    os.unlink(omac.state / "journal.db.server.lock")
    assert omac.run(*BARE, "--workdir", str(shop), "--", "true").status == 0
    server.process.send_signal(signal.SIGCONT)
    assert curl(f"{base}/echo").status == 200
    assert omac.events(RunRecovered) == []
    second = omac.run("serve", "--no-inner")
    assert (second.status, f"(pid {server.process.pid})" in second.err) == (5, True), second
    assert server.end() == 0
    assert len(omac.events(RunStopped)) == 2
    assert json.loads(omac.ok("status", "--json"))["runs"] == []
    assert omac.serve().skill(shop)["state"] == "ready"


@pytest.mark.full
def test_a_run_folder_that_was_removed_is_made_again(omac: Omac, shop: Path) -> None:
    """By the server and by a start: commands find both again, and a sidecar that ends is started again."""
    server = omac.serve()
    skill = server.skill(shop)
    beside = started(omac, shop, f"echo ready; {WAIT}")
    told(beside)
    names = {"bridge.sock", "bridge.token", "control.sock", "control.token", "facade.sock", "journal", "lock", "logs"}
    runs = [Path(omac.state / "run" / run.stream.split("/")[2]) for run in omac.events(RunStarted)]
    assert [set(os.listdir(run)) for run in runs] == [names] * 2
    shutil.rmtree(omac.state / "run")
    eventually(lambda: all(run.is_dir() and set(os.listdir(run)) == names for run in runs), 10.0, "both folders")
    assert [stat.S_IMODE(os.lstat(run / "control.token").st_mode) for run in runs] == [0o600] * 2
    assert [stat.S_IMODE(os.lstat(folder).st_mode) for folder in (*runs, omac.state / "run")] == [0o700] * 3
    eventually((omac.state / "run" / "current").is_symlink, 20.0, "run/current")
    assert omac.ok("reload", str(shop)).count(f"{shop}: active\n") == 2
    assert curl("--unix-socket", str(runs[0] / "facade.sock"), f"{skill['base']}/echo").status == 200

    def sidecar() -> Any:
        listed = json.loads(omac.ok("status", "--json"))["sidecars"]
        (pid,) = [one["pid"] for one in listed if one["state"] == "healthy" and server.ready["run"] in one["log"]] or [
            0
        ]
        return pid

    first = sidecar()
    os.kill(first, signal.SIGKILL)
    eventually(lambda: sidecar() not in (0, first), 10.0, "the sidecar to be started again")
    assert curl(f"{skill['base']}/echo").status == 200
    assert "was removed while this omac uses it, and was made again" in server.said()


@pytest.mark.full
def test_many_begin_at_once(omac: Omac) -> None:
    """Seven in seven projects, the moment after another was killed: each gets its skill, the dead one is settled
    once, and no run's folder is cleared away by another that begins."""
    sharing(omac)
    projects = [omac.project(f"p{number}") for number in range(7)]
    for project in projects:
        omac.approve(project)
    killed = started(omac, projects[0], f"echo ready; {WAIT}")
    told(killed)
    killed.end(signal.SIGKILL)
    script = 'curl -sS --fail "$OMAC_ECHO_BASE/echo" "$OMAC_COMMON_BASE/echo"'
    runs = [started(omac, project, script) for project in projects]
    assert [run.process.wait(60) for run in runs] == [0] * 7, [run.said() for run in runs]
    assert len(omac.events(RunRecovered)) == 1
    assert len(omac.events(RunStopped)) == 7
    ended = Counter(one.stream for one in omac.events(Deactivated))
    assert ended == Counter(one.stream for one in omac.events(ActivationRequested))
    eventually(lambda: not omac.left(), 1.0, "nothing to be left")


def test_nothing_of_an_outer_omac_is_handed_on(omac: Omac, shop: Path) -> None:
    """An omac within an omac: the inner one's command has no name that leads to a directory of the outer one."""
    outer = {"OMAC_OTHER_BASE": "http://127.0.0.1:9/token/other", "OMAC_D_X_OTHER_BASE": "x", "OMAC_WORKDIR": "/w"}
    done = omac.run(*BARE, "--workdir", str(shop), "--", "env", extra=outer)
    assert "OTHER" not in done.out
    assert f"OMAC_WORKDIR={shop}\n" in done.out
    done = omac.run("serve", "--no-sandbox", "--workdir", str(shop), "--", "env", extra=outer)
    assert "OTHER" not in done.out
    assert "OMAC_WORKDIR" not in done.out


def test_a_subfolder_is_part_of_its_project(omac: Omac) -> None:
    """In a checkout the project begins at its top, which is said; a folder that was named, or has skills of its own,
    or lies in a home that is a checkout, stays."""
    project = omac.project("p")
    below = project / "src" / "deep"
    below.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(project)], check=True, env=omac.environment)
    done = omac.run("start", "--", "pwd", cwd=below)
    assert (done.status, done.out) == (0, f"{project}\n"), done
    assert f"starting in {project}, the project around the current directory" in done.err
    assert omac.run("start", "--workdir", ".", "--", "pwd", cwd=below).out == f"{below}\n"
    (below / ".agents" / "skills").mkdir(parents=True)
    done = omac.run("start", "--", "pwd", cwd=below)
    assert (done.out, "starting in" in done.err) == (f"{below}\n", False)
    home = Path(omac.environment["HOME"])
    other = home / "notes"
    other.mkdir()
    subprocess.run(["git", "init", "-q", str(home)], check=True, env=omac.environment)
    assert omac.run("start", "--", "pwd", cwd=other).out == f"{other}\n"
