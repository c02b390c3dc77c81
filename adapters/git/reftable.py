"""Repositories that keep their refs in a reftable (gitrepository-layout(5)): who reads them, and what they cannot do.

Their settings say so, not a folder of that name, which a program can make.
"""

from __future__ import annotations

import os

from omac.adapters.git import program
from omac.adapters.linux import host_programs
from omac.domain.kernel.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

GIT = (2, 45)  # the first that reads them
NO_COMMITS = (
    '{} has a reftable: in a clone that has one, git makes no commit inside ("cannot lock references"); work in a '
    "linked worktree of it (git worktree add), or run `git refs migrate --ref-format=files` on the host"
)


def is_used(settings: Iterable[tuple[str, str, str]]) -> bool:
    """Return whether these settings, each with its value and its folder, are of a repository with a reftable."""
    return any(key == "extensions.refstorage" and value.startswith("reftable") for key, value, _ in settings)


def require_git(common: str) -> None:
    """Raise Refusal (git-unsupported) where this machine's git cannot read a reftable."""
    import subprocess

    try:
        environment = program.environment(os.environ)
        printed = subprocess.run(
            [host_programs.find("git") or "git", "--version"],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
            env=environment,
            cwd="/",
        ).stdout
        version = tuple(int(part) for part in printed.split()[2].split(".")[:2])
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired):
        printed, version = "no git", (0, 0)
    if version < GIT:
        message = (
            f"{common} has a reftable, which needs git 2.45 or later; this machine has {printed.strip() or 'no git'}"
        )
        raise Refusal("git-unsupported", message, fix=["git refs migrate --ref-format=files  # with git 2.46 or later"])
