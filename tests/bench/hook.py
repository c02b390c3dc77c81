"""The time that the hook adds to an agent's tool call, against an interpreter that does nothing, in the same run."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.report import Figure, median, publish
from nested_worktree import ground

INSTALLED = Path(sys.executable).with_name("omac")
PEER = ("python3", "-I", "-S", "-c", "pass")
ROUNDS = 60
BOUNDS = {"allow": 3.5, "denial": 5.0}


def main() -> bool:
    """Measure in turn, so that a disturbance of one disturbs all; return whether the bounds hold."""
    assert INSTALLED.exists(), f"{INSTALLED} is not there: omac is not installed"
    hook = [str(INSTALLED), "hook", "pre-tool-use"]
    with ground() as repository:
        environment = {**os.environ, **repository.environment, "PATH": os.environ["PATH"]}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed program is compiled once
        payloads = {
            "allow": payload(repository.worktree / "src" / "a.py", repository.worktree),
            "denial": payload(repository.main / "src" / "a.py", repository.worktree),
        }
        peer = [shutil.which("python3", path=environment["PATH"]) or "python3", *PEER[1:]]
        samples: dict[str, list[float]] = {"peer": [], **{name: [] for name in payloads}}
        for number in range(ROUNDS + 1):
            round_ms = {"peer": spent_ms(peer, b"", environment, 0)}
            for name, document in payloads.items():
                round_ms[name] = spent_ms(hook, document, environment, 0 if name == "allow" else 2)
            if number:  # the first warms up
                for name, ms in round_ms.items():
                    samples[name].append(ms)
        recorded = len(list((repository.state / "spool").iterdir()))
        assert recorded == ROUNDS + 1, f"{recorded} denials were recorded"
    return publish("hook", [figure(name, samples[name], samples["peer"], bound) for name, bound in BOUNDS.items()])


def payload(path: Path, cwd: Path) -> bytes:
    """Return the payload of an ordinary Write of 4 kB."""
    return json.dumps(
        {
            "session_id": "s",
            "cwd": str(cwd),
            "hook_event_name": "PreToolUse",
            "tool_name": "Write",
            "tool_input": {"file_path": str(path), "content": "line\n" * 800},
        }
    ).encode()


def spent_ms(argv: Sequence[str], document: bytes, environment: Mapping[str, str], status: int) -> float:
    """Return the milliseconds from start to end of one process."""
    began = time.perf_counter()
    done = subprocess.run(argv, input=document, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    elapsed = time.perf_counter() - began
    assert done.returncode == status, (argv, done.returncode)
    return elapsed * 1000


def figure(name: str, ours: Sequence[float], peer: Sequence[float], bound: float) -> Figure:
    """Return a row with the median of the ratios of all rounds."""
    ratio = median([a / b for a, b in zip(ours, peer, strict=True)])
    return Figure(
        f"hook, {name}", f"{median(ours):.1f} ms", f"{median(peer):.1f} ms (python3 -I -S -c pass)", f"{ratio:.2f}x",
        f"<= {bound}x", ratio <= bound,
    )  # fmt: skip
