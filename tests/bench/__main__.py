"""Run the benchmarks that are named, or all of them; the exit code is 1 when a bound does not hold."""

import importlib
import sys

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


def main(words: list[str]) -> int:
    """Run each in turn; what follows the name of `chaos` is its own."""
    if words[:1] == ["chaos"]:
        return 0 if importlib.import_module("bench.chaos").main(words[1:]) else 1
    names = words
    unknown = sorted(set(names) - set(BENCHES))
    if unknown:
        print(f"no such benchmark: {', '.join(unknown)}; there are: {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    held = []
    for name in names or [bench for bench in BENCHES if bench not in LONG]:
        print(f"{name}:", flush=True)
        held.append(importlib.import_module(f"bench.{name}").main())
    return 0 if all(held) else 1


sys.exit(main(sys.argv[1:]))
