"""The memory that a call takes."""

import tracemalloc
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


def with_peak(call: Callable[[], Result]) -> tuple[Result, int]:
    """Return the result of a call, and the most bytes that Python had allocated for it at a time."""
    tracemalloc.start()
    try:
        result = call()
        return result, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
