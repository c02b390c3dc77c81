"""Processes as commands end them."""

import contextlib
import os
from collections.abc import Iterator

from omac.adapters.files.lock import try_acquire
from omac.adapters.linux.process import kill

__all__ = ["kill", "turn_to_end"]


@contextlib.contextmanager
def turn_to_end(folder: str) -> Iterator[bool]:
    """Whether nobody else is ending the run with this folder; then others are told so until the end of the block."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # its folder was removed: nobody can be told
        yield True
        return
    try:
        yield try_acquire(descriptor)
    finally:
        os.close(descriptor)
