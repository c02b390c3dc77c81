"""The install script that a skill brings for this machine: shown to the person who may run it, never run by omac."""

import os
import platform
import sys
from collections.abc import Mapping

import msgspec

from omac.domain.skills.meta import FoundSkill
from omac.tools.compose.skill_files import start_of
from omac.tools.terminal.columns import QUOTED
from omac.tools.terminal.render import lines_of_file, print_line

LINES_MAX = 200
BYTES_MAX = 64 * 1024
TAB = 8


class InstallScript(msgspec.Struct, frozen=True):
    """`path` is absolute. `problem` says why there is no `content` to show; `cut`: there is more of it."""

    platform: str
    path: str
    content: str = ""
    cut: bool = False
    problem: str | None = None


def install_script(skill: FoundSkill, environment: Mapping[str, str]) -> InstallScript | None:
    """The script for this machine; None if the skill has none."""
    scripts = skill.sidecar.install_scripts if skill.sidecar else {}
    name = next((name for name in _platforms(environment) if name in scripts), None)
    if name is None:
        return None
    path = os.path.join(skill.source, scripts[name])
    try:
        content = start_of(skill.source, scripts[name], BYTES_MAX + 1)
    except OSError as error:
        return InstallScript(name, path, problem=error.strerror or type(error).__name__)
    text = content[:BYTES_MAX].decode(errors="backslashreplace").expandtabs(TAB)
    lines = text.removesuffix("\n").split("\n")
    cut = len(content) > BYTES_MAX or len(lines) > LINES_MAX
    return InstallScript(name, path, "\n".join(lines[:LINES_MAX]), cut)


def show_install_script(script: InstallScript) -> None:
    """Print the script in a box, with a note that omac does not run it."""
    if script.problem is not None:
        print_line(f"its install script for {script.platform}, {script.path}, cannot be shown: {script.problem}")
        return
    print_line(f"+-- install script for {script.platform}: {script.path}")
    print_line("|   omac does not run it. Read it, and run it yourself if the skill needs it.")
    print_line("|   The files that it changes need another approval: omac trust")
    print_line("+--")
    for line in script.content.split("\n"):
        for part in lines_of_file(f"| {line}".rstrip(), QUOTED):
            print_line(part)
    if script.cut:
        print_line("+-- the file has more of it")
    else:
        print_line("+--")


def _platforms(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of this machine in omac.yaml, the closest name first."""
    if sys.platform == "darwin":
        return ("macos",)
    if environment.get("WSL_DISTRO_NAME") or "microsoft" in platform.release().lower():
        return ("wsl", "linux")
    return ("linux",)
