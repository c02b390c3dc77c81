"""Repositories around a workdir, of which it is a folder: nothing of theirs is granted, and git finds none inside. The
host's git obeys what their settings and hooks name in the workdir.
"""

from __future__ import annotations

import os

from omac.adapters.git import pointers
from omac.adapters.git.config_targets import TargetSettings
from omac.adapters.git.repository import is_git_folder, mode_of
from omac.domain.kernel.refusal import Refusal, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def warnings(workdir: str) -> list[str]:
    """Return the warning of a workdir that is no worktree, where a repository is around it. Raises Refusal
    (git-unsafe): it lies in a git folder."""
    for folder in _above(workdir):
        if is_git_folder(folder):
            raise pointers.unsafe(f"the workdir {workdir} lies in git's own folder {folder}")
        if mode_of(f"{folder}/.git"):
            return [
                f"{workdir} is a folder of the repository {folder}, which is not granted: git finds none inside. "
                f"For git: --allow {quoted(folder)}, or start there"
            ]
    return []


def repositories(workdir: str, home: str) -> Iterator[tuple[str, str, TargetSettings]]:
    """Yield the worktree, the common folder and the settings of each repository around the workdir."""
    for root in _above(workdir):
        try:
            git = _git_folder(f"{root}/.git")
            common = pointers.common(git) or git if git else ""
        except Refusal:
            continue  # the host's git stops there, too
        if common:
            settings = TargetSettings()
            settings.add_leniently(f"{common}/config", home)
            settings.add_leniently(f"{git}/config.worktree", home)
            yield root, common, settings


def _git_folder(dot: str) -> str:
    """Return the folder that a `.git` is, or names; empty where there is none. Raises Refusal (git-unsafe)."""
    if not mode_of(dot):
        return ""
    return os.path.realpath(dot) if os.path.isdir(dot) else pointers.target(dot)


def _above(workdir: str) -> Iterator[str]:
    """Yield the folders above a canonical one, the nearest first."""
    while workdir != os.path.dirname(workdir):
        workdir = os.path.dirname(workdir)
        yield workdir
