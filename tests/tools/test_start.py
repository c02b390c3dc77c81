"""`omac start`: a command in a directory with its skills, from its first line of output until no process is left.

Most of these tests run without a sandbox, because they are about omac's own work.
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
from programs import program_at
from real_omac import Omac, curl
from started import BARE, SHOW, WAIT, started, told

from omac.adapters.files.state import RUNS_KEPT
from omac.domain.access.control import ControlRefused
from omac.domain.directories.events import ActivationRequested, Deactivated, ReloadRequested
from omac.domain.kernel.run import RunRecovered, RunStarted, RunStopped
from omac.domain.sidecars.sidecar import SpawnRequested


@pytest.fixture
def agent(omac: Omac) -> Path:
    """Put a program called claude on PATH, which prints its arguments."""
    return omac.program("claude", '#!/bin/sh\necho claude "$@"\nenv | grep ^OMAC_HARNESS=\n')


def test_a_person_with_settings(omac: Omac, shop: Path) -> None:
    """The sandbox's own process reads the user's settings too, with the libraries that it needs for that."""
    omac.ok("settings", "set", "serve.auto_register", "false")
    done = omac.run("start", "--workdir", str(shop), "--", "true")
    assert (done.status, done.err) == (0, ""), done


def sharing(omac: Omac) -> None:
    """Make a global skill, and approve it."""
    source = Path(omac.environment["XDG_CONFIG_HOME"]) / "opencode" / "skills" / "common"
    echo = omac.project("source") / ".agents" / "skills" / "echo"
    source.parent.mkdir(parents=True)
    echo.rename(source)
    meta = source / "omac.yaml"
    meta.write_text(meta.read_text().replace("name: echo\n", "name: common\n").replace("mount: echo", "mount: common"))
    omac.ok("approve", "common", "--global")


def test_no_field_of_a_request_by_the_socket_holds_a_token(omac: Omac, shop: Path) -> None:
    """A request by the run's own socket, which needs no token, brings none to the skill in a field."""
    fields = '-H "X-Callback: $OMAC_ECHO_BASE/done" -H "X-Bases: $OMAC_ECHO_BASE?$(basename "${OMAC_ECHO_BASE%/echo}")"'
    script = f'echo "$OMAC_ECHO_BASE"; curl -sS --unix-socket "$OMAC_SOCKET" {fields} http://omac/echo/echo/x'
    done = omac.run(*BARE, "--workdir", str(shop), "--", "sh", "-c", script)
    base, _, seen = done.out.partition("\n")
    assert base.split("/")[3] not in seen
    assert "/echo/done" in seen
    assert "X-Bases" not in seen


def test_a_command_has_the_skills_of_its_directory(omac: Omac, shop: Path) -> None:
    """The command gets flat variables of its skills: for TCP, for the Unix socket, and for skills that are not ready.
    Only the command writes to stdout, and its exit status is omac's. Afterwards nothing is running or online."""
    omac.skill(shop, "late-one", "name: late-one\nsidecar:\n  command: [python3, sidecar.py]\n")
    script = 'curl -sS "$OMAC_ECHO_BASE/echo/by-tcp" >&2; env; exit 23'
    done = omac.run(*BARE, "--workdir", str(shop), "--", "sh", "-c", script)
    assert done.status == 23, done
    variables = dict(line.split("=", 1) for line in done.out.splitlines())
    run = variables["OMAC_RUN"]
    base, socket = variables["OMAC_ECHO_BASE"], variables["OMAC_SOCKET"]
    token = base.split("/")[3]
    assert (variables["OMAC_WORKDIR"], variables["OMAC_SKILLS"], variables["OMAC_HARNESS"]) == (
        str(shop),
        "echo",
        "opencode",
    )
    assert base == f"{variables['OMAC_BASE']}{token}/echo"
    assert variables["OMAC_ECHO_SOCKET_BASE"] == f"http+unix://{socket.replace('/', '%2F')}/{token}/echo"
    assert variables["OMAC_LATE_ONE_BASE"] == f"{variables['OMAC_BASE']}{token}/late-one"
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
    """The exit status is the command's, or 128 and the number of the signal that killed it; also in later runs."""
    assert house.run(*BARE, "--", "sh", "-c", script).status == status


@pytest.mark.full
def test_nobody_reads_what_it_reports(omac: Omac, shop: Path) -> None:
    """A closed reader of stderr changes neither the exit status nor the record of the run's end."""
    unread = ("bash", "-c", '"$@" 2> >(exec 0<&-; sleep 1)', "bash")
    script = "sleep 0.5; curl -s $OMAC_ECHO_BASE/echo; exit 23"
    done = omac.run("start", "--workdir", str(shop), "--", "sh", "-c", script, within=unread)
    assert done.status == 23, done
    assert [record.event for record in omac.events(RunStopped)]
    assert omac.left() == []


def test_an_agent_by_name_or_a_command(omac: Omac, agent: Path) -> None:
    """Words after -- are the arguments of a named agent, behind omac's own; without an agent they are the command. A
    named agent determines where skills are searched."""
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
        (["--", "no-such-program"], 127, ["no-such-program is not installed", "try: command -v no-such-program"]),
        (["--", "./no/such"], 127, ["./no/such does not exist", "try: ls -ld .\n"]),
        (["--", "/etc/passwd"], 126, ["/etc/passwd cannot be executed", "try: ls -ld /etc/passwd\n"]),
        (["codex"], 127, ["codex is not installed", "try: npm install -g @openai/codex"]),
        (["emacs"], 2, ["unknown harness 'emacs'", "claude"]),
        (["--"], 2, ["the command after -- is missing"]),
        (["--allow", "/x", "--", "true"], 2, ["--allow configures the sandbox"]),
        (["--workdir", "/no-such-place", "--", "true"], 2, ["--workdir /no-such-place"]),
        (["--workdir", "/etc/hostname", "--", "true"], 2, ["/etc/hostname"]),
        (
            ["--unapproved", "maybe", "--", "true"],
            2,
            ["--unapproved takes refuse or allow", "try: omac start --no-sandbox --unapproved refuse -- true"],
        ),
        (["claude", "bash"], 2, ["unexpected extra argument"]),
    ],
)
def test_what_cannot_be_started_is_said_before_anything_is(
    house: Omac, words: list[str], status: int, says: list[str]
) -> None:
    """A command that cannot start gives its exit code, the reason and the fix, before any sidecar is requested."""
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
    """The refusal of a wrong value proposes a line of the command that was typed, not of `omac sandbox run`."""
    done = house.run(*line)
    assert (done.status, done.err.splitlines()[1:]) == (2, [f"  try: {command}" for command in fix]), done


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("start claude -p 'say hi'", "omac start claude -- -p 'say hi'"),
        ("start --no-sandbox cc --model=x", "omac start --no-sandbox cc -- --model=x"),
        ("serve codex exec hi", "omac serve codex -- exec hi"),
        ("start claude bash -c 'x y'", "omac start claude -- bash -c 'x y'"),
        ("start npm test", "omac start -- npm test"),
        ("start ls -la", "omac start -- ls -la"),
        ("start calude -p hi", ""),
        ("continue --verbose", "omac continue -- --verbose"),
        ("continue 'go on'", "omac continue -- 'go on'"),
        ("sandbox run --network none ls -la", "omac sandbox run --network none -- ls -la"),
        ("start --alow x claude", ""),
        ("start claude --alow x -- -p hi", ""),
        ("claude -p hi", "omac start claude"),
    ],
)
def test_words_of_an_agent_without_dashes(house: Omac, line: str, fix: str) -> None:
    """A command line that lacks the `--` before another program's words is proposed with it; a slip in omac's own
    options is not."""
    done = house.run(*shlex.split(line))
    proposed = [said.partition("  # ")[0] for said in done.err.split("  try: ")[1:]]
    assert (done.status, [said.strip() for said in proposed]) == (2, [fix] if fix else []), done


def test_a_command_gets_the_skills_that_are_there(omac: Omac) -> None:
    """A command without the name of an agent gets the skills of a project that has those of one agent alone."""
    shop = omac.project("shop")
    (shop / ".agents").rename(shop / ".claude")
    omac.approve(shop, "echo")
    done = omac.run("start", "--workdir", str(shop), "--", "sh", "-c", "echo $OMAC_HARNESS ${OMAC_ECHO_BASE:+here}")
    assert (done.status, done.out) == (0, "claude here\n"), done


@pytest.mark.full
def test_an_agent_as_any_command(house: Omac) -> None:
    """An agent behind `--` has no login there: omac says so, with the line that was meant, and runs it all the same."""
    program = program_at(house.folder / "bin" / "claude", "#!/bin/sh\necho ran\n")
    extra = {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    workdir = str(house.project("plain"))
    done = house.run("start", "--workdir", workdir, "--", "claude", "-p", "say hi", extra=extra)
    assert (done.status, done.out) == (0, "ran\n"), done
    assert f"  try: omac start --workdir {workdir} claude -- -p 'say hi'\n" in done.err
    for words in (("--", "true"), ("claude", "--", "-p", "x")):
        assert "ahead of --" not in house.run("start", "--workdir", workdir, *words, extra=extra).err


@pytest.mark.parametrize("sandbox", [(), ("--no-sandbox",)])
def test_a_slip_in_a_projects_settings(omac: Omac, sandbox: tuple[str, ...]) -> None:
    """The run and its sandbox both read the project's settings; one of them reports each slip."""
    file = omac.project("shop") / ".omac" / "settings.toml"
    file.parent.mkdir()
    file.write_text("[serve]\nunapproved = 'maybe'\n[git]\nhooks = 'maybe'\n")
    done = omac.run("start", *sandbox, "--workdir", str(omac.root / "shop"), "--", "true")
    slips = [line for line in done.err.splitlines() if str(file) in line]
    expected = [
        f"omac: {file}, line {line}: {name} takes {words}, not 'maybe'; ignored"
        for line, name, words in (
            (2, "serve.unapproved", "refuse or allow"),
            (4, "git.hooks", "deny or read"),
        )
    ]
    assert (done.status, sorted(slips)) == (0, expected), done


def test_what_a_project_may_not_choose_is_named(omac: Omac) -> None:
    """A run reports each setting of the project's file that does not hold, once, by its name."""
    file = omac.project("shop") / ".omac" / "settings.toml"
    file.parent.mkdir()
    file.write_text("[serve]\nunapproved = 'allow'\n[git]\nhooks = 'read'\n[limits]\nconcurrent_calls = 100\n")
    done = omac.run("start", "--workdir", str(omac.root / "shop"), "--", "true")
    names = [line.partition(": ")[2].partition(": ")[0] for line in done.err.splitlines() if str(file) in line]
    assert (done.status, sorted(names)) == (0, ["git.hooks", "limits.concurrent_calls", "serve.unapproved"]), done


@pytest.mark.full
def test_the_audit_tells_two_runs_apart(omac: Omac) -> None:
    """The audit filters and counts launches by run, though the runs share a directory and have no sessions."""
    for word in ("one", "two"):
        omac.ok("start", "--", "echo", word)
    rows = [json.loads(line) for line in omac.ok("audit", "--kind", "sandbox", "--json").splitlines()]
    assert len({row["run"] for row in rows}) == 2
    for row, word in zip(rows, ("one", "two"), strict=True):
        (only,) = omac.ok("audit", "--kind", "sandbox", "--run", row["run"], "--json").splitlines()
        assert (json.loads(only), f"echo {word};" in only) == (row, True)
    counts = omac.ok("audit", "--count-by", "run", "--kind", "sandbox", "--csv")
    assert sorted(counts.splitlines()[1:]) == sorted(f"{row['run']},1" for row in rows)


@pytest.mark.full
def test_the_audit_of_one_agent(omac: Omac, agent: Path) -> None:
    """The audit filters by the agent that a run launched, by each of its names, also what it follows; a command is the
    launch of none."""
    filters = ("audit", "--kind", "sandbox", "--json", "--client")
    omac.ok("start", "--", "true")
    follow = omac.start(*filters, "claude", "--follow")
    omac.ok("start", "claude")
    (launch,) = map(json.loads, omac.ok(*filters, "claude").splitlines())
    assert launch["client"] == "claude"
    assert json.loads(omac.ok(*filters, "cc")) == launch
    assert json.loads(follow.line()) == launch
    (other,) = map(json.loads, omac.ok(*filters, "").splitlines())
    assert (other["client"], other["run"] == launch["run"]) == (None, False)


def test_without_a_sandbox_it_says_so(house: Omac) -> None:
    """A start without a sandbox warns loudly on stderr."""
    done = house.run(*BARE, "--", "true")
    assert "WITHOUT A SANDBOX" in done.err
    assert done.out == ""


BLOCKING = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD, signal.SIGINT, signal.SIGTERM])
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.parametrize("words", [("sandbox", "run"), ("start",), BARE])
def test_signals_that_a_parent_left_blocked(omac: Omac, shop: Path, words: tuple[str, ...]) -> None:
    """Signals that were blocked for omac reach it, and what it starts: else it would wait for a child for ever."""
    within = (sys.executable, "-c", BLOCKING)
    line = (*words, "--workdir", str(shop), "--", "grep", "SigBlk", "/proc/self/status")
    done = omac.process(*line, within=within, seconds=30)
    assert (done.status, done.out.split()) == (0, ["SigBlk:", "0" * 16]), done


def test_a_refused_start_leaves_no_folder(omac: Omac, shop: Path) -> None:
    """A start that is refused leaves no folder of a run, so that however many of them displace no log."""
    start = (*BARE, "--workdir", str(shop), "--", "true")
    assert omac.run(*start).status == 0
    key, before = omac.state / "fingerprint.key", set(os.listdir(omac.state / "run"))
    content = key.read_bytes()
    key.write_bytes(b"x")
    refused = [omac.run(*start) for _ in range(RUNS_KEPT)]
    key.write_bytes(content)
    assert {done.status for done in refused} == {5}, refused
    assert set(os.listdir(omac.state / "run")) == before
    assert omac.run(*start).status == 0
    assert '[omac] sidecar "echo" starts' in omac.ok("logs", "echo", "--workdir", str(shop))


def test_the_folder_that_it_was_started_in_is_removed(omac: Omac, shop: Path) -> None:
    """A run goes on, and answers, when the folder that it was started in is removed while it loads."""
    left = omac.root / "left"
    left.mkdir()
    body = shlex.quote(json.dumps({"dir": str(shop)}))
    bearer = '-H "Authorization: Bearer $(cat $OMAC_CONTROL_TOKEN_FILE)" -H "Content-Type: application/json"'
    activate = f"curl -sS --unix-socket $OMAC_CONTROL_SOCKET {bearer} -d {body} http://localhost/__omac__/activate"
    done = omac.process(*BARE, "--workdir", str(shop), "--", "sh", "-c", f"rmdir {left}; {activate}", cwd=left)
    assert (done.status, json.loads(done.out)["state"]) == (0, "active"), done


def test_what_is_not_ready_comes_online_while_it_runs(omac: Omac) -> None:
    """The command runs without a skill that is not ready. The fix on stderr, pasted into another terminal, makes the
    skill answer at the variable that it had from the beginning."""
    project = omac.project("p")
    run = started(omac, project, SHOW)
    base = told(run)["OMAC_ECHO_BASE"]
    assert "omac: echo is not approved: no approval on this machine covers its code\n" in run.said()
    assert curl(f"{base}/echo").status == 502
    fix = next(line.removeprefix("  try: ") for line in run.said().splitlines() if line.startswith("  try: omac app"))
    omac.ok(*shlex.split(fix)[1:])
    eventually(lambda: curl(f"{base}/echo").status == 200, 10.0, "the skill to come online")


def test_a_sidecar_that_falls(omac: Omac) -> None:
    """The first command that is proposed for a sidecar that ends by itself prints what it printed last."""
    project = omac.project("p")
    (project / ".agents/skills/echo/sidecar.py").write_text("raise SystemExit('no such database')\n")
    omac.ok("approve", "echo", "--workdir", str(project))
    done = omac.run(*BARE, "--workdir", str(project), "--", "true")
    fix = next(line for line in done.err.splitlines() if line.startswith("  try: "))
    assert "no such database" in omac.ok(*shlex.split(fix.removeprefix("  try: omac ")))


def test_a_sidecar_that_cannot_begin(omac: Omac) -> None:
    """No log is proposed of a sidecar whose program is missing: nothing ran that could have printed something."""
    project = omac.project("p")
    meta = project / ".agents/skills/echo/omac.yaml"
    meta.write_text(meta.read_text().replace("python3", "no-such-program"))
    omac.ok("approve", "echo", "--workdir", str(project))
    done = omac.run(*BARE, "--workdir", str(project), "--", "true")
    fix = [line for line in done.err.splitlines() if line.startswith("  try: ")]
    assert fix == [f"  try: omac reload {project} --restart echo"], done.err


@pytest.mark.full
def test_a_reload_reaches_every_run(omac: Omac, shop: Path) -> None:
    """`omac reload DIR` reloads the directory in every run where it is online. A directory that is online nowhere is
    activated by the server."""
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


@pytest.mark.full
def test_an_activation_looks_again_at_code_that_was_restored(omac: Omac, shop: Path) -> None:
    """An activation repeats no refusal for code that is restored. A refusal that still holds is repeated, and nothing
    is recorded."""
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
    """A server and two starts with the same directory online; it has its own skill and a global one."""

    def __init__(self, omac: Omac) -> None:
        sharing(omac)
        self.project = omac.project("shop")
        omac.approve(self.project)
        self.server = omac.serve()
        manifest = self.server.activate(self.project)
        skills = {skill["name"]: skill["base"] for skill in manifest["skills"]}
        self.starts = [started(omac, self.project, SHOW) for _ in range(2)]
        environments = [told(start) for start in self.starts]
        self.bases = [
            (skills["echo"], skills["common"]),
            *((variables["OMAC_ECHO_BASE"], variables["OMAC_COMMON_BASE"]) for variables in environments),
        ]
        self.runs = [self.server.ready["run"], *(variables["OMAC_RUN"] for variables in environments)]


@pytest.mark.full
def test_one_directory_in_several_runs(omac: Omac) -> None:
    """A server and two starts of one directory have their own tokens and sidecars, of the global skill too. A token
    works only at its own run. The end of a run, in order or by kill -9, leaves the others alone. The next run settles
    the killed run, and nothing else."""
    several = Several(omac)

    def works(at: int) -> bool:
        return all(curl(f"{base}/echo").status == 200 for base in several.bases[at])

    assert [works(at) for at in range(3)] == [True] * 3
    status = json.loads(omac.ok("status", "--json"))
    assert sorted(run["command"] for run in status["runs"]) == ["serve", "start", "start"]
    assert [row["dir"] for row in status["directories"]] == [str(several.project)] * 3
    assert Counter(row["skill"] for row in status["sidecars"]) == {"echo": 3, "common": 3}
    assert len({row["pid"] for row in status["sidecars"]}) == 6
    for at_facade in range(3):
        for of_token in range(3):
            facade, token = several.bases[at_facade][0].split("/")[2], several.bases[of_token][0].split("/")[3]
            answers = [curl(f"http://{facade}/{token}/{mount}/echo") for mount in ("echo", "__global__/common")]
            assert [answer.status for answer in answers] == ([200] * 2 if at_facade == of_token else [404] * 2)

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
    eventually(lambda: not omac.left(), 20.0, "nothing to be left")


@pytest.mark.full
def test_a_server_comes_and_goes_beside_a_start(omac: Omac, shop: Path) -> None:
    """A start needs no server, does not keep one from starting, and survives the kill of one. The next server settles
    the dead server alone, though the start has the same directory online."""
    run = started(omac, shop, SHOW)
    base = told(run)["OMAC_ECHO_BASE"]
    first = omac.serve()
    first.activate(shop)
    assert omac.run("serve", "--no-inner").status == 5  # one server, as ever
    first.end(signal.SIGKILL)
    second = omac.serve()
    assert second.call("dirs").json() == {"dirs": []}
    assert [record.event.directories for record in omac.events(RunRecovered)] == [1]
    assert second.activate(shop)["state"] == "active"
    assert curl(f"{base}/echo").status == 200
    assert run.end() == 143
    assert curl(f"{second.skill(shop)['base']}/echo").status == 200


@pytest.mark.full
def test_a_server_lives_without_its_run_folder(omac: Omac, shop: Path) -> None:
    """A cleaner of /tmp may delete the folders of all runs. Other runs still see that the server lives, and a second
    server is refused. The end of each run is recorded once."""
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
def test_a_state_directory_that_was_removed_is_made_again_for_nobody_else(omac: Omac, shop: Path) -> None:
    """A run whose state directory was removed makes it again as it was, whatever the umask: a call that comes before
    the run has noticed does so, too."""
    before = os.umask(0)
    try:
        server = omac.serve()
    finally:
        os.umask(before)
    base = server.skill(shop)["base"]
    server.process.send_signal(signal.SIGSTOP)  # so that it does not notice before the call
    shutil.rmtree(omac.state)
    call = subprocess.Popen(["curl", "-sS", f"{base}/echo"], stdout=subprocess.DEVNULL)
    server.process.send_signal(signal.SIGCONT)
    assert call.wait(20) == 0
    eventually((omac.state / "run").exists, 10.0, "the folder of the run")
    made = [omac.state, *(path for path in omac.state.rglob("*") if path.is_dir())]
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o700}


@pytest.mark.full
def test_a_run_folder_that_was_removed_is_made_again(omac: Omac, shop: Path) -> None:
    """A server and a start each make their removed folder again: commands find both, and a sidecar that ends is
    restarted."""
    server = omac.serve()
    skill = server.skill(shop)
    beside = started(omac, shop, f"echo ready; {WAIT}")
    told(beside)
    names = {"bridge.sock", "bridge.token", "control.sock", "control.token", "facade.sock", "journal", "lock", "logs"}
    runs = [Path(omac.state / "run" / run.stream.split("/")[2]) for run in omac.events(RunStarted)]
    assert [set(os.listdir(run)) for run in runs] == [names] * 2
    (omac.state / "run").rename(omac.folder / "removed")  # at once: both would make files in it again meanwhile
    eventually(lambda: all(run.is_dir() and set(os.listdir(run)) == names for run in runs), 10.0, "both folders")
    assert [stat.S_IMODE(os.lstat(run / "control.token").st_mode) for run in runs] == [0o600] * 2
    assert [stat.S_IMODE(os.lstat(folder).st_mode) for folder in (*runs, omac.state / "run")] == [0o700] * 3
    eventually((omac.state / "run" / "current").is_symlink, 20.0, "run/current")
    assert omac.ok("reload", str(shop)).count(f"{shop}: active\n") == 2
    assert curl("--unix-socket", str(runs[0] / "facade.sock"), f"{skill['base']}/echo").status == 200

    def sidecar() -> Any:
        listed = json.loads(omac.ok("status", "--json"))["sidecars"]
        (pid,) = [row["pid"] for row in listed if row["state"] == "healthy" and server.ready["run"] in row["log"]] or [
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
    """Seven starts in seven projects, just after a kill of another run, each get their skill. The killed run is settled
    once, and no start removes the folder of another."""
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
    ended = Counter(record.stream for record in omac.events(Deactivated))
    assert ended == Counter(record.stream for record in omac.events(ActivationRequested))
    eventually(lambda: not omac.left(), 20.0, "nothing to be left")


@pytest.mark.full
def test_nothing_of_an_outer_omac_is_handed_on(omac: Omac, shop: Path) -> None:
    """A command of a nested omac has no variable that leads to a directory of the outer omac."""
    outer = {"OMAC_OTHER_BASE": "http://127.0.0.1:9/token/other", "OMAC_D_X_OTHER_BASE": "x", "OMAC_WORKDIR": "/w"}
    done = omac.run(*BARE, "--workdir", str(shop), "--", "env", extra=outer)
    assert "OTHER" not in done.out
    assert f"OMAC_WORKDIR={shop}\n" in done.out
    done = omac.run("serve", "--no-sandbox", "--workdir", str(shop), "--", "env", extra=outer)
    assert "OTHER" not in done.out
    assert "OMAC_WORKDIR" not in done.out


def test_a_subfolder_is_part_of_its_project(omac: Omac) -> None:
    """A start in a subfolder of a checkout uses its top folder, and reports this. A folder that is named, has its own
    skills, or lies in a home that is a checkout is used itself."""
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
    notes = home / "notes"
    notes.mkdir()
    subprocess.run(["git", "init", "-q", str(home)], check=True, env=omac.environment)
    assert omac.run("start", "--", "pwd", cwd=notes).out == f"{notes}\n"


WITHOUT_THREADS = """
import sys, trio
async def refused(*_, **__):
    raise RuntimeError("can't start new thread")
trio.to_thread.run_sync = refused
from omac.tools.entry import main
main()
"""


@pytest.mark.full
def test_a_start_that_waits_for_threads_can_be_ended(omac: Omac, shop: Path) -> None:
    """Ctrl-C ends a start that gets no thread from the system, within its bounds, and so that the next start works."""
    omac.ok("sandbox", "run", "--workdir", str(shop), "--", "true")  # which leaves a record that is not taken in yet
    path = omac.folder / "said"
    with path.open("wb") as said:
        words = (*BARE, "--workdir", str(shop), "--", "true")
        argv = [sys.executable, "-c", WITHOUT_THREADS, *words]
        process = subprocess.Popen(argv, env=omac.environment, stderr=said, start_new_session=True)
    try:
        eventually(lambda: "waits for threads" in path.read_text(), 20.0, "a warning")
        process.send_signal(signal.SIGINT)
        assert process.wait(40.0) == 128 + signal.SIGINT
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in path.read_text()
    assert omac.run(*BARE, "--workdir", str(shop), "--", "true").status == 0
