"""A command that is killed between two steps leaves a draft; the next one that writes the file removes it."""

import os
from pathlib import Path

from real_omac import Omac
from valued_skill import with_vault

DIGITS = "0123456789ab"
PID_OF_NOBODY = 1 << 22  # no pid of Linux is larger


def test_of_settings_and_keys(omac: Omac) -> None:
    """Drafts of settings, of an agent's settings and of the key that signs go; a file that is not omac's stays."""
    with_vault(omac)
    omac.ok("settings", "set", "git.refs", "branch")
    settings = Path(omac.environment["XDG_CONFIG_HOME"]) / "omac"
    agent = Path(omac.environment["HOME"]) / ".claude"
    agent.mkdir(mode=0o700)
    drafts = (
        settings / f".settings.toml.{DIGITS}",
        agent / f".settings.json.{DIGITS}",
        omac.state / f"signing.key.draft.{DIGITS}",
    )
    mine = settings / ".settings.toml.swp"
    for path in (*drafts, mine):
        path.write_text("text")
    omac.ok("settings", "set", "git.hooks", "read")
    omac.ok("bridge", "install", "claude")
    omac.ok("key", "move", "--to", "vault")
    assert [path for path in (*drafts, mine) if path.exists()] == [mine]


def test_of_the_mark(omac: Omac) -> None:
    """Drafts of the mark of a journal, by killed processes, go with the next mark. One of a living process stays."""
    omac.approved("shop")
    marks = omac.state / "journals"
    (mark,) = (path for path in marks.iterdir() if path.is_file())
    ended, other, living = (Path(f"{mark}.{pid}") for pid in (PID_OF_NOBODY, PID_OF_NOBODY + 1, os.getppid()))
    for path in (ended, other, living):
        path.write_text("text")
    omac.approved("other")
    assert [path for path in (ended, other, living) if path.exists()] == [living]
