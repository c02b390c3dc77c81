"""`omac start` in a linked worktree, as people use it: a skill is called, a commit is made, and an attack fails.

The audit reports all of it; afterwards no process is left, whichever of them was killed.
"""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from polling import eventually
from real_omac import Omac

AS_SOMEBODY = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "commit.gpgsign=false")
GIT = ("git", *AS_SOMEBODY)
# What an agent does in a worktree, and what a hostile one would like the host's git to do later.
WORK = f"""
set -e
curl -sS --fail "$OMAC_ECHO_BASE/echo/from-inside" >answer
curl -sS --fail --unix-socket "$OMAC_SOCKET" "http://localhost/${{OMAC_ECHO_BASE#*//*/}}/echo/by-socket" >>answer
git add answer
git {" ".join(AS_SOMEBODY)} commit -qm 'made inside'
"""
PLANT = """
hooks=$(git rev-parse --git-common-dir)/hooks
mkdir -p "$hooks" 2>/dev/null
{ printf '#!/bin/sh\\ntouch "%s"\\n' "$1" >"$hooks/post-checkout" && chmod +x "$hooks/post-checkout"; } 2>/dev/null &&
    echo planted
"""


class Repository:
    """A repository with a linked worktree that has the example skill, approved."""

    def __init__(self, omac: Omac) -> None:
        self.main = omac.root / "main"
        self.worktree = omac.root / "shop"
        self.trap = omac.folder / "sprung"
        self.git(omac.root, "init", "-q", "-b", "trunk", str(self.main))
        (self.main / "README").write_text("a shop\n")
        self.git(self.main, "add", "README")
        self.git(self.main, "commit", "-qm", "begin")
        self.git(self.main, "worktree", "add", "-q", "-b", "work", str(self.worktree))
        omac.project("shop")
        omac.approve(self.worktree)

    def git(self, folder: Path, *arguments: str) -> str:
        """Run git on the host, and return its output."""
        done = subprocess.run([*GIT, "-C", str(folder), *arguments], capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done
        return done.stdout.strip()

    def sprung(self) -> bool:
        """Return whether the host's own git runs the planted hook."""
        self.git(self.main, "checkout", "-q", "-b", f"other-{os.urandom(4).hex()}")
        return self.trap.exists()


def rows(omac: Omac) -> list[dict[str, Any]]:
    """Return the whole audit."""
    return [json.loads(line) for line in omac.ok("audit", "--json").splitlines()]


@pytest.mark.full
def test_an_agent_at_work_in_a_linked_worktree(omac: Omac) -> None:
    """An agent in a sandbox calls the skill under its flat name, by TCP and by the socket. Its commit is in the
    repository, its planted hook is not, and its exit status arrives. The audit has the accesses and the launch. Outside
    a sandbox the host's git runs the same hook."""
    repository = Repository(omac)
    script = f"{WORK}\n{{ {PLANT} }} || true\nsleep 600 &\nexit 21"
    where = ("--workdir", str(repository.worktree))
    command = ("--", "sh", "-c", script, "sh", str(repository.trap))
    done = omac.run("start", *where, "--backend", "bubblewrap", *command)
    assert done.status == 21, done
    assert "planted" not in done.out
    assert omac.left() == []
    assert repository.git(repository.main, "log", "-1", "--format=%s", "work") == "made inside"
    assert repository.git(repository.worktree, "status", "--porcelain", "answer") == ""
    assert not repository.sprung()

    audited = rows(omac)
    accesses = [(row["skill"], row["path"], row["status"], row["dir"]) for row in audited if row["kind"] == "access"]
    paths = ("/echo/from-inside", "/echo/by-socket")
    assert accesses == [("echo", path, 200, str(repository.worktree)) for path in paths]
    (launch,) = [row for row in audited if row["kind"] == "sandbox"]
    assert (launch["dir"], launch["status"], launch["outcome"]) == (str(repository.worktree), 21, "completed")
    assert "by bubblewrap" in launch["detail"]
    (activation,) = [row for row in audited if row["kind"] == "control.called"]
    assert activation["position"] < launch["position"]
    status = json.loads(omac.ok("status", "--json"))
    assert [status[kind] for kind in ("runs", "directories", "sidecars", "sandboxes")] == [[], [], [], []]

    bare = omac.run("start", *where, "--no-sandbox", "--", "sh", "-c", PLANT, "sh", str(repository.trap))
    assert bare.out == "planted\n"
    assert repository.sprung()


@pytest.mark.full
def test_landlock_alone(omac: Omac) -> None:
    """Landlock shows no files from elsewhere, so no socket and no token file exist; the skill answers by its port."""
    project = omac.approved("plain")
    script = 'env; curl -sS --fail "$OMAC_ECHO_BASE/echo/by-port" >/dev/null && touch made && exit 5'
    done = omac.run("start", "--workdir", str(project), "--backend", "landlock", "--", "sh", "-c", script)
    assert done.status == 5, done
    names = {line.partition("=")[0] for line in done.out.splitlines()}
    assert {"OMAC_ECHO_BASE", "OMAC_CONTROL_BASE"} <= names
    assert not names & {"OMAC_SOCKET", "OMAC_ECHO_SOCKET_BASE", "OMAC_CONTROL_TOKEN_FILE", "OMAC_CONTROL_SOCKET"}
    assert (project / "made").exists()
    assert [(row["path"], row["status"]) for row in omac.audit()] == [("/echo/by-port", 200)]


STUBBORN = "trap '' TERM HUP INT; setsid sleep 600 & sleep 600 & echo up; while :; do sleep 1; done"
WILLING = "setsid sleep 600 & sleep 600 & echo up; while :; do sleep 1; done"


@pytest.mark.parametrize(
    "script", [pytest.param(WILLING, id="willing", marks=pytest.mark.full), pytest.param(STUBBORN, id="stubborn")]
)
def test_nothing_survives_a_kill(omac: Omac, script: str) -> None:
    """A kill -9 of omac ends sidecars, sandbox and all that ran in it, however that treats signals. The next omac
    records how the sandbox ended."""
    repository = Repository(omac)
    run = omac.start("start", "--workdir", str(repository.worktree), "--", "sh", "-c", script)
    assert run.line() == "up\n"
    assert omac.left()
    run.end(signal.SIGKILL)
    eventually(lambda: not omac.left(), 10.0, "the end of all that omac started")
    omac.ok("start", "--workdir", str(repository.worktree), "--", "true")
    launches = [row for row in rows(omac) if row["kind"] == "sandbox"]
    assert [row["outcome"] for row in launches] in (["aborted", "completed"], ["completed", "completed"])
    status = json.loads(omac.ok("status", "--json"))
    assert [status[kind] for kind in ("runs", "directories", "sidecars", "sandboxes")] == [[], [], [], []]


def test_what_is_killed_alone_is_on_record_at_once(omac: Omac) -> None:
    """A kill -9 of the process that holds the sandbox makes `omac start` fail, and record that before it ends."""
    run = omac.start("start", "--", "sh", "-c", "echo up; sleep 600")
    assert run.line() == "up\n"
    children = Path(f"/proc/{run.process.pid}/task/{run.process.pid}/children").read_text().split()
    (holder,) = [int(pid) for pid in children if b"sandbox" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(holder, signal.SIGKILL)
    assert run.process.wait(20) != 0
    launches = [row for row in rows(omac) if row["kind"] == "sandbox"]
    assert [row["outcome"] for row in launches] == ["aborted"], launches
    assert json.loads(omac.ok("status", "--json"))["sandboxes"] == []


@pytest.mark.full
def test_an_order_to_end_is_obeyed_in_the_sandbox(omac: Omac) -> None:
    """A SIGTERM reaches the command inside, whose status becomes omac's; a second one kills a command that goes on."""
    run = omac.start("start", "--", "sh", "-c", "trap 'echo told; exit 41' TERM; echo up; while :; do sleep 0.05; done")
    assert run.line() == "up\n"
    assert run.end() == 41
    assert run.line() == "told\n"
    run = omac.start("start", "--", "sh", "-c", "trap 'echo no' TERM; echo up; while :; do sleep 0.05; done")
    assert run.line() == "up\n"
    run.process.send_signal(signal.SIGTERM)
    assert run.line() == "no\n"
    assert run.end() == 128 + signal.SIGKILL
    eventually(lambda: not omac.left(), 20.0, "the end of all that omac started")
