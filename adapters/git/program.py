"""The git that omac runs on the host."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


def environment(host: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a git that omac runs: the system's git, where there is one, and not one that lies in a
    folder of PATH in which a program of a sandbox may write, such as a project's virtual environment."""
    found = {name: value for name, value in host.items() if not name.startswith("GIT_")}
    absolute = [folder for folder in host.get("PATH", "").split(":") if folder.startswith("/")]
    return found | {"PATH": ":".join((_SYSTEM_PATH, *absolute))}
