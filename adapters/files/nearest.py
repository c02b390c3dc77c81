"""Paths that may be missing: folders of omac's own are made, for nobody else; of any, the part that exists is shown."""

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


def make_private(folder: str) -> None:
    """Make a folder and those above it that are missing, each 0700 whatever the umask: who can change a folder above
    can replace what is below. Raises OSError."""
    if not os.path.isdir(folder):
        make_private(os.path.dirname(os.path.abspath(folder)))
        os.makedirs(folder, 0o700, exist_ok=True)
