"""The names of the harnesses: a line for each, whose module in this folder has the same name and says all the rest; and
the names by which omac's hooks know what calls them.

Loaded by programs whose whole start is a few milliseconds, so a harness's own module is loaded when it is asked for.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from omac.domain.harness.harness import Harness, Hook

HAS_HOOK = {  # each harness, the default first, and whether omac has a hook for it
    "opencode": False,
    "claude": True,
    "codex": True,
    "copilot": False,
    "pi": False,
}
NAMES = tuple(HAS_HOOK)
HOOKED_NAMES = tuple(name for name, has_hook in HAS_HOOK.items() if has_hook)
EXAMPLE = "claude"  # in commands that a help or a refusal shows

GUARDED, BEGUN, ENDED = "PreToolUse", "SessionStart", "SessionEnd"  # the events of agents that have hooks of omac
INSTALLED = "--installed"  # tells a hook in a person's own settings from one that `omac start` gives to its agent
LAUNCHED = "OMAC_BRIDGE"  # set to LAUNCH for an agent that omac gave its hooks at the launch: installed ones are silent
LAUNCH = "launch"
CONTROL_VARIABLES = ("OMAC_CONTROL_BASE", "OMAC_CONTROL_SOCKET", "OMAC_CONTROL_TOKEN_FILE")  # not for tools' shells


def load(name: str) -> Harness:
    """Return the harness of a name that is one of NAMES."""
    module = __import__(f"{__package__}.{name}", fromlist=("HARNESS",))  # what importlib adds takes a millisecond
    harness: Harness = module.HARNESS
    return harness


def hooked() -> Iterator[tuple[Harness, Hook]]:
    """Yield the harnesses that omac has a hook for; each is loaded when its turn comes."""
    for name in HOOKED_NAMES:
        harness = load(name)
        assert harness.hook is not None, name
        yield harness, harness.hook


def listed(names: tuple[str, ...], conjunction: str) -> str:
    """Return names as a sentence has them: "a, b or c"."""
    *others, last = names
    return f"{', '.join(others)} {conjunction} {last}" if others else last
