"""Emptying a folder of what programs in a sandbox wrote: trees of any depth and width, with nothing in them followed
or opened.

Every folder is moved to the top before it is emptied, so that no path gets long, nothing recurses, and one folder at a
time is open.
"""

import errno
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from omac.adapters.files.descriptor import FOLDER_FLAGS, Descriptor
from omac.adapters.files.without_links import opened_folder

BATCH = 1_000  # names that are dealt with between two calls of `step`

Step = Callable[[int], None]


def remove(folder: str) -> None:
    """Remove a folder with all that is in it, as far as that can be done; no link is followed on the way to it."""
    with suppress(OSError):
        with Descriptor(opened_folder(folder)) as opened:
            clear(opened)
        os.rmdir(folder)


def clear(heap: int, step: Step = lambda _: None) -> list[str]:
    """Remove all that is in the open folder `heap`, which nobody else writes to; `step` gets how many names went.
    Return what would not go, and why."""
    problems: dict[str, None] = {}
    fresh = itertools.count(1 + max((int(name) for name in os.listdir(heap) if name.isdigit()), default=0))
    waiting = os.listdir(heap)
    while waiting:
        name = waiting.pop()
        try:
            folder = _folder(heap, name)
        except FileNotFoundError:
            continue  # another process was first
        except NotADirectoryError:
            _attempt(partial(os.unlink, name, dir_fd=heap), problems)
            continue
        except OSError as error:
            problems[error.strerror or str(error)] = None
            continue
        with Descriptor(folder):
            waiting += _emptied(folder, heap, fresh, step, problems)
        _attempt(partial(os.rmdir, name, dir_fd=heap), problems)
        step(1)
    return list(problems)


def _folder(heap: int, name: str) -> int:
    """The folder `name`, open, and its owner may do all in it. Raises OSError; NotADirectoryError also for a link."""
    try:
        try:
            folder = os.open(name, FOLDER_FLAGS, dir_fd=heap)
        except PermissionError:
            unlock(heap, name)
            folder = os.open(name, FOLDER_FLAGS, dir_fd=heap)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotADirectoryError(errno.ENOTDIR, error.strerror) from None
        raise
    with suppress(OSError):
        os.fchmod(folder, 0o700)
    return folder


def _emptied(folder: int, heap: int, fresh: Iterator[int], step: Step, problems: dict[str, None]) -> list[str]:
    """Remove the files in an open folder, and move the folders in it to `heap`; their new names there."""
    moved: list[str] = []
    while True:
        gone = 0
        with os.scandir(folder) as scan:
            batch = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in itertools.islice(scan, BATCH)]
        for name, is_folder in batch:
            if not is_folder:
                gone += _attempt(partial(os.unlink, name, dir_fd=folder), problems)
                continue
            new = str(next(fresh))
            if _attempt(partial(move, folder, name, heap, new), problems):
                moved.append(new)
                gone += 1
        step(gone)
        if not gone:
            return moved


def move(folder: int, name: str, heap: int, new: str) -> None:
    """Move an entry of an open folder to another one, as `new`, though it is a folder that its owner may not change.
    Raises OSError."""
    try:
        os.rename(name, new, src_dir_fd=folder, dst_dir_fd=heap)
    except PermissionError:  # only who may write to a folder may move it elsewhere
        unlock(folder, name)
        os.rename(name, new, src_dir_fd=folder, dst_dir_fd=heap)


def _attempt(act: Callable[[], None], problems: dict[str, None]) -> bool:
    """Return whether an action succeeded or was no longer needed; add what went wrong to `problems`."""
    try:
        act()
    except FileNotFoundError:
        pass
    except OSError as error:
        problems[error.strerror or str(error)] = None
        return False
    return True


def unlock(folder: int, name: str) -> None:
    """Let its owner do all in the folder `name`, whatever its mode; follows no link. Raises OSError."""
    if os.chmod in os.supports_follow_symlinks:
        os.chmod(name, 0o700, dir_fd=folder, follow_symlinks=False)
        return
    with Descriptor(os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)) as inner:
        os.chmod(f"/proc/self/fd/{inner}", 0o700)
