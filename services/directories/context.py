"""The context: what an agent's model is told of its skills. A bridge puts it where its agent takes such text."""

from collections.abc import Mapping, Sequence

from omac.domain.kernel.paths import below
from omac.domain.kernel.terminal_escaping import printable
from omac.projections.status import SkillStatus

HEADING = """\
## Skills that omac serves

A skill's service runs outside the sandbox and holds its own credentials. Call it by the URL in its variable, for
example with curl in your shell; its guide says what it offers. The URL is secret: do not print or store it.
"""


def skills_context(skills: Sequence[SkillStatus], sources: Mapping[str, str], directory: str) -> str:
    """Return the skills with their state, variable and guide; "" where there are none. `sources` are the folders of
    the directory's own skills, by name."""
    lines = [_line(skill, sources.get(skill.name, ""), directory) for skill in skills]
    return "\n".join((HEADING, *lines)) + "\n" if lines else ""


def _line(skill: SkillStatus, source: str, directory: str) -> str:
    guide = ""
    if source:
        folder = source[len(directory) :].lstrip("/") if below(source, directory) else source
        guide = f"; guide: {printable(folder)}/SKILL.md"
    if not skill.mount:
        return f"* {printable(skill.name)}{guide}"
    if skill.state in ("ready", "restarting"):
        return f"* {printable(skill.name)}: $OMAC_{skill.mount.upper().replace('-', '_')}_BASE{guide}"
    why = f"{skill.state.replace('_', ' ')}, {printable(skill.detail)}"
    fix = f"; a person can mend it on the host: {printable(skill.fix[0])}" if skill.fix else ""
    return f"* {printable(skill.name)}: not available ({why}){fix}{guide}"
