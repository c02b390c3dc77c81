"""The log of a sidecar: what it prints, appended start after start, readable by its owner only."""

import os
import re
import stat
from collections.abc import Collection, Iterable
from contextlib import suppress

from msgspec.json import encode

from omac.adapters.files.descriptor import Descriptor
from omac.adapters.linux import syscall
from omac.journal.folders import make_private

ROTATE_BYTES = 8 * 1024 * 1024
BOUND_BYTES = 64 * 1024 * 1024  # on the disk, while its sidecar runs
KEPT_BYTES = 16 * 1024 * 1024
BLOCK_BYTES = 512  # that st_blocks counts (stat(2))
HOLE_STEP = 1024 * 1024  # a multiple of each file system's block: only whole ones are freed
COMPLAINT_BYTES = 2_000  # a trace of Python's or Node's
LOGS_MAX = 1_000  # in one folder: a server meets any number of directories
_FALLOCATE = {"x86_64": 285, "aarch64": 47}
_PUNCH_HOLE = 0x1 | 0x2  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
_LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")


def open_log(directory: str, label: str) -> int:
    """A descriptor that appends to `<directory>/<label>.log` (0600); the caller closes it.

    The directory is created if need be and made 0700. A log of more than ROTATE_BYTES becomes `<label>.log.1`
    first. Raises OSError, ValueError for a label that is not a plain file name.
    """
    if not _LABEL.fullmatch(label):
        raise ValueError(f"{label!r} cannot name a log file")
    make_private(directory)
    with Descriptor(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)) as folder:
        os.fchmod(folder, 0o700)
        log = _open_at(folder, f"{label}.log")
        if os.fstat(log).st_size > ROTATE_BYTES:
            os.close(log)
            os.rename(f"{label}.log", f"{label}.log.1", src_dir_fd=folder, dst_dir_fd=folder)
            log = _open_at(folder, f"{label}.log")
        return log


def make_room(log: str, in_use: Collection[str]) -> None:
    """Remove the logs that were written longest ago, beyond LOGS_MAX with the one at `log`, from its folder; those at
    paths `in_use` stay."""
    directory = os.path.dirname(log)
    with suppress(OSError):
        paths = {os.path.join(directory, name) for name in os.listdir(directory)} | {log}
        if (surplus := len(paths) - LOGS_MAX) > 0:
            removable = paths - {log, *in_use}
            for path in sorted(removable, key=lambda path: os.lstat(path).st_mtime_ns)[:surplus]:
                os.unlink(path)


def is_long(log: str) -> bool:
    """Return whether a log takes more than BOUND_BYTES of the disk."""
    try:
        return os.lstat(log).st_blocks * BLOCK_BYTES > BOUND_BYTES
    except OSError:
        return False


def bound(logs: Iterable[str]) -> None:
    """Free the disk of what each of these long logs has before its last KEPT_BYTES.

    The beginning becomes a hole, and everything behind stays at its offset, for the sidecar and who follows the log
    have it open. A file system without holes keeps the whole.
    """
    for path in logs:
        with suppress(OSError), Descriptor(os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK)) as log:
            status = os.fstat(log)
            if stat.S_ISREG(status.st_mode):
                hole = (status.st_size - KEPT_BYTES) // HOLE_STEP * HOLE_STEP
                syscall.call(_FALLOCATE[os.uname().machine], log, _PUNCH_HOLE, 0, hole)


def write_header(log: int, skill: str, port: int, argv: list[str]) -> None:
    """One line that begins a start: JSON strings, so that no argument can forge another line. Raises OSError."""
    os.write(log, b"[omac] sidecar %s starts: port=%d argv=%s\n" % (encode(skill), port, encode(argv)))


def tail(log: int, size_max: int = 300) -> str:
    """The end of what an already open file holds, as one line of text, for a message to a person."""
    size = os.fstat(log).st_size
    return " ".join(os.pread(log, size_max, max(0, size - size_max)).decode("utf-8", "replace").split())


def complains_of_read_only(log: str) -> bool:
    """Return whether what its last start printed in the end names a read-only file system (EROFS)."""
    try:
        with Descriptor(os.open(log, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)) as opened:
            return "read-only file system" in tail(opened, COMPLAINT_BYTES).rpartition("[omac] sidecar")[2].lower()
    except OSError:
        return False


def _open_at(folder: int, name: str) -> int:
    # Non-blocking, or a fifo in its place would hold omac until someone reads it.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    log = os.open(name, flags, 0o600, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(log).st_mode):
            raise OSError("it is not a regular file; remove it")
        os.fchmod(log, 0o600)
        os.set_blocking(log, True)
    except BaseException:
        os.close(log)
        raise
    return log
