"""omac show and omac diff: what a skill is, and how it differs from what was approved."""

import os
import shlex
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.terminal_escaping import printable
from omac.tools.cli.review import (
    FILE_BYTES_MAX,
    LINES_SHOWN,
    Review,
    differences,
    files_of,
    review,
    show_files,
    show_purpose,
)
from omac.tools.cli.scope_options import Where
from omac.tools.cli.skill_notes import note_guide, note_unknown_keys
from omac.tools.compose.approved_copies import LiveFiles
from omac.tools.terminal.differences import text_of
from omac.tools.terminal.invocation import current, print_data, print_json
from omac.tools.terminal.render import report, report_fix, say, say_folded
from omac.tools.terminal.timestamps import rfc3339, wall_clock

GREEN, RED, PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[0m"


class ShowRequest(NamedTuple):
    """The command line, as typed. `contents`: of the files too."""

    skill: str
    where: Where
    contents: bool = False
    journal: str | None = None
    json: bool = False


def show(request: ShowRequest, environment: Mapping[str, str]) -> int:
    """Show a skill. Raises Refusal."""
    reviewed = review(request.skill, request.where, request.journal, environment, "omac show")
    live = LiveFiles(reviewed.skill.source)
    files = files_of(live)
    if request.json:
        print_json(_document(reviewed, environment) | {"files": {name: one._asdict() for name, one in files.items()}})
        return 0
    show_purpose(reviewed, environment)
    show_approval(reviewed)
    show_files(files)
    if request.contents:
        show_contents(live, list(files))
    note_guide(reviewed.skill)
    note_unknown_keys(reviewed.skill)
    report_fix(next_commands(reviewed, environment))
    return 0


def diff(request: ShowRequest, environment: Mapping[str, str]) -> int:
    """Show how a skill differs from its approved copy; 0 where it does not, else 1. Raises Refusal."""
    reviewed = review(request.skill, request.where, request.journal, environment, "omac diff")
    if reviewed.approved is None:
        message = f"{reviewed.skill.name} in {reviewed.skill.source} is not approved: nothing to compare with"
        raise Refusal("skill-changed", message, fix=[command("show", reviewed), command("approve", reviewed)])
    differs = show_differences(reviewed, LiveFiles(reviewed.skill.source), environment, request.journal)
    if not differs:
        report(f"{reviewed.skill.name}: the files are what was approved")
    else:
        report_fix(command for command in next_commands(reviewed, environment) if " diff " not in command)
    return 1 if differs else 0


def show_differences(reviewed: Review, files: LiveFiles, environment: Mapping[str, str], journal: str | None) -> bool:
    """Print how `files` differ from what was approved, in colour on a terminal; return whether they do."""
    is_plain = "NO_COLOR" in environment or environment.get("TERM") == "dumb"
    coloured = current().stdout.isatty() and not is_plain
    count = 0
    for count, line in enumerate(differences(reviewed, files, environment, journal), 1):
        if count > LINES_SHOWN:
            say(f"more than {LINES_SHOWN} lines: compare {reviewed.skill.source} by other means")
            break
        colour = {"+": GREEN, "-": RED}.get(line[:1], "") if coloured else ""
        print_data(f"{colour}{printable(line)}{PLAIN}" if colour else printable(line))
    return count > 0


def show_contents(files: LiveFiles, names: list[str]) -> None:
    """Print the text of each file; others are named."""
    for name in names:
        try:
            content = files.content_of(name, FILE_BYTES_MAX)
        except OSError:  # a link, which the list has
            continue
        lines = None if content is None else text_of(content)
        if lines is None:
            say(f"+-- {name}: {'a binary file' if content is not None else 'too large to be shown'}")
            continue
        say(f"+-- {name}")
        for number, line in enumerate(lines, 1):
            say(f"|{number:>5}  {line.expandtabs(8)}")
        say("+--")


def show_approval(reviewed: Review) -> None:
    """Print whether its code is approved, and which."""
    skill, approved = reviewed.skill, reviewed.approved
    if skill.sidecar is None:
        return
    since = f" since {wall_clock(reviewed.approved_at)}" if reviewed.approved_at else ""
    match reviewed.state:
        case "approved":
            say_folded(f"  approved{since}: {skill.bundle_hash}", 4)
        case "changed" if approved is not None:
            say_folded(f"  CHANGED after it was approved{since}: {approved.bundle_hash}", 4)
            say_folded(f"  and now it is {skill.bundle_hash}", 4)
        case state:
            say_folded(f"  {state}: {skill.bundle_hash}", 4)


def next_commands(reviewed: Review, environment: Mapping[str, str]) -> list[str]:
    """Return what a person does next about it."""
    match reviewed.state:
        case "not approved":
            return [command("register", reviewed)]
        case "changed":
            return [command("diff", reviewed), f"{command('approve', reviewed)} --hash {reviewed.skill.bundle_hash}"]
        case "approved" if reviewed.missing(environment):
            return [command("register", reviewed)]
        case _:
            return []


def command(name: str, reviewed: Review) -> str:
    """Return a command about it, ready to be pasted."""
    place = reviewed.candidate.place
    here = place.workdir == os.path.realpath(".")
    return f"omac {name} {shlex.quote(reviewed.skill.name)}{'' if here else ' ' + place.where}"


def _document(reviewed: Review, environment: Mapping[str, str]) -> dict[str, object]:
    skill, approved, sidecar = reviewed.skill, reviewed.approved, reviewed.skill.sidecar
    return {
        "skill": skill.name,
        "dir": reviewed.candidate.place.workdir,
        "source": skill.source,
        "state": reviewed.state,
        "description": skill.guide.description if skill.guide else "",
        "bundle_hash": skill.bundle_hash,
        "approved_hash": approved.bundle_hash if approved else "",
        "digest": approved.digest if approved else "",
        "approved_at": rfc3339(reviewed.approved_at) if reviewed.approved_at else None,
        "sidecar": None if sidecar is None else msgspec.to_builtins(sidecar),
        "set": sorted({*reviewed.given.secrets, *reviewed.given.config}),
        "missing": reviewed.missing(environment),
    }
