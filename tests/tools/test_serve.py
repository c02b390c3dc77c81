"""The main path of `omac serve`: online, used, audited, killed, recovered, stopped.

Projects hold copies of the example skill, or small skills of the tests' own; clients are curl.
"""

import contextlib
import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio
from held_bubblewrap import held
from polling import eventually, stays
from programs import omac_at
from real_omac import CURL, Omac, Serving, curl, omac_in
from tools.test_snapshots import called_often

from omac.adapters.linux import process
from omac.domain.access.access import AccessAborted, AccessCompleted, AccessRequested, accesses_of
from omac.domain.access.control import ControlRefused
from omac.domain.kernel.run import RunRecovered, RunStopped
from omac.services.kernel.checkpointing import WORTH

FIELDS = {
    "position", "at", "dir", "skill", "session", "method", "path", "status", "bytes", "duration", "outcome",
}  # fmt: skip

COUNTER_META = """\
name: counter
sidecar:
  command: [python3, sidecar.py]
  mount: counter
"""
COUNTER = """\
import os, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Counter(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        if self.path != "/status":
            received = os.open(os.environ["OMAC_WORKDIR"] + "/received", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.write(received, self.path.encode() + b"\\n")
            os.close(received)
            time.sleep(60 if self.path.startswith("/hang") else 0.01)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass

ThreadingHTTPServer(("127.0.0.1", int(os.environ["SIDECAR_PORT"])), Counter).serve_forever()
"""

# Serves until somebody asks it to end; it begins in a moment, so that restarting it costs nothing but omac's pauses.
BRITTLE_META = """\
name: brittle
sidecar:
  command: [/bin/sh, -c, 'test -e "$OMAC_WORKDIR/mended" && exec python3 sidecar.py; exit 3']
  mount: brittle
"""
BRITTLE = """\
import os
from http.server import BaseHTTPRequestHandler, HTTPServer

class Fine(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(204)
        self.end_headers()

HTTPServer(("127.0.0.1", int(os.environ["SIDECAR_PORT"])), Fine).serve_forever()
"""

WANTING_META = """\
name: wanting
sidecar:
  command: [python3, sidecar.py]
  mount: wanting
  secrets:
    - name: WANTED_SECRET
"""

# A shell that starts a shell that starts the server, and outlives neither willingly.
WRAPPED_META = """\
name: wrapped
sidecar:
  command: [/bin/sh, -c, 'trap "" TERM HUP; /bin/sh -c "trap : TERM HUP; python3 sidecar.py; true"; true']
  mount: wrapped
"""


class Idle(NamedTuple):
    """A server of its own with idle sidecars, their processes, and the time since when they idle."""

    server: Serving
    bases: list[str]
    pids: set[int]
    since: float


@pytest.fixture(scope="module", autouse=True)
def idle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Idle]:
    """Start a server before the first test of this module, so that the others run while it idles."""
    with omac_in(tmp_path_factory.mktemp("idle")) as omac:
        project = omac.project("p")
        omac.skill(project, "wrapped", WRAPPED_META, COUNTER)
        omac.approve(project, "echo", "wrapped")
        server = omac.serve()
        skills = server.activate(project)["skills"]
        assert [skill["state"] for skill in skills] == ["ready", "ready"]
        pids = _processes(server)
        assert len(pids) >= 2 * 3 + 2  # bubblewrap's two and the program each, and the two shells
        yield Idle(server, [skill["base"] for skill in skills], pids, time.monotonic())


def tree(pid: int) -> set[int]:
    """Return a process and all its descendants."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path(f"/proc/{entry}/stat").read_bytes().rpartition(b")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry))
    members, waiting = set(), [pid]
    while waiting:
        process_id = waiting.pop()
        members.add(process_id)
        waiting += parents.get(process_id, [])
    return members


def is_up(skill: dict[str, Any]) -> bool:
    """Return whether a skill of a manifest can be called."""
    return bool(skill["state"] == "ready")


def test_the_ready_line_says_where_everything_is(house: Omac, server: Serving) -> None:
    """The ready line is a JSON object with exactly the promised keys; the files that it names exist, and are
    private."""
    assert set(server.ready) == {
        "control_base", "control_socket", "control_token_file", "facade_base", "facade_socket", "journal", "run",
    }  # fmt: skip
    assert server.ready["journal"] == str(house.state / "journal.db")
    assert os.path.realpath(house.state / "run" / "current") == os.path.dirname(server.ready["control_socket"])
    for key in ("control_socket", "control_token_file", "facade_socket", "journal"):
        assert os.stat(server.ready[key]).st_mode & 0o777 == 0o600, key


def test_an_approved_skill_is_ready_on_first_activation(house: Omac, server: Serving) -> None:
    """The manifest names the directory, its token, the skill's two bases, and the agent's variables."""
    project = house.approved("manifest")
    manifest = server.activate(project)
    token = manifest["dir_token"]
    assert (manifest["dir"], manifest["state"]) == (str(project), "active")
    assert len(bytes.fromhex(token)) == 16
    quoted = server.ready["facade_socket"].replace("/", "%2F")
    base = f"{server.ready['facade_base']}/{token}/echo"
    (skill,) = manifest["skills"]
    assert skill == {
        "name": "echo", "scope": "workdir", "mount": "echo", "state": "ready", "base": base,
        "socket_base": f"http+unix://{quoted}/{token}/echo",
    }  # fmt: skip
    assert manifest["env"] == {"OMAC_SKILLS": "echo", "OMAC_ECHO_BASE": base, f"OMAC_D_{token.upper()}_ECHO_BASE": base}


def test_curl_uses_a_skill_and_the_audit_has_each_access_once(house: Omac, server: Serving) -> None:
    """The audit has one row for each access: GET, POST, 50 MiB up, a stream, the Unix socket and two unknown routes. It
    records the request, its caller, its outcome, the bytes moved and the duration."""
    project = house.approved("journey")
    base = server.skill(project)["base"]
    token = base.split("/")[3]

    answer = curl(f"{base}/echo/notes?draft=1")
    echo = answer.json()
    assert (answer.status, echo["method"], echo["path"], echo["query"]) == (200, "GET", "/echo/notes", "draft=1")
    assert {name.lower(): value for name, value in echo["headers"].items()}["x-forwarded-prefix"] == "/echo"
    assert token not in answer.body

    echo = curl("-H", "Content-Type: text/plain", "--data-binary", "good morning", f"{base}/echo").json()
    assert (echo["method"], echo["body"]) == ("POST", "good morning")

    body = os.urandom(1 << 20) * 50
    upload = house.folder / "upload"
    upload.write_bytes(body)
    echo = curl("-T", str(upload), "-X", "POST", f"{base}/echo/upload").json()
    upload.unlink()
    assert echo == {"bytes": 50 << 20, "sha256": hashlib.sha256(body).hexdigest()}

    with subprocess.Popen([*CURL, "-N", f"{base}/ticks?n=4&ms=150"], stdout=subprocess.PIPE, bufsize=0) as client:
        assert client.stdout is not None
        times = [time.monotonic() for line in client.stdout if line.startswith(b"data:")]
    assert client.returncode == 0
    assert len(times) == 4
    assert times[-1] - times[0] > 0.3  # they did not come all at once

    answer = curl("--unix-socket", server.ready["facade_socket"], f"http://localhost/{token}/echo/status")
    assert (answer.status, answer.json()) == (200, {"status": "ok"})

    for nowhere in (f"{token}/nothing/x", f"{'0' * 32}/echo/x"):
        answer = curl(f"{server.ready['facade_base']}/{nowhere}")
        assert (answer.status, answer.headers["x-omac-reason"]) == (404, "unknown-mount")

    def ended() -> list[dict[str, Any]]:
        rows = house.audit("--dir", str(project))
        return rows if len(rows) >= 6 and all(row["outcome"] != "open" for row in rows) else []

    rows = eventually(ended, 20.0, "an outcome of each access")
    assert [(row["method"], row["path"], row["status"], row["outcome"]) for row in rows] == [
        ("GET", "/echo/notes", 200, "completed"),
        ("POST", "/echo", 200, "completed"),
        ("POST", "/echo/upload", 200, "completed"),
        ("GET", "/ticks", 200, "completed"),
        ("GET", "/status", 200, "completed"),
        ("GET", "/x", 404, "refused"),
    ]
    assert all(row.keys() >= FIELDS and row["at"].endswith("Z") for row in rows)
    assert [row["position"] for row in rows] == sorted({row["position"] for row in rows})
    assert {(row["dir"], row["session"]) for row in rows} == {(str(project), None)}
    assert [row["skill"] for row in rows] == ["echo"] * 5 + [None]
    assert rows[2]["bytes_in"] == 50 << 20
    assert 0 < rows[2]["bytes"] < 1_000
    assert rows[3]["duration"] > 0.4
    (lost,) = [row for row in house.audit("--outcome", "refused") if row["dir"] is None]
    assert (lost["path"], lost["skill"]) == ("", None)  # what was not a token of ours is not recorded


def test_an_unapproved_skill_comes_online_by_the_fix_it_names(house: Omac, server: Serving) -> None:
    """A 502 names the reason and the fix. The fix, pasted into a shell, makes the skill ready at once, with the same
    token."""
    project = house.project("with a 'quote'")
    manifest = server.activate(project)
    (skill,) = manifest["skills"]
    assert (manifest["state"], skill["state"]) == ("active_partial", "broken")
    assert "not host-approved" in skill["detail"]
    base = f"{server.ready['facade_base']}/{manifest['dir_token']}/echo"
    answer = curl(f"{base}/status")
    assert (answer.status, answer.headers["x-omac-reason"]) == (502, "skill-broken")
    assert "not host-approved" in answer.body

    (fix,) = skill["fix"]
    path = {"PATH": f"{omac_at(house.folder / 'bin' / 'omac').parent}:{house.environment['PATH']}"}
    subprocess.run(["/bin/sh", "-c", fix], check=True, cwd="/", env=house.environment | path, capture_output=True)

    eventually(lambda: curl(f"{base}/status").status == 200, 20.0, "the approved skill to be ready")
    after = server.activate(project)
    assert (after["dir_token"], after["state"]) == (manifest["dir_token"], "active")


def test_code_that_changed_after_approval_does_not_run(house: Omac, server: Serving) -> None:
    """An approval holds for the code that was shown: a changed file needs a new approval."""
    project = house.approved("drift")
    assert is_up(server.skill(project))
    with (project / ".agents" / "skills" / "echo" / "sidecar.py").open("a") as file:
        file.write("# changed\n")
    answer = server.call("reload", {"dir": str(project)})
    (skill,) = answer.json()["skills"]
    assert skill["state"] == "broken"
    assert "not what was approved" in skill["detail"]


def test_a_skill_that_lacks_a_secret_is_pending(house: Omac, server: Serving) -> None:
    """A skill that lacks a secret answers 409, with JSON that names the secret and the fix. A skill beside it is
    ready."""
    project = house.project("pending", "echo")
    house.skill(project, "wanting", WANTING_META)
    house.approve(project, "echo", "wanting")
    manifest = server.activate(project)
    skills = {skill["name"]: skill for skill in manifest["skills"]}
    assert manifest["state"] == "active_partial"
    assert is_up(skills["echo"])
    assert skills["wanting"]["state"] == "pending_credentials"
    assert skills["wanting"]["missing"] == ["WANTED_SECRET"]
    assert skills["wanting"]["fix"]
    answer = curl(f"{server.ready['facade_base']}/{manifest['dir_token']}/wanting/x")
    assert (answer.status, answer.headers["x-omac-reason"]) == (409, "pending-credentials")
    problem = answer.json()
    assert problem["missing"] == ["WANTED_SECRET"]
    assert problem["fix"]


def test_each_session_has_a_token_of_its_own(house: Omac, server: Serving) -> None:
    """Each session has its own token, and the audit names the session; calls by the launch token have none. A second
    activation changes nothing."""
    project = house.approved("sessions")
    shared, first, second = server.activate(project), server.activate(project, "s1"), server.activate(project, "s2")
    assert len({shared["dir_token"], first["dir_token"], second["dir_token"]}) == 3
    assert server.activate(project, "s1") == first
    assert server.activate(project) == shared
    for number, manifest in enumerate((shared, first, second)):
        assert curl(f"{manifest['skills'][0]['base']}/echo/{number}").status == 200
    rows = eventually(lambda: len(rows := house.audit("--dir", str(project))) == 3 and rows, 20.0, "three accesses")
    assert [row["session"] for row in rows] == [None, "s1", "s2"]
    answer = server.call("activate", {"dir": str(project), "session": "s\n"})
    assert (answer.status, answer.headers["x-omac-reason"]) == (400, "bad-request")


def test_a_sidecar_that_crashes_comes_back_by_itself(house: Omac, server: Serving) -> None:
    """A crashed sidecar's route answers 503 and the manifest reports it; then it is ready again, at the same
    address."""
    project = house.approved("crash")
    skill = server.skill(project)
    assert curl(f"{skill['base']}/crash").status == 502
    down = eventually(
        lambda: (answer := curl(f"{skill['base']}/status")).status == 503 and answer, 20.0, "the route to be down"
    )
    assert down.headers["x-omac-reason"] == "sidecar-down"
    state = server.skill(project)
    assert state["state"] in ("restarting", "ready"), state
    eventually(lambda: curl(f"{skill['base']}/status").status == 200, 20.0, "the sidecar's return")
    assert server.skill(project) == skill


@pytest.mark.full
def test_calls_that_cannot_be_encrypted_get_an_answer(omac: Omac, tmp_path: Path) -> None:
    """Calls are refused, by a reason that says what mends it, where the library that encrypts cannot be loaded."""
    library = tmp_path / "cryptography"
    library.mkdir()
    (library / "__init__.py").write_text("raise ImportError('gone')\n")
    project = omac.approved("shop")
    base = omac.serve(extra={"PYTHONPATH": str(tmp_path)}).skill(project)["base"]
    for body in ((), ("-d", "x")):
        answer = curl(*body, f"{base}/echo")
        assert (answer.status, answer.headers["x-omac-reason"]) == (503, "prerequisite-missing"), answer
        assert answer.json()["detail"].endswith("personal fields cannot be loaded: gone")


@pytest.mark.full
def test_a_sidecar_that_writes_in_its_copy(house: Omac, server: Serving) -> None:
    """The problem of a sidecar that writes beside its code, as `uv run` does, names the cause; no other one's does."""
    project = house.project("writes")
    meta = BRITTLE_META.replace("test -e", "grep -q free SKILL.md || mkdir .venv && test -e")
    house.skill(project, "brittle", meta, BRITTLE)
    house.approve(project, "brittle")
    cause = "it wants to write where it must not, as in its approved copy"
    skill = server.skill(project, "brittle")
    assert f": {cause}; its output is in " in skill["detail"], skill


@pytest.mark.full
def test_a_sidecar_that_hangs_is_restarted_on_request(house: Omac, server: Serving) -> None:
    """A reload leaves a sidecar whose skill did not change, also one that hangs; with --restart it is replaced, at the
    same address, and no other is."""
    project = house.approved("hung", "echo", "other")
    skills = server.activate(project)["skills"]

    def pids() -> dict[str, int]:
        listed = server.call("status").json()["sidecars"]
        return {sidecar["skill"]: sidecar["pid"] for sidecar in listed if sidecar["dir"] == str(project)}

    before = pids()
    for pid in tree(before["echo"]):
        os.kill(pid, signal.SIGSTOP)
    house.ok("reload", str(project))
    assert pids() == before
    assert "  try: omac reload --restart echo  # the skill of that name" in house.run("reload", "echo", cwd=project).err
    refused = house.run("reload", str(project), "--restart", "nope", "--restart", "echo")
    answer = server.call("reload", {"dir": str(project), "restart": "echo"})
    assert (answer.status, answer.json()["error"]) == (400, "'restart' must be an array of strings")
    assert refused.err.startswith(f"omac: {project} has no sidecar of nope\n  try: omac status\n"), refused
    assert pids() == before
    assert house.ok("reload", str(project), "--restart", "echo").startswith(f"{project}: active\n")
    after = pids()
    assert after["echo"] != before["echo"]
    assert after["other"] == before["other"]
    assert server.activate(project)["skills"] == skills
    assert all(map(is_up, skills))


@pytest.mark.full
def test_what_is_proposed_for_a_sidecar_that_waits_starts_it(house: Omac, server: Serving) -> None:
    """Of a sidecar that is started again in some seconds, the proposed commands print why it ended, and start it at
    once; a mere reload would leave it waiting."""
    project = house.root / "waits"
    house.skill(project, "brittle", BRITTLE_META, BRITTLE)
    house.approve(project, "brittle")
    waiting = eventually(
        lambda: "again in 4000 ms" in (now := server.skill(project, "brittle"))["detail"] and now, 20.0, "a long pause"
    )
    assert waiting["fix"] == [
        f"omac logs brittle --workdir {project}", f"omac reload {project} --restart brittle",
    ]  # fmt: skip
    (project / "mended").touch()
    printed, begun = (house.ok(*shlex.split(command)[1:]) for command in waiting["fix"])
    assert "[omac] sidecar" in printed
    assert "ready" in begun, begun


@pytest.mark.full
def test_the_manifest_says_restarting_while_a_sidecar_is_down(house: Omac, server: Serving) -> None:
    """A sidecar that keeps failing is `restarting` for a reason that it names, then broken; a reload tries again."""
    project = house.root / "brittle"
    house.skill(project, "brittle", BRITTLE_META, BRITTLE)
    house.approve(project, "brittle")
    (project / "mended").touch()
    skill = server.skill(project, "brittle")
    assert is_up(skill)
    (project / "mended").unlink()
    (pid,) = [sidecar["pid"] for sidecar in server.call("status").json()["sidecars"] if sidecar["dir"] == str(project)]
    for member in tree(pid) - {pid}:
        with contextlib.suppress(ProcessLookupError):  # one may end with another
            os.kill(member, signal.SIGKILL)
    restarting = eventually(
        lambda: (now := server.skill(project, "brittle"))["state"] == "restarting" and now, 20.0, "restarting"
    )
    assert "exited with status 3" in restarting["detail"] or "killed" in restarting["detail"], restarting
    assert restarting["fix"]

    broken = eventually(
        lambda: (now := server.skill(project, "brittle"))["state"] == "broken" and now, 20.0, "it to give up"
    )
    assert "gave up after 6 failures" in broken["detail"]
    assert "its output is in" in broken["detail"]
    assert curl(f"{skill['base']}/x").headers["x-omac-reason"] == "skill-broken"
    (project / "mended").touch()
    assert broken["fix"] == [f"omac logs brittle --workdir {project}", f"omac reload {project}"]
    out = house.ok("reload", str(project))
    assert "ready" in out
    assert curl(f"{skill['base']}/x").status == 204


@pytest.mark.full
def test_variables_of_the_host_reach_a_sidecar_only_once_approved(omac: Omac) -> None:
    """`--unapproved allow` runs an unapproved skill without the host's variables that it declares; an approval adds
    them."""
    project = omac.project("p")
    server = omac.serve("--unapproved", "allow", extra={"ECHO_PASSTHROUGH": "from the host", "NOT_DECLARED": "no"})
    skill = server.skill(project)
    assert is_up(skill)
    before = curl(f"{skill['base']}/whoami").json()["variables"]
    assert "ECHO_PASSTHROUGH" not in before
    assert before["OMAC_WORKDIR"] == str(project)
    assert before["ECHO_GREETING"] == "hello"
    omac.approve(project)

    def after() -> dict[str, str]:
        answer = curl(f"{skill['base']}/whoami")
        current: dict[str, str] = answer.json()["variables"] if answer.status == 200 else {}
        return current if "ECHO_PASSTHROUGH" in current else {}

    variables = eventually(after, 20.0, "the pass-through")
    assert variables["ECHO_PASSTHROUGH"] == "from the host"
    assert not {"NOT_DECLARED", "OMAC_STATE_DIR", "XDG_STATE_HOME"} & variables.keys()


@pytest.mark.full
def test_nothing_forwarded_is_lost_by_a_kill(omac: Omac) -> None:
    """A kill -9 under load loses no record of a request that the sidecar received. The next start gives unfinished
    accesses an outcome."""
    project = omac.root / "p"
    omac.skill(project, "counter", COUNTER_META, COUNTER)
    omac.approve(project, "counter")
    first = omac.serve()
    manifest = first.activate(project)
    base = manifest["skills"][0]["base"]
    received = project / "received"
    clients = [
        subprocess.Popen(
            [*CURL, "-o", "/dev/null", f"{base}/{path}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for path in ("hang", *(f"{client}/[1-100000]" for client in "abcdef"))
    ]
    try:
        eventually(lambda: received.exists() and received.read_text().count("\n") > 300, 20.0, "300 requests")
        eventually(lambda: "/hang\n" in received.read_text(), 20.0, "the request that hangs")
        assert first.end(signal.SIGKILL) == -signal.SIGKILL
        eventually(lambda: not omac.left(), 20.0, "the end of the sidecar and its wrappers")
    finally:
        for client in clients:
            client.kill()
            client.wait()

    second = omac.serve()
    assert curl(f"{second.ready['facade_base']}/{manifest['dir_token']}/counter/x").status == 404
    assert second.call("dirs").json() == {"dirs": []}

    forwarded = Counter(received.read_text().split())
    rows = [row for row in omac.audit() if row["outcome"] != "refused"]
    assert Counter(row["path"] for row in rows) >= forwarded
    assert {row["outcome"] for row in rows} == {"completed", "aborted"}
    aborted = [row for row in rows if row["outcome"] == "aborted"]
    assert {row["reason"] for row in aborted} <= {"omac-killed", "client-gone"}
    assert ("/hang", "omac-killed") in {(row["path"], row["reason"]) for row in aborted}

    accesses = [access for record in omac.events() for access in accesses_of(record.position, record.event)]
    requested = [access for access, event in accesses if isinstance(event, AccessRequested)]
    outcomes = Counter(access for access, event in accesses if isinstance(event, AccessCompleted | AccessAborted))
    assert outcomes == Counter(requested)
    (recovered,) = omac.events(RunRecovered)
    assert isinstance(recovered.event, RunRecovered)
    assert (recovered.event.directories, recovered.event.sidecars) == (1, 1)

    again = second.activate(project)
    assert again["dir_token"] != manifest["dir_token"]
    assert curl(f"{again['skills'][0]['base']}/after").status == 200


@pytest.mark.full
@pytest.mark.skipif(os.geteuid() != 0, reason="hides bubblewrap by a mount of its own")
def test_orphans_are_ended_where_bubblewrap_is_missing(omac: Omac) -> None:
    """omac without bubblewrap reports the missing pid namespace. The next start ends a sidecar that survived its kill
    -9, and no other process: it compares more than the pid."""
    project = omac.approved("p")
    hide = 'mount --bind /dev/null "$(command -v bwrap)" && exec "$@"'
    without = ("unshare", "--mount", "sh", "-c", hide, "sh")
    first = omac.serve(within=without)
    assert "sidecars get no pid namespace of their own: bubblewrap (bwrap) is not in /usr/local/bin:" in first.said()
    assert is_up(first.skill(project))
    (sidecar,) = first.call("status").json()["sidecars"]
    first.end(signal.SIGKILL)
    assert _living({sidecar["pid"]}), "the case this test is about"
    with subprocess.Popen(["sleep", "60"], env=omac.environment | {"OMAC_WORKDIR": str(project)}) as stranger:
        try:
            second = omac.serve(within=without)
            assert not _living({sidecar["pid"]})
            assert omac.left() == [stranger.pid]
        finally:
            stranger.kill()
    assert is_up(second.skill(project))
    assert second.end() == 0
    assert omac.left() == []


@pytest.mark.full
def test_an_init_that_a_kill_left_waiting_is_ended(omac: Omac) -> None:
    """A bubblewrap killed with omac while it sets up a namespace leaves an init process; the next start ends it."""
    first, _ = omac.online("p")
    reader, writer = os.pipe()
    outer, init = trio.run(held, "omac-gate", reader)
    try:
        outer.kill()
        outer.wait()
        first.end(signal.SIGKILL)
        assert _living({init.pid}), "the case this test is about"
        omac.serve()
        assert not _living({init.pid})
    finally:
        outer.kill()
        process.kill(init.pid, init.start_ticks, signal.SIGKILL)
        os.close(reader)
        os.close(writer)


def test_a_stop_is_in_order(omac: Omac) -> None:
    """SIGTERM records the accesses under way, takes directories offline and records the end of the run. The exit status
    is 0, and no process is left."""
    project = omac.approved("p")
    server = omac.serve("--workdir", str(project))
    skill = server.skill(project)
    with subprocess.Popen([*CURL, f"{skill['base']}/slow?ms=20000"], stdout=subprocess.PIPE) as client:
        eventually(lambda: server.call("status").json()["accesses"]["open"] == 1, 20.0, "the slow request")
        assert server.end() == 0, server.said()
        assert json.loads(client.communicate()[0])["error"] == "stopping"
    assert omac.left() == []
    assert server.said() == ""
    assert [(row["path"], row["outcome"], row["reason"]) for row in omac.audit()] == [("/slow", "aborted", "stopping")]
    last = omac.events()[-1].event
    assert isinstance(last, RunStopped)
    assert last.why == "asked by SIGTERM"
    status = json.loads(omac.ok("status", "--json"))
    assert (status["runs"], status["directories"], status["sidecars"]) == ([], [], [])


def test_omac_was_replaced_by_another_version(omac: Omac, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that cannot load the code that signs, such as after an upgrade, reports it and ends in order."""
    omac.approved("shop")
    called_often(omac, WORTH)
    replaced = "import sys; sys.modules['omac.journal.checkpoint'] = None; from omac.tools.entry import main; main()"
    monkeypatch.setattr("real_omac.COMMAND", (sys.executable, "-c", replaced))
    server = omac.serve()
    assert server.end() == 0, server.said()
    assert "no checkpoint is signed: the journal cannot be signed: import of omac.journal.checkpoint" in server.said()
    assert len(omac.events(RunStopped)) == 1


def test_a_server_removes_copies_that_nobody_approves(omac: Omac, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of weeks removes what approvals of changed code leave, and keeps the copy that is approved and runs."""
    project = omac.project("shop")
    omac.approve(project)
    hurried = (
        "import omac.adapters.skills.frozen as frozen, omac.tools.compose.approved_copies as copies\n"
        "frozen.PRUNED_AFTER_NS, copies.PRUNE_S = -10**9, 0.2\n"
        "from omac.tools.entry import main; main()"
    )
    monkeypatch.setattr("real_omac.COMMAND", (sys.executable, "-c", hurried))
    server = omac.serve()
    first = _copies(omac)
    assert len(first) == 1
    code = project / ".agents/skills/echo/sidecar.py"
    code.write_text(f"{code.read_text()}# a change\n")
    omac.approve(project)
    eventually(lambda: len(_copies(omac)) == 1 and _copies(omac) != first, 10, "the first copy is removed")
    assert server.skill(project)["state"] == "ready"


@pytest.mark.full
def test_a_stop_does_not_wait_for_an_activation(omac: Omac) -> None:
    """SIGTERM during an activation ends omac at once, and does not wait for the slow sidecar's own timeout."""
    project = omac.root / "p"
    meta = "name: mute\nsidecar:\n  command: [sleep, '600']\n  mount: mute\n  health: {timeout_ms: 120000}\n"
    omac.skill(project, "mute", meta)
    omac.approve(project, "mute")
    server = omac.start("serve", "--no-inner", "--json", "--root", str(omac.root), "--workdir", str(project))
    eventually(lambda: any(b"sleep" in _arguments(pid) for pid in omac.left()), 15.0, "the sidecar to start")
    assert server.end(seconds=10.0) == 0, server.said()
    assert omac.left() == []


@pytest.mark.full
def test_sidecars_outlive_idleness_but_not_omac(idle: Idle) -> None:
    """A sidecar that idles for 30 s is the same process still. Even if shells that ignore signals started it, it is
    gone within a second of omac's kill -9."""
    passed = time.monotonic() - idle.since
    stays(lambda: idle.pids == _living(idle.pids), max(30.0 - passed, 0.1), "every process of the sidecars")
    assert _processes(idle.server) == idle.pids
    for base in idle.bases:
        assert curl(f"{base}/status").status == 200
    idle.server.end(signal.SIGKILL)
    eventually(lambda: not _living(idle.pids), 1.0, "the end of every process of the sidecars")


def _processes(server: Serving) -> set[int]:
    """Return all processes of all sidecars of a server."""
    return {pid for sidecar in server.call("status").json()["sidecars"] for pid in tree(sidecar["pid"])}


def _arguments(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _living(pids: set[int]) -> set[int]:
    living = set()
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
        except OSError:
            continue
        if state not in (b"Z", b"X"):
            living.add(pid)
    return living


@pytest.mark.full
def test_commands_mean_the_journal_of_the_server_that_runs(omac: Omac) -> None:
    """Commands use the journal of the running server, even if `--journal` was given to it alone. Without a server they
    use the default."""
    elsewhere = omac.folder / "elsewhere" / "other.db"
    project = omac.project("p")
    serving = omac.serve("--journal", str(elsewhere))
    assert omac.ok("journal", "path").strip() == str(elsewhere)
    serving.activate(project)
    omac.approve(project)
    skill = eventually(lambda: (s := serving.skill(project))["state"] == "ready" and s, 20.0, "the approved skill")
    assert curl(f"{skill['base']}/status").status == 200
    eventually(lambda: [row["outcome"] for row in omac.audit()] == ["completed"], 20.0, "the access in the audit")
    assert serving.end() == 0
    assert omac.ok("journal", "path").strip() == str(omac.state / "journal.db")


# What an agent in a sandbox does: $1 is a directory of another project, $2 the state directory, $3 the home.
AGENT = """
env
echo ready
bearer="Authorization: Bearer $(cat "$OMAC_CONTROL_TOKEN_FILE")"
call() { curl -sS -H "$bearer" "$OMAC_CONTROL_BASE/__omac__/$@"; echo; }
call activate -d '{"dir": "'"$PWD"'"}'
call activate -d '{"dir": "'"$1"'"}'
call unlock -d '{}'
call dirs
call status
call deactivate -d '{"dir": "'"$PWD"'"}'
call reload -d '{"dir": "'"$PWD"'"}'
call activate/../status
curl -sS "$OMAC_CONTROL_BASE/__omac__/activate" -d '{"dir": "'"$PWD"'"}'; echo
by_socket() { curl -sS --unix-socket "$OMAC_CONTROL_SOCKET" "http://localhost/__omac__/$@"; echo; }
by_socket activate -d '{"dir": "'"$PWD"'"}'
by_socket status -H "$bearer"
by_socket activate -H "$bearer" -d '{"dir": "'"$PWD"'"}'
ls "$2" "$3" 2>&1 | tr '\\n' ' '; echo
test -S "$OMAC_SOCKET" && touch "$PWD/made" && ! touch "$1/made" 2>/dev/null && echo kept
test -w "$OMAC_CONTROL_TOKEN_FILE" && echo tampered >"$OMAC_CONTROL_TOKEN_FILE"
exit 12
"""


def test_an_agent_in_its_sandbox(omac: Omac) -> None:
    """An agent may change files below its root. With the token file it reaches the bridge's listener, by port and by
    socket, which activates directories below that root and offers nothing else. Without the token, neither answers. The
    agent cannot reach omac's own files, and no variable holds a routing token. Its exit status is omac's."""
    project, neighbor = omac.project("here/shop"), omac.project("there/shop")
    omac.approve(project)
    omac.approve(neighbor)
    here, home = project.parent, omac.environment["HOME"]
    options = ("--root", str(here), "--workdir", str(project))
    done = omac.run("serve", *options, "--", "bash", "-c", AGENT, "agent", str(neighbor), str(omac.state), home)
    assert done.status == 12, done
    assert "omac serve: control plane on http://127.0.0.1:" in done.err
    variables, _, output = done.out.partition("\nready\n")
    assert "ECHO" not in variables
    own, foreign, *refused, by_socket, listing, verdict = output.splitlines()
    assert [json.loads(line)["reason"] for line in refused] == [*["forbidden"] * 6, *["unauthorized"] * 2, "forbidden"]
    assert json.loads(by_socket) == json.loads(own)
    (skill,) = json.loads(own)["skills"]
    assert skill["state"] == "ready"
    assert skill["socket_base"].startswith("http+unix://%2Frun%2Fomac%2Ffacade.sock/")
    assert json.loads(own)["dir_token"] not in variables
    assert json.loads(foreign)["reason"] == "outside-roots"
    refusals = [record.event for record in omac.events() if isinstance(record.event, ControlRefused)]
    assert {event.listener for event in refusals} == {"bridge"}
    assert sum(event.count for event in refusals) == len(refused) + 1
    assert "journal.db" not in listing
    assert "state" not in listing.replace(str(omac.state), "")
    assert verdict == "kept"
    assert (here / "shop" / "made").exists()
    (token,) = {path.resolve() for path in (omac.state / "run").glob("*/control.token")}
    assert len(token.read_text()) == 64
    assert omac.left() == []


@pytest.mark.full
def test_what_a_person_sees_by_the_private_socket(omac: Omac) -> None:
    """The private socket shows all of the host; the bearer of the token sees the roots alone, as in the test above."""
    project, neighbor = omac.project("here/shop"), omac.project("there/shop")
    omac.approve(project)
    omac.approve(neighbor)
    server = omac.start("serve", "--no-inner", "--json", "--root", str(project.parent)).await_ready()
    server.activate(project)
    bearer = ("-H", f"Authorization: Bearer {server.token}")
    registered = {row["dir"] for row in server.call("status").json()["registry"]}
    assert registered == {str(project), str(neighbor)}
    narrow = server.call_tcp("status", *bearer).json()
    assert {row["dir"] for row in narrow["registry"]} == {str(project)}
    assert [entry["dir"] for entry in narrow["directories"]] == [str(project)]
    assert [entry["log"] for entry in narrow["sidecars"]] == [None]


def _copies(omac: Omac) -> set[str]:
    """Return the digests of the copies of skills in the state directory."""
    return {path.name for path in (omac.state / "frozen").glob("[0-9a-f]*") if path.is_dir()}
