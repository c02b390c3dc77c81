"""Background work, also on a system that starts no thread."""

import threading

import pytest

from omac.adapters.linux.background import Background

STACK_BYTES = 1 << 46  # more than any address space has room for: pthread_create(3) fails with EAGAIN


def test_without_threads_it_is_done_at_once() -> None:
    """Work without a thread is done at once, and its waiter gets the error as from a thread."""
    done: list[int] = []

    def fail() -> None:
        raise OSError("the disk is full")

    before = threading.stack_size(STACK_BYTES)
    try:
        Background(lambda: done.append(1)).wait()
        failed = Background(fail)
    finally:
        threading.stack_size(before)
    assert done == [1]
    with pytest.raises(OSError, match="the disk is full"):
        failed.wait()
