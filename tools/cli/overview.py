"""Bare `omac`: where a project stands, in a few lines, and the command that comes next."""

import os
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence

from omac.domain.harness.harness import SHARED_BASE
from omac.domain.kernel.paths import below
from omac.domain.kernel.refusal import Refusal, quoted
from omac.services.skills.resolution import every
from omac.tools.cli.next_command import start_command
from omac.tools.cli.review import Review, review_of
from omac.tools.cli.status import lives_now
from omac.tools.compose.host_programs import find_program
from omac.tools.compose.project import project_of
from omac.tools.compose.registered_skills import Registry
from omac.tools.compose.scope_options import Where, at_once, is_home, search_of
from omac.tools.compose.skill_files import DiskSkillFolders
from omac.tools.terminal.columns import elided, elided_middle
from omac.tools.terminal.invocation import expanded
from omac.tools.terminal.render import print_line

SKILLS_SHOWN = 6
RUNS_SHOWN = 3
WIDTH = 80
BEGIN = "omac skill new hello"


def run(environment: Mapping[str, str]) -> int:
    """Show the project that holds the current directory. Raises Refusal."""
    here, home = os.path.realpath("."), os.path.realpath(expanded("~"))
    project = project_of(here, home)
    folders = DiskSkillFolders(environment)
    registry = Registry.read(environment, None)
    candidates = at_once(
        every(folders, search_of(Where(None if is_home(project) else project), folders), guidance=True)
    )
    reviews = [review_of(candidate, registry, folders) for candidate in candidates]
    runs = _runs(project, environment)
    print_line(elided_middle(f"project  {project}", WIDTH))
    _show_skills(reviews, environment)
    for number, line in enumerate(runs[:RUNS_SHOWN]):
        print_line(elided(f"{'runs' if number == 0 else '':<9}{line}", WIDTH))
    if len(runs) > RUNS_SHOWN:
        print_line(f"         and {len(runs) - RUNS_SHOWN} more: omac status")
    if not runs:
        print_line("runs     none here")
    is_project = not below(home, project)  # omac start refuses what holds the home folder
    command, why = _next(reviews, runs, environment, is_project=is_project)
    prefix = "" if here == project or not command.startswith("omac") else f"cd {quoted(project)} && "
    print_line("")
    line = f"next     {prefix}{command}  # {why}"
    print_line(line if len(line) <= WIDTH else line.partition("  # ")[0])  # a command is never cut
    if is_project and not reviews and command != BEGIN:
        print_line(f"         {prefix}{BEGIN}  # begin a skill of your own")
    print_line("         omac help  # every command")
    return 0


def _show_skills(reviews: Sequence[Review], environment: Mapping[str, str]) -> None:
    often = Counter(review.skill.name for review in reviews)
    rows = sorted(
        (_urgency(review, environment), _name(review, often[review.skill.name]), state_of(review, environment))
        for review in reviews
    )
    width = max((len(name) for _, name, _ in rows[:SKILLS_SHOWN]), default=0)
    for number, (_, name, state) in enumerate(rows[:SKILLS_SHOWN]):
        print_line(elided(f"{'skills' if number == 0 else '':<9}{name:<{min(width, 32)}}  {state}", WIDTH))
    if len(rows) > SKILLS_SHOWN:
        print_line(f"         and {len(rows) - SKILLS_SHOWN} more: omac list --all")
    if not rows:
        print_line(f"skills   none in .{SHARED_BASE}/skills or an agent's own folder")


def _name(reviewed: Review, count: int) -> str:
    """Return the name of a skill; where `count` skills have it, with its folder."""
    skill = reviewed.skill
    return skill.name if count == 1 else f"{skill.name} in .{skill.base}/skills"


def _urgency(reviewed: Review, environment: Mapping[str, str]) -> int:
    """Return the rank of a skill in the overview: skills that want attention come first."""
    order = ["broken", "changed", "not approved", "approved", "guidance"]
    return 3 * order.index(reviewed.state) - (1 if reviewed.missing(environment) else 0)


def state_of(reviewed: Review, environment: Mapping[str, str]) -> str:
    """Return whether a skill runs, or why not, in a few words."""
    missing = reviewed.missing(environment)
    match reviewed.state:
        case "guidance":
            return "words for agents, runs nothing"
        case "changed":
            return "changed since it was approved"
        case "broken":
            return "broken: omac skill check"
        case "not approved" if reviewed.standing.obstacle:
            return "its copy or its interpreter is not what was approved"
        case state if missing:
            return f"{state}, waits for {', '.join(missing)}"
        case state:
            return state


def _runs(project: str, environment: Mapping[str, str]) -> list[str]:
    """A line for each run or sandbox that lives and works in the project."""
    try:
        status = lives_now(environment)
    except Refusal:  # where the journal cannot be read, omac status says why
        return []
    lines = []
    for run in status.runs:
        if any(below(project, root) or below(root, project) for root in run.roots):
            words = f"{run.command} {run.agent}".rstrip()
            lines.append(f"omac {words}, pid {run.pid}, in {', '.join(run.roots)}")
    for sandbox in status.sandboxes:
        if not sandbox.run and below(sandbox.dir, project):
            lines.append(f"omac sandbox run -- {shlex.join(sandbox.argv)}, pid {sandbox.launcher_pid}")
    return lines


def _next(
    reviews: Sequence[Review], runs: Sequence[str], environment: Mapping[str, str], *, is_project: bool
) -> tuple[str, str]:
    """The one command that comes next, and what it does."""
    states = {review.state for review in reviews}
    if not find_program("bwrap"):
        return "omac sandbox doctor", "what this machine lacks for a sandbox"
    if "broken" in states:
        return "omac skill check", "problems of a skill"
    if states & {"changed", "not approved"} or any(review.missing(environment) for review in reviews):
        return "omac trust", "read and approve skills, set their values"
    if runs:
        return "omac audit --since 1h", "who used which skill"
    if not is_project:
        return "cd ~/projects/shop && omac", "the project to work in"
    start, has_agent = start_command(environment)
    if has_agent:
        return start, "an agent, in a sandbox" + (", with these skills" if reviews else "")
    if reviews:
        return start, "a shell where an agent would run"
    return BEGIN, "begin a skill of your own"
