"""A skill that does not answer, as people read it: its state, why, and the commands that mend it."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TextIO

from omac.domain.kernel.refusal import quoted
from omac.projections.status import shown_problem
from omac.tools.terminal.working_folder import is_current

APPROVES = ("omac approve ", "omac register ")


class SkillProblem(NamedTuple):
    """The `state` of a skill in people's words, the `detail` that explains it, and the commands of its `fix`."""

    state: str
    detail: str
    fix: tuple[str, ...]


def problem_of(skill: Mapping[str, Any], workdir: str, stream: TextIO) -> SkillProblem:
    """Return what people read of a skill object of JSON, in the directory `workdir`; empty for what all share.

    Where `stream` is a terminal, a person reads the code before approving it, by a command that fits a line, which is
    that of the home folder for a skill that all share; others get the one that approves this code and no other.
    """
    state, detail = shown_problem(skill["state"], skill.get("detail", ""))
    fix = () if state == "starting" else tuple(skill.get("fix", ()))  # it needs nothing but a moment
    if state != skill["state"] and any(command.startswith(APPROVES) for command in fix) and stream.isatty():
        shared = not workdir or any("--global" in command.split() for command in fix)
        place = " ~" if shared else "" if is_current(workdir) else f" {quoted(workdir)}"
        fix = (f"omac trust{place}",)
    return SkillProblem(state, detail, fix)
