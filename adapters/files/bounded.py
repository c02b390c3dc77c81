"""Bounded reads of files that other programs may have written.

No read follows a symbolic link unless `follow` says so, waits for a FIFO or a device, or takes more than its bound.
"""

from __future__ import annotations

import errno
import os
import stat

from omac.adapters.files.descriptor import Descriptor

FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
CHUNK_BYTES = 1 << 20


class NotRegular(OSError):
    """A path that leads to something other than a regular file."""

    def __init__(self) -> None:
        super().__init__(errno.EINVAL, "it is not a regular file")


class TooLarge(OSError):
    """A file with more bytes than its reader takes."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(errno.EFBIG, f"it is larger than {bytes_max} bytes")


def open_no_link(path: str, flags: int) -> int:
    """Open a file, as `opener` of `open`: no link is followed, and no pipe is waited for. Raises OSError."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def read(path: str | bytes, bytes_max: int, *, dir_fd: int | None = None, follow: bool = False) -> bytes:
    """Return the content of a regular file. Raises NotRegular, TooLarge, OSError."""
    return read_with_status(path, bytes_max, dir_fd=dir_fd, follow=follow)[0]


def read_with_status(
    path: str | bytes, bytes_max: int, *, dir_fd: int | None = None, follow: bool = False
) -> tuple[bytes, os.stat_result]:
    """Return the content of a regular file, and the status of the file that was read. Raises as `read`."""
    with Descriptor(os.open(path, FLAGS | (0 if follow else os.O_NOFOLLOW), dir_fd=dir_fd)) as descriptor:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise NotRegular
        if status.st_size > bytes_max:
            raise TooLarge(bytes_max)
        content = os.read(descriptor, status.st_size + 1)  # at once: a long file is not held in memory twice
        while chunk := os.read(descriptor, min(CHUNK_BYTES, bytes_max + 1 - len(content))):
            content += chunk
            if len(content) > bytes_max:
                del content  # a traceback holds what its functions held
                raise TooLarge(bytes_max)
        return content, status


def read_start(path: str | bytes, bytes_max: int) -> bytes:
    """Return at most so many bytes from the beginning of what a path leads to. Raises OSError."""
    with Descriptor(os.open(path, FLAGS)) as descriptor:
        return os.read(descriptor, bytes_max)
