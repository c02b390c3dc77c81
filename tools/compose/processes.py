"""Processes as commands end them."""

import contextlib
import os
from collections.abc import Iterator

from omac.adapters.files.descriptor import FOLDER_FLAGS, Descriptor
from omac.adapters.files.lock import try_acquire
from omac.adapters.linux.process import kill
from omac.adapters.linux.terminal_holders import launcher_at as find_launcher

__all__ = ["kill", "launcher_at", "turn_to_end"]


def launcher_at(terminal: int) -> int | None:
    """Return the pid of an omac that has a program in a sandbox at an open terminal; None: none has."""
    try:
        return find_launcher(terminal)
    except OSError:
        return None  # it has hung up: nobody types there


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
