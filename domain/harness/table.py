"""The harness table: every coding agent omac knows."""

from __future__ import annotations

from omac.domain.harness.harness import SHARED_BASE
from omac.domain.harness.names import EXAMPLE, NAMES, load
from omac.domain.kernel.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omac.domain.harness.harness import Harness

HARNESSES: tuple[Harness, ...] = tuple(map(load, NAMES))
DEFAULT_HARNESS: Harness = HARNESSES[0]
BASES = (SHARED_BASE, *dict.fromkeys(harness.base for harness in HARNESSES))  # in which any agent finds skills
_ALSO = """
    .claude-plugin/plugin.json .cursor/mcp.json .gemini/settings.json .lsp.json .mcp.json .opencode/opencode.json
    .opencode/opencode.jsonc .opencode/tui.json .opencode/tui.jsonc .vscode/mcp.json opencode.json opencode.jsonc
    tui.json tui.jsonc
"""
# Settings in a project that may name commands: agents run these by themselves.
PROJECT_SETTINGS = tuple(dict.fromkeys((*(name for harness in HARNESSES for name in harness.settings), *_ALSO.split())))
# Variables by which these settings name the project.
PROJECT_VARIABLES = tuple(
    harness.hook.project_variable for harness in HARNESSES if harness.hook and harness.hook.project_variable
)


def harness_named(name: str, command: str = "--harness") -> Harness:
    """Return the harness of that name or alias. Raises Refusal (misuse) that lists them all; a known name is to follow
    the `command`."""
    for harness in HARNESSES:
        if name == harness.name or name in harness.aliases:
            return harness
    from difflib import get_close_matches  # late: few names are mistyped

    known = ", ".join(" or ".join((h.name, *h.aliases)) for h in HARNESSES)
    near = get_close_matches(name, [word for h in HARNESSES for word in (h.name, *h.aliases)], 1)
    hint = f"did you mean {near[0]}? known are: {known}" if near else f"known are: {known}"
    fix = f"{command} {near[0] if near else EXAMPLE}"
    raise Refusal("misuse", f"unknown harness {name!r}; {hint}", fix=[fix])


def install_hints(program: str) -> list[str]:
    """Return the commands that install a program, known by its name; none where it is no harness's."""
    return [harness.install for harness in HARNESSES if harness.program == program]
