"""The report of a benchmark: a table for people on stdout, and JSON beside it for programs."""

import json
import os
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

RESULTS = Path("bench-results")


class Figure(NamedTuple):
    """A figure: `ours` and its `peer` from the same run, and the bound that their relation must keep."""

    name: str
    ours: str
    peer: str
    relation: str
    bound: str
    holds: bool


def median(values: Sequence[float]) -> float:
    """Return the middle value."""
    return statistics.median(values)


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the value that `percent` of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def publish(bench: str, figures: Sequence[Figure]) -> bool:
    """Print the table, and write bench-results/BENCH.json; return whether every bound holds."""
    rows = [("figure", "ours", "peer", "relation", "bound", "holds")]
    rows += [(f.name, f.ours, f.peer, f.relation, f.bound, "yes" if f.holds else "NO") for f in figures]
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    print(f"\n{bench} ({os.cpu_count()} processors, {platform.platform()}, Python {platform.python_version()})")
    for row in rows:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{bench}.json").write_text(json.dumps([f._asdict() for f in figures], indent=2) + "\n")
    return all(figure.holds for figure in figures)
