"""A minute of random operations on four directories: the same as in the tests, for longer."""

import os
import random

import trio
from bench.report import Figure, publish
from simulation.hammer import hammer

SECONDS = 60.0


def main() -> bool:
    """Hammer; return True when all operations settled, or raise."""
    seed = int(os.environ.get("OMAC_SEED") or random.getrandbits(32))
    print(f"  OMAC_SEED={seed}", flush=True)
    operations = trio.run(hammer, SECONDS, seed)
    return publish(
        "hammer", [Figure(f"random operations in {SECONDS:.0f} s", str(operations), "", "", "all settled", True)]
    )
