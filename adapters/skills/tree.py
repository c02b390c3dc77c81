"""Walking through a folder that may change under one's feet, within bounds on its files, its depth and its bytes.

A look that nobody waits for ends between two entries, or two chunks of a file.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from omac.adapters.files.descriptor import Descriptor
from omac.adapters.skills.paths import FILE_FLAGS, open_below, open_folder
from omac.adapters.skills.worker_pool import go_on

BUNDLE_ENTRIES_MAX = 100_000
BUNDLE_BYTES_MAX = 2**30
BUNDLE_DEPTH_MAX = 64
CHUNK_BYTES = 1024 * 1024


class BundleFolder(NamedTuple):
    """A folder on the way: `fd` is open while it is looked at, `below` its path ("" for the top, else "a/b/")."""

    fd: int
    below: str
    entries: list[os.DirEntry[str]]


def walk(source: str, skipped: Collection[str]) -> Iterator[BundleFolder]:
    """Each folder of the canonical `source`, itself first; folders whose name is `skipped` are not there. Raises
    OSError, also beyond BUNDLE_ENTRIES_MAX and BUNDLE_DEPTH_MAX."""
    with open_folder(source) as top:
        yield from walk_open(top, source, skipped)


def walk_open(top: int, shown: str, skipped: Collection[str]) -> Iterator[BundleFolder]:
    """Yield each folder of the open folder `top`, itself first; folders whose name is `skipped` are left out. `shown`
    is its path in messages: renaming that path does not lead to another folder. Raises OSError, also beyond
    BUNDLE_ENTRIES_MAX and BUNDLE_DEPTH_MAX."""
    entries_left = BUNDLE_ENTRIES_MAX
    waiting = [""]
    while waiting:
        below = waiting.pop()
        if below.count("/") > BUNDLE_DEPTH_MAX:
            raise OSError(errno.EFBIG, f"more than {BUNDLE_DEPTH_MAX} folders deep", os.path.join(shown, below))
        with Descriptor(open_below(top, below, shown)) as fd:
            entries: list[os.DirEntry[str]] = []
            with os.scandir(fd) as scan:
                for entry in scan:
                    go_on()
                    entries_left -= 1
                    if entries_left < 0:
                        text = f"more than {BUNDLE_ENTRIES_MAX} files and folders"
                        raise OSError(errno.EFBIG, text, os.path.join(shown, below + entry.name))
                    if not entry.is_dir(follow_symlinks=False):
                        entries.append(entry)
                    elif entry.name not in skipped:
                        entries.append(entry)
                        waiting.append(f"{below}{entry.name}/")
            yield BundleFolder(fd, below, entries)


def read_link(folder: int, name: str, shown: str) -> str:
    """The text of the link `name` in the open folder. Raises OSError that names `shown`."""
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError as error:
        raise OSError(error.errno, error.strerror, shown) from None


Each = Callable[[memoryview, bool], bytes | memoryview]


class BundleReader:
    """Reads files through one buffer, BUNDLE_BYTES_MAX in all."""

    def __init__(self) -> None:
        self._buffer = bytearray(CHUNK_BYTES)
        self._bytes_left = BUNDLE_BYTES_MAX

    def digest(self, folder: int, name: str, shown: str) -> bytes:
        """SHA-256 of the regular file `name` in the open folder. Raises OSError."""
        return self.read(folder, name, shown, lambda chunk, _first: chunk)[0]

    def read(self, folder: int, name: str, shown: str, each: Each) -> tuple[bytes, os.stat_result]:
        """SHA-256 of a regular file, and what fstat said of it.

        `each` is given the content in chunks, told whether one is the first, and returns what is hashed. A chunk is
        CHUNK_BYTES long unless it is the last; an empty file has one, which is empty. Raises OSError that names
        `shown`: also for anything but a regular file, and beyond the bound on bytes.
        """
        try:
            fd = os.open(name, FILE_FLAGS, dir_fd=folder)
        except OSError as error:
            raise OSError(error.errno, error.strerror, shown) from None
        with open(fd, "rb", buffering=0) as file:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "is not a regular file", shown)
            if status.st_size > self._bytes_left:
                raise self._too_large(shown)  # a sparse file costs nothing to make
            digest, view, first = hashlib.sha256(), memoryview(self._buffer), True
            while True:
                size = self._fill(file.readinto, view, shown)
                if size or first:
                    digest.update(each(view[:size], first))
                first = False
                if size < len(view):
                    return digest.digest(), status

    def _fill(self, read: Callable[[memoryview], int | None], view: memoryview, shown: str) -> int:
        """Read as many bytes as exist, up to the length of `view`, and return their number."""
        size = 0
        while size < len(view):
            go_on()
            try:
                count = read(view[size:])
            except OSError as error:
                raise OSError(error.errno, error.strerror, shown) from None
            if not count:
                break
            size += count
            self._bytes_left -= count
            if self._bytes_left < 0:
                raise self._too_large(shown)
        return size

    def _too_large(self, shown: str) -> OSError:
        return OSError(errno.EFBIG, f"more than {BUNDLE_BYTES_MAX // 2**30} GiB in all", shown)
