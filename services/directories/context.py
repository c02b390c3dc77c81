"""The context: what an agent's model is told of its skills. A bridge puts it where its agent takes such text."""

from collections.abc import Mapping, Sequence

from omac.domain.kernel.paths import below
from omac.domain.kernel.terminal_escaping import printable
from omac.domain.skills.meta import in_variables
from omac.projections.status import SkillStatus, shown_problem

HEADING = """\
## Skills that omac serves

A skill's service runs outside the sandbox and holds its own credentials. Call it by the URL in its variable, for
example with curl in your shell; its guide says what it offers. The URL is secret: do not print or store it.
"""
OFFLINE_HEADING = """\
## Skills that omac serves

A skill's service runs outside the sandbox and holds its own credentials. There is no network here: call it by the
Unix socket, as below, with a path of the skill's at the end; its guide says what it offers. The URL in its variable is
secret: do not print or store it.
"""


def skills_context(skills: Sequence[SkillStatus], sources: Mapping[str, str], directory: str, *, offline: bool) -> str:
    """Return the skills with their state, variable and guide; "" where there are none. `sources` are the folders of
    the directory's own skills, by name. `offline`: the agent's only way is the facade's Unix socket."""
    lines = [_line(skill, sources.get(skill.name, ""), directory, offline) for skill in skills]
    return "\n".join((OFFLINE_HEADING if offline else HEADING, *lines)) + "\n" if lines else ""


def _line(skill: SkillStatus, source: str, directory: str, offline: bool) -> str:
    guide = ""
    if source:
        folder = source[len(directory) :].lstrip("/") if below(source, directory) else source
        guide = f"; guide: {printable(folder)}/SKILL.md"
    if not skill.mount:
        return f"* {printable(skill.name)}{guide}"
    if skill.state in ("ready", "restarting"):
        variable = f"$OMAC_{in_variables(skill.mount)}_BASE"
        call = f'`curl --unix-socket "$OMAC_SOCKET" "{variable}/"`' if offline else variable
        return f"* {printable(skill.name)}: {call}{guide}"
    state, detail = shown_problem(skill.state, skill.detail)
    why = f"{state.replace('_', ' ')}, {printable(detail)}"
    commands = ", then ".join(map(printable, skill.fix))
    fix = f"; a person can mend it on the host: {commands}" if skill.fix else ""
    return f"* {printable(skill.name)}: not available ({why}){fix}{guide}"
