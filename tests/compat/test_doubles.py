"""A bridge plugin and a session hook, written from the Go omac's contract, against a real server with --bridge-compat.

The doubles are in doubles/. The plugin lives as long as its agent would, and opens two directories in one server.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from polling import eventually
from real_omac import Omac, Serving, curl
from valued_skill import PROGRAM, with_vault

pytestmark = pytest.mark.full

DOUBLES = Path(__file__).parent / "doubles"
NEEDY = "name: needy\nsidecar:\n  command: [python3, -I, -S, sidecar.py]\n  secrets: [{name: TOKEN}]\n"


class Plugin:
    """The plugin, which gets its agent's actions as lines."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __call__(self, call: str, *arguments: object) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([call, *arguments]) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert "ok" in answer, answer
        return answer["ok"]


@contextmanager
def plugged(omac: Omac, base: str) -> Iterator[Plugin]:
    """Yield a plugin in an agent that was started with this OMAC_CONTROL_BASE."""
    environment = omac.environment | {"OMAC_CONTROL_BASE": base, "no_proxy": "*"}
    command = ["python3", str(DOUBLES / "plugin.py")]
    with subprocess.Popen(command, text=True, stdin=-1, stdout=-1, env=environment, cwd=omac.root) as process:
        try:
            yield Plugin(process)
        finally:
            process.kill()


def base_of(serving: Serving) -> str:
    """Return the base that a person takes from the second line of `omac serve --no-inner`."""
    serving.line()
    name, _, base = serving.line().strip().partition("=")
    assert name == "OMAC_CONTROL_BASE"
    return base


@pytest.fixture
def plugin(omac: Omac) -> Iterator[Plugin]:
    """Yield a plugin of a server whose root holds all projects."""
    serving = omac.start("serve", "--no-inner", "--root", str(omac.root), "--bridge-compat")
    with plugged(omac, base_of(serving)) as made:
        yield made


def project_of(omac: Omac, name: str) -> Path:
    """Return a project with a ready skill, one that waits for a secret, and one that is not approved."""
    project = omac.project(name, "echo", "later")
    omac.skill(project, "needy", NEEDY, PROGRAM)
    omac.approve(project, "echo", "needy")
    return project


def test_two_directories_in_one_server(omac: Omac, plugin: Plugin) -> None:
    """Each directory has its own token, reaches its own skills only, and ends alone. The audit has each call."""
    shop, blog = project_of(omac, "shop"), project_of(omac, "blog")
    first, second = plugin("open", str(shop), "s1"), plugin("open", str(blog), "s2")
    assert first["state"] == second["state"] == "active_partial"
    assert plugin("open", str(shop), "s1") == first  # the same token while it is active
    assert first["token"] != second["token"]
    call = 'curl -sS -o /dev/null -w "%{http_code}" "$OMAC_ECHO_BASE/echo/from-$0"; test -z "${OMAC_CONTROL_BASE-}"'
    for opened in (first, second):
        done = plugin("shell", opened["variables"], call)
        assert (done["status"], done["out"]) == (0, "200"), done
        assert f"OMAC_D_{opened['token'].upper()}_ECHO_BASE" in opened["variables"]
    assert plugin("post", "deactivate", {"dir": str(shop)}) == [200, {"dir": str(shop), "status": "deactivated"}]
    answer = curl(f"{first['variables']['OMAC_ECHO_BASE']}/status")
    assert (answer.status, answer.headers["x-omac-reason"]) == (404, "unknown-mount")
    assert plugin("shell", second["variables"], call)["out"] == "200"
    assert plugin("open", str(shop), "s1")["token"] != first["token"]
    calls = [(row["dir"], row["path"]) for row in omac.audit() if row["path"].startswith("/echo/")]
    assert calls == [(str(project), "/echo/from-sh") for project in (shop, blog, blog)]


def test_a_secret_that_is_set_meanwhile(omac: Omac) -> None:
    """The next activation has the skill, under the same token: it is usable in the next command."""
    with_vault(omac)
    project = project_of(omac, "shop")
    serving = omac.start("serve", "--no-inner", "--root", str(omac.root), "--bridge-compat")
    with plugged(omac, base_of(serving)) as plugin:
        before = plugin("open", str(project), "s1")
        assert "OMAC_NEEDY_BASE" not in before["variables"]
        where = ("--workdir", str(project))
        assert omac.run("secrets", "set", "needy", "TOKEN", *where, stdin=b"opened").status == 0

        def is_ready() -> Any:
            return plugin("open", str(project), "s1")["variables"].get("OMAC_NEEDY_BASE")

        base = eventually(is_ready, 10.0, "the skill")
        assert before["token"] in base
        done = plugin("shell", {"OMAC_NEEDY_BASE": base}, 'curl -sS "$OMAC_NEEDY_BASE/"')
        assert json.loads(done["out"])["TOKEN"] == "opened"


def test_a_plugin_in_a_sandbox(omac: Omac) -> None:
    """A plugin under `omac start` sees omac's socket at another path than the host does."""
    project = project_of(omac, "shop")
    shutil.copy(DOUBLES / "plugin.py", project)
    lines = [["open", str(project), "s1"], ["shell", {}, 'curl -sS "$OMAC_ECHO_BASE/echo/flat"'], ["get", "dirs"]]
    stdin = "".join(json.dumps(line) + "\n" for line in lines).encode()
    words = ("start", "--bridge-compat", "--workdir", str(project), "--", "python3", "plugin.py")
    done = omac.run(*words, stdin=stdin, cwd=project)
    assert done.status == 0, done
    opened, shell, dirs = (json.loads(line)["ok"] for line in done.out.splitlines())
    assert (opened["state"], shell["status"], dirs[0]) == ("active_partial", 0, 403)
    assert "/echo/flat" in [row["path"] for row in omac.audit()]


CASES: list[tuple[str, object, int, str]] = [
    ("activate", "{", 400, "bad json body: "),
    ("activate", "{}", 400, "missing 'dir'"),
    ("activate", '{"dir": "/nowhere/at/all"}', 400, ""),
    ("activate", '{"dir": "/"}', 400, "not under any allowed --root"),
    ("activate", '{"dir": "/", "directory": "/"}', 400, "unknown member 'directory'"),
]


@pytest.mark.parametrize(("action", "body", "status", "said"), CASES)
def test_what_is_refused(plugin: Plugin, action: str, body: str, status: int, said: str) -> None:
    """Refusals have the statuses and the texts that plugins check."""
    code, answer = plugin("raw", action, body)
    assert code == status, answer
    assert said in answer["error"]


def test_other_methods_and_directories(omac: Omac, plugin: Plugin) -> None:
    """GET is POST only; a directory that was never activated is deactivated all the same."""
    assert plugin("get", "activate") == [405, {"error": "POST only", "reason": "method-not-allowed", "fix": []}]
    project = omac.project("never")
    assert plugin("post", "deactivate", {"dir": str(project)}) == [200, {"dir": str(project), "status": "deactivated"}]


def test_a_session_hook(omac: Omac) -> None:
    """SessionStart gives the model its skills, whose URLs answer; SessionEnd takes the directory offline."""
    project = project_of(omac, "shop")
    base = base_of(omac.start("serve", "--no-inner", "--root", str(omac.root), "--bridge-compat"))

    def hook(event: str) -> str:
        payload = json.dumps({"hook_event_name": event, "session_id": "s-1", "cwd": str(project)})
        environment = omac.environment | {"OMAC_CONTROL_BASE": base}
        command = ["sh", str(DOUBLES / "hook.sh")]
        done = subprocess.run(command, input=payload, capture_output=True, text=True, env=environment, timeout=60)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    context = json.loads(hook("SessionStart"))["hookSpecificOutput"]["additionalContext"]
    skills = dict(line.split(": ", 1) for line in context.splitlines()[1:])
    assert (skills["needy"], skills["later"]) == ("pending-credentials", "broken")
    assert curl(f"{skills['echo']}/status").status == 200
    assert hook("SessionEnd") == ""
    assert curl(f"{skills['echo']}/status").status == 404
