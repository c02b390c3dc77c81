"""Folders of a journal, and of what belongs to it."""

import contextlib
import os


def make_private(path: str) -> None:
    """Make each missing folder of a path 0700; makedirs would leave the outer ones to the umask. Raises OSError."""
    if path and not os.path.isdir(path):
        make_private(os.path.dirname(path))
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
