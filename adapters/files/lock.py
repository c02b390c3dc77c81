"""Advisory file locks. The holder of one is alive, for the kernel releases the lock when the process ends
(flock(2))."""

import errno
import fcntl
import os
import time

from omac.domain.kernel.locks import NO_LOCKS, without_locks

OPENED_WAIT_S = 2.0
POLL_S = 0.01


class Locked(Exception):
    """The lock is held by someone else; `pid` is the process that its file names, if that can be read."""

    def __init__(self, path: str, pid: int | None) -> None:
        super().__init__(path)
        self.pid = pid


def open_file(path: str) -> int:
    """Open a lock file, which is created where none is. Raises OSError."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def acquire(descriptor: int, *, shared: bool = False) -> None:
    """Lock an open file until it is closed, as soon as others allow it. Raises OSError."""
    fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)


def try_acquire(descriptor: int, *, shared: bool = False) -> bool:
    """Lock an open file until it is closed, unless others hold it; returns whether it is locked. Raises OSError."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def acquire_within(descriptor: int, wait_s: float) -> bool:
    """Lock an open file until it is closed; False when others keep it for so long. Raises OSError."""
    deadline = time.monotonic() + wait_s
    while not try_acquire(descriptor):
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)
    return True


def hold(path: str) -> int:
    """Take the lock and keep it for the life of this process; returns the descriptor. Raises Locked, OSError."""
    while True:
        descriptor = open_file(path)
        try:
            if not try_acquire(descriptor):
                holder = os.read(descriptor, 20).strip()
                raise Locked(path, int(holder) if holder.isdigit() else None)
            if os.fstat(descriptor).st_nlink:  # else its holder has removed it
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, str(os.getpid()).encode(), 0)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def remove(path: str, descriptor: int) -> None:
    """Let go of a lock that `hold` gave, and remove its file: a process that waits for it finds that it is gone."""
    try:
        os.unlink(path)
    except OSError:
        pass  # it is harmless
    os.close(descriptor)


def hold_opened(descriptor: int) -> bool:
    """Lock an open file or folder until it is closed; False when others keep it for `OPENED_WAIT_S`. Raises OSError.

    What a network's file system cannot lock is taken as something that nobody else has locked.
    """
    try:
        return acquire_within(descriptor, OPENED_WAIT_S)
    except OSError as error:
        if error.errno not in (errno.EBADF, *NO_LOCKS):
            raise
        return True


def is_held(path: str) -> bool:
    """Return whether a living process holds the lock; False if the file does not exist. Raises Refusal (state-unusable)
    where its file system has no locks, OSError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        return not try_acquire(descriptor, shared=True)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        raise without_locks(os.path.dirname(path)) from None
    finally:
        os.close(descriptor)
