"""omac show and omac diff: what a skill is, and how it differs from what was approved.

The commands that they offer approve what was shown, file by file, or nothing: what is shown is a copy that no agent can
change, and they name its digest.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.settings.owner_limits import HeldLimit
from omac.domain.skills.registration import shown_hash
from omac.services.skills.resolution import every
from omac.tools.cli.review import (
    FILE_BYTES_MAX,
    LINES_SHOWN,
    Review,
    differences,
    files_of,
    frozen,
    review,
    show_files,
    show_purpose,
)
from omac.tools.cli.skill_notes import note_guide, note_unknown_keys
from omac.tools.compose.approved_copies import LiveFiles
from omac.tools.compose.call_limits import limits_of_calls
from omac.tools.compose.scope_options import Where, at_once, search_of
from omac.tools.compose.skill_files import DiskSkillFolders
from omac.tools.terminal.columns import QUOTED
from omac.tools.terminal.differences import text_of
from omac.tools.terminal.invocation import current, print_data, print_json
from omac.tools.terminal.named_fields import named_fields
from omac.tools.terminal.render import lines_of_file, print_folded, print_line, report, report_fix
from omac.tools.terminal.timestamps import rfc3339, wall_clock
from omac.tools.terminal.working_folder import is_current

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
    if request.json:
        files = files_of(LiveFiles(reviewed.skill.source))
        print_json(
            _document(reviewed, environment) | {"files": {name: entry._asdict() for name, entry in files.items()}}
        )
        return 0
    shown, digest = LiveFiles(reviewed.skill.source), ""
    if reviewed.state in ("not approved", "changed") and not reviewed.standing.obstacle:
        shown, digest = _to_show(reviewed, request, environment)
    files = files_of(shown)
    show_purpose(reviewed, environment)
    _show_limits(reviewed, environment)
    show_approval(reviewed, environment, digest)
    show_files(files)
    if request.contents:
        show_contents(shown, list(files))
    note_guide(reviewed.skill)
    note_unknown_keys(reviewed.skill)
    report_fix(_next_commands(reviewed, environment, digest))
    return 0


def diff(request: ShowRequest, environment: Mapping[str, str]) -> int:
    """Show how a skill differs from its approved copy; 0 where it does not, else 1. Raises Refusal."""
    reviewed = review(request.skill, request.where, request.journal, environment, "omac diff")
    if reviewed.approved is None:
        how = " by repository" if reviewed.candidate.place.repository else ""
        message = f"{reviewed.skill.name} in {reviewed.skill.source} is not approved{how}: nothing to compare with"
        raise Refusal("skill-changed", message, fix=[command("show", reviewed)])
    shown, digest = _to_show(reviewed, request, environment)
    differs = show_differences(reviewed, shown, environment, request.journal)
    if not differs:
        report(f"{reviewed.skill.name}: the files are what was approved")
    elif digest:
        report_fix([f"{command('approve', reviewed)} --hash {digest}"])
    return 1 if differs else 0


def _to_show(reviewed: Review, request: ShowRequest, environment: Mapping[str, str]) -> tuple[LiveFiles, str]:
    """The copy that an approval would be for, with its digest; the folder itself and "" where there can be none."""
    try:
        code, copy = frozen(reviewed, request.journal, environment)
    except Refusal as refusal:
        report(f"{reviewed.skill.name} cannot be approved: {refusal.message}")
        report_fix(refusal.fix)
        return LiveFiles(reviewed.skill.source), ""
    return copy, code.digest


def show_differences(reviewed: Review, files: LiveFiles, environment: Mapping[str, str], journal: str | None) -> bool:
    """Print how `files` differ from what was approved, in colour on a terminal; return whether they do."""
    is_plain = "NO_COLOR" in environment or environment.get("TERM") == "dumb"
    coloured = current().stdout.isatty() and not is_plain
    count = 0
    for count, line in enumerate(differences(reviewed, files, environment, journal), 1):
        if count > LINES_SHOWN:
            print_line(f"more than {LINES_SHOWN} lines: compare {reviewed.skill.source} by other means")
            break
        colour = {"+": GREEN, "-": RED}.get(line[:1], "") if coloured else ""
        for part in lines_of_file(line, f"{line[:1]}{QUOTED}"):
            print_data(f"{colour}{part}{PLAIN}" if colour else part)
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
            print_line(f"+-- {name}: {'a binary file' if content is not None else 'too large to be shown'}")
            continue
        print_line(f"+-- {name}")
        for number, line in enumerate(lines, 1):
            for part in lines_of_file(f"|{number:>5}  {line.expandtabs(8)}", f"|{'':5}  "):
                print_data(part)
        print_line("+--")


def show_approval(reviewed: Review, environment: Mapping[str, str], digest: str) -> None:
    """Print whether its code is approved, and which; `digest` is that of the files now, empty if there can be none."""
    skill, approved = reviewed.skill, reviewed.approved
    if skill.sidecar is None:
        return
    since = f" since {wall_clock(reviewed.approved_at)}" if reviewed.approved_at else ""
    match reviewed.state:
        case "approved" if approved is not None:
            print_folded(f"  approved{since}: {shown_hash(approved.bundle_hash, approved.digest)}", 4)
            if reviewed.standing.repository:
                print_folded(f"  its approval holds for the same files in {reviewed.standing.repository.shown}", 4)
        case "changed" if approved is not None:
            before, now = reviewed.drift(DiskSkillFolders(environment))
            if before == now:
                print_folded(f"  approved{since} in {approved.source}, and not in this folder: {now}", 4)
                return
            print_folded(f"  CHANGED after it was approved{since}: {before}", 4)
            print_folded(f"  and now it is {now}", 4)
        case "not approved" if approved is not None and reviewed.standing.obstacle:
            print_folded(f"  approved{since}: {shown_hash(approved.bundle_hash, approved.digest)}", 4)
            print_folded(f"  it does not run: {reviewed.standing.obstacle}", 4)
        case state:
            print_folded(f"  {state}: {digest}" if digest else f"  {state}", 4)


def _show_limits(reviewed: Review, environment: Mapping[str, str]) -> None:
    """Print the limits of its calls that were set, and by whom."""
    whose = {"omac.yaml": "its omac.yaml", "settings": "your settings"}
    held = _limits(reviewed, environment) or {}
    lines = [f"{name} {limit.value} ({whose[limit.whose]})" for name, limit in held.items() if limit.whose in whose]
    if lines:
        print_folded(f"  limits of its calls: {', '.join(lines)}", 4)


def _limits(reviewed: Review, environment: Mapping[str, str]) -> dict[str, HeldLimit] | None:
    """The limits of its calls, none without a sidecar; None, with a report, where the settings cannot be read: all else
    can be shown."""
    if reviewed.skill.sidecar is None:
        return {}
    try:
        return limits_of_calls(reviewed.skill.name, reviewed.skill.sidecar.limits, environment)
    except Refusal as refusal:
        report(f"the limits of its calls are unknown: {refusal.message}")
        report_fix(refusal.fix)
        return None


def _next_commands(reviewed: Review, environment: Mapping[str, str], digest: str) -> list[str]:
    """Return the commands that a person needs next, after seeing the files of this digest; "": files that cannot be
    approved."""
    match reviewed.state:
        case "not approved" if reviewed.approved is not None and reviewed.standing.obstacle:
            return [f"{command('approve', reviewed)} --hash {reviewed.approved.digest}"]
        case "not approved":
            return [f"{command('register', reviewed)} --hash {digest}"] if digest else []
        case "changed":
            approve = [f"{command('approve', reviewed)} --hash {digest}"] if digest else []
            return [command("diff", reviewed), *approve]
        case "approved" if reviewed.missing(environment):
            return [command("register", reviewed)]
        case _:
            return []


def command(name: str, reviewed: Review) -> str:
    """Return a command about it, ready to be pasted."""
    place = reviewed.candidate.place
    is_here = is_current(place.workdir)
    options = [] if is_here else [place.where]
    if not _is_alone(reviewed, Where() if is_here else Where(place.workdir or None, shared=not place.workdir)):
        options = [place.where, f"--harness {place.harness}"]
    if place.repository:
        options.append("--repository")
    return " ".join(["omac", name, quoted(reviewed.skill.name), *options])


def _is_alone(reviewed: Review, where: Where) -> bool:
    """Return whether a command with these flags means it by its name."""
    folders = DiskSkillFolders(current().environment)
    candidates = at_once(every(folders, search_of(where, folders), guidance=True))
    return [candidate.skill.name for candidate in candidates].count(reviewed.skill.name) == 1


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
        "repository": reviewed.standing.repository.common if reviewed.standing.repository else "",
        "approved_at": rfc3339(reviewed.approved_at) if reviewed.approved_at else None,
        "sidecar": sidecar and named_fields(sidecar),
        "limits": msgspec.to_builtins(_limits(reviewed, environment)),
        "set": sorted({*reviewed.given.secrets, *reviewed.given.config}),
        "missing": reviewed.missing(environment),
    }
