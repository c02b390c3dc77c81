"""A file of notes as a witness: each is appended once, followed by an empty line; nothing is ever taken away.

Rules

1. The file is this user's alone, and no link. Its folder can be changed by nobody else, or only as /tmp can.
2. A note that is at its end already is flushed, and not written again: omac died before it could record that.
3. One note is written at a time: a delivery that nobody waits for any more may still be at a disk that stalls.
4. What a full disk cut is taken back, and what a loss of power cut is ended by empty lines: the next note stands on
   lines of its own.
"""

import errno
import os
import stat

from omac.adapters.files import bounded
from omac.adapters.files.descriptor import Descriptor
from omac.adapters.files.lock import hold_opened

TAIL_BYTES = 1 << 16


class NoteFile:
    """The file at a canonical path, made where there is none."""

    def __init__(self, path: str) -> None:
        self.name = path

    def lacks(self, size: int) -> bool:
        """Return whether the end of the file is without the checkpoint of `size` events, the last that was delivered. A
        file that this user may not read is believed to have it."""
        try:
            descriptor = os.open(self.name, bounded.FLAGS)
        except OSError as error:
            return error.errno == errno.ENOENT
        with Descriptor(descriptor):
            seen = os.fstat(descriptor)
            regular = stat.S_ISREG(seen.st_mode)
            tail = os.pread(descriptor, TAIL_BYTES, max(0, seen.st_size - TAIL_BYTES)) if regular else b""
        return f"\n{size}\n".encode() not in tail

    def deliver(self, _size: int, note: str) -> None:
        """Append a note and flush it to the disk. Raises OSError."""
        folder = os.stat(os.path.dirname(self.name))
        if folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not folder.st_mode & stat.S_ISVTX:
            raise PermissionError(None, f"other users can change the folder of {self.name}")
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        if os.path.islink(self.name):
            raise PermissionError(None, f"{self.name} is a symbolic link; name the file itself")
        with open(os.open(self.name, flags, 0o600), "ab+", buffering=0) as file:
            if not hold_opened(file.fileno()):
                raise BlockingIOError(None, f"another delivery to {self.name} has not ended")
            seen = os.fstat(file.fileno())
            if not stat.S_ISREG(seen.st_mode) or seen.st_uid != os.geteuid() or seen.st_mode & 0o022:
                raise PermissionError(None, f"{self.name} is no regular file that you alone can change")
            content = note.encode() + b"\n"
            file.seek(max(0, seen.st_size - TAIL_BYTES))
            tail = file.read(TAIL_BYTES)
            if tail.endswith(content):
                os.fsync(file.fileno())
                return
            if tail and not tail.endswith(b"\n\n"):
                content = b"\n\n" + content
            try:
                if file.write(content) != len(content):
                    raise OSError(None, f"{self.name} is full")
                os.fsync(file.fileno())
            except OSError:
                os.ftruncate(file.fileno(), seen.st_size)
                raise
