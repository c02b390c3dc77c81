"""Exhaustion: the system has none left of something, for now. That says nothing about what was asked for."""

import errno

UNMAPPED = ("failed to map segment", "annot allocate memory")  # what dlopen(3) reports of a library
EXHAUSTED = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN))


def raise_exhaustion(problem: BaseException) -> None:
    """Raise the OSError behind a problem, if it says that descriptors, memory or processes ran out; ENOMEM for a
    MemoryError.

    The problem is that error itself, or was raised from it. EAGAIN of a file is none: another program has a lease on
    that file (fcntl(2)).
    """
    cause: BaseException | None = problem
    while cause is not None:
        if isinstance(cause, OSError) and is_exhaustion(cause):
            raise cause
        if is_out_of_memory(cause):
            raise OSError(errno.ENOMEM, "no memory is left") from cause
        cause = cause.__cause__


def is_exhaustion(error: OSError) -> bool:
    """Return whether an error says that descriptors, memory or processes ran out."""
    return error.errno in EXHAUSTED and (error.errno != errno.EAGAIN or error.filename is None)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that no memory is left, be it for an object, for the kernel, or for a library that
    was to be loaded."""
    if isinstance(error, ImportError):
        return any(text in str(error) for text in UNMAPPED)
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
