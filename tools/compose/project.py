"""The project that a folder is part of."""

import os

from omac.domain.harness.harness import SHARED_BASE
from omac.domain.harness.table import HARNESSES


def project_of(directory: str, home: str) -> str:
    """Return the nearest folder above with skills or a .git, below the home folder or elsewhere; else `directory`."""
    bases = {SHARED_BASE, *(base for harness in HARNESSES for base in harness.bases)}
    folder = directory
    while folder not in ("/", home):
        marks = [".git", *(os.path.join(f".{base}", "skills") for base in bases)]
        if any(os.path.lexists(os.path.join(folder, mark)) for mark in marks):
            return folder
        folder = os.path.dirname(folder)
    return directory
