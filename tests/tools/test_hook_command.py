"""tools/cli/hook.py installs and uninstalls the write guard for agents, and the installed command works."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from nested_worktree import Ground, ground
from programs import omac_at

from omac.adapters.harness.hook_text import commands
from omac.domain.harness.names import GUARDED
from omac.domain.kernel.refusal import Refusal
from omac.tools.cli.bridge import install_guard as install
from omac.tools.cli.bridge import uninstall_guard as uninstall
from omac.tools.cli.hook import role


@pytest.fixture
def place() -> Iterator[Ground]:
    """Yield a repository with worktrees."""
    with ground() as made:
        yield made


@pytest.fixture
def omac(place: Ground, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install an omac in a folder whose name has a blank, and return its path."""
    program = omac_at(place.folder / "my programs" / "omac")
    monkeypatch.setattr(sys, "argv", [str(program), "hook", "install"])
    return program


def installed(path: Path) -> tuple[str, str]:
    """Return the matcher and the command that a settings file has for PreToolUse."""
    (group,) = json.loads(path.read_text())["hooks"]["PreToolUse"]
    (handler,) = group["hooks"]
    assert handler["type"] == "command"
    return group["matcher"], handler["command"]


@pytest.mark.parametrize(
    ("agent", "file", "tools"),
    [
        ("claude", ".claude/settings.json", ["Write", "Edit", "MultiEdit", "NotebookEdit"]),
        ("codex", ".codex/hooks.json", ["apply_patch", "Bash"]),
    ],
)
@pytest.mark.parametrize("project", [True, False])
def test_the_whole_way(
    place: Ground, omac: Path, agent: str, file: str, tools: list[str], project: bool, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """A write guard is installed once; its command denies and allows in a shell; uninstalling restores the settings."""
    monkeypatch.chdir(place.worktree / "src")
    path = (place.worktree if project else place.home) / file
    path.parent.mkdir()
    path.write_text('{\n    "theirs": {"é": 1.50}\n}\n')
    for state in ("called from now on", "called already"):
        assert install(agent, project, not project, place.environment) == 0
        out, err = capsys.readouterr()
        assert out == f"{path}: the write guard is {state}\n"
        assert ("--user" in err) == project
        assert ("you trust it" in err) == (agent == "codex")
    matcher, command = installed(path)
    assert set(tools) <= set(matcher.split("|"))
    assert path.read_text().startswith('{\n    "theirs": {"é": 1.50},\n    "hooks": {\n')
    for target, status in ((place.worktree, 0), (place.main, 2)):
        tool = {"tool_name": "Write", "tool_input": {"file_path": f"{target}/src/a.py"}, "cwd": str(place.worktree)}
        done = subprocess.run(
            ["sh", "-c", command],
            input=json.dumps(tool).encode(),
            env=place.environment,
            capture_output=True,
            timeout=30,
        )
        assert done.returncode == status, done
    for state in ("no longer called", "not called there"):
        assert uninstall(agent, project, not project, place.environment) == 0
        assert capsys.readouterr().out == f"{path}: the write guard is {state}\n"
    assert path.read_text() == '{\n    "theirs": {"é": 1.50}\n}\n'


def test_the_users_own_is_meant(place: Ground, omac: Path) -> None:
    """The write guard is installed in the user's settings by default, which an agent cannot write."""
    install("claude", False, False, place.environment)
    assert installed(place.home / ".claude" / "settings.json")[1] == commands(str(omac))[GUARDED]


def test_nothing_to_uninstall(place: Ground, omac: Path) -> None:
    """Uninstalling a guard that is not installed makes no file."""
    assert uninstall("claude", False, True, place.environment) == 0
    assert list(place.home.iterdir()) == []


def test_hooks_are_off(place: Ground, omac: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """omac warns when the settings disable all hooks."""
    path = place.home / ".claude" / "settings.json"
    path.parent.mkdir()
    path.write_text('{"disableAllHooks": true}')
    install("claude", False, True, place.environment)
    assert "no hook runs" in capsys.readouterr().err


def test_refusals(place: Ground, omac: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """omac refuses --project with --user, an unsupported agent, and an installation without a program named omac."""
    for command, verb in ((install, "install"), (uninstall, "uninstall")):
        with pytest.raises(Refusal, match="--project and --user") as refused:
            command("claude", True, True, place.environment)
        assert list(refused.value.fix) == [f"omac hook {verb} claude --user"]
    with pytest.raises(Refusal, match="'pi'"):
        install("pi", False, True, place.environment)
    with pytest.raises(Refusal, match="'pi'"):
        uninstall("pi", False, True, place.environment)
    monkeypatch.setattr(sys, "argv", ["-c"])
    monkeypatch.setattr(sys, "executable", str(place.folder / "python"))
    with pytest.raises(Refusal, match="no program named omac"):
        install("claude", False, True, place.environment | {"PATH": os.path.dirname(omac)})
    monkeypatch.setattr(sys, "executable", str(omac.parent / "python"))
    install("claude", False, True, place.environment)
    assert installed(place.home / ".claude" / "settings.json")[1] == commands(str(omac))[GUARDED]


def test_role(capsys: pytest.CaptureFixture[str]) -> None:
    """The text of `omac hook role` names the mistake of an agent that writes elsewhere, and the remedy."""
    assert role() == 0
    text = " ".join(capsys.readouterr().out.split())
    for part in ("byte-identical", "main checkout", "Bash's cwd is the worktree: prefer relative paths there", "/tmp"):
        assert part in text
