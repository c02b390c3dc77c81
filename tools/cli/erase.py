"""omac erase: destroys the key that a project directory's personal fields are encrypted with."""

import os
from collections.abc import Mapping
from typing import NamedTuple

from omac.domain.kernel.ids import WorkdirId, workdir_id
from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.kernel.sizes import counted
from omac.domain.kernel.terminal_escaping import named
from omac.projections.living import Gone
from omac.projections.status import Status
from omac.tools.cli.status import status_now
from omac.tools.compose.erasing import Erasing, PlannedErasure, erasing, subject_of
from omac.tools.terminal.invocation import expanded, print_json
from omac.tools.terminal.progress import Progress
from omac.tools.terminal.prompts import confirm
from omac.tools.terminal.render import print_folded, print_line, report, with_journal

BEYOND_REACH = (
    "backups made earlier have the key; exports keep the values that they show",
    "what file systems and disks keep of a deleted file is theirs",
)


class EraseOptions(NamedTuple):
    """The command line, as typed."""

    directory: str
    yes: bool
    journal: str | None
    json: bool


def run(options: EraseOptions, environment: Mapping[str, str]) -> int:
    """Show what will be gone, ask, and erase it. Raises Refusal."""
    subject = subject_of(expanded(options.directory))
    with erasing(options.journal, environment) as work:
        status, gone = status_now(options.journal, environment)
        _require_offline(subject, status, options.journal)
        with Progress("events read") as progress:
            planned = work.plan(subject, progress.show)
        if not planned.has_work:
            return _show_nothing(planned, options, work.path)
        if not options.json:
            _show(planned, options.directory)
        if not options.yes and not confirm("Erase them?"):
            report("nothing was changed")
            return 1
        _perform(work, planned, gone)
    if options.json:
        print_json(_data(planned))
    else:
        print_line("erased: the key is destroyed. Events, proofs and checkpoints stay.")
    return 0


def _perform(work: Erasing, planned: PlannedErasure, gone: Gone) -> None:
    work.end([sandbox.launch for sandbox in gone.sandboxes if workdir_id(sandbox.dir) == planned.subject])
    work.perform(planned)


def _require_offline(subject: WorkdirId, status: Status, journal: str | None) -> None:
    for directory in status.directories:
        if workdir_id(directory.dir) == subject:
            message = f"{directory.dir} is online in run {directory.run}: nothing was erased"
            is_served = any(run.run == directory.run and run.command == "serve" for run in status.runs)
            deactivate = [f"omac deactivate {quoted(directory.dir)}"] if is_served else []  # an omac start has but one
            fix = [*deactivate, with_journal(f"omac stop {directory.run}", journal)]
            raise Refusal("journal-in-use", message, fix=fix)
    for sandbox in status.sandboxes:
        if workdir_id(sandbox.dir) == subject:
            message = f"a program runs in a sandbox of {sandbox.dir}: nothing was erased"
            stop = f"kill {sandbox.launcher_pid}  # ends it in order"  # omac sandbox run is no run
            fix = [with_journal(f"omac stop {sandbox.run}", journal) if sandbox.run else stop]
            raise Refusal("journal-in-use", message, fix=fix)


def _show_nothing(planned: PlannedErasure, options: EraseOptions, path: str) -> int:
    if not planned.erased and not planned.rows.clear and not planned.rows.encrypted:
        where = named(os.path.abspath(expanded(options.directory)))
        message = f"no event of {where} has personal fields in {path}"
        known = with_journal("omac audit --count-by dir", options.journal)
        raise Refusal("misuse", message, fix=[f"{known}  # which directories it knows"])
    if options.json:
        print_json(_data(planned))
        return 0
    print_line("nothing is erased: the key is gone already, and with it every value that it encrypted")
    _show_clear(planned)
    return 0


def _show(planned: PlannedErasure, typed: str) -> None:
    print_folded(f"{named(planned.rows.path or typed)}, workdir id {planned.subject}:")
    if planned.is_begun:
        print_line("  an erasure that was killed is finished")
    print_line(f"  the personal fields of {counted(planned.rows.encrypted.total(), 'event')} will be gone, for good:")
    for kind, count in sorted(planned.rows.encrypted.items(), key=lambda pair: (-pair[1], pair[0])):
        print_line(f"  {count:>9}  {kind}")
    _show_clear(planned)
    for file in planned.rows.unread:
        print_folded(f"  also erased, but not counted: the records in segment {file} has, which cannot be read", 4)
    for line in BEYOND_REACH:
        print_line(f"  not reached: {line}")


def _show_clear(planned: PlannedErasure) -> None:
    if planned.rows.clear:
        print_line(
            f"  not reached: {counted(planned.rows.clear.total(), 'event')} that an earlier omac recorded in the clear;"
        )
        print_line("  omac journal seal, then omac journal prune --keep AGE drops them")


def _data(planned: PlannedErasure) -> dict[str, object]:
    return {
        "subject": planned.subject,
        "dir": planned.rows.path,
        "erased": planned.has_work,
        "keys": list(planned.keys),
        "events": dict(planned.rows.encrypted) if planned.has_work else {},
        "in_the_clear": dict(planned.rows.clear),
        "unread_segments": list(planned.rows.unread),
    }
