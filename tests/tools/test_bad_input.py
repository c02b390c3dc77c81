"""Errors of users, projects and hosts each get a reason, a next step and an exit code of their own.

An attempt is recorded, and no error harms another project.
"""

import json
import os
import re
import shlex
import signal
import socket
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from polling import eventually
from real_omac import Done, Omac, Serving, curl, omac_in
from tiers import some

from omac.domain.access.control import ControlCalled, ControlRefused
from omac.domain.directories.events import ActivationRequested, RouteStubbed
from omac.domain.kernel.ids import token_digest
from omac.domain.kernel.run import RunStarted, RunStopped
from omac.domain.sidecars.sidecar import Exited, GaveUp, Unhealthy

LEFT_NOTHING = (
    "journal repair --yes --journal {}/junk",
    "journal repair --yes --journal {}/none.db",
    "journal repair --yes --journal {}/a/b/none.db",
    "journal repair --position 99 --journal {}/copy.db",
    "journal repair --journal {}/copy.db",
    "journal restore {}/copy.db --journal {}/junk",
    "journal restore {}/junk --journal {}/a/b/none.db",
    "export --out {}/export --journal {}/none.db",
    "secrets set nobody TOKEN --journal {}/a/none.db",
    "config show nobody --journal {}/a/none.db",
)

ITS_KEY = '--key "$(omac key show)"  # where the journal is'
GOOD = "name: {name}\nsidecar:\n  command: [python3, sidecar.py]\n  mount: {name}\n"
SERVER = """\
import os
from http.server import BaseHTTPRequestHandler, HTTPServer

class Fine(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(204)
        self.end_headers()

HTTPServer(("127.0.0.1", {port}), Fine).serve_forever()
"""
BOMB = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9))
BOMB += "name: bomb\nsidecar: {command: [python3, sidecar.py], mount: bomb}\n"

MALFORMED: dict[str, tuple[str | bytes, str]] = {  # folder: (omac.yaml, what the detail says of it)
    "type": ("name: type\nsidecar: {command: python3, mount: type}\n", "sidecar.command"),
    "mount": ("name: mount\nsidecar: {command: [python3], mount: ../../etc}\n", "sidecar.mount"),
    "reserved": ("name: reserved\nsidecar: {command: [python3], env_passthrough: [LD_PRELOAD]}\n", "LD_PRELOAD"),
    "twice": ("name: twice\nsidecar: {command: [a], env_passthrough: [A, A]}\n", "declared already"),
    "syntax": ("name: [\n", "omac.yaml, line"),
    "binary": (b"name: \xff\xfe\n", "not UTF-8"),
    "control": ('name: "a\\u001b[31m"\nsidecar: {command: [a]}\n', "name"),
    "surrogate": ('name: surrogate\nsidecar: "\\ud800"\n', "incomplete surrogate pair"),
    "large": ("# " + "x" * 300_000, "larger than 256 KiB"),
    "bomb": (BOMB, "more than 5000 values"),
    "tag": ("name: !!python/object/apply:os.system [id]\n", "tag"),
    "deep": ("name: deep\nx: " + "[" * 200 + "]" * 200 + "\n", "nested"),
    "empty": ("", "must be a mapping"),
    "nameless": ("sidecar: {command: [a], mount: a}\n", "name"),
}


@pytest.fixture(scope="module")
def good(house: Omac, server: Serving) -> Iterator[str]:
    """Yield the base of a skill in another directory, and check afterwards that the skill still answers."""
    project = house.approved("good")
    base = server.skill(project)["base"]
    yield base
    assert curl(f"{base}/status").status == 200


def refused(done: Done, status: int, *said: str) -> None:
    """Check that the command ended with this status, printed no data, and reported these texts."""
    assert done.status == status, done
    assert done.out == "", done
    assert done.err.startswith("omac: "), done
    assert "Traceback" not in done.err, done
    for text in said:
        assert text in done.err, done


def skills_of(manifest: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {skill["name"]: skill for skill in manifest["skills"]}


def test_a_refused_command_leaves_nothing(omac: Omac) -> None:
    """A command about a journal that is none, or about a skill that is none, makes no file: no lock, journal or key."""
    project = omac.approved("shop")
    there = omac.folder / "there"
    there.mkdir()
    omac.ok("journal", "backup", str(there / "copy.db"))
    (there / "junk").write_text("no journal")

    def files() -> list[str]:
        kept = (*there.rglob("*"), *omac.state.rglob("*"))
        return sorted(str(path) for path in kept if not path.name.endswith(("-wal", "-shm")))

    before = files()
    for line in LEFT_NOTHING:
        done = omac.run(*(word.replace("{}", str(there)) for word in line.split()), cwd=project)
        assert (done.status != 0) == ("--journal {}/copy.db" not in line or "--position" in line), done
        assert files() == before, line


# Skills


@pytest.mark.full
def test_a_malformed_skill_is_broken_and_its_neighbour_ready(house: Omac, server: Serving, good: str) -> None:
    """A skill with a malformed omac.yaml is broken, its detail names the file, and the skill beside it comes online."""
    project = house.project("malformed", "echo")
    for name, (meta, _) in MALFORMED.items():
        house.skill(project, name, meta)
    house.skill(project, "linked", "").joinpath("omac.yaml").unlink()
    (project / ".agents/skills/linked/omac.yaml").symlink_to("/etc/hostname")
    (project / ".agents/skills/outside").symlink_to("/usr")
    house.approve(project)
    manifest = server.activate(project)
    skills = skills_of(manifest)
    assert manifest["state"] == "active_partial"
    assert skills["echo"]["state"] == "ready"
    assert curl(f"{skills['echo']['base']}/status").status == 200
    for name, (_, reason) in MALFORMED.items():
        skill = skills[name]
        assert skill["state"] == "broken", skill
        assert f"{name}/omac.yaml" in skill["detail"], skill
        assert reason in skill["detail"], skill
        assert skill["fix"], skill
        assert skill["detail"].isprintable(), skill
    assert "link" in skills["linked"]["detail"]
    assert "leads out of the project" in skills["outside"]["detail"]
    stubbed = {record.event.skill for record in house.events(RouteStubbed) if isinstance(record.event, RouteStubbed)}
    assert stubbed >= MALFORMED.keys() | {"linked", "outside"}
    answer = curl(f"{server.ready['facade_base']}/{manifest['dir_token']}/bomb/x")
    assert (answer.status, answer.headers["x-omac-reason"]) == (502, "skill-broken")
    refused(house.run("approve", "type", "--workdir", str(project)), 3, "type cannot be used", "sidecar.command")


def test_two_skills_with_one_mount(house: Omac, server: Serving, good: str) -> None:
    """The first of two skills with one mount keeps that; the second is broken and names the first."""
    project = house.project("mounts", "echo")
    house.skill(project, "other", GOOD.format(name="other").replace("mount: other", "mount: echo"), SERVER)
    house.approve(project, "echo", "other")
    skills = skills_of(server.activate(project))
    assert skills["echo"]["state"] == "ready"
    assert skills["other"]["state"] == "broken"
    assert "'echo'" in skills["other"]["detail"]
    assert curl(f"{skills['echo']['base']}/echo").json()["method"] == "GET"


def test_two_skills_with_one_name(house: Omac, server: Serving, good: str) -> None:
    """Two folders that declare one name are one skill: the first by folder name; it is approved and runs."""
    project = house.project("names", "echo")
    house.skill(project, "zecho", GOOD.format(name="echo"), SERVER.format(port='int(os.environ["SIDECAR_PORT"])'))
    house.approve(project)
    (skill,) = server.activate(project)["skills"]
    assert (skill["name"], skill["state"]) == ("echo", "ready")
    assert curl(f"{skill['base']}/echo").json()["method"] == "GET"


@pytest.mark.full
def test_sidecars_that_do_not_work(house: Omac, server: Serving, good: str) -> None:
    """A sidecar that is never healthy, ends at once, has the wrong port or lacks its program gets a detail.

    Each of them is given up in the end, and a good skill beside them works.
    """
    project = house.project("sick", "echo")
    impatient = "  health: {timeout_ms: 150}\n"
    house.skill(project, "mute", GOOD.format(name="mute").replace("python3, sidecar.py", "sleep, '600'") + impatient)
    house.skill(project, "short", GOOD.format(name="short"), "raise SystemExit('no licence')")
    house.skill(
        project, "astray", GOOD.format(name="astray") + "  health: {timeout_ms: 900}\n", SERVER.format(port="0")
    )
    house.skill(project, "absent", GOOD.format(name="absent").replace("python3", "no-such-program"))
    house.approve(project, "echo", "mute", "short", "astray", "absent")
    manifest = server.activate(project)
    skills = skills_of(manifest)
    assert manifest["state"] == "active_partial"
    assert skills["echo"]["state"] == "ready"
    for name in ("mute", "short", "astray", "absent"):
        assert skills[name]["state"] in ("restarting", "broken"), skills[name]
        assert skills[name]["detail"], skills[name]
        assert skills[name]["fix"], skills[name]
        answer = curl(f"{server.ready['facade_base']}/{manifest['dir_token']}/{name}/x")
        assert answer.status in (502, 503), answer
    assert "no-such-program is not on the sidecar's PATH" in skills["absent"]["detail"]

    def all_gave_up() -> dict[str, dict[str, Any]]:
        now = skills_of(server.activate(project))
        return now if all(now[name]["state"] == "broken" for name in ("mute", "short", "astray", "absent")) else {}

    broken = eventually(all_gave_up, 30.0, "the four to give up")
    listed = json.loads(house.ok("status", "--json"))["sidecars"]
    ended = {entry["skill"]: entry["state"] for entry in listed if entry["dir"] == str(project)}
    assert ended == {"echo": "healthy"} | dict.fromkeys(("mute", "short", "astray", "absent"), "gave_up")
    assert "nothing listens on" in broken["mute"]["detail"]
    assert "exited with status 1" in broken["short"]["detail"]
    assert "it listens on 127.0.0.1:" in broken["astray"]["detail"]
    log = broken["short"]["detail"].rpartition("its output is in ")[2]
    assert "no licence" in Path(log).read_text()
    assert curl(f"{skills['echo']['base']}/status").status == 200
    kinds = [type(entry.event) for entry in house.events() if "/" + project.name not in entry.stream]
    assert kinds.count(GaveUp) >= 4
    assert {Unhealthy, Exited} <= set(kinds)


# Directories


def test_directories_that_cannot_be_activated(house: Omac, server: Serving, good: str) -> None:
    """A directory that is missing, a file, outside the roots, relative or with NUL is refused with a reason of its own.

    The journal records each refusal.
    """
    (house.root / "file").write_text("")
    outside = house.folder / "outside"
    outside.mkdir()
    (house.root / "way-out").symlink_to(outside)
    (house.root / "nowhere").symlink_to(house.root / "gone")
    (house.root / "loop").symlink_to("loop")
    reasons = {
        str(house.root / "missing"): "directory-missing",
        str(house.root / "nowhere"): "directory-missing",
        str(house.root / "file"): "not-a-directory",
        str(house.root / "file" / "below"): "not-a-directory",
        str(outside): "outside-roots",
        str(house.root / "way-out"): "outside-roots",
        str(house.root / "good" / ".." / ".." / "outside"): "outside-roots",
        str(house.root) + "x": "outside-roots",
        str(outside / "missing"): "outside-roots",
        "/": "outside-roots",
        str(house.root / "loop"): "bad-request",
        "R/good": "bad-request",
        str(house.root / "good") + "\0": "bad-request",
        "/" + "x" * 5_000: "bad-request",
    }
    before = len(house.events())
    for directory, reason in reasons.items():
        answer = server.call("activate", {"dir": directory})
        refusal = answer.json()
        assert (answer.status, refusal["reason"], answer.headers["x-omac-reason"]) == (400, reason, reason), answer
        assert refusal["error"].isprintable(), answer
    assert "not under any allowed --root" in server.call("activate", {"dir": str(outside)}).json()["error"]
    (fix,) = server.call("activate", {"dir": str(outside)}).json()["fix"]
    assert fix.startswith("omac serve --no-inner --root ")
    assert str(outside) not in fix

    def recorded() -> list[str]:
        events = [record.event for record in house.events()[before:] if isinstance(record.event, ControlRefused)]
        return [event.reason for event in events] if len(events) == len(reasons) + 2 else []

    assert eventually(recorded, 20.0, "an event for each refusal")[:-2] == list(reasons.values())
    assert [record["dir"] for record in server.call("dirs").json()["dirs"] if record["dir"] in reasons] == []


def test_a_link_inside_the_roots_is_its_target(house: Omac, server: Serving, good: str) -> None:
    """A directory with two names has one token and one activation."""
    project = house.project("target")
    (house.root / "alias").symlink_to(project)
    first, second = server.activate(house.root / "alias"), server.activate(project)
    assert first["dir"] == second["dir"] == str(project)
    assert first["dir_token"] == second["dir_token"]
    called = [record.event.dir for record in house.events(ControlCalled) if isinstance(record.event, ControlCalled)]
    assert called.count(str(project)) == 1


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"", 400, "bad json body"),
        (b"dir=/tmp", 400, "bad json body"),
        (b'{"dir": "/tmp"', 400, "bad json body"),
        (b'{"dir": "\xff"}', 400, "bad json body"),
        (b'{"dir": "/\\ud800"}', 400, ""),
        (b"[]", 400, "missing 'dir'"),
        (b"{}", 400, "missing 'dir'"),
        (b'{"dir": 7}', 400, "missing 'dir'"),
        (b'{"dir": ""}', 400, "missing 'dir'"),
        (b'{"dir": "/tmp", "session": 7}', 400, "'session'"),
        (b'{"dir": "/tmp", "sesion": "s1"}', 400, "unknown member 'sesion'; this call takes 'dir', 'session'"),
        (b'{"dir": "/tmp", "\\u001b[31m": 1}', 400, "unknown member '\\x1b[31m'"),
        (b"[" * 60_000, 400, "bad json body"),
        (b'{"dir": "' + b"x" * 70_000 + b'"}', 413, ""),
        (b"x" * 5_000_000, 413, ""),
    ],
    ids=lambda value: repr(value)[:24] if isinstance(value, bytes) else "",
)
def test_bodies_that_are_no_call(server: Serving, body: bytes, status: int, said: str) -> None:
    """A body that is no JSON object with a directory gets a 400, and one that is too large a 413."""
    answer = server.call("activate", raw=body)
    assert answer.status == status, answer
    assert said in answer.json()["error"], answer
    assert answer.headers["x-omac-reason"] == answer.json()["reason"]


def test_names_with_control_characters_are_shown_and_not_obeyed(house: Omac, server: Serving, good: str) -> None:
    """A directory may have terminal escapes in its name: status, audit, reload and refusals print them escaped."""
    project = house.project("evil\x1b]0;x\x07\n\x1b[2J")
    fresh = house.run("reload", str(project))
    manifest = server.activate(project)
    assert manifest["dir"] == str(project)
    curl(f"{server.ready['facade_base']}/{manifest['dir_token']}/echo/%1b%5b2J")
    approved = house.run("approve", "echo", "--workdir", str(project))
    assert approved.status == 0
    outputs = [approved, fresh, house.run("status"), house.run("audit"), house.run("reload", str(project))]
    outputs += [house.run("deactivate", str(project)), house.run("reload", str(project))]
    outputs += [house.run("replay", "--at", "999999"), house.run("activate", str(house.root / "\x1b[31m"))]
    for done in outputs:
        assert "\x1b" not in done.out + done.err, done
        assert "\x07" not in done.out + done.err, done
    assert "\\x1b" in outputs[1].out
    assert "\\x1b" in outputs[2].out


# The journal


@pytest.mark.full
def test_a_journal_that_cannot_be_written(omac: Omac) -> None:
    """On a read-only file system, commands that read work, and commands that write are refused with exit code 5."""
    omac.serve().end()
    state, read_only = str(omac.state), ("bwrap", "--dev-bind", "/", "/", "--ro-bind", str(omac.state), str(omac.state))
    refused(omac.run("serve", "--no-inner", within=read_only), 5, state, "system is read-only", "try: findmnt --target")
    project = omac.project("p")
    refused(omac.run("approve", "echo", "--workdir", str(project), within=read_only), 5, state, "try:")
    for command in (["audit"], ["status"], ["journal", "stats"], ["replay", "--at", "1"]):
        done = omac.run(*command, within=read_only)
        assert done.status == 0, done


@pytest.mark.full
@pytest.mark.parametrize("command", [("sandbox", "run"), ("start",)])
def test_a_home_that_is_read_only(omac: Omac, tmp_path: Path, command: tuple[str, ...]) -> None:
    """A launch in a home that cannot be written is refused with one command, after which it works."""
    del omac.environment["OMAC_STATE_DIR"]
    home = omac.environment["HOME"]
    within = ("bwrap", "--dev-bind", "/", "/", "--ro-bind", home, home)
    done = omac.run(*command, "--", "true", within=within)
    (fix,) = [line for line in done.err.splitlines() if "try: export" in line]
    chosen = fix.partition("#")[0].split()[2:]
    extra = {word.partition("=")[0]: f"{tmp_path}/{number}" for number, word in enumerate(chosen)}
    done = omac.run(*command, "--", "true", within=within, extra=extra)
    assert done.status == 0, done


@pytest.mark.parametrize(
    ("damage", "status", "said"),
    [
        ("newer", 5, "schema 99"),
        ("event", 5, "newer omac"),
        ("text", 10, "not a journal"),
        ("foreign", 10, "not a journal"),
        ("bytes", 10, "cannot be decoded"),
        ("folder", 5, "journal"),
        ("link", 5, "symbolic link"),
        ("fifo", 5, "not a regular file"),
    ],
)
@pytest.mark.full
def test_a_journal_that_is_not_one(omac: Omac, damage: str, status: int, said: str) -> None:
    """A journal that is newer, damaged, foreign, a folder, a link or a pipe is refused by name, and left as it was."""
    journal = omac.state / "journal.db"
    if damage in ("newer", "event", "bytes"):
        omac.serve().end()
        spoil_journal(journal, damage)
    elif damage == "text":
        journal.write_text("not a database, " * 100)
    elif damage == "foreign":
        with closing(sqlite3.connect(journal)) as connection:
            connection.execute("CREATE TABLE journal (song TEXT)")
    elif damage == "folder":
        journal.mkdir()
    elif damage == "fifo":
        os.mkfifo(journal)
    else:
        (omac.folder / "elsewhere.db").touch()
        journal.symlink_to(omac.folder / "elsewhere.db")
    before = journal.read_bytes() if stat.S_ISREG(journal.lstat().st_mode) and damage != "foreign" else b""
    done = omac.run("serve", "--no-inner", "--root", str(omac.root), seconds=20)
    refused(done, status, said, "try:", str(journal))
    if before:
        assert journal.read_bytes() == before
    if damage not in ("link", "fifo", "folder"):
        audit = omac.run("audit", "--json")
        refused(audit, status, said)


def test_a_file_that_never_was_a_journal(omac: Omac) -> None:
    """Before a command that moves it away, there is one that tells what it is."""
    notes = omac.folder / "notes.txt"
    notes.write_text("not a database, " * 100)
    fixes = omac.run("journal", "check", "--journal", str(notes)).err.splitlines()[1:]
    assert fixes[0] == f"  try: head -c 99 {notes} | cat -v  # was another one meant?"
    assert fixes[-1].startswith(f"  try: mv {notes} ")


def spoil_journal(journal: Path, damage: str) -> None:
    """Change a good journal by the kind of damage that is named."""
    connection = sqlite3.connect(journal)
    with connection:
        if damage == "newer":
            connection.execute("UPDATE journal SET schema = 99")
        elif damage == "event":
            connection.execute("UPDATE name SET text = 'run.teleported' WHERE text = 'run.started'")
        else:
            connection.execute("UPDATE event SET body = x'c1' WHERE position = 1")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def test_files_that_may_not_grow(omac: Omac) -> None:
    """A limit of the shell is not taken for a failing disk, and leaves the journal whole."""
    small = ("bash", "-c", 'ulimit -f 40; exec "$@"', "bash")
    command = ("approve", "echo", "--workdir", str(omac.project("p", "echo")))
    refused(omac.run(*command, within=small), 5, str(omac.state), "40960 bytes", "try: ulimit -f unlimited")
    omac.ok(*command)
    omac.ok("journal", "check")


@pytest.mark.full
def test_a_full_disk(omac: Omac) -> None:
    """A server whose journal cannot grow refuses calls and activations with that reason.

    With room it serves again, and SIGTERM stops it.
    """
    project = omac.project("p")
    within = ("bwrap", "--dev-bind", "/", "/", "--size", str(1 << 20), "--tmpfs", str(omac.state), "--die-with-parent")
    server = omac.start(
        *("serve", "--no-inner", "--json", "--root", str(omac.root), "--unapproved", "allow"), within=within
    )
    pid = eventually(lambda: _inner_of(server.process.pid), 20.0, "omac to run in its own file system")
    server.await_ready(root=f"/proc/{pid}/root")
    ballast_path = Path(f"/proc/{pid}/root{omac.state}/ballast")
    base = server.skill(project)["base"]
    assert curl(f"{base}/status").status == 200
    with pytest.raises(OSError, match="No space left"), ballast_path.open("wb", buffering=0) as ballast:
        ballast.writelines(b"x" * 4_096 for _ in range(1_000))
    answer = eventually(lambda: (a := curl(f"{base}/status")).status != 200 and a, 20.0, "the journal to be full")
    assert (answer.status, answer.headers["x-omac-reason"]) == (503, "journal-unavailable")
    assert "full" in answer.body
    answer = server.call("activate", {"dir": str(omac.project("q"))})
    assert (answer.status, answer.headers["x-omac-reason"]) == (503, "journal-unavailable")
    ballast_path.unlink()
    eventually(lambda: curl(f"{base}/status").status == 200, 20.0, "the skill to be reachable again")
    os.kill(pid, signal.SIGTERM)
    assert server.process.wait(20) == 0, server.said()


def _inner_of(outer: int) -> int:
    """Return the pid of the omac that a bwrap runs, or 0 while none runs."""
    children = Path(f"/proc/{outer}/task/{outer}/children").read_text().split()
    return next(
        (int(pid) for pid in children if b"tools.entry" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"--")[0]), 0
    )


# Places


@pytest.mark.parametrize("flag", ["--control-addr", "--facade-addr"])
def test_a_port_that_is_taken(omac: Omac, flag: str) -> None:
    """A server whose port is taken exits with 5, names address and flag, and records why its run ended."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        done = omac.run("serve", "--no-inner", flag, address)
        refused(done, 5, address, flag, f"try: omac serve --no-inner {flag} 127.0.0.1:0\n")
    started, stopped = omac.events(RunStarted), omac.events(RunStopped)
    assert len(started) == 1
    assert [address in record.event.why for record in stopped if isinstance(record.event, RunStopped)] == [True]
    assert json.loads(omac.ok("status", "--json"))["runs"] == []


@pytest.mark.parametrize(
    "address", some(["0.0.0.0:0", "192.0.2.1:80", "example.com:80", ":80", "127.0.0.1", "127.0.0.1:99999"], of=2)
)
def test_an_address_that_is_not_loopback(house: Omac, address: str) -> None:
    """omac listens on loopback only; any other address is a misuse."""
    refused(house.run("serve", "--no-inner", "--control-addr", address), 2, "--control-addr")


@pytest.mark.full
def test_other_loopback_addresses_are_told_as_they_are(omac: Omac) -> None:
    """The ready line names the addresses of the options, and both planes answer there."""
    project = omac.project("p")
    server = omac.serve("--control-addr", "127.0.0.2:0", "--facade-addr", "[::1]:0", "--unapproved", "allow")
    assert server.ready["control_base"].startswith("http://127.0.0.2:")
    assert server.ready["facade_base"].startswith("http://[::1]:")
    assert server.call_tcp("dirs", "-H", f"Authorization: Bearer {server.token}").status == 200
    assert curl("-g", f"{server.skill(project)['base']}/status").status == 200


@pytest.mark.full
def test_a_second_server_on_the_same_journal(omac: Omac) -> None:
    """A second server exits with 5 and names the pid of the first, which goes on until the printed command stops it."""
    first = omac.serve()
    stop = f"omac stop {first.process.pid}"
    refused(omac.run("serve", "--no-inner"), 5, f"pid {first.process.pid}", stop)
    assert first.call("dirs").status == 200
    assert f"pid {first.process.pid}" in omac.ok("status")
    assert len(omac.events(RunStarted)) == 1
    omac.ok(*stop.split()[1:])
    assert first.process.wait(5) == 0


def test_a_state_directory_too_deep_for_sockets(omac: Omac) -> None:
    """A path too long for a Unix socket is refused with the variable to set, and reading commands still work."""
    deep = {"OMAC_STATE_DIR": str(omac.folder / ("x" * 90))}
    refused(omac.run("serve", "--no-inner", extra=deep), 5, "107", "export OMAC_STATE_DIR=")
    assert omac.run("status", extra=deep).status == 0


def test_a_state_directory_that_is_not_ours_alone(omac: Omac) -> None:
    """A state directory that other users can write is refused with the command that mends it; a file is refused too.

    Other users could put a socket of their own in the place of omac's.
    """
    omac.state.chmod(0o777)
    refused(omac.run("serve", "--no-inner"), 5, "writable by other users", f"chmod 700 {omac.state}")
    omac.state.chmod(0o700)
    elsewhere = omac.folder / "file"
    elsewhere.write_text("")
    in_a_file = {"OMAC_STATE_DIR": str(elsewhere)}
    refused(omac.run("serve", "--no-inner", extra=in_a_file), 5, str(elsewhere), "try:")
    refused(omac.run("status", extra=in_a_file), 5, f"no journal exists at {elsewhere}")


@pytest.mark.parametrize("place", ["loop", "loop/below", "/dev/null/below", "dangling"])
def test_a_state_directory_where_none_can_be(omac: Omac, place: str) -> None:
    """Every command says what is in the way, and none fails."""
    (omac.folder / "loop").symlink_to("loop")
    (omac.folder / "dangling").symlink_to("nowhere")
    impossible = {"OMAC_STATE_DIR": str(omac.folder / place)}
    in_the_way = "/dev/null" if place.startswith("/") else str(omac.folder / place.partition("/")[0])
    for words in (
        ["doctor"],
        ["start", "--", "true"],
        ["approve", "echo", "--workdir", str(omac.project("p", "echo"))],
    ):
        done = omac.run(*words, extra=impossible)
        assert done.status in (1, 5), done
        assert f"try: ls -ld {in_the_way}\n" in done.out + done.err, done
        assert "defect" not in done.err, done
    for words in (["ps"], ["status"], ["audit"], ["journal", "check"], ["logs", "echo"]):
        assert "defect" not in omac.run(*words, extra=impossible).err, words


@pytest.mark.parametrize("name", ["host-id", "fingerprint.key"])
def test_a_file_of_the_state_directory_that_is_none(omac: Omac, name: str) -> None:
    """The refusal names the file that is a pipe, and suggests listing it."""
    os.mkfifo(omac.state / name)
    done = omac.run("approve", "echo", "--workdir", str(omac.project("p", "echo")))
    refused(done, 5, f"{omac.state / name}: it is not a regular file", f"try: ls -ld {omac.state / name}\n")


def test_a_state_directory_that_cannot_be_made(omac: Omac) -> None:
    """The refusal of a state directory has no errno in it, and suggests listing a folder that exists."""
    nowhere = {"OMAC_STATE_DIR": "/proc/omac/state"}
    done = omac.run("serve", "--no-inner", extra=nowhere)
    refused(done, 5, "the state directory /proc/omac/state cannot be used: /proc/omac: ", "try: ls -ld /proc\n")
    assert "Errno" not in done.err


# The agent


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[tuple[Omac, Path]]:
    """Yield an omac with an empty program called opencode on PATH, and the program's path."""
    with omac_in(tmp_path) as omac:
        folder = tmp_path / "bin"
        folder.mkdir()
        omac.environment["PATH"] = f"{folder}:{omac.environment['PATH']}"
        program = folder / "opencode"
        program.touch(mode=0o755)
        yield omac, program


def test_a_port_of_thousands_of_digits(agent: tuple[Omac, Path]) -> None:
    """A port with thousands of digits among the agent's arguments is left to the agent to refuse."""
    omac, program = agent
    program.write_text("#!/bin/sh\n")
    project = omac.project("p")
    line = ("start", "opencode", "--workdir", str(project), "--", "serve", "--port", "9" * 5_000)
    assert omac.run(*line).status == 0


def test_an_agent_learns_places_and_no_token(agent: tuple[Omac, Path]) -> None:
    """An agent gets the arguments after --, and its environment names the addresses of omac but no routing token."""
    omac, program = agent
    project = omac.project("p")
    program.write_text('#!/bin/sh\necho "$@"\nenv\nexit 23\n')
    allow = ("--unapproved", "allow", "--workdir", str(project))
    done = omac.run("serve", "opencode", "--no-sandbox", *allow, "--", "--port", "4096")
    assert done.status == 23, done
    arguments, *variables = done.out.splitlines()  # stdout is the agent's alone
    assert "omac serve: control plane on http://127.0.0.1:" in done.err
    assert arguments == "serve --port 4096"
    environment = dict(line.split("=", 1) for line in variables)
    assert environment["OMAC_HARNESS"] == "opencode"
    assert environment["OMAC_BASE"] == f"http://127.0.0.1:{environment['OMAC_PORT']}/"
    assert {"OMAC_VERSION", "OMAC_HOST", "OMAC_SOCKET", "OMAC_CONTROL_SOCKET"} <= environment.keys()
    assert not [name for name in environment if name.endswith("_BASE") and "ECHO" in name]
    digests = {record.event.digest for record in omac.events() if isinstance(record.event, ActivationRequested)}
    assert len(digests) == 1
    words = {word for value in environment.values() for word in value.replace("/", " ").split()}
    assert not digests & {token_digest(word) for word in words}


@pytest.mark.full
def test_the_end_of_an_agent_is_passed_on(agent: tuple[Omac, Path]) -> None:
    """The agent's exit status becomes omac's, 128+n for a signal, and SIGTERM to omac reaches the agent.

    An agent that ignores SIGTERM is killed at the second one.
    """
    omac, program = agent
    program.write_text("#!/bin/sh\nkill -KILL $$\n")
    assert omac.run("serve", "--no-sandbox").status == 128 + signal.SIGKILL
    program.write_text('#!/bin/sh\ntrap "exit 41" TERM\necho up\nwhile :; do sleep 0.05; done\n')
    serving = omac.start("serve", "--no-sandbox")
    assert serving.line() == "up\n"
    assert serving.end() == 41
    program.write_text('#!/bin/sh\ntrap "echo no" TERM\necho up\nwhile :; do sleep 0.05; done\n')
    serving = omac.start("serve", "--no-sandbox")
    assert serving.line() == "up\n"
    serving.process.send_signal(signal.SIGTERM)
    assert serving.line() == "no\n"
    assert serving.end() == 128 + signal.SIGKILL
    eventually(lambda: not omac.left(), 20.0, "the end of the agent's own children")


def test_an_agent_that_is_missing_or_cannot_run(agent: tuple[Omac, Path]) -> None:
    """omac exits as a shell does, and names the agent's program, when that is missing or cannot be run."""
    omac, program = agent
    program.write_bytes(b"\x7fELF not really")
    done = omac.run("serve", "--no-sandbox")
    assert done.status == 126, done
    assert f"omac: {program} cannot be run: Exec format error" in done.err
    assert "Traceback" not in done.err
    program.unlink()
    bare = {"PATH": "/nonexistent"}
    refused(omac.run("serve", "--no-sandbox", extra=bare), 127, "opencode is not installed", "command -v opencode")


# The command line


NONSENSE = [
    (["serve", "emacs", "--no-inner"], 2, "try: omac serve claude\n  try: omac serve -- emacs  #"),
    (["serve", "--no-inner", "."], 2, ". is a folder, not a harness\n  try: omac serve --no-inner --root .\n"),
    (["start", "/tmp"], 2, "/tmp is a folder, not a harness\n  try: omac start claude --workdir /tmp\n"),
    (["sandbox", "run", "--harness", "cloud", "--", "true"], 2, "try: omac sandbox run --harness claude -- make\n"),
    (["list", "--harness", "cloud"], 2, "try: omac list --harness claude\n"),
    (["serve", "--no-inner", "--unapproved", "maybe"], 2, "--unapproved takes refuse or allow"),
    (["serve", "opencode", "--no-inner", "--", "--port", "1"], 2, "launches no agent"),
    (["serve", "--no-inner", "--no-sandbox"], 2, "--no-sandbox has no effect"),
    (["serve", "--no-inner", "--allow", "/x"], 2, "--allow has no effect"),
    (["serve", "--network", "half", "--", "true"], 2, "--network takes host or none"),
    (["serve", "--no-inner", "--root", "/nonexistent"], 2, "/nonexistent"),
    (["serve", "--no-inner", "--root", "/etc/hostname"], 2, "/etc/hostname"),
    (["serve", "--no-inner", "--workdir", "/nonexistent"], 2, "--workdir"),
    (["serve", "--no-inner", "--journal", "postgresql://user:secret@host/db"], 2, "not supported yet"),
    (["serve", "--no-inner", "--control-addr", "127.0.0.1:²"], 2, "--control-addr"),
    (["serve", "--no-inner", "--facade-addr", "127.0.0.1:" + "9" * 5_000], 2, "--facade-addr takes HOST:PORT"),
    (["start", "--open-port", "9" * 5_000, "--", "true"], 2, "--open-port takes a port"),
    (["audit", "--since", "yesterday"], 2, "'yesterday' is not a time"),
    (["audit", "--until", "2026-13-01"], 2, "is not a time"),
    (["audit", "--since", ""], 2, "--since needs a value that is not empty"),
    (["audit", "--dir", ""], 2, "--dir needs a value that is not empty"),
    (["export", "--out", "x", "--text", ""], 2, "--text needs a value that is not empty"),
    (["erase", "--yes", ""], 2, "DIR needs a value that is not empty"),
    (["deactivate", ""], 2, "DIRECTORY needs a value that is not empty"),
    (["list", "--workdir="], 2, "--workdir needs a value that is not empty"),
    (["serve", "--no-inner", "--root", "/", "--root", ""], 2, "--root needs a value that is not empty"),
    (["serve", "--deny", "", "--", "true"], 2, "--deny needs a value that is not empty"),
    (["start", "--deny", "", "--", "true"], 2, "--deny needs a value that is not empty"),
    (["start", "--network=", "--", "true"], 2, "--network needs a value that is not empty"),
    (["sandbox", "run", "--deny", "", "--", "true"], 2, "--deny needs a value that is not empty"),
    (["export", "--out", "x", "--session", "\udcff"], 2, "no text in UTF-8: it cannot be recorded"),
    (["audit", "--outcome", "lost"], 2, "--outcome takes completed"),
    (["audit", "--actor", "nobody"], 2, "--actor takes person"),
    (["audit", "--client", "nobody"], 2, "unknown harness 'nobody'; known are: opencode or oc"),
    (["export", "--out", "x", "--client", "nobody"], 2, "unknown harness 'nobody'; known are: opencode or oc"),
    (["audit", "--status", "6x"], 2, "--status takes 404"),
    (["export", "--out", "x", "--status", "499-400"], 2, "499 is above 400"),
    (["audit", "--from", "-1"], 2, "--from takes a position"),
    (["audit", "--from", "9", "--to", "8"], 2, "no position lies between them"),
    (["audit", "--since", "1h", "--until", "2h"], 2, "--since 1h is later than --until 2h"),
    (["audit", "--kind", "colour"], 2, "--kind takes access, sandbox"),
    (["audit", "verify", "--from", "9" * 5_000], 2, "--from takes a position"),
    (["audit", "prove", "9" * 5_000], 2, "a position is a number from 1"),
    (["audit", "--count-by", "skill,colour"], 2, "--count-by takes skill"),
    (["audit", "--page", "5"], 2, "--page takes one row or more, with --after"),
    (["audit", "--after", "start", "-n", "5"], 2, "--after excludes -n"),
    (["audit", "--follow", "--count-by", "skill"], 2, "--follow and --count-by exclude each other"),
    (["audit", "--follow", "--until", "1h"], 2, "--follow prints rows as they end, so it excludes --until and --to"),
    (["audit", "--follow", "--to", "9"], 2, "--follow prints rows as they end, so it excludes --until and --to"),
    (["audit", "--csv", "--json"], 2, "--csv and --json exclude each other"),
    (["replay", "--at", "soon"], 2, "'soon' is not a time"),
    (["replay", "--at", "²"], 2, "is not a time"),
    (["replay", "--at=-1"], 2, "is not a time"),
    (["replay", "--at", "9" * 30], 1, "the journal ends at position"),
    (["approve", "nothing", "--workdir", "/"], 4, "no skill 'nothing'"),
    (["approve", "echo", "--workdir", "/nonexistent"], 2, "does not exist"),
    (["activate", "\udcff"], 2, "not a UTF-8 path"),
]


@pytest.mark.parametrize(
    ("command", "status", "said"),
    some(NONSENSE, of=3),
    ids=lambda value: " ".join(value).encode("ascii", "replace").decode() if isinstance(value, list) else "",
)
def test_commands_that_make_no_sense(house: Omac, server: Serving, command: list[str], status: int, said: str) -> None:
    """A wrong command line is refused with a message of one line and the exit code of its kind."""
    done = house.run(*command)
    refused(done, status, said)
    assert [line for line in done.err.splitlines() if not line.startswith("  try: ")] == done.err.splitlines()[:1]
    assert "secret" not in done.err


MEANT = [
    (["claude"], ["omac start claude"]),
    (["run", "--", "ls", "a b"], ["omac sandbox run -- ls 'a b'"]),
    (["sandbox", "ls"], ["omac sandbox run -- ls"]),
    (["sandbox", "--", "ls"], ["omac sandbox run -- ls"]),
    (["new", "hello"], ["omac skill new hello"]),
    (
        ["unset", "hello", "X"],
        ["omac secrets unset hello X", "omac config unset hello X", "omac settings unset hello X"],
    ),
    (["audit", "hello"], ["omac audit --skill hello"]),
    (["secrets", "hello", "T=x"], ["omac secrets list hello"]),
    (["config", "my skill"], ["omac config show 'my skill'"]),
    (["settings", "serve.audit"], ["omac settings show"]),
    (["hook", "claude"], ["omac hook install claude"]),
    (["bridge", "codex"], ["omac bridge install codex"]),
    (["bridge", "hello"], []),
    (["activate", "--workdir", "a b", "--json"], ["omac activate 'a b' --json"]),
    (["trust", "--workdir=/p"], ["omac trust /p"]),
    (["ps", "--workdir", "/p"], []),
    (["flourish"], []),
]


@pytest.mark.parametrize(("command", "meant"), MEANT, ids=[" ".join(command) for command, _ in MEANT])
def test_what_may_be_meant(house: Omac, command: list[str], meant: list[str]) -> None:
    """Words that begin with no command are refused with the commands that may be meant."""
    done = house.run(*command)
    assert done.status == 2
    assert [line.removeprefix("  try: ") for line in done.err.splitlines() if line.startswith("  try: ")] == meant


@pytest.mark.parametrize("command", [["flourish"], ["audit", "--frobnicate"], ["replay"], ["approve"]])
def test_commands_that_do_not_exist(house: Omac, command: list[str]) -> None:
    """An unknown command or flag, or a missing argument, is a misuse: exit 2, usage on stderr."""
    done = house.run(*command)
    assert (done.status, done.out) == (2, "")
    assert "Usage: " in done.err
    assert "Traceback" not in done.err


def test_a_group_without_a_command_prints_its_help_line_by_line(house: Omac) -> None:
    """A group of commands, typed alone, is answered by its help, as lines."""
    done = house.run("sandbox")
    assert done.status == 2
    assert done.err.startswith("Usage: omac sandbox COMMAND ...\n\n  Run commands")


@pytest.mark.parametrize("command", [("--{}",), ("{}",), ("status", "--{}"), ("status", "{}")])
def test_a_word_that_nobody_sees_as_it_is_is_shown_and_not_obeyed(house: Omac, command: tuple[str, ...]) -> None:
    """A misuse quotes a pasted word escaped, also what turns the order of letters round or shows none."""
    done = house.run(*(word.format("a\u202eb\x1bc\u200b") for word in command))
    assert done.status == 2
    assert "a\\u202eb\\x1bc\\u200b" in done.err
    assert done.err.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("command", "example"),
    [
        (("replay",), "omac replay --at 120"),
        (("proof", "verify"), 'omac proof verify proof.json --key "$(omac key show)"'),
        (("proof", "verify", "x", "--json"), f"omac proof verify x --json {ITS_KEY}"),
        (("export", "verify", "a b"), f"omac export verify 'a b' {ITS_KEY}"),
        (("key", "move"), "omac key move --to vault"),
        (("replay", "--json"), "omac replay --json --at 120"),
        (("secrets", "import", "mail", "--global"), "omac secrets import mail --global --from slack.env"),
        (("secrets", "import", "mail", "T=x"), "omac secrets import slack --from slack.env"),
        (("stop",), "omac stop 4711\n  try: omac ps  # the runs that live"),
        (("url",), "omac url echo\n  try: omac list  # the skills here"),
        (("revoke",), "omac revoke slack\n  try: omac list  # the skills here"),
        (("hook", "uninstall"), "omac hook uninstall claude"),
    ],
)
def test_what_is_missing_is_shown_by_an_example(house: Omac, command: tuple[str, ...], example: str) -> None:
    """A command that lacks an argument prints the first example of its help, and the command that lists the skills or
    runs that it takes; none for an unknown option."""
    assert house.run(*command).err.endswith(f"\n  try: {example}\n")
    assert "try: omac" not in house.run(*command, "--frobnicate").err


def test_a_folder_without_its_option(house: Omac) -> None:
    """A folder where a command takes none gets the line with --workdir; with that, or with --global, it gets none."""
    (house.root / "here").mkdir()
    for words in (("list",), ("secrets", "list", "echo"), ("env", "echo"), ("continue",)):
        done = house.run(*words, "here")
        assert done.err.endswith(f"(here)\n  try: omac {' '.join(words)} --workdir here\n"), done
    for words in (("list", "--global"), ("list", "--workdir", "."), ("status",)):
        assert house.run(*words, "here").err.endswith("(here)\n")


@pytest.mark.parametrize("command", ["continue", "resume"])
def test_the_name_of_an_agent_to_go_on_with(house: Omac, command: str) -> None:
    """An agent's name behind `continue` gets the line without it, and the start of that agent."""
    lines = f"(claude)\n  try: omac {command}  # the agent that ran last here\n  try: omac start claude\n"
    assert house.run(command, "claude").err.endswith(lines)
    for words in (("-p", "hi there"), ("more",), ("--model", "x")):
        fix = shlex.join(("omac", command, "--", *words))
        assert f"\n  try: {fix}  # words of another program come after --\n" in house.run(command, "claude", *words).err


def test_no_server_and_no_journal(omac: Omac) -> None:
    """Commands that need a server print how to start one or list runs; those without a journal print how to serve."""
    serving = f"  try: omac serve --no-inner --root {omac.root}\n"
    for action, fix in (("activate", serving), ("deactivate", "  try: omac ps\n"), ("reload", serving)):
        refused(omac.run(action, str(omac.root)), 1, "no omac serve is running here", fix)
    refused(
        omac.run("reload", "--global"), 1, "no omac serve is running here", "  try: omac serve --no-inner --root .\n"
    )
    for command in (["status"], ["audit"], ["replay", "--at", "1"], ["journal", "stats"]):
        refused(omac.run(*command), 5, "no journal exists at", "omac serve --no-inner")
    omac.serve().end(signal.SIGKILL)
    refused(omac.run("reload", str(omac.root)), 1, "no omac serve is running here")


def test_a_folder_that_was_removed(omac: Omac) -> None:
    """omac reports that its current directory was removed, since relative paths mean nothing there."""
    command = 'mkdir gone && cd gone && rmdir ../gone && exec "$@"'
    for words in (["activate"], ["sandbox", "run", "--", "true"]):
        done = omac.run(*words, within=("/bin/sh", "-c", command, "sh"))
        assert "omac: the current directory was removed\n  try: cd\n" in done.err
        assert done.status == 2


def test_a_folder_that_is_removed_meanwhile(omac: Omac) -> None:
    """omac reports the same where its current directory is removed while it works: that is no defect of omac."""
    command = 'mkfifo data && mkdir gone && cd gone || exit; (exec 3>../data; rmdir ../gone) & exec "$@"'
    done = omac.run("call", "echo", "/hello", "-d", "@../data", within=("/bin/sh", "-c", command, "sh"))
    assert (done.status, done.err) == (2, "omac: the current directory was removed\n  try: cd\n")


@pytest.mark.full
def test_an_output_without_room(omac: Omac) -> None:
    """A command whose output has no space left reports that once, and no defect of omac."""
    explain = ["sandbox", "run", "--explain", "--", "true"]
    for words in (["settings", "show"], explain, ["version"], ["--version"], ["skill", "schema"]):
        done = omac.run(*words, within=("/bin/sh", "-c", 'exec "$@" >/dev/full', "sh"))
        assert done.status == 1
        assert re.fullmatch(r"omac: (no space is left for the output\n  try: df -h|.*No space left .*)\n", done.err)


@pytest.mark.full
def test_a_server_that_hangs(omac: Omac) -> None:
    """A command asks a server that does not answer for seconds, not for ever, and names its socket."""
    server = omac.serve()
    server.process.send_signal(signal.SIGSTOP)
    try:
        for command in ("status", "activate", "deactivate", "reload"):
            refused(omac.run(command, seconds=20), 5, "did not answer", "control.sock", "kill -CONT")
    finally:
        server.process.send_signal(signal.SIGCONT)


@pytest.mark.full
def test_a_reader_that_leaves(house: Omac, server: Serving) -> None:
    """`omac audit | head -1` ends quietly."""
    done = house.run("replay", "--at", "1", "--json", within=("/bin/sh", "-c", '"$@" | true', "sh"))
    assert done == (0, "", "")
