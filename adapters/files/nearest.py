"""Paths that may be missing: the part that exists is shown."""

import os

from omac.domain.kernel.refusal import list_command


def nearest_existing(path: str) -> str:
    """Return an absolute path, or the nearest folder above it that exists."""
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return path


def look_at(path: str) -> str:
    """The command that lists a path, or the nearest folder above it that exists."""
    return list_command(nearest_existing(os.path.abspath(path)))
