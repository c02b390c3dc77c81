"""Processes as commands end them."""

import contextlib
import os
from collections.abc import Iterator

from omac.adapters.files.descriptor import FOLDER_FLAGS, Descriptor
from omac.adapters.files.lock import try_acquire
from omac.adapters.linux.process import kill

__all__ = ["kill", "turn_to_end"]


@contextlib.contextmanager
def turn_to_end(folder: str) -> Iterator[bool]:
    """Yield whether no other process is ending the run with this folder. Until the end of the block, others that ask
    get False."""
    try:
        descriptor = os.open(folder, FOLDER_FLAGS)
    except OSError:  # its folder was removed: nobody can be told
        yield True
        return
    with Descriptor(descriptor):
        yield try_acquire(descriptor)
