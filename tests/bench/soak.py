"""The long form of the fuzz tests: what decides about grants and writes, with many more examples than `./test` can try.

The number is 100,000 for each, or OMAC_SOAK_EXAMPLES.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from bench.report import Figure, publish

TESTS = Path(__file__).parent.parent
EXAMPLES = os.environ.get("OMAC_SOAK_EXAMPLES", "100000")
FUZZES = (
    ("git files", TESTS / "adapters" / "git" / "test_fuzz.py"),
    ("write guard payloads", TESTS / "tools" / "test_hook_fuzz.py"),
)


def main() -> bool:
    """Run them; True when none found anything."""
    return publish("soak", [_soaked(name, path) for name, path in FUZZES])


def _soaked(name: str, path: Path) -> Figure:
    begun = time.monotonic()
    done = subprocess.run(
        # Not by -m, which would put the checkout before the tests on the path.
        [Path(sys.executable).parent / "pytest", "-q", "-p", "no:cacheprovider", str(path)],
        cwd=TESTS.parent,
        env=os.environ | {"OMAC_SOAK_EXAMPLES": EXAMPLES},
    )
    taken = f"{time.monotonic() - begun:.0f} s"
    found = "none" if done.returncode == 0 else f"exit status {done.returncode}"
    return Figure(f"{name}, {EXAMPLES} examples", taken, "-", found, "none gets out", done.returncode == 0)
