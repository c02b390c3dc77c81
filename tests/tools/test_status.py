"""`omac status` for runs that live, that ended in order and that were killed, with a server and without one."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from contract.media import needs_bubblewrap
from polling import eventually
from real_omac import Omac, Serving
from started import BARE, looping
from valued_skill import typed

KILLED = """\
import os
from omac.services.sandbox.launch import SandboxLaunch
SandboxLaunch.{} = lambda *_: os.kill(os.getpid(), 9)
from omac.tools.entry import main; main()
"""
EARLIER = """\
import sys
import msgspec
from omac.adapters.control import app
encoded = app._json
def without_dir(value, *more):
    document = msgspec.to_builtins(value)
    for row in document.get("registry", ()):
        row.pop("dir")
    return encoded(document, *more)
app._json = without_dir
sys.argv[1:] = sys.argv[sys.argv.index("serve"):]
from omac.tools.entry import main; main()
"""


def recorded(omac: Omac) -> dict[str, Any]:
    """Return the projected state, which programs get."""
    status: dict[str, Any] = json.loads(omac.ok("status", "--json"))
    return status


def kill(omac: Omac, run: Serving) -> None:
    """Kill an omac, and wait for the end of the processes that it started."""
    run.end(signal.SIGKILL)
    eventually(lambda: not omac.left(), 10.0, "the end of its sidecars")


@pytest.mark.full
def test_a_killed_server_is_not_shown_as_running(omac: Omac) -> None:
    """The text reports a killed server as ended, and nothing as online. The JSON is the fold of the journal, as in a
    replay."""
    server, project = omac.online("shop")
    assert f"pid {server.process.pid}" in omac.ok("status")
    kill(omac, server)
    out = omac.ok("status")
    run = server.ready["run"]
    ended = "omac serve (opencode skills) ended without a record"
    assert f"run {run}: {ended} (pid {server.process.pid} is gone)" in out
    assert f"sidecar echo of {project}: ended with its run" in out
    assert "no directory is online" in out
    assert "healthy" not in out
    status = recorded(omac)
    assert [record["run"] for record in status["runs"]] == [run]
    assert omac.ok("replay", "--at", str(status["position"]), "--json") == omac.ok("status", "--json")
    omac.serve().end()  # which records the end
    assert run not in omac.ok("status")


@pytest.mark.parametrize("step", ["_note", "_open_home"])
def test_what_was_made_for_a_killed_launch_is_removed(omac: Omac, step: str) -> None:
    """Once `omac status` has inspected a launch in a linked worktree that was killed, whether it was on record as a
    whole by then or not, git's folders have nothing more that omac made for it."""
    clone, linked = str(omac.root / "clone"), str(omac.root / "linked")
    commit = ("-c", "user.name=n", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "first")
    for words in (("init", "-q", clone), ("-C", clone, *commit), ("-C", clone, "worktree", "add", "-q", linked)):
        subprocess.run(("git", *words), env=omac.environment, check=True)
    omac.ok("sandbox", "run", "--workdir", linked, "--", "true")
    before = sorted(Path(clone).rglob("*"))
    killed = (sys.executable, "-c", KILLED.format(step), "sandbox", "run", "--workdir", linked, "--", "true")
    assert subprocess.run(killed, env=omac.environment).returncode == -signal.SIGKILL
    assert sorted(Path(clone).rglob("*")) != before

    def is_clean() -> bool:  # not before the sandbox has ended
        omac.ok("status")
        return sorted(Path(clone).rglob("*")) == before

    eventually(is_clean, 10.0, "git's folders are as they were")
    assert os.listdir(omac.state / "inspections") == ["lock"]


def test_a_record_that_was_never_written_is_removed(omac: Omac) -> None:
    """The record of a launch whose omac was killed before it was written is removed; that of a later omac stays."""
    omac.serve().end()
    folder = omac.state / "inspections"
    folder.mkdir(mode=0o700, exist_ok=True)
    for name, content in (("empty", b""), ("cut", b"{'version': 1, 'bega"), ("later", b"{'version': 99}\n")):
        (folder / name).write_bytes(content)
    omac.ok("status")
    assert {path.name for path in folder.iterdir()} == {"later", "lock"}


@pytest.mark.full
def test_starts_are_listed_with_and_without_a_server(omac: Omac) -> None:
    """Each living run is listed with its directory; a run that ended in order is not."""
    shop, mail = omac.project("shop"), omac.project("mail")
    omac.approve(shop)
    first, second = looping(omac, shop), looping(omac, mail)
    out = omac.ok("status")
    for run, project in ((first, shop), (second, mail)):
        assert f"pid {run.process.pid}, in {project}" in out
    assert f"{shop}: active" in out
    server = omac.serve()
    second.end(signal.SIGKILL)
    out = omac.ok("status")
    assert f"pid {server.process.pid}, roots {omac.root}" in out
    assert f"pid {first.process.pid}, in {shop}" in out
    assert f"(pid {second.process.pid} is gone)" in out
    assert f"pid {second.process.pid}, in" not in out
    first.end()
    stopped = f"pid {first.process.pid}"  # the server reads what other processes append some milliseconds later
    eventually(lambda: stopped not in omac.ok("status"), 20.0, "the end of the run in the server's status")


@needs_bubblewrap
def test_a_sandbox_is_listed_while_it_runs(omac: Omac) -> None:
    """A sandbox is listed without a server too; once it is killed, it is no longer listed as launched."""
    project = omac.project("shop")
    run = omac.start("sandbox", "run", "--workdir", str(project), "--", "sh", "-c", "echo up; sleep 60")
    assert run.line() == "up\n"
    assert f"in {project}: launched" in omac.ok("status")
    run.end(signal.SIGKILL)
    eventually(lambda: f"in {project}: launched" not in omac.ok("status"), 20.0, "the sandbox to be gone")


@needs_bubblewrap
@pytest.mark.full
def test_a_run_of_another_pid_namespace(omac: Omac) -> None:
    """An omac in another pid namespace takes a run for one that lives, and its sidecars, too: no journal is restored
    under it."""
    project = omac.approved("shop")
    copy = str(omac.folder / "copy")
    omac.ok("journal", "backup", copy)
    run = looping(omac, project)
    apart = ("bwrap", "--dev-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "--die-with-parent")
    out = omac.run("status", within=apart).out
    assert f"sidecar echo of {project}: healthy" in out
    assert "ended with its run" not in out
    for words in (("restore", copy, "--yes"), ("repair", "--yes")):
        refused = omac.run("journal", *words, within=apart)
        assert (refused.status, refused.out) == (5, ""), refused
        assert f"run {run_of(omac, run)} (pid {run.process.pid}) has the journal" in refused.err
    run.end()
    omac.ok("journal", "restore", copy, "--yes")


@needs_bubblewrap
@pytest.mark.full
def test_a_sandbox_of_another_pid_namespace(omac: Omac) -> None:
    """An omac in another pid namespace, such as that of a container, takes a program that runs for one that runs: its
    end is recorded as it was."""
    project = omac.project("shop")
    script = "echo up; until [ -e go ]; do sleep 0.05; done"
    run = omac.start("sandbox", "run", "--workdir", str(project), "--", "sh", "-c", script)
    assert run.line() == "up\n"
    apart = ("bwrap", "--dev-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "--die-with-parent")
    assert omac.run(*BARE, "--workdir", str(project), "--", "true", within=apart).status == 0
    assert f"in {project}: launched" in omac.run("status", within=apart).out
    (project / "go").touch()
    assert run.process.wait(20) == 0
    (row,) = omac.audit("--kind", "sandbox")
    assert row["outcome"] == "completed", row


@pytest.mark.full
def test_a_wait_for_a_sidecar_is_shown(omac: Omac) -> None:
    """A terminal shows, in a line that goes away, that a command waits for a sidecar; elsewhere nothing is shown."""
    project = omac.approved("shop")
    meta = project / ".agents/skills/echo/omac.yaml"
    slow = '["sh", "-c", "sleep 2; exec python3 sidecar.py"]'
    meta.write_text(meta.read_text().replace('["python3", "sidecar.py"]', slow))
    omac.approve(project)
    omac.serve()
    done = typed(omac, (), "activate", str(project))
    assert done.out.startswith(f"waits until sidecars have started or ended\r\x1b[K{project}: "), done
    assert omac.run("reload", str(project), "--restart", "echo").err == ""


@pytest.mark.full
def test_nothing_is_proposed_for_skills_of_a_directory_that_is_gone(omac: Omac) -> None:
    """The only command for a directory that was moved is the one that takes it offline."""
    project = omac.project("shop")
    serving = omac.serve()
    serving.activate(project)
    assert omac.ok("status").count("  try: ") == 1
    project.rename(omac.root / "elsewhere")
    assert re.findall("try: (.*)", omac.ok("status")) == [f"omac deactivate {project}"]


@pytest.mark.full
def test_a_directory_that_was_moved_while_online(omac: Omac) -> None:
    """A directory moved while online is reported as moved. Each command for it names the one that takes it offline."""
    server, project = omac.online("shop")
    run = looping(omac, project)
    project.rename(omac.root / "elsewhere")
    moved = "  the directory was moved or removed, and is still online\n  try: "
    out = omac.ok("status")
    assert f"{moved}omac deactivate {project}\n" in out
    assert f"{moved}omac stop {run_of(omac, run)}\n" in out
    stop = f"  try: omac stop {run_of(omac, run)}\n"
    refusal = f"omac: {project} does not exist any more, but is still online\n"
    for words in (("reload",), ("activate",), ("url", "echo", "--workdir")):
        refused = omac.run(*words, str(project))
        assert (refused.status, refused.err) == (2, f"{refusal}  try: omac deactivate {project}\n{stop}")
    still = f"omac: {project} is still online in run {run_of(omac, run)}, an omac start\n"
    assert omac.run("deactivate", str(project)) == (0, f"{project}: deactivated\n", still + stop)
    assert omac.run("reload", str(project)).err == refusal + stop
    assert omac.ok("status").count("was moved") == 1
    server.end()
    assert omac.run("deactivate", str(project)).err == f"omac: no omac serve is running here\n{stop}"
    run.end()
    assert "was moved" not in omac.ok("status")


def run_of(omac: Omac, run: Serving) -> str:
    """Return the name of a run, by its pid."""
    (name,) = (record["run"] for record in recorded(omac)["runs"] if record["pid"] == run.process.pid)
    return str(name)


def test_a_server_of_another_version(omac: Omac) -> None:
    """A server of another version, whose status has another form: status and runs come from the journal, and omac
    reports that."""
    project = omac.approved("shop")
    server = omac.serve(within=(sys.executable, "-c", EARLIER))
    server.activate(project)
    for words in (), ("--json",):
        done = omac.run("status", *words)
        assert done.status == 0, done
        assert "the server here is of another version of omac; this is from the journal, at position" in done.err
        assert str(project) in done.out
    assert str(server.process.pid) in omac.ok("ps")
