"""The clock of this machine, for what is recorded and signed."""

import time

from omac.domain.kernel.moments import recordable


def now_ns() -> int:
    """Return the time in nanoseconds since 1970, UTC. Raises Refusal (state-unusable) where the clock is wrong."""
    return recordable(time.time_ns())
