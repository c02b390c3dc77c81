"""The project that a folder is part of.

A folder above may be one that others write to, such as /tmp: what another user puts there makes no project of it, or
an agent would get all of that folder. So only what is the person's own counts (git has the same rule).
"""

import os

from omac.domain.harness.table import BASES


def project_of(directory: str, home: str) -> str:
    """Return the nearest folder above, of this user, with skills or a .git of this user, below the home folder or
    elsewhere; else `directory`."""
    folder = directory
    while folder not in ("/", home):
        marks = [".git", *(os.path.join(f".{base}", "skills") for base in BASES)]
        if _is_own(folder) and any(_is_own(os.path.join(folder, mark)) for mark in marks):
            return folder
        folder = os.path.dirname(folder)
    return directory


def _is_own(path: str) -> bool:
    """Return whether a path exists, and belongs to this user."""
    try:
        return os.lstat(path).st_uid == os.geteuid()
    except OSError:
        return False
