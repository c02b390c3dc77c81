"""The temporary folder of a program that has no namespaces, and so none of its own: it lies among those of the host.

A launch keeps its folder locked (flock(2)), and removes it at its end. A folder without a lock is of a launch that was
killed: the next launch removes it. Folders of other users stay, and so do those that their file system cannot lock.
"""

from __future__ import annotations

import os

from omac.adapters.files import emptying, lock
from omac.adapters.files.descriptor import FOLDER_FLAGS, Descriptor
from omac.domain.kernel.locks import NO_LOCKS

PREFIX = "omac-program-"


class TemporaryFolder:
    """A new folder, locked until it is removed, or until this process ends. Raises OSError."""

    def __init__(self) -> None:
        import tempfile

        _remove_ownerless(tempfile.gettempdir())
        self._lock = -1
        while self._lock < 0:
            self.path = os.path.realpath(tempfile.mkdtemp(prefix=PREFIX))
            self._lock = _locked(self.path)

    def remove(self) -> None:
        """Remove it with all that is in it, as far as that can be done."""
        emptying.remove(self.path)
        os.close(self._lock)


def _locked(folder: str) -> int:
    """Return the descriptor that keeps a new folder locked; -1 where another launch has removed it, which
    had no lock yet. Raises OSError."""
    try:
        descriptor = os.open(folder, FOLDER_FLAGS)
    except FileNotFoundError:
        return -1
    try:
        lock.acquire(descriptor)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            os.close(descriptor)
            raise
    if os.fstat(descriptor).st_nlink:
        return descriptor
    os.close(descriptor)
    return -1


def _remove_ownerless(parent: str) -> None:
    """Remove what launches of this user that were killed have left."""
    for name in os.listdir(parent):
        if not name.startswith(PREFIX):
            continue
        try:
            with Descriptor(os.open(f"{parent}/{name}", FOLDER_FLAGS)) as folder:
                if os.fstat(folder).st_uid == os.geteuid() and lock.try_acquire(folder):
                    emptying.clear(folder)  # and not what lies at its path by now
                    os.rmdir(f"{parent}/{name}")
        except OSError:
            continue  # it is gone, another user's, or nobody can tell whose
