"""Exhaustion: the system has none left of something, for now. That says nothing about what was asked for."""

import errno

EXHAUSTED = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN))


def raise_exhaustion(problem: BaseException) -> None:
    """Raise the OSError behind a problem, if it says that descriptors, memory or processes ran out.

    The problem is that error itself, or was raised from it.
    """
    cause: BaseException | None = problem
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in EXHAUSTED:
            raise cause
        cause = cause.__cause__
