"""Acknowledged events are in the journal, once, and the journal folds, for every carrier and every fault.

`simulation/carriers.py` has the processes, their faults, and what must hold. OMAC_SEED repeats one schedule;
OMAC_SOAK_SCHEDULES is how many there are.
"""

import os
import random
import shutil
import tempfile
from pathlib import Path

import pytest
from simulation.carriers import schedule
from tiers import everything

SCHEDULES = int(os.environ.get("OMAC_SOAK_SCHEDULES") or (100 if everything() else 8))
PARTS = 10 if SCHEDULES >= 100 else 1  # which workers share among them
MEMORY = "/dev/shm"  # what a disk does with an fsync is not the question here


@pytest.mark.parametrize("part", range(PARTS))
async def test_nothing_acknowledged_is_lost(part: int) -> None:
    """Random schedules of a server, runs beside it, commands, programs that spool, and faults of each lose no event."""
    chosen = os.environ.get("OMAC_SEED")
    first = int(chosen) if chosen else random.getrandbits(31)
    for seed in range(first, first + (1 if chosen else SCHEDULES // PARTS)):
        folder = Path(tempfile.mkdtemp(prefix="carriers", dir=MEMORY if os.path.isdir(MEMORY) else None))
        try:
            assert await schedule(folder, seed) > 0
        except BaseException:
            print(f"OMAC_SEED={seed}; its journal is in {folder}")
            raise
        shutil.rmtree(folder)
