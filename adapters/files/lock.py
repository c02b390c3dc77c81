"""Advisory file locks: who holds one is alive, for the kernel lets go of it when the process ends (flock(2))."""

import errno
import fcntl
import os
import time

FOLDER_WAIT_S = 2.0
FOLDER_POLL_S = 0.02


class Locked(Exception):
    """Someone else holds the lock; `pid` is who wrote its pid there, if that can be read."""

    def __init__(self, path: str, pid: int | None) -> None:
        super().__init__(path)
        self.pid = pid


def hold(path: str) -> int:
    """Take the lock and keep it for the life of this process; returns the descriptor. Raises Locked, OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(descriptor, 20).strip()
        os.close(descriptor)
        raise Locked(path, int(holder) if holder.isdigit() else None) from None
    except BaseException:
        os.close(descriptor)
        raise
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def hold_folder(folder: int) -> bool:
    """Lock an open folder until it is closed; False when another process keeps it for `FOLDER_WAIT_S`. Raises OSError.

    A network's file system that cannot lock folders is taken as one that nobody else has locked.
    """
    deadline = time.monotonic() + FOLDER_WAIT_S
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(FOLDER_POLL_S)
        except OSError as error:
            if error.errno not in (errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP):
                raise
            return True
        else:
            return True


def is_held(path: str) -> bool:
    """Whether a living process holds the lock; False where there is no such file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
