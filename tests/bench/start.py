"""The time that commands and servers take to start, and the processor time of an idle server.

Each command is measured beside an interpreter that does nothing, and beside one that only imports the modules that the
command needs. All are taken in turn, so that a disturbance of one disturbs all. BENCH_IDLE_S is the time for which the
idle server is watched.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.report import Figure, median, publish
from machine import cpu_s
from real_omac import Omac, omac_in

from omac.journal.opening import open_journal

INSTALLED = Path(sys.executable).with_name("omac")
NOTHING = (sys.executable, "-I", "-S", "-c", "pass")
ROUNDS = 20
SERVES = 7
SETTLED_S = 3.0
IDLE_S = float(os.environ.get("BENCH_IDLE_S", "60"))
READS = "import typer, msgspec, sqlite3"
SERVER_NEEDS = "import typer, msgspec, sqlite3, eventsourcing.application, trio, quart_trio, hypercorn.trio, httptools"
BOUNDS = {  # words: how often an interpreter that does nothing fits into it, and what it must import
    ("version",): (10.0, "import gc, sys"),
    ("status",): (24.0, f"{READS}, http.client"),
    ("list",): (24.0, READS),
    ("settings", "show"): (24.0, READS),
    ("approvals",): (24.0, READS),
}
READY_MS_MAX = 800.0
IDLE_PERCENT_MAX = 0.3


def main() -> bool:
    """Measure all; return whether the bounds hold."""
    assert INSTALLED.exists(), f"{INSTALLED} is not there: omac is not installed"
    with tempfile.TemporaryDirectory(prefix="obs", dir="/tmp") as folder, omac_in(Path(folder)) as omac:
        open_journal(str(omac.state / "journal.db"), "bench", time.time_ns).close()
        return publish("start", [*commands(omac), serving(omac), idling(omac)])


def commands(omac: Omac) -> list[Figure]:
    """Measure each command with an empty journal."""
    imports = sorted({needed for _, needed in BOUNDS.values()})
    argvs: dict[object, Sequence[str]] = {"nothing": NOTHING}
    argvs |= {needed: (sys.executable, "-c", needed) for needed in imports}
    argvs |= {words: (str(INSTALLED), *words) for words in BOUNDS}
    samples = in_turn(argvs, omac, ROUNDS)
    figures = []
    for words, (bound, needed) in BOUNDS.items():
        ratio = median([ours / nothing for ours, nothing in zip(samples[words], samples["nothing"], strict=True)])
        peers = (
            f"{median(samples['nothing']):.1f} ms (python -I -S -c pass), {median(samples[needed]):.1f} ms ({needed})"
        )
        name = f"omac {' '.join(words)}"
        figures.append(
            Figure(name, f"{median(samples[words]):.1f} ms", peers, f"{ratio:.1f}x", f"<= {bound:g}x", ratio <= bound)
        )
    return figures


def in_turn(argvs: Mapping[object, Sequence[str]], omac: Omac, rounds: int) -> dict[object, list[float]]:
    """Return the milliseconds of each, by its key; the first round warms up and is not counted."""
    samples: dict[object, list[float]] = {key: [] for key in argvs}
    for number in range(rounds + 1):
        for key, argv in argvs.items():
            began = time.perf_counter()
            subprocess.run(
                argv, env=omac.environment, cwd=omac.root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            if number:
                samples[key].append((time.perf_counter() - began) * 1000)
    return samples


def serving(omac: Omac) -> Figure:
    """Measure the time from the start of `omac serve --no-inner --json` to its ready line."""
    ready, peer = [], []
    for number in range(SERVES + 1):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", SERVER_NEEDS], env=omac.environment, check=True)
        imported = time.perf_counter()
        server = omac.serve()
        ended = time.perf_counter()
        server.end()
        if number:
            ready.append((ended - imported) * 1000)
            peer.append((imported - began) * 1000)
    peer_text = f"{median(peer):.0f} ms (its imports alone)"
    relation = f"{median(ready) / median(peer):.2f}x"
    return Figure(
        "omac serve, ready", f"{median(ready):.0f} ms", peer_text, relation, f"<= {READY_MS_MAX:g} ms",
        median(ready) <= READY_MS_MAX,
    )  # fmt: skip


def idling(omac: Omac) -> Figure:
    """Measure the share of one core that an idle server uses."""
    server = omac.serve()
    time.sleep(SETTLED_S)
    before, began = cpu_s(server.process.pid), time.perf_counter()
    time.sleep(IDLE_S)
    percent = (cpu_s(server.process.pid) - before) / (time.perf_counter() - began) * 100
    server.end()
    return Figure(
        f"omac serve, idle for {IDLE_S:g} s", f"{percent:.2f}% of a core", "-", "-", f"< {IDLE_PERCENT_MAX}%",
        percent < IDLE_PERCENT_MAX,
    )  # fmt: skip
