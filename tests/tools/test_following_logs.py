"""Commands that follow a log or the audit print new lines, and end when their reader does."""

import json
import os
import select
import subprocess
from pathlib import Path

import pytest
from polling import eventually
from real_omac import Omac
from started import BARE, WAIT, started, told

from omac.adapters.sidecars import logfile
from omac.tools.cli import logs


def test_a_line_without_an_end_does_not_stop_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long line of a sidecar, which a request can cause, is printed in parts, and so are later lines, each once."""
    monkeypatch.setattr(logs, "LINE_BYTES_MAX", 8)
    log, offsets = tmp_path / "log", {"elsewhere": (1, 1)}

    def added(content: bytes) -> list[str]:
        with log.open("ab") as file:
            file.write(content)
        return [line for _ in range(5) for line in logs._added(str(log), offsets)]

    assert added(b"one\n\ntw") == ["one", ""]
    assert added(b"o\n") == ["two"]
    assert added(b"x" * 20) == ["xxxxxxxx", "xxxxxxxx"]
    assert added(b"\nend\n") == ["xxxx", "end"]
    log.write_bytes(b"new\n")
    assert added(b"") == ["new"]


def test_a_follower_that_is_behind_a_freed_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a bound, the beginning of a log is freed: whoever follows it goes on behind that, and misses no later
    line."""
    monkeypatch.setattr(logfile, "BOUND_BYTES", 4 << 20)
    monkeypatch.setattr(logfile, "KEPT_BYTES", 2 << 20)
    log, offsets = tmp_path / "log", {"elsewhere": (1, 1)}
    line = b"x" * 1023 + b"\n"
    log.write_bytes(line * 3072)
    assert not logfile.is_long(str(log))
    assert not logfile.is_long(str(tmp_path / "gone"))
    assert len(list(logs._added(str(log), offsets))) == 1024
    with log.open("ab") as file:
        file.write(line * 5120)
        file.flush()
        os.fsync(file.fileno())
        assert logfile.is_long(str(log))
        logfile.bound([str(log), str(tmp_path / "gone")])
        file.write(b"last\n")
    assert log.stat().st_blocks * 512 < 4 << 20
    rest = [one for _ in range(6) for one in logs._added(str(log), offsets)]
    assert (len(rest), set(rest[:-1]), rest[-1]) == (2049, {"x" * 1023}, "last")


PRINTING = """\
import http.server, os
class Answering(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
print("from print")
http.server.HTTPServer(("127.0.0.1", int(os.environ["SIDECAR_PORT"])), Answering).serve_forever()
"""


@pytest.mark.full
def test_what_a_sidecar_printed_is_there_when_it_has_ended(omac: Omac) -> None:
    """`omac logs` has what a Python sidecar prints, although it flushes nothing and a signal ends it."""
    project = omac.project("shop")
    (project / ".agents" / "skills" / "echo" / "sidecar.py").write_text(PRINTING)
    omac.approve(project)
    omac.ok(*BARE, "--workdir", str(project), "--", "true")
    assert "from print" in omac.ok("logs", "echo", "--workdir", str(project))


@pytest.mark.full
def test_a_sidecar_that_prints_without_end(omac: Omac) -> None:
    """The log of a sidecar takes no more of the disk than a bound, while the sidecar runs, answers and prints."""
    project = omac.project("shop")
    much = "for number in range(100_000): print(number, 'y' * 1000)"
    program = PRINTING.replace("        self.end_headers()", f"        self.end_headers()\n        {much}")
    (project / ".agents" / "skills" / "echo" / "sidecar.py").write_text(program)
    omac.approve(project)
    server = omac.serve()
    server.activate(project)
    for _ in range(2):
        omac.ok("call", "echo", "/status", cwd=project)
    log = Path(json.loads(omac.ok("status", "--json"))["sidecars"][0]["log"])
    eventually(lambda: log.stat().st_size > 100 << 20, 30.0, "what it prints")
    eventually(lambda: log.stat().st_blocks * 512 < logfile.BOUND_BYTES, 30.0, "a log within the bound")
    last = "99999 " + "y" * 1000
    eventually(lambda: last in omac.ok("logs", "echo", "-n", "5", cwd=project), 30.0, "the last line")
    server.end()


@pytest.mark.full
@pytest.mark.parametrize("command", [("audit", "--follow", "-n", "0"), ("logs", "-f")])
def test_it_ends_when_nobody_reads_it(omac: Omac, command: tuple[str, ...]) -> None:
    """`omac audit --follow | head -1` ends at once, not with the next line, which may never come."""
    omac.approved("shop")
    follow = omac.start(*command)
    assert follow.process.stdout is not None
    with pytest.raises(subprocess.TimeoutExpired):
        follow.process.wait(1.5)
    follow.process.stdout.close()
    assert follow.process.wait(5) == 141


def test_rows_from_before_are_printed_at_once(omac: Omac) -> None:
    """`omac audit -n 1 --follow` hands its first rows to a pipe before it waits for more."""
    omac.approved("shop")
    follow = omac.start("audit", "-n", "1", "--follow", "--json")
    assert follow.process.stdout is not None
    assert select.select([follow.process.stdout], [], [], 10)[0], "nothing is printed"
    assert json.loads(follow.process.stdout.readline())["kind"] == "skill.approved"
    follow.process.kill()


@pytest.mark.full
@pytest.mark.parametrize(
    ("words", "what"), [(("nosuch",), "the sidecar of nosuch has not"), ((), "no sidecar has")], ids=["one", "all"]
)
def test_what_it_waits_for_is_said(omac: Omac, words: tuple[str, ...], what: str) -> None:
    """`omac logs -f` of a skill without a log reports that it waits for it; without -f it is refused."""
    project = omac.approved("shop")
    message = f"omac: {what} been started in {project}, so there is no log"
    done = omac.run("logs", *words, "--workdir", str(project))
    assert (done.status, done.err) == (1, f"{message}\n  try: omac list --workdir {project}\n  try: omac status\n"), (
        done
    )
    done = omac.run("logs", "-f", *words, "--workdir", str(project), within=("timeout", "-s", "INT", "1.5"))
    assert (done.out, done.err) == ("", f"{message} yet\n"), done


@pytest.mark.full
def test_the_log_that_still_grows_is_followed(omac: Omac) -> None:
    """A server's log is followed, also after an `omac start` in the same project that has ended since."""
    server, project = omac.online("shop")
    omac.ok(*BARE, "--workdir", str(project), "--", "true")
    follow = omac.start("logs", "echo", "-f", "--workdir", str(project))
    assert "[omac] sidecar" in follow.line()
    server.end()
    newer = omac.serve()
    newer.activate(project)
    omac.ok(*BARE, "--workdir", str(project), "--", "true")
    port = json.loads(omac.ok("status", "--json"))["sidecars"][0]["port"]
    while f"port={port} " not in follow.line():
        pass


@pytest.mark.full
def test_each_run_that_lives_has_its_log(omac: Omac) -> None:
    """`omac logs` shows what the sidecars of a server and of an `omac start` in the same project printed: where a call
    failed in one of them, the log of the other would tell nothing."""
    server, project = omac.online("shop")
    run = started(omac, project, f"echo ready; {WAIT}")
    told(run)
    sidecars = json.loads(omac.ok("status", "--json"))["sidecars"]
    paths = [sidecar["log"] for sidecar in sidecars]
    assert len(set(paths)) == 2
    shown = omac.ok("logs", "echo", "--workdir", str(project))
    assert sorted(line for line in shown.splitlines() if line.startswith("==> ")) == sorted(
        f"==> echo: {path} <==" for path in paths
    )
    assert all(f"port={sidecar['port']} " in shown for sidecar in sidecars)
    follow = omac.start("logs", "echo", "-f", "-n", "0", "--workdir", str(project))
    assert follow.line().startswith("==> echo: ")
    omac.ok("call", "echo", "/status?from-the-host", cwd=project)
    assert follow.process.stdout is not None
    line = next(line.decode() for line in follow.process.stdout if not line.startswith(b"==> "))
    assert line.split(": ")[0] in {f"echo in run {Path(path).parent.parent.name}" for path in paths}
    run.process.terminate()
    server.end()
