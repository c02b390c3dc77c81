"""omac import: take over an existing set-up of the omac that was written in Go."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import trio

from omac.domain.kernel.refusal import REASONS, Refusal
from omac.domain.legacy.go_import import BY_AGENT, ImportGroup, Old, Project, Step
from omac.domain.legacy.go_profile import ProfilePlan
from omac.domain.skills.values import shown
from omac.services.legacy.go_import import ImportPlan, carry_out
from omac.services.ports import SkillFolders
from omac.services.skills.resolution import SkillSearch
from omac.tools.compose.command_context import opened
from omac.tools.compose.go_set_up import open_import, read_go_profiles, read_set_up, write_profile
from omac.tools.compose.scope_options import Where, search_of
from omac.tools.compose.skill_files import DiskSkillFolders
from omac.tools.terminal.invocation import current, expanded, print_json
from omac.tools.terminal.render import print_folded, print_line, report, report_fix

ABSENT_SHOWN_MAX = 20
SCOPES = {"workdir": "this project", "global": "all projects", "defaults": "saved defaults", "missing": "not here"}
MARKS = {"take": "+", "there": "=", "skip": "-"}
TO_VAULT = ("omac vault init", "omac settings set secrets.store")  # commands after which new values go into the vault


class ImportRequest(NamedTuple):
    workdir: str | None
    harness: str | None
    dry_run: bool
    yes: bool
    project_settings: bool
    journal: str | None
    json: bool


def run(request: ImportRequest, environment: Mapping[str, str]) -> int:
    """Show what would be taken over and, if that is wanted, take it over. Raises Refusal."""
    if request.json and not (request.dry_run or request.yes):
        message = "--json cannot prompt; add --yes, or --dry-run to change nothing"
        raise Refusal("misuse", message, fix=["--dry-run", "--yes"])
    folders = DiskSkillFolders(environment)
    scoped_search = search_of(Where(request.workdir, harness=request.harness), folders)
    search = SkillSearch(scoped_search.workdir, scoped_search.harness)
    moved = _plan(request, search, folders, environment)
    profiles, notes = read_go_profiles(search.workdir, environment)
    moved = msgspec.structs.replace(moved, notes=(*moved.notes, *notes))
    groups = [job.group for job in moved.jobs]
    if not request.json:
        _show(search.workdir, groups)
        _show_profiles(profiles)
    refused: list[Refusal] = []
    is_needed = moved.is_needed or any(plan.takes for plan in profiles)
    changed = is_needed and not request.dry_run and _is_wanted(request, groups)
    if changed:
        refused = _carry_out(request, moved, environment) if moved.is_needed else []
        for plan in profiles:
            if plan.takes:
                write_profile(plan, environment)
    _report(moved, refused)
    if request.json:
        print_json(_json(request, search.workdir, moved, changed, refused) | {"profiles": profiles})
    elif not is_needed:
        print_line(
            "nothing is left to import"
            if groups or profiles
            else f"the Go omac left nothing to import for {search.workdir}"
        )
    elif changed:
        rest = ", but for secrets in the keychain" if moved.refusals else ""
        print_line(f"imported{rest}; the old files and keychain entries are unchanged")
    elif request.dry_run:
        print_line("nothing was changed")
    else:
        report("nothing was changed")
        return 1
    return 0 if profiles and not (refused or moved.refusals) else _exit_code(moved, refused)


def _plan(
    request: ImportRequest, search: SkillSearch, folders: SkillFolders, environment: Mapping[str, str]
) -> ImportPlan:
    old = _with_project(request, read_set_up(search.workdir, environment))
    literal = _literal(request.workdir, search.workdir, environment)
    with open_import(old, literal, request.journal, environment) as use_case:
        return trio.run(use_case.plan, folders, search)


def _with_project(request: ImportRequest, old: Old) -> Old:
    """Return `old`, marked with whether a person will have seen the settings of the project before they are
    imported."""
    seen: Project = "seen" if request.dry_run or current().stdout.isatty() else "unseen"
    project: Project = "confirmed" if request.project_settings else "unseen" if request.yes else seen
    return msgspec.structs.replace(old, project=msgspec.structs.replace(old.project, project=project))


def _literal(typed: str | None, canonical: str, environment: Mapping[str, str]) -> str:
    """The workdir as the old omac saw it: absolute, links and all, with the shell's idea of the current directory."""
    here = environment.get("PWD", "")
    if not here.startswith("/") or os.path.realpath(here) != os.path.realpath("."):
        here = os.getcwd()
    path = os.path.normpath(os.path.join(here, expanded(typed or ".")))
    return path if os.path.realpath(path) == canonical else canonical


def _is_wanted(request: ImportRequest, groups: Sequence[ImportGroup]) -> bool:
    if request.yes:
        return True
    from omac.tools.terminal.prompts import can_ask, confirm

    if not can_ask():
        raise Refusal("misuse", "no terminal to prompt on; nothing was changed", fix=["--yes", "--dry-run"])
    steps = [(group, step) for group in groups for step in group.steps]
    if doubtful := [(group, step) for group, step in steps if step.verdict == "take" and step.why == BY_AGENT]:
        print_folded("review these settings: an agent may have written them to send the skill's secrets elsewhere:")
        for group, step in doubtful:  # once more, where nothing can push them out of sight
            print_line(f"  {group.skill}: {step.name} = {step.value!r}")
    return confirm("Import the lines marked with +?")


def _carry_out(request: ImportRequest, moved: ImportPlan, environment: Mapping[str, str]) -> list[Refusal]:
    from omac.tools.cli.approve import recorded
    from omac.tools.cli.vault import make_usable

    with opened(environment, request.journal) as everything:
        if any(job.values.secrets for job in moved.jobs):
            make_usable(everything.stores, {trio.run(everything.stores.chosen)})
        return recorded(everything, lambda: carry_out(moved, everything.registering, everything.credentials))


def _show(workdir: str, groups: Sequence[ImportGroup]) -> None:
    print_line(f"from the Go omac, for {workdir}:")
    absent = [group for group in groups if group.scope == "missing"]
    shown_groups = [group for group in groups if group.scope != "missing"] + absent[:ABSENT_SHOWN_MAX]
    for group in shown_groups:  # a forged file must not push what matters out of sight
        print_folded(f"{group.skill} ({SCOPES[group.scope]}){f' {group.source}' if group.source else ''}")
        for step in group.steps:
            print_line(f"  {_line(step)}")
            for command in step.fix:
                print_line(f"      by hand: {command}")
    if len(absent) > ABSENT_SHOWN_MAX:
        print_line(f"and {len(absent) - ABSENT_SHOWN_MAX} more that are not here")


def _show_profiles(profiles: Sequence[ProfilePlan]) -> None:
    """Show each key of each profile: what it becomes, that nothing is needed, or what to do instead."""
    for plan in profiles:
        print_folded(f"sandbox profile {plan.name} {plan.source}")
        if plan.present:
            print_line(f"  = {plan.present} is there already, and is used by --profile {plan.name}")
            continue
        for entry in plan.keys:
            match entry.verdict:
                case "take":
                    print_line(f"  + {entry.key} as {entry.value}")
                case "there":
                    print_line(f"  = {entry.key} {entry.value}: {entry.why}")
                case "skip":
                    print_folded(f"  - {entry.key} {entry.value} is not supported: {entry.why}", 4)
        print_line(f"  use it by: omac start --profile {plan.name}")


def _line(step: Step) -> str:
    words = [MARKS[step.verdict], step.what, step.name]
    if step.value is not None:
        words.append(step.value if step.what == "approval" else f"= {shown(step.value)}")
    if step.origin:
        words.append(f"from {step.origin}")
    text = " ".join(word for word in words if word)
    state = {"take": "", "there": " is there already", "skip": " is not imported"}[step.verdict]
    return f"{text}{':' if state and step.why else ''}{state}{f': {step.why}' if step.why else ''}"


def _report(moved: ImportPlan, refused: Sequence[Refusal]) -> None:
    for note in moved.notes:
        report(f"omac: {note}")
    for refusal in moved.refusals:
        report(f"omac: the keychain could not be read for secrets to import: {refusal.message}")
        # What is in the keychain is not in a vault.
        report_fix(command for command in refusal.fix if not command.startswith(TO_VAULT))
        report_fix(["omac import  # again, where the keychain can be read"])
    for refusal in refused:
        report(f"omac: {refusal.message}")
        report_fix(refusal.fix)


def _json(
    request: ImportRequest, workdir: str, moved: ImportPlan, changed: bool, refused: Sequence[Refusal]
) -> dict[str, Any]:
    return {
        "workdir": workdir,
        "dry_run": request.dry_run,
        "changed": changed,
        "skills": [job.group for job in moved.jobs],
        "notes": moved.notes,
        "refused": [
            {"reason": refusal.reason, "error": refusal.message, "fix": refusal.fix}
            for refusal in (*moved.refusals, *refused)
        ],
    }


def _exit_code(moved: ImportPlan, refused: Sequence[Refusal]) -> int:
    """Return the exit code. Refusals count first, also those of the keychain, since no secret in it was imported."""
    if refusals := (*refused, *moved.refusals):
        return refusals[0].exit_code
    useless = not any(step.verdict != "skip" for job in moved.jobs for step in job.group.steps)
    return REASONS["settings-invalid"].exit_code if moved.notes and useless else 0
