"""The memory that a call, or another program, takes."""

import tracemalloc
from collections.abc import Callable, Sequence
from typing import TypeVar

from real_sandbox import SYSTEM_PYTHON

Result = TypeVar("Result")

MEASURE = """\
import os, resource, subprocess, sys
status = subprocess.call(sys.argv[2:])
os.write(int(sys.argv[1]), b"%d" % resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(status if status >= 0 else 128 - status)
"""


def measured(line: Sequence[str], report: int) -> list[str]:
    """Return a command line that runs `line` and writes to the descriptor `report` how many KiB of memory the largest
    of its processes had. The kernel counts as a process's own what its parent had at the fork (getrusage(2)), so a
    small process comes in between."""
    return [SYSTEM_PYTHON, "-I", "-S", "-c", MEASURE, str(report), *line]


def with_peak(call: Callable[[], Result]) -> tuple[Result, int]:
    """Return the result of a call, and the most bytes that Python had allocated for it at a time."""
    tracemalloc.start()
    try:
        result = call()
        return result, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
