"""The harness table: every coding agent omac knows."""

from __future__ import annotations

from omac.domain.harness.names import EXAMPLE, NAMES, load
from omac.domain.kernel.refusal import Refusal, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omac.domain.harness.harness import Harness

HARNESSES: tuple[Harness, ...] = tuple(map(load, NAMES))
DEFAULT_HARNESS: Harness = HARNESSES[0]


def harness_named(name: str) -> Harness:
    """Return the harness of that name or alias. Raises Refusal (misuse) that lists them all."""
    for harness in HARNESSES:
        if name == harness.name or name in harness.aliases:
            return harness
    known = ", ".join(" or ".join((h.name, *h.aliases)) for h in HARNESSES)
    fix = [f"omac start {EXAMPLE}", f"omac start -- {quoted(name)}  # to run a command of that name"]
    raise Refusal("misuse", f"unknown harness {name!r}; known are: {known}", fix=fix)


def install_hints(program: str) -> list[str]:
    """Return the commands that install a program, known by its name; none where it is no harness's."""
    return [harness.install for harness in HARNESSES if harness.program == program]
