"""The harness table: the coding agents omac knows, and where each keeps its skills."""

import msgspec

from omac.domain.refusal import Refusal

SHARED_BASE = "agents"  # .agents/skills is read by every harness


class Harness(msgspec.Struct, frozen=True):
    """A coding agent: `base` is its dot folder's name without the dot, `serve` the argv of its long-lived form."""

    name: str
    aliases: tuple[str, ...]
    base: str
    serve: tuple[str, ...]

    @property
    def bases(self) -> tuple[str, ...]:
        """Base folders whose `skills` this harness sees, in order of precedence: its own, then the shared one."""
        return (self.base, SHARED_BASE)


HARNESSES = (
    Harness("opencode", ("oc",), "opencode", ("opencode", "serve")),
    Harness("claude", ("claude-code", "cc"), "claude", ("claude",)),
    Harness("codex", ("cx",), "codex", ("codex",)),
    Harness("copilot", ("co",), "copilot", ("copilot",)),
    Harness("pi", (), "pi", ("pi",)),
)
DEFAULT_HARNESS = HARNESSES[0]


def harness_named(name: str) -> Harness:
    """The harness of that name or alias. Raises Refusal (misuse) that lists them all."""
    for harness in HARNESSES:
        if name == harness.name or name in harness.aliases:
            return harness
    known = ", ".join(" or ".join((h.name, *h.aliases)) for h in HARNESSES)
    raise Refusal("misuse", f"unknown harness {name!r}; known are: {known}", fix=["omac serve --help"])
