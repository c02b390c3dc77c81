"""Notes on a skill that may run, but whose author probably meant something else. They go to stderr."""

from omac.domain.skills.meta import NAME_FOR_EVERY_AGENT, FoundSkill
from omac.domain.skills.unknown_keys import explain
from omac.tools.compose.skill_files import Neighbours
from omac.tools.terminal.render import report

UNKNOWN_KEYS_SHOWN = 10


def note_guide(skill: FoundSkill) -> None:
    """Print what is wrong with its SKILL.md, by which agents know it."""
    problem = "it has no SKILL.md, so agents cannot discover it" if skill.guide is None else skill.guide.problem
    if problem is not None:
        _note(skill, problem)


def note_name(name: str) -> None:
    """Print that the name has not the form that agents agree on, if so: some load no skill of another."""
    if not NAME_FOR_EVERY_AGENT.fullmatch(name):
        rule = "the form has lower-case letters and digits, and single hyphens between them"
        report(f"note: {name}: Agent Skills have no such name, so some agents do not load it; {rule}")


def note_namesakes(skill: FoundSkill, neighbours: Neighbours) -> None:
    """Print which skills beside it have its name, and are therefore not used."""
    for problem in neighbours.namesakes(skill.source):
        _note(skill, problem)


def note_unknown_keys(skill: FoundSkill) -> None:
    """Print which keys of its omac.yaml are ignored because omac does not know them."""
    unknown = skill.meta.unknown_keys if skill.meta else ()
    for key in unknown[:UNKNOWN_KEYS_SHOWN]:
        _note(skill, explain(key))
    more = len(unknown) - UNKNOWN_KEYS_SHOWN
    if more > 0:
        _note(skill, f"omac.yaml has {more} more unknown {'key, which is' if more == 1 else 'keys, which are'} ignored")


def _note(skill: FoundSkill, text: str) -> None:
    report(f"note: {skill.name}: {text}")
