"""The removal of caches, which programs in a sandbox wrote: each is moved into the trash first, where nobody finds it.

Its name is free at once, and the next removal continues with what an interrupted one leaves.
"""

import os
from contextlib import suppress

from omac.adapters.caches.tree import CacheRoot
from omac.adapters.files import lock
from omac.adapters.files.descriptor import FOLDER_FLAGS, Descriptor
from omac.adapters.files.emptying import Step, clear, move

TRASH = ".trash"


def to_trash(root: CacheRoot, name: str, token: str) -> None:
    """Take an entry of the root away, whatever it is; `token` makes its new name unique. Raises OSError."""
    with Descriptor(_trash(root)) as trash:
        os.mkdir(token, 0o700, dir_fd=trash)
        with Descriptor(os.open(token, FOLDER_FLAGS, dir_fd=trash)) as draft:
            move(root.folder, name, draft, "0")


def empty_trash(root: CacheRoot, step: Step) -> list[str]:
    """Remove all that is in the trash; `step` gets the number of names that were removed. Return what could not be
    removed, and why. Raises OSError."""
    problems: list[str] = []
    with Descriptor(_trash(root)) as trash:
        for token in os.listdir(trash):
            try:
                heap = os.open(token, FOLDER_FLAGS, dir_fd=trash)
            except FileNotFoundError:
                continue  # another process was first
            with Descriptor(heap):
                if not lock.try_acquire(heap):
                    continue  # another process is at it
                problems += [f"{os.path.join(root.path, TRASH, token)}: {text}" for text in clear(heap, step)]
            with suppress(OSError):  # what is left in it was told
                os.rmdir(token, dir_fd=trash)
    return problems


def _trash(root: CacheRoot) -> int:
    with suppress(FileExistsError):
        os.mkdir(TRASH, 0o700, dir_fd=root.folder)
    return os.open(TRASH, FOLDER_FLAGS, dir_fd=root.folder)
