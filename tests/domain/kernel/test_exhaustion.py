"""domain/kernel/exhaustion.py: what passes is told from what is wrong."""

import errno

import pytest

from omac.domain.kernel.exhaustion import raise_exhaustion


def test_exhaustion_is_raised_as_itself() -> None:
    """An error that was raised from it counts as well."""
    passing = OSError(errno.EMFILE, "Too many open files")
    try:
        raise ValueError("the file cannot be read") from passing
    except ValueError as problem:
        with pytest.raises(OSError, match="Too many open files") as caught:
            raise_exhaustion(problem)
    assert caught.value is passing


def test_other_problems_are_left() -> None:
    """A missing file stays missing."""
    raise_exhaustion(FileNotFoundError(errno.ENOENT, "No such file or directory"))
    raise_exhaustion(ValueError("nonsense"))
