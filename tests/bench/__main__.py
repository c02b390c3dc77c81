"""Run the benchmarks that are named, or all of them; the exit code is 1 when a bound does not hold."""

import importlib
import sys
from collections.abc import Iterable

BENCHES = (
    "start",
    "journal",
    "replay",
    "activation",
    "registration",
    "hammer",
    "sandbox",
    "hook",
    "facade",
    "look",
    "clients",
    "soak",
    "chaos",
)
LONG = ("soak", "chaos")  # only when they are named
PARTS = {"journal": ("journal", "replay")}  # a benchmark of several modules; each of them can be named alone


def main(words: list[str]) -> int:
    """Run each benchmark in turn; words after the name of `chaos` are options of its own."""
    if words[:1] == ["chaos"]:
        return 0 if importlib.import_module("bench.chaos").main(words[1:]) else 1
    names = words
    unknown = sorted(set(names) - set(BENCHES))
    if unknown:
        print(f"no such benchmark: {', '.join(unknown)}; known: {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    held = []
    for name in parts(names or [bench for bench in BENCHES if bench not in LONG]):
        print(f"{name}:", flush=True)
        held.append(importlib.import_module(f"bench.{name}").main())
    return 0 if all(held) else 1


def parts(names: Iterable[str]) -> Iterable[str]:
    """Return the modules of benchmarks in turn, each of them once."""
    return dict.fromkeys(part for name in names for part in PARTS.get(name, (name,)))


sys.exit(main(sys.argv[1:]))
