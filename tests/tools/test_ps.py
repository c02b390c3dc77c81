"""`omac ps` and `omac stop`: list the runs that live, and end one in order."""

import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import pytest
from polling import eventually
from real_omac import Omac
from started import LOOP, looping, started

from omac.domain.kernel.run import RunStopped
from omac.tools.cli.control import READ_TIMEOUT_S
from omac.tools.compose.state import is_suspended


@pytest.mark.full
def test_runs_that_live_are_listed_and_stopped(omac: Omac, shop: Path) -> None:
    """A start and a server are listed until they end. Each ends in order when it is stopped, by its name or its pid."""
    assert omac.ok("ps") == "no run lives\n"
    assert omac.ok("ps", "--json") == ""
    run = looping(omac, shop)
    server = omac.serve()
    first, second = map(json.loads, omac.ok("ps", "--json").splitlines())
    assert (first["pid"], first["command"], first["agent"], first["roots"]) == (
        run.process.pid,
        "start",
        "",
        [str(shop)],
    )
    assert first["skills"] == [{"name": "echo", "state": "ready", "dir": str(shop)}]
    assert abs(datetime.fromisoformat(first["since"]).timestamp() - time.time()) < 120
    assert (second["run"], second["pid"], second["skills"]) == (server.ready["run"], server.process.pid, [])
    heads, row, serving = omac.ok("ps").splitlines()
    assert heads.split() == ["PID", "RUN", "AGENT", "SINCE", "PROJECT", "SKILLS"]
    assert row.split()[:4] == [str(run.process.pid), first["run"], "none", "(command)"]
    assert serving.split()[:4] == [str(server.process.pid), second["run"], "none", "(server)"]
    assert row.split()[-2:] == [str(shop), "echo"]
    shared = ("run", "pid", "command", "agent", "roots")
    runs = json.loads(omac.ok("status", "--json"))["runs"]
    assert [[record[name] for name in shared] for record in runs] == [
        [record[name] for name in shared] for record in sorted((first, second), key=lambda record: str(record["run"]))
    ]
    namesake = omac.project("more/shop")
    for project in (shop, namesake):
        server.activate(project)
    *_, row = omac.ok("ps").splitlines()
    assert row.endswith(f"  echo (not approved) in {namesake}; echo in {shop}"), "the same skill in two projects"
    second = json.loads(omac.ok("ps", "--json").splitlines()[-1])
    assert second["skills"] == [
        {"name": "echo", "state": "broken", "dir": str(namesake)}, {"name": "echo", "state": "ready", "dir": str(shop)}
    ]  # fmt: skip
    assert omac.ok("stop", str(run.process.pid)) == f"run {first['run']} has ended\n"
    assert run.process.wait(5) == 143
    assert omac.ok("stop", second["run"]) == f"run {second['run']} has ended\n"
    assert server.process.wait(5) == 0
    assert [record.event.why for record in omac.events(RunStopped)] == ["asked by SIGTERM"] * 2
    assert omac.ok("ps") == "no run lives\n"
    assert omac.left() == []
    assert list(omac.state.rglob("*.sock")) == []


def test_a_name_of_no_run_stops_nothing(omac: Omac, shop: Path) -> None:
    """The pid of another program, a part of a run's name and a path stop nothing."""
    run = looping(omac, shop)
    record = json.loads(omac.ok("ps", "--json"))
    for name in ("1", record["run"][:6], "../x"):
        done = omac.run("stop", name)
        assert (done.status, done.out) == (2, "")
        assert "  try: omac ps\n" in done.err
    assert run.process.poll() is None


def test_a_run_that_ctrl_z_stopped_ends_too(omac: Omac, shop: Path) -> None:
    """`omac stop` ends a run stopped by Ctrl-Z, which would otherwise notice the signal only after fg."""
    run = looping(omac, shop)
    os.kill(run.process.pid, signal.SIGSTOP)
    assert "has ended" in omac.ok("stop", str(run.process.pid))
    assert run.process.wait(5) == 143
    eventually(lambda: omac.left() == [], 20.0, "the end of all processes")


def test_a_run_that_ctrl_z_stopped_goes_on_with_what_was_revoked(omac: Omac, shop: Path) -> None:
    """A command that revokes something reports a run that cannot react to it, and whose sidecars go on."""
    server = omac.serve()
    warning = f"the run with pid {server.process.pid} is suspended"
    omac.approve(shop, "echo")
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        for words in (("revoke", "echo"), ("deregister", "echo", "--yes")):
            done = omac.run(*words, cwd=shop)
            assert (done.status, warning in done.err, "try: kill -CONT" in done.err) == (0, True, True), done
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
    assert warning not in omac.run("revoke", "echo", cwd=shop).err


@pytest.mark.full
def test_a_server_that_ctrl_z_stopped(omac: Omac, shop: Path) -> None:
    """A server stopped by Ctrl-Z is listed and can be ended, though it does not answer. The warning names its pid and
    the command that continues it."""
    server = omac.serve()
    pid = server.process.pid
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: is_suspended(pid), 20.0, "the server to stop")
    warning, began = f"the server (pid {pid}) at ", time.monotonic()
    assert (omac.run("status").status, time.monotonic() - began < READ_TIMEOUT_S) == (5, True)
    for done in (omac.run("ps"), omac.run(cwd=shop)):
        assert (done.status, warning in done.err, f"  try: kill -CONT {pid}  #" in done.err) == (0, True, True), done
        assert str(pid) in done.out
    ended = omac.run("stop", str(pid))
    assert (ended.status, "has ended" in ended.out) == (0, True), ended
    assert server.process.wait(5) == 0


@pytest.mark.full
def test_a_stop_that_takes_a_while_reports_that(omac: Omac, shop: Path) -> None:
    """The wait for a command that ends slowly is reported once, and its end as always."""
    run = started(omac, shop, f"trap 'sleep 3; exit 3' TERM; echo up; {LOOP}")
    assert run.line() == "up\n"
    done = omac.run("stop", str(run.process.pid))
    name = done.out.removeprefix("run ").removesuffix(" has ended\n")
    waits = f"omac: run {name} (pid {run.process.pid}) is still ending: waits for that, 20 s at most\n"
    assert (done.status, done.err) == (0, waits), done


@pytest.mark.full
def test_stops_at_the_same_time_are_one(omac: Omac, shop: Path) -> None:
    """Several `omac stop` of a run leave its command the time that one of them leaves it. A second stop after a killed
    one kills the command."""
    script = f"trap 'sleep 1; exit 3' TERM; echo up; {LOOP}"
    run = started(omac, shop, script)
    assert run.line() == "up\n"
    pid = str(run.process.pid)
    with ThreadPoolExecutor() as terminals:
        done = list(terminals.map(lambda _: omac.run("stop", pid), range(3)))
    assert [answer.status for answer in done] == [0, 0, 0], done
    assert {answer.out for answer in done} == {done[0].out}
    assert run.process.wait(5) == 3
    assert omac.left() == []
    stuck = started(omac, shop, f"trap 'echo asked' TERM; {LOOP}")
    assert stuck.line() == "up\n"
    given_up = omac.start("stop", str(stuck.process.pid))
    assert stuck.line() == "asked\n"
    given_up.process.kill()
    given_up.process.wait()
    assert stuck.process.poll() is None
    assert omac.run("stop", str(stuck.process.pid)).status == 0
    assert stuck.process.wait(5) == 137
