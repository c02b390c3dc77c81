"""Folders of omac's own: a journal, and what belongs to it or lies beside it."""

import os


def make_private(folder: str) -> None:
    """Make a folder and those above it that are missing, each 0700 whatever the umask: who can change a folder above
    can replace what is below. Raises OSError."""
    folder = os.path.abspath(folder)
    if not os.path.isdir(folder):
        make_private(os.path.dirname(folder))
        os.makedirs(folder, 0o700, exist_ok=True)
