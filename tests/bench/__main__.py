"""Run the benchmarks that are named, or all of them; the exit code is 1 when a bound does not hold."""

import importlib
import sys

BENCHES = ("journal", "activation", "registration", "hammer", "sandbox", "hook")


def main(names: list[str]) -> int:
    """Run each in turn."""
    unknown = sorted(set(names) - set(BENCHES))
    if unknown:
        print(f"no such benchmark: {', '.join(unknown)}; there are: {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    held = []
    for name in names or BENCHES:
        print(f"{name}:", flush=True)
        held.append(importlib.import_module(f"bench.{name}").main())
    return 0 if all(held) else 1


sys.exit(main(sys.argv[1:]))
