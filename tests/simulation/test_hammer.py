"""Random hammering never leaves a route to a dead sidecar, an orphan, or a directory in a passing state."""

import os
import random

import pytest
from simulation.hammer import hammer
from tiers import everything

SECONDS = 10.0 if everything() else 5.0
OPERATIONS_MIN = 25 if everything() else 10


@pytest.mark.full
async def test_hammered_directories_come_to_rest() -> None:
    """Directories come to rest after many seconds of random operations; OMAC_SEED repeats a run."""
    seed = int(os.environ.get("OMAC_SEED") or random.getrandbits(32))
    print(f"OMAC_SEED={seed}")
    assert await hammer(SECONDS, seed) >= OPERATIONS_MIN
