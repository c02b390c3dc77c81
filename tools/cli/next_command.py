"""The command by which a person goes on: an agent that is installed, else a shell where an agent would run."""

import shutil
from collections.abc import Mapping

from omac.domain.harness.table import HARNESSES
from omac.domain.kernel.refusal import quoted
from omac.tools.terminal.working_folder import is_current


def start_command(environment: Mapping[str, str], options: str = "") -> tuple[str, bool]:
    """Return the command that starts the first agent that is installed, with these options, and whether one is."""
    path = environment.get("PATH")
    agent = next((harness.name for harness in HARNESSES if shutil.which(harness.program, path=path)), None)
    if agent is None:
        return f"omac start{options} -- bash", False
    return f"omac start {agent}{options}", True


def next_commands(project: str, environment: Mapping[str, str]) -> tuple[str, str]:
    """Return the command that starts an agent in a project, and the one by which a server takes it in; both name the
    project unless it is the current folder."""
    where = "" if is_current(project) else quoted(project)
    options = f" --workdir {where}" if where else ""
    return start_command(environment, options)[0], f"omac activate {where}".rstrip()
