"""A command that is killed between two steps leaves a draft; the next one that writes the file removes it."""

from pathlib import Path

from real_omac import Omac
from valued_skill import with_vault

DIGITS = "0123456789ab"


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
