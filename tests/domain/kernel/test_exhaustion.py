"""domain/kernel/exhaustion.py: exhaustion, which passes, is distinguished from problems that stay."""

import errno

import pytest

from omac.domain.kernel.exhaustion import raise_exhaustion


def test_exhaustion_is_raised_as_itself() -> None:
    """An exhaustion is raised as itself, even from an error that was raised from it."""
    passing = OSError(errno.EMFILE, "Too many open files")
    try:
        raise ValueError("the file cannot be read") from passing
    except ValueError as problem:
        with pytest.raises(OSError, match="Too many open files") as caught:
            raise_exhaustion(problem)
    assert caught.value is passing


@pytest.mark.parametrize(
    "problem", [MemoryError(), ImportError("x.so: failed to map segment from shared object"), ImportError(
        "libx.so.1: cannot create shared object descriptor: Cannot allocate memory")]
)  # fmt: skip
def test_missing_memory_is_an_exhaustion(problem: Exception) -> None:
    """Memory that is missing for an object or a library is raised as the error that the system has for it."""
    with pytest.raises(OSError, match="no memory is left") as caught:
        raise_exhaustion(problem)
    assert caught.value.errno == errno.ENOMEM


def test_other_problems_are_left() -> None:
    """Other problems, such as a missing file, raise nothing."""
    raise_exhaustion(FileNotFoundError(errno.ENOENT, "No such file or directory"))
    raise_exhaustion(ValueError("nonsense"))
    raise_exhaustion(ImportError("No module named 'x'"))
    raise_exhaustion(BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable", "a file with a lease"))
