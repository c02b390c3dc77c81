"""Opening what lies below a path part by part, without following links, and showing paths that nobody vouches for."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from omac.adapters.files.descriptor import FOLDER_FLAGS, Descriptor

# Folders on the way need no right to be listed.
PASS_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@contextmanager
def open_folder(path: str) -> Iterator[int]:
    """A descriptor of the folder at this canonical path; no part of the path may be a link. Raises OSError."""
    with Descriptor(os.open("/", PASS_FLAGS)) as top:
        folder = open_below(top, path, "")
    with Descriptor(folder):
        yield folder


def open_below(top: int, relpath: str, shown: str) -> int:
    """A new descriptor of the folder at `relpath` below the open folder `top`; no part of it may be a link. Raises
    OSError with the path of the part that could not be opened, which begins with `shown`, the path of `top`."""
    parts = [part for part in relpath.split("/") if part]
    if not parts:
        return os.open(".", FOLDER_FLAGS, dir_fd=top)
    folder = top
    for index, part in enumerate(parts):
        flags = FOLDER_FLAGS if index == len(parts) - 1 else PASS_FLAGS
        try:
            inner = os.open(part, flags, dir_fd=folder)
        except OSError as error:
            raise OSError(error.errno, error.strerror, "/".join([shown, *parts[: index + 1]])) from None
        finally:
            if folder != top:
                os.close(folder)
        folder = inner
    return folder


def is_utf8(path: str) -> bool:
    """Return whether a path can be written as text, for example as JSON."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
