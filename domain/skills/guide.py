"""The contract of a SKILL.md's front matter: the name and the description by which an agent knows a skill.

It is read by many programs and harms none: what breaks the contract is told, and the rest still counts.
"""

from collections.abc import Callable

from omac.domain.skills.meta import Guide
from omac.domain.skills.values import is_text, shown

DESCRIPTION_CHARS_MAX = 1024


def parse_guide(document: object, skill: str, where: Callable[[str], str]) -> Guide:
    """The Guide that the decoded front matter of the skill called `skill` states.

    Its `problem` is about the first field that breaks the contract, and begins with `where(field)`: "" is the whole.
    """
    name, description, problems = check_guide(document, skill, where)
    return Guide(name, description[:DESCRIPTION_CHARS_MAX], problems[0] if problems else None)


def check_guide(document: object, skill: str, where: Callable[[str], str]) -> tuple[str, str, list[str]]:
    """Return name, description and each problem of a front matter, as `parse_guide` reads it."""
    if not isinstance(document, dict):
        return "", "", [f"{where('')}: must be a mapping with a name and a description"]
    problems: list[str] = []

    def text(field: str) -> str:
        value = document.get(field)
        if isinstance(value, str) and value.strip() and is_text(value):
            return value.strip()
        quotes = ": put it in quotes" * isinstance(value, (bool, int, float))
        fault = "is missing" if value is None else f"must be text{quotes}"
        problems.append(f"{where(field)}: {field}: {fault}")
        return ""

    name, description = text("name"), text("description")
    if name and name != skill:
        problems.append(f"{where('name')}: name: {shown(name)} must be {shown(skill)}, as the skill is called")
    if len(description) > DESCRIPTION_CHARS_MAX:
        excess = f"is {len(description)} characters long, at most {DESCRIPTION_CHARS_MAX} may be"
        problems.append(f"{where('description')}: description: {excess}")
    return name, description, problems
