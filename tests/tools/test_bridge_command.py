"""`omac bridge` adds hooks that call omac to a user's own settings of an agent, and removes them again."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from programs import omac_at, program_at
from real_omac import Done, Omac

from omac.domain.access.access import AccessRequested
from omac.domain.directories.events import SessionAdmitted
from omac.domain.harness.installation import BridgeChanged, BridgeChangeRequested

FILES = {
    "claude": ".claude/settings.json",
    "codex": ".codex/hooks.json",
    "opencode": "config/opencode/plugin/omac.ts",  # XDG_CONFIG_HOME is there
}


@pytest.fixture
def program(omac: Omac, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install an omac in a folder whose name has a blank, and return its path."""
    path = omac_at(omac.folder / "my programs" / "omac")
    monkeypatch.setattr(sys, "argv", [str(path)])
    return path


def home(omac: Omac) -> Path:
    """Return the user's home."""
    return Path(omac.environment["HOME"])


def rows(omac: Omac) -> dict[str, dict[str, Any]]:
    """Return the rows that `omac bridge status --json` prints, by harness."""
    return {row["harness"]: row for row in map(json.loads, omac.ok("bridge", "status", "--json").splitlines())}


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize("harness", FILES)
def test_there_and_back(omac: Omac, harness: str) -> None:
    """A bridge is installed once and recorded before and after; its removal leaves no file or folder that it made."""
    before = sorted(home(omac).rglob("*"))
    path = home(omac) / FILES[harness]
    assert rows(omac)[harness]["state"] == "not-installed"
    assert omac.ok("bridge", "install", harness).startswith(f"{path}: {harness} calls omac from now on\n")
    content = path.read_bytes()
    assert omac.ok("bridge", "install", harness).startswith(f"{path}: {harness} calls omac already\n")
    assert path.read_bytes() == content
    assert path.stat().st_mode & 0o777 == 0o600
    row = rows(omac)[harness]
    assert (row["state"], row["file"], row["notes"]) == ("installed", str(path), [])
    assert set(row["hooks"].values()) == {"current"}
    assert omac.ok("bridge", "uninstall", harness) == f"{path}: {harness} no longer calls omac\n"
    assert omac.ok("bridge", "uninstall", harness) == f"{path}: {harness} does not call omac\n"
    assert sorted(entry for entry in home(omac).rglob("*") if omac.state not in (entry, *entry.parents)) == before
    assert [type(entry.event) for entry in omac.events()] == [BridgeChangeRequested, BridgeChanged] * 2
    audit = omac.ok("audit", "--kind", "bridge")
    assert f"{harness} calls omac for PreToolUse, SessionStart" in audit
    assert f"{harness} calls omac for nothing by {path}" in audit


COMMENTED = b"""\
// mine
{
\t"env": {"A": "1"}, // two
\t"hooks": {
\t\t"Stop": [{"hooks": [{"type": "command", "command": "bell"}]}],
\t},
}"""


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize(
    "content",
    [
        b"{}",
        b"",
        b"\n\n",
        b'{"hooks": {}}\r\n',
        COMMENTED,
        b'\xef\xbb\xbf{\r\n  "a": 1\r\n}',
        b'{"a": 1.50, "\\u00e9": []}',
    ],
)
@pytest.mark.parametrize("mode", [0o600, 0o644, 0o400])
def test_settings_are_restored(omac: Omac, content: bytes, mode: int) -> None:
    """Settings keep their comments, odd formatting, other hooks and mode through an installation and its removal."""
    path = home(omac) / FILES["claude"]
    path.parent.mkdir()
    path.write_bytes(content)
    path.chmod(mode)
    done = omac.run("bridge", "install", "claude")
    assert done.status == 0, done
    assert ("has comments and trailing commas" in done.err) == (content == COMMENTED)
    assert path.stat().st_mode & 0o777 == mode
    for line in content.splitlines():
        assert line.strip(b"{} \r\n") in path.read_bytes()
    omac.ok("bridge", "uninstall", "claude")
    assert path.read_bytes() == content
    assert path.stat().st_mode & 0o777 == mode


@pytest.mark.usefixtures("program")
def test_invalid_settings(omac: Omac) -> None:
    """Invalid settings are refused with line and column and left as they are, and no file is added beside them."""
    path = home(omac) / FILES["claude"]
    path.parent.mkdir()
    path.write_text('{\n  "a": 1\n  "b": 2\n}\n')
    for verb in ("install", "uninstall"):
        done = omac.run("bridge", verb, "claude")
        assert (done.status, done.out) == (3, "")
        assert f"{path} is not valid JSON: Expecting ',' delimiter, line 3, column 3" in done.err
    row = rows(omac)["claude"]
    assert row["state"] == "unreadable"
    assert "line 3, column 3" in row["notes"][0]
    assert path.read_text() == '{\n  "a": 1\n  "b": 2\n}\n'
    assert os.listdir(path.parent) == [path.name]
    done = omac.run("bridge", "uninstall")
    assert done.status == 3
    assert "codex does not call omac" in done.out  # the others are dealt with all the same


def test_states(omac: Omac, program: Path) -> None:
    """The status names bridges that are outdated, changed by hand, unreadable, or only the write guard.

    Another installation mends them, but omac neither removes nor overwrites a plugin that others have written.
    """
    path = home(omac) / FILES["claude"]
    omac.ok("bridge", "install", "claude")
    omac.ok("hook", "install", "codex")
    assert rows(omac)["codex"]["state"] == "guard-only"
    assert omac.ok("bridge", "status", "codex").startswith("codex  the write guard alone is installed\n")
    text = path.read_text()
    path.write_text(text.replace(str(program), "/old/omac"))
    assert rows(omac)["claude"]["state"] == "outdated"
    omac.ok("bridge", "install", "claude")
    assert (rows(omac)["claude"]["state"], path.read_text()) == ("installed", text)
    path.write_text(text.replace('"SessionEnd"', '"SessionStop"'))
    assert rows(omac)["claude"]["state"] == "changed"
    status = omac.ok("bridge", "status")
    assert "changed by hand since" in status
    assert "try: omac bridge install claude" in status
    assert max(len(line) for line in status.splitlines() if str(home(omac)) not in line) <= 80
    for harness in ("claude", "codex"):
        omac.ok("bridge", "install", harness)
        assert rows(omac)[harness]["state"] == "installed"
    plugin = home(omac) / FILES["opencode"]
    omac.ok("bridge", "install", "oc")
    plugin.write_text(plugin.read_text() + "// mine\n")
    assert rows(omac)["opencode"]["state"] == "changed"
    done = omac.run("bridge", "uninstall", "opencode")
    assert (done.status, "changed by hand" in done.err) == (3, True)
    plugin.write_text("// somebody else's\n")
    assert rows(omac)["opencode"]["state"] == "unreadable"
    assert omac.run("bridge", "install", "opencode").status == 3
    assert plugin.read_text() == "// somebody else's\n"


@pytest.mark.usefixtures("program")
def test_the_guard_is_a_part(omac: Omac) -> None:
    """`omac hook` adds and removes the write guard alone; with `omac bridge uninstall` the settings are as before."""
    path = home(omac) / FILES["claude"]
    path.parent.mkdir()
    path.write_text('{"a": 1}')
    omac.ok("hook", "install", "claude")
    omac.ok("bridge", "install", "claude")
    omac.ok("hook", "uninstall", "claude")
    assert rows(omac)["claude"]["state"] == "changed"
    omac.ok("bridge", "uninstall", "claude")
    assert path.read_text() == '{"a": 1}'


@pytest.mark.usefixtures("program")
def test_a_guard_that_was_there_stays(omac: Omac) -> None:
    """`omac bridge uninstall` leaves the write guard that `omac hook install` put there, and names its own command."""
    path = home(omac) / FILES["claude"]
    omac.ok("hook", "install", "claude")
    content = path.read_bytes()
    says = f"{path}: claude calls the write guard alone; omac hook uninstall claude removes it\n"
    for setup in ([], ["bridge", "install", "claude"]):
        if setup:
            omac.ok(*setup)
        assert omac.ok("bridge", "uninstall", "claude") == says
        assert path.read_bytes() == content
        assert rows(omac)["claude"]["state"] == "guard-only"
    assert omac.ok("hook", "uninstall", "claude") == f"{path}: the write guard is no longer called\n"
    assert not path.exists()
    omac.ok("bridge", "install", "claude")
    omac.ok("bridge", "uninstall", "claude")
    assert not path.exists()


def test_who_is_meant(omac: Omac, program: Path) -> None:
    """`omac bridge install` without a name installs for the agents on PATH; an unknown name is refused."""
    folder = omac.folder / "programs"
    folder.mkdir()
    done = omac.run("bridge", "install", extra={"PATH": str(folder)})
    assert (done.status, "on PATH" in done.err) == (4, True)
    program_at(folder / "codex", "")
    assert omac.run("bridge", "install", extra={"PATH": str(folder)}).out.count("\n") == 1
    assert rows(omac)["codex"]["state"] == "installed"
    done = omac.run("bridge", "install", "nosuch")
    assert (done.status, "opencode, claude, codex and pi" in done.err) == (2, True)


# ---- what was installed does its work ----


@pytest.fixture
def installed(omac: Omac, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Install omac's hooks in the user's settings of Claude Code, and return the command of each event."""
    path = omac_at(omac.folder / "omac")
    monkeypatch.setattr(sys, "argv", [str(path)])
    omac.ok("bridge", "install", "claude")
    hooks = json.loads((home(omac) / FILES["claude"]).read_text())["hooks"]
    return {event: group["hooks"][0]["command"] for event, (group,) in hooks.items()}


def call(omac: Omac, command: str, folder: Path, payload: Mapping[str, object], **extra: str) -> Done:
    """Run a hook as an agent does."""
    done = subprocess.run(
        ["sh", "-c", command], input=json.dumps(payload), cwd=folder, capture_output=True, text=True, timeout=60,
        env={**omac.environment, "PATH": os.environ["PATH"], **extra},
    )  # fmt: skip
    return Done(done.returncode, done.stdout, done.stderr)


def test_without_omac_running(omac: Omac, installed: dict[str, str]) -> None:
    """Session hooks exit with 0 and print nothing when no omac runs; the write guard answers all the same."""
    project = omac.project("p")
    for event in ("SessionStart", "SessionEnd"):
        for payload in ({"session_id": "s"}, {}):
            assert call(omac, installed[event], project, payload) == Done(0, "", "")
        assert call(omac, installed[event], project, {}, OMAC_SANDBOX="1") == Done(0, "", "")
    for target, status in ((project / "a", 0), (Path("/etc/x"), 2)):
        write = {"tool_name": "Write", "tool_input": {"file_path": str(target)}, "cwd": str(project)}
        where = {"CLAUDE_PROJECT_DIR": str(project)}
        assert call(omac, installed["PreToolUse"], project, write, **where).status == status
        assert call(omac, installed["PreToolUse"], project, write, **where, OMAC_BRIDGE="launch").status == 0


def test_with_a_server(omac: Omac, installed: dict[str, str]) -> None:
    """A session of an agent that a user launched gets its skills, a token of its own, and an end."""
    project = omac.approved("p")
    omac.serve()
    variables, folder = project / "env", project / "sub"
    folder.mkdir()
    where = {"CLAUDE_ENV_FILE": str(variables), "CLAUDE_PROJECT_DIR": str(project)}
    begun = call(omac, installed["SessionStart"], folder, {"session_id": "s-1"}, **where)
    assert (begun.status, begun.err) == (0, "")
    context = json.loads(begun.out)["hookSpecificOutput"]["additionalContext"]
    assert "* echo: $OMAC_ECHO_BASE" in context
    shell = '. ./env; curl -sS --fail "$OMAC_ECHO_BASE/status"'
    assert call(omac, shell, project, {}).status == 0
    (admitted,) = [record.event for record in omac.events(SessionAdmitted)]
    assert isinstance(admitted, SessionAdmitted)
    assert admitted.session == "s-1"
    (access,) = [record.event for record in omac.events(AccessRequested)]
    assert isinstance(access, AccessRequested)
    assert access.session == "s-1"
    assert call(omac, installed["SessionEnd"], project, {"session_id": "s-1"}, **where) == Done(0, "", "")
    assert call(omac, shell, project, {}).status != 0
    launched = call(omac, installed["SessionStart"], project, {"session_id": "s-2"}, **where, OMAC_BRIDGE="launch")
    assert launched == Done(0, "", "")  # omac start gave that one its hooks


def test_outside_the_roots_of_the_server(omac: Omac, installed: dict[str, str], tmp_path: Path) -> None:
    """A session outside the roots of the server goes on without its skills; the hook prints the reason on stderr."""
    omac.serve()
    done = call(omac, installed["SessionStart"], tmp_path, {"session_id": "s-1"})
    assert (done.status, done.out) == (0, "")
    assert "the session goes on without its skills" in done.err
