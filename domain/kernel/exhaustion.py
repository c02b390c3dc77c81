"""Exhaustion: the system has none left of something, for now. That says nothing about what was asked for."""

import errno

EXHAUSTED = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN))


def raise_exhaustion(problem: BaseException) -> None:
    """Raise the OSError behind a problem, if it says that descriptors, memory or processes ran out.

    The problem is that error itself, or was raised from it. EAGAIN of a file is none: another program has a lease on
    that file (fcntl(2)).
    """
    cause: BaseException | None = problem
    while cause is not None:
        if isinstance(cause, OSError) and is_exhaustion(cause):
            raise cause
        cause = cause.__cause__


def is_exhaustion(error: OSError) -> bool:
    """Return whether an error says that descriptors, memory or processes ran out."""
    return error.errno in EXHAUSTED and (error.errno != errno.EAGAIN or error.filename is None)
