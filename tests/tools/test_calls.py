"""`omac url`, `env`, `call` and `logs` let a user try a running skill from the host."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from polling import eventually
from real_omac import COMMAND, Omac, Serving, curl
from started import BARE, looping
from streaming_skill import META

RAW = """\
import os, socket, time
listener = socket.create_server(("127.0.0.1", int(os.environ["SIDECAR_PORT"])))
while True:
    connection = listener.accept()[0]
    head = connection.recv(65536)
    if head.split(b" ")[1] == b"/half":
        connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 9\\r\\n\\r\\nhalf")
        time.sleep(60)
    answer = b"HTTP/1.1 200 OK\\r\\nConnection: close\\r\\nContent-Length: %d\\r\\n\\r\\n%b"
    connection.sendall(answer % (len(head), head))
    connection.close()
"""  # it sends back what it gets


@pytest.fixture(scope="module")
def project(house: Omac, server: Serving) -> Path:
    """Return a project that a server has online."""
    project = house.approved("shop")
    server.activate(project)
    return project


def test_the_url_leads_to_the_skill(house: Omac, project: Path) -> None:
    """`omac url` prints a skill's base, from within the project or by its path; the audit names calls there `cli`."""
    base = house.ok("url", "echo", cwd=project).strip()
    assert curl(f"{base}/status").json() == {"status": "ok"}
    assert house.ok("url", "echo", "--workdir", str(project)).strip() == base
    entry = json.loads(house.ok("url", "echo", "--json", cwd=project))
    assert entry["base"] == base
    assert entry["socket_base"].startswith("http+unix://")
    rows = eventually(lambda: house.audit("--dir", str(project)), 20.0, "the access in the audit")
    assert {row["session"] for row in rows} == {"cli"}


def test_a_project_that_is_brought_online(house: Omac, server: Serving) -> None:
    """A command that brings a project online reports that, for the first time as after `omac deactivate`; the next one
    does not."""
    offline = house.approved("offline")
    line = f"omac: brought {offline} online; omac deactivate {offline} takes it offline again\n"
    first = house.run("url", "echo", cwd=offline)
    assert (first.status, first.err) == (0, line)
    house.ok("deactivate", str(offline))
    again = house.run("call", "echo", "/status", cwd=offline)
    assert (again.status, json.loads(again.out), again.err) == (0, {"status": "ok"}, line)
    assert house.run("env", "echo", cwd=offline).err == ""
    house.ok("deactivate", str(offline))


def test_the_variables_are_for_a_shell(house: Omac, project: Path) -> None:
    """A shell can evaluate the output of `omac env`; then the commands of a SKILL.md work."""
    script = house.ok("env", "echo", cwd=project) + 'curl -sS "$OMAC_ECHO_BASE/status"; echo " $OMAC_WORKDIR"'
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == f'{{"status": "ok"}}\n {project}\n'
    assert json.loads(house.ok("env", "echo", "--json", cwd=project))["OMAC_SKILLS"] == "echo"


def test_a_call_prints_the_answer(house: Omac, project: Path) -> None:
    """`omac call` sends GET without data, POST with it, or the named method; data come from words, a file or stdin."""
    assert json.loads(house.ok("call", "echo", "/status", cwd=project)) == {"status": "ok"}
    assert json.loads(house.ok("call", "echo", "status", cwd=project)) == {"status": "ok"}
    request = json.loads(house.ok("call", "echo", "/echo/a?b=1", "-d", '{"x": 1}', "-H", "X-Mine: yes", cwd=project))
    assert (request["method"], request["path"], request["query"], request["body"]) == (
        "POST",
        "/echo/a",
        "b=1",
        '{"x": 1}',
    )
    headers = {name.lower(): value for name, value in request["headers"].items()}
    assert (headers["x-mine"], headers["content-type"]) == ("yes", "application/json")
    assert json.loads(house.ok("call", "echo", "put", "/echo", cwd=project))["method"] == "PUT"
    (house.root / "file").write_bytes(b"from a file")
    assert json.loads(house.ok("call", "echo", "/echo", "-d", f"@{house.root}/file", cwd=project))["body"] == (
        "from a file"
    )
    for word in ("-", "@-"):
        piped = house.run("call", "echo", "/echo", "-d", word, cwd=project, stdin=b"from stdin")
        assert json.loads(piped.out)["body"] == "from stdin"


def raw_online(omac: Omac) -> Serving:
    """Return a server that has the skill `raw` online."""
    project = omac.root / "raw"
    omac.skill(project, "raw", META.format(name="raw"), RAW)
    omac.approve(project, "raw")
    server = omac.serve()
    server.activate(project)
    return server


def test_a_body_over_the_limit(house: Omac, project: Path) -> None:
    """A body that the facade refuses before it has come: the refusal is printed, with the limit and its fix."""
    (house.folder / "large").write_bytes(bytes(64 << 20) + b"more than it allows")
    done = house.run("call", "echo", "/echo", "-d", f"@{house.folder}/large", cwd=project)
    assert done.status == 1, done
    assert json.loads(done.out)["error"] == "body-too-large"
    assert done.err.startswith("omac: echo answered 413 "), done


def test_headers_arrive_as_they_were_named(omac: Omac) -> None:
    """A repeated header is sent as often, one that omac would set is replaced, and a value may be any text."""
    raw_online(omac)
    fields = ["content-type: application/x-mine", "X-Mine: a", "X-Mine: \u0142"]
    options = [word for field in fields for word in ("-H", field)]
    head = omac.ok("call", "raw", "/", "-d", "{}", *options, cwd=omac.root / "raw")
    assert [line for line in head.splitlines() if line.lower().startswith(("content-type", "x-mine"))] == fields


@pytest.mark.full
def test_an_answer_that_is_cut_does_not_look_whole(omac: Omac) -> None:
    """A connection of an omac that was killed during an answer ends like any other: the missing bytes show it."""
    server = raw_online(omac)
    call = omac.start("call", "raw", "/half", "--workdir", str(omac.root / "raw"))
    assert call.process.stdout is not None
    assert call.process.stdout.read(4) == b"half"
    server.end(signal.SIGKILL)
    assert call.process.wait(20.0) == 6
    assert "the answer of raw broke off: bytes that are missing: 5\n" in call.said()


def test_an_output_that_nobody_takes_is_no_fault_of_the_skill(house: Omac, project: Path) -> None:
    """A full disk is reported as that, and a reader that left as SIGPIPE is."""
    command = [*COMMAND, "call", "echo", "/echo", "-d", "x" * 100_000]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command, cwd=project, env=house.environment, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (1, "omac: no space is left for the output\n  try: df -h\n")
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as pipe:
        done = subprocess.run(
            command, cwd=project, env=house.environment, stdout=pipe, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (141, "")


def test_bytes_arrive_as_they_are(house: Omac, project: Path) -> None:
    """`omac call` writes a body that is no text to a file unchanged."""
    content = bytes(range(256)) * 2_000
    (house.root / "bytes").write_bytes(content)
    command = ("call", "echo", "/echo", "-d", f"@{house.root}/bytes")
    out = house.root / "out"
    with out.open("wb") as file:
        done = subprocess.run(
            [*COMMAND, *command, "-H", "Accept: application/octet-stream"],
            cwd=project, env=house.environment, stdout=file, check=False,
        )  # fmt: skip
    assert done.returncode == 0
    assert out.read_bytes() == content


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("call", "ehco", "/status"), 4, "did you mean echo?"),
        (("call", "echo", "/nowhere"), 1, "echo answered 404"),
        (("call", "echo", "/crash"), 6, "upstream-error"),
        (("call", "echo", "GET"), 2, "write a path"),
        (("call", "echo", "GET", "/a", "/b"), 2, "write a path"),
        (("call", "echo", "/a b"), 2, "is no path of a URL"),
        (("call", "echo", "/status", "-H", "none"), 2, "-H takes NAME: VALUE"),
        (("call", "echo", "/status", "-H", "My Header: none"), 2, "-H takes NAME: VALUE"),
        (("call", "echo", "/echo", "-d", "all", "-H", "content-length: 1"), 2, "writes content-length itself"),
        (("call", "echo", "/status", "-d", "@/none"), 2, "/none cannot be read"),
        (("url", "nobody"), 4, "known: echo"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_what_goes_wrong_is_said(house: Omac, project: Path, words: tuple[str, ...], status: int, said: str) -> None:
    """A wrong call gets a message and the exit code of its kind."""

    def runs() -> bool:
        return house.run("call", "echo", "/status", cwd=project).status == 0

    ended = house.run(*words, cwd=project)
    assert ended.status == status, ended
    assert said in ended.err
    eventually(runs, 10.0, "the skill to run again after a crash")  # other tests use it, in whatever order


def test_a_skill_that_is_not_ready_says_what_mends_it(house: Omac, server: Serving) -> None:
    """`omac call` of a skill that is not approved prints the command that approves it."""
    project = house.project("fresh")
    done = house.run("call", "echo", "/status", cwd=project)
    assert (done.status, done.out) == (6, "")
    assert "try: omac approve echo" in done.err


def test_without_a_run_it_is_named_what_starts_one(omac: Omac) -> None:
    """`omac url` starts no run: without one it prints the command that does."""
    project = omac.project("shop")
    done = omac.run("url", "echo", cwd=project)
    assert (done.status, done.out) == (1, "")
    assert f"try: omac start --workdir {project} -- bash" in done.err


@pytest.mark.full
def test_a_project_outside_the_roots_names_the_server_that_serves_it(house: Omac, server: Serving) -> None:
    """`omac call` of a project outside the server's roots prints the command of a server that has both."""
    outside = house.folder / "out side"
    outside.mkdir(exist_ok=True)
    done = house.run("call", "echo", "/status", "--workdir", str(outside))
    assert (done.status, done.out) == (2, "")
    assert f"  try: omac serve --no-inner --root {house.root} --root '{outside}'  # " in done.err, done


@pytest.mark.parametrize("action", ["activate", "reload"])
def test_a_mistyped_path_without_a_server(omac: Omac, action: str) -> None:
    """No server is proposed for a directory that is not there."""
    done = omac.run(action, str(omac.folder / "mistyped"))
    assert (done.status, done.err) == (
        2, f"omac: {omac.folder}/mistyped is not a directory\n  try: ls -ld {omac.folder}\n",
    )  # fmt: skip


def test_a_directory_outside_the_roots(house: Omac, server: Serving) -> None:
    """A mistyped path outside the server's roots is no reason for another server, nor is a directory to take
    offline."""
    mistyped, outside = house.folder / "mistyped", house.folder / "outside"
    outside.mkdir(exist_ok=True)
    for action in ("activate", "reload"):
        done = house.run(action, str(mistyped))
        assert (done.status, done.err) == (
            2, f"omac: {mistyped} is not a directory\n  try: ls -ld {mistyped.parent}\n",
        ), done  # fmt: skip
    for path in (mistyped, outside):
        done = house.run("deactivate", str(path))
        assert (done.status, done.err.splitlines()[1:]) == (2, ["  try: omac ps"]), done


def test_a_directory_without_skills(house: Omac, server: Serving) -> None:
    """`omac activate` and `reload` of a directory without skills say so."""
    empty = house.root / "empty"
    empty.mkdir(exist_ok=True)
    for action in ("activate", "reload"):
        assert house.ok(action, str(empty)).splitlines() == [
            f"{empty}: active", "  no skills in .agents/skills or an agent's own folder",
        ]  # fmt: skip


def test_a_start_is_reached_too(omac: Omac) -> None:
    """A run of `omac start` answers calls of its project when no server runs."""
    project = omac.approved("shop")
    run = looping(omac, project)
    assert json.loads(omac.ok("call", "echo", "/status", cwd=project)) == {"status": "ok"}
    assert "[omac] sidecar" in omac.ok("logs", cwd=project)
    run.end()


def test_logs_show_what_sidecars_printed(house: Omac, project: Path) -> None:
    """`omac logs` prints the last lines of a skill or of all skills of a project, with escapes written out."""
    house.ok("call", "echo", "/echo/find-me", cwd=project)
    eventually(lambda: "find-me" in house.ok("logs", "echo", cwd=project), 20.0, "the line")
    assert "[omac] sidecar" in house.ok("logs", "echo", "-n", "9999", cwd=project)
    assert len(house.ok("logs", "echo", "-n", "1", cwd=project).splitlines()) == 1
    assert "find-me" in house.ok("logs", "--workdir", str(project))
    done = house.run("logs", "echo", cwd=house.root)
    assert (done.status, done.out) == (1, "")
    assert "has not been started" in done.err
    log = Path(json.loads(house.ok("status", "--json"))["sidecars"][0]["log"])
    assert log.name.endswith(".log")
    with log.open("ab") as file:
        file.write(b"\x1b[2Jevil\xff\n")
    assert "\\x1b[2Jevil\\xff" in house.ok("logs", "echo", "-n", "1", cwd=project)


def test_a_log_that_is_gone_is_named_with_its_time(omac: Omac) -> None:
    """The folders of old runs are removed with their logs, which no command is to be blamed for."""
    project = omac.approved("shop")
    assert omac.run(*BARE, "--", "true", cwd=project).status == 0
    for run in (omac.state / "run").iterdir():
        shutil.rmtree(run) if run.is_dir() and not run.is_symlink() else run.unlink()
    done = omac.run("logs", cwd=project)
    assert (done.status, done.out) == (0, "")
    why = "omac keeps those of the latest runs, and omac erase deletes those of its directory"
    assert re.fullmatch(rf"echo: its log of [-0-9]+ [:0-9]+ is gone; {why}\n", done.err)


@pytest.mark.full
def test_logs_of_starts_since(omac: Omac) -> None:
    """`omac logs --since` leaves out the output of a start that another one followed before that time."""
    server, project = omac.online("shop")
    omac.run("call", "echo", "/crash", cwd=project)
    eventually(lambda: omac.run("call", "echo", "/status", cwd=project).status == 0, 10.0, "the second start")
    assert omac.ok("logs", "echo", "--since", "1h", cwd=project).count("[omac] sidecar") == 2
    time.sleep(1.1)
    assert omac.ok("logs", "echo", "--since", "1s", cwd=project).count("[omac] sidecar") == 1
    server.end()
    assert omac.ok("logs", "echo", cwd=project).count("[omac] sidecar") == 2, "after the end of the server too"


@pytest.mark.full
def test_logs_are_followed(house: Omac, server: Serving, project: Path) -> None:
    """`omac logs -f` prints a new line while it runs; Ctrl-C ends it."""
    follow = house.start("logs", "echo", "-f", "-n", "0", "--workdir", str(project))
    time.sleep(1.0)
    house.ok("call", "echo", "/echo/followed", cwd=project)
    eventually(lambda: "/echo/followed" in follow.line(10), 10.0, "the line")
    assert follow.end(signal.SIGINT) == 130


@pytest.mark.full
def test_a_log_of_before_is_not_followed(omac: Omac) -> None:
    """The end of the run whose log `omac logs -f` prints brings no log of an earlier run; that of the next start
    follows."""
    server, project = omac.online("shop")
    assert omac.run(*BARE, "--", "true", cwd=project).status == 0
    follow = omac.start("logs", "echo", "-f", "-n", "0", "--workdir", str(project))
    time.sleep(1.0)
    server.end()
    time.sleep(1.5)  # longer than between two looks for another log
    omac.serve("--workdir", str(project))
    line = follow.line(10)
    (sidecar,) = json.loads(omac.ok("status", "--json"))["sidecars"]
    assert f" starts: port={sidecar['port']} " in line
    assert follow.end(signal.SIGINT) == 130
