"""The git that omac runs on the host."""

from __future__ import annotations

from omac.adapters.linux import host_programs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def environment(host: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a git that omac runs: it, and what it runs, come from no folder that PATH names."""
    found = {name: value for name, value in host.items() if not name.startswith("GIT_")}
    return found | {"PATH": host_programs.SEARCHED}
