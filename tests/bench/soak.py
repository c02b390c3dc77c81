"""The long form of the fuzz tests, with many more examples than `./test` can try.

The tests fuzz the decisions about grants and writes, and the schedules that drive all carriers of the execution path at
once. They also fuzz git folders that programs leave, and calls of skills whose clients and sidecars end at random.

The numbers are 100,000 examples of each (OMAC_SOAK_EXAMPLES), 5,000 schedules (OMAC_SOAK_SCHEDULES), 5,000 git folders
(OMAC_SOAK_GIT_FOLDERS), and a million calls (OMAC_SOAK_CALLS), which take ten minutes of two processors. OMAC_TEST_GIT
names a folder with another git.
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
    ("requests to the facade", TESTS / "adapters" / "facade" / "test_fuzzed.py"),
)
SCHEDULES = os.environ.get("OMAC_SOAK_SCHEDULES", "5000")
CARRIERS = TESTS / "simulation" / "test_carriers.py"
GIT_FOLDERS = os.environ.get("OMAC_SOAK_GIT_FOLDERS", "5000")
CALLS = os.environ.get("OMAC_SOAK_CALLS", "1000000")
CHAOS = TESTS / "tools" / "test_call_chaos.py"
PLANTED = TESTS / "adapters" / "git" / "test_random_git_folders.py"


def main() -> bool:
    """Run all fuzz tests; return whether none of them failed."""
    carriers = _soaked(f"all carriers, {SCHEDULES} schedules", CARRIERS, "nothing is lost")
    fuzzes = [_soaked(f"{name}, {EXAMPLES} examples", path, "none gets out") for name, path in FUZZES]
    planted = _soaked(f"git folders, {GIT_FOLDERS} examples", PLANTED, "nothing runs", "-n", "2")
    calls = _soaked(f"calls, {CALLS} of them", CHAOS, "each one is on record")
    return publish("soak", [carriers, *fuzzes, planted, calls])


def _soaked(name: str, path: Path, bound: str, *options: str) -> Figure:
    begun = time.monotonic()
    sizes = {
        "OMAC_SOAK_EXAMPLES": EXAMPLES,
        "OMAC_SOAK_SCHEDULES": SCHEDULES,
        "OMAC_SOAK_GIT_FOLDERS": GIT_FOLDERS,
        "OMAC_SOAK_CALLS": CALLS,
    }
    done = subprocess.run(
        # Not by -m, which would put the checkout before the tests on the path.
        [Path(sys.executable).parent / "pytest", "-q", "-p", "no:cacheprovider", "--all", *options, str(path)],
        cwd=TESTS.parent,
        env=os.environ | sizes,
    )
    duration = f"{time.monotonic() - begun:.0f} s"
    result = "none" if done.returncode == 0 else f"exit status {done.returncode}"
    return Figure(name, duration, "-", result, bound, done.returncode == 0)
