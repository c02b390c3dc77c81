"""Scripts that an agent's settings name: their state inside a session and after it."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_sandbox import FEWER_USERS, Box, box

from omac.adapters.sandbox.baseline import harness_entries
from omac.adapters.sandbox.harness_scripts import SETTINGS_BYTES_MAX
from omac.domain.harness.table import harness_named
from omac.domain.sandbox.confinement import READ


@pytest.fixture(params=FEWER_USERS, ids=lambda uid: f"uid{uid}")
def world(request: pytest.FixtureRequest) -> Iterator[Box]:
    """Yield a home and a project of a user's."""
    with box(request.param) as made:
        yield made


SETTINGS = {
    "statusLine": {"type": "command", "command": "~/.claude/statusline.sh"},
    "hooks": {
        "PreToolUse": [{"hooks": [{"type": "command", "command": "python3 $HOME/.claude/scripts/guard.py"}]}],
        "Stop": [{"hooks": [{"type": "command", "command": "~/.claude/scripts/notify >> ~/.claude/hooks.log"}]}],
    },
    "apiKeyHelper": "~/.claude/missing/key.sh",
}
SERVERS = {
    "mcpServers": {"notes": {"command": "node", "args": ["~/.claude/servers/notes/index.js", "~/.claude/notes.md"]}}
}
PINNED = (
    "statusline.sh", "scripts/guard.py", "scripts/notify", "servers/notes/index.js", "servers/notes/lib/store.js",
)  # fmt: skip
FREE = ("hooks.log", "notes.md", "history.jsonl", "scripts/other.log")
EVIL = "#!/bin/sh\ntouch ~/canary\n"


def furnish(world: Box) -> Path:
    """Create an agent's folder with settings, scripts that they name, and files that the agent writes."""
    folder = world.home / ".claude"
    for name in (*PINNED, *FREE):
        world.give(folder / name, "mine\n", 0o755 if name == "scripts/notify" else 0o644)
    world.give(folder / "servers/notes/package.json", "{}")
    world.give(folder / "settings.json", json.dumps(SETTINGS))
    world.give(world.home / ".claude.json", json.dumps(SERVERS))
    for path in folder.rglob("*"):
        os.chown(path, world.uid, world.uid)
    return folder


def plant(world: Box, name: str, *, options: tuple[str, ...] = ("--harness", "claude")) -> None:
    """Try to have a script of the session's run: write it, replace the file, move the folder around it."""
    script = (
        "cd ~/.claude; printf '%s' \"$EVIL\" > $F; printf '%s' \"$EVIL\" > /tmp/new; chmod +x /tmp/new;"
        " cp /tmp/new new; mv -f new $F; rm -f $F; cp /tmp/new $F; d=$(dirname $F);"
        " mkdir -p $d && cp /tmp/new $F;"
        " [ $d = . ] || { mv $d $d.old; mkdir -p $d; cp /tmp/new $F; }; sed -i s/mine/evil/ $F"
    )
    world.run("sh", "-c", script, options=(*options, "--env", f"EVIL={EVIL}", "--env", f"F={name}"))


@pytest.mark.parametrize("name", [*PINNED, "missing/key.sh"])
def test_a_script_that_settings_name_cannot_be_changed(world: Box, name: str) -> None:
    """A session can neither change nor add a script that the next session, outside too, runs by its settings."""
    folder = furnish(world)
    plant(world, name)
    if name in PINNED:
        assert (folder / name).read_text() == "mine\n"
    else:
        assert not (folder / name).exists()


def test_what_settings_do_not_run_can_be_written(world: Box) -> None:
    """The twin: logs and notes that a command gets as arguments, and an agent's own files, are written as before."""
    folder = furnish(world)
    script = "cd ~/.claude; for f in $FREE new.sh scripts/new; do echo more >> $f || exit 1; done"
    done = world.run("sh", "-c", script, options=("--harness", "claude", "--env", f"FREE={' '.join(FREE)}"))
    assert (done.status, done.err) == (0, "")
    assert [(folder / name).read_text() for name in FREE] == ["mine\nmore\n"] * len(FREE)
    assert (folder / "scripts/new").read_text() == "more\n"


def test_a_script_works_inside(world: Box) -> None:
    """The twin: a pinned script can be run."""
    furnish(world)
    world.give(world.home / ".claude/statusline.sh", "echo fine\n")
    assert world.run("sh", "-c", "sh ~/.claude/statusline.sh", options=("--harness", "claude")).out == "fine\n"


def test_codex_settings(world: Box) -> None:
    """Scripts that Codex's TOML settings name are pinned too, in the folder that CODEX_HOME names."""
    elsewhere = world.give(world.home / "kept/codex/notify.py", "mine\n").parent
    world.give(elsewhere / "config.toml", 'notify = ["python3", "$CODEX_HOME/notify.py"]\n')
    options = ("--harness", "codex", "--env", "CODEX_HOME")
    extra = {"CODEX_HOME": str(elsewhere)}
    world.run("sh", "-c", 'echo evil > "$CODEX_HOME/notify.py"; echo x > "$CODEX_HOME/x"', options=options, extra=extra)
    assert (elsewhere / "notify.py").read_text() == "mine\n"
    assert (elsewhere / "x").read_text() == "x\n"


def pinned(home: Path) -> list[str]:
    """Return the paths of the agent's folder that are read-only because settings name them."""
    entries, _ = harness_entries(harness_named("claude"), str(home), {})
    scripts = [entry for entry in entries if entry.access == READ and "settings" in entry.reason]
    return [entry.path.removeprefix(f"{home}/") for entry in scripts]


@pytest.mark.parametrize(
    "text",
    [
        '{"statusLine": {"command": "~/.claude/s.sh"}}',
        '// mine\n{"statusLine": {"command": "~/.claude/s.sh", /* x */},}',
    ],
)
def test_settings_with_comments(tmp_path: Path, text: str) -> None:
    """Settings with comments and trailing commas are read as agents read them."""
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude/s.sh").write_text("")
    (tmp_path / ".claude/settings.json").write_text(text)
    assert pinned(tmp_path) == [".claude/s.sh"]


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[" * 100_000, b"1" * (SETTINGS_BYTES_MAX + 1)], ids=len)
def test_settings_that_cannot_be_read(tmp_path: Path, content: bytes) -> None:
    """A settings file that an agent has broken holds up no launch; omac warns that its scripts are not pinned."""
    (tmp_path / ".claude.json").write_bytes(content)
    entries, warnings = harness_entries(harness_named("claude"), str(tmp_path), {})
    assert len(warnings) == 1
    assert "not pinned" in warnings[0]
    assert entries


def test_odd_settings(tmp_path: Path) -> None:
    """A FIFO holds up no launch; paths outside the agent's folder, and the folder itself, are not pinned."""
    (tmp_path / ".claude").mkdir()
    (tmp_path / "own.sh").write_text("")
    os.mkfifo(tmp_path / ".claude.json")
    commands = ["~/own.sh", "~/.claude", "/", "~/.claude/../own.sh", "~", "/etc/passwd", "~/.claude/"]
    text = json.dumps({"hooks": [{"command": command} for command in commands]})
    (tmp_path / ".claude/settings.json").write_text(text)
    assert pinned(tmp_path) == []


def test_a_script_that_is_a_link(tmp_path: Path) -> None:
    """A script that is a link cannot be held in its place: omac warns about it and does not follow it."""
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude/s.sh").symlink_to("../dotfiles/s.sh")
    (tmp_path / ".claude/settings.json").write_text('{"statusLine": {"command": "~/.claude/s.sh"}}')
    entries, warnings = harness_entries(harness_named("claude"), str(tmp_path), {})
    assert [warning for warning in warnings if "s.sh is a link" in warning]
    assert not [entry for entry in entries if "dotfiles" in entry.path]
