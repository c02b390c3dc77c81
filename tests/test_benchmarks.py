"""The benchmarks run to their end. Their bounds are for `./bench` alone: no test is timed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "fewer"),
    [
        ("activation", "ROUNDS = 1"),
        ("hook", "ROUNDS = 1"),
        ("registration", "ROUNDS = 1"),
        ("sandbox", "ROUNDS = BUILD_ROUNDS = 1; FILES = 20"),
    ],
)
def test_a_benchmark_publishes_its_figures(name: str, fewer: str, tmp_path: Path) -> None:
    """With fewer rounds, a benchmark measures both sides and writes its figures."""
    begin = f"import bench.{name} as bench; exec({fewer!r}, vars(bench)); bench.main()"
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests")}
    done = subprocess.run([sys.executable, "-c", begin], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "bench-results" / f"{name}.json").read_text())
    assert figures
    assert all(figure["ours"] and figure["relation"] for figure in figures)
