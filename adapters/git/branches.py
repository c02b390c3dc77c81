"""Settings that ordinary commands write (`push -u`, `switch --track`, `branch -m`), and which of them come home.

In a linked worktree `config` is a link to a copy beside the session's refs: git can write it inside, and the host's
stays as it is. When the program has ended, what it set for branches is set on the host: `remote` (one that the host
has, or "."), `merge` (a branch), `rebase`, `description`. Nothing else comes home, for other settings run programs.
"""

from __future__ import annotations

import os

from omac.adapters.git import pointers, program
from omac.domain.git import config
from omac.domain.refusal import Refusal

CHANGES_MAX = 200
_REBASE = ("true", "false", "merges")


def bring_home(common: str, before: bytes, copy: str) -> list[tuple[str, str]]:
    """Set on the host what was set in `copy` for branches: (setting, why it stays as it was). Never raises."""
    try:
        after = pointers.read(copy, pointers.CONFIG_BYTES_MAX)
        if after is None or after == before:
            return []
        old, new = _settings(before), _settings(after)
    except (Refusal, ValueError):
        return [(f"{common}/config", "the session's copy of the settings cannot be read; the host's are as they were")]
    remotes = {key[7:-4] for key in old if key.startswith("remote.") and key.endswith(".url")}
    told: list[tuple[str, str]] = []
    changed = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
    for number, key in enumerate(changed):
        if number >= CHANGES_MAX or not _comes_home(key, new.get(key), remotes):
            told.append((key, "was set inside; the host's setting is as it was"))
        elif complaint := _set(common, key, new.get(key)):
            told.append((key, f"could not be set as inside: {complaint}"))
    return told


def _settings(content: bytes) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, value in config.parse(content.decode(errors="surrogateescape")):
        found.setdefault(key, []).append(value)
    return found


def _comes_home(key: str, values: list[str] | None, remotes: set[str]) -> bool:
    """Whether a changed setting of a branch is harmless; None: it was removed."""
    if not key.startswith("branch.") or key.count(".") < 2:
        return False
    name = key.rpartition(".")[2]
    if name not in ("remote", "merge", "rebase", "description"):
        return False
    if values is None:
        return True
    if len(values) != 1:
        return False
    value = values[0]
    return (
        (name == "remote" and (value == "." or value in remotes))
        or (name == "merge" and value.startswith("refs/heads/") and ":" not in value)
        or (name == "rebase" and value in _REBASE)
        or name == "description"
    )


def _set(common: str, key: str, values: list[str] | None) -> str:
    """Have git write one setting to the host's file; returns its complaint."""
    import subprocess

    change = ["--unset-all", key] if values is None else ["--replace-all", key, values[0]]
    environment = program.environment(os.environ)
    try:
        done = subprocess.run(
            ["git", "config", "--file", f"{common}/config", *change],
            capture_output=True,
            env=environment,
            cwd="/",
            timeout=10,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else done.stderr.decode(errors="replace").strip() or "git failed"
