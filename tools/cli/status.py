"""omac status: the projected state, from the server that runs, else folded from the journal.

Programs get the projected state as it is; people what lives of it, by pid, start time and boot of each process.
"""

import os
import time
from collections.abc import Mapping
from functools import partial

import msgspec

from omac.domain.kernel.refusal import Refusal
from omac.projections.living import Gone, living
from omac.projections.status import Status, status_of
from omac.projections.system import System
from omac.tools.cli.control import ask_run
from omac.tools.compose.state import StateDir, is_living, is_living_launch, is_living_run, server_socket
from omac.tools.terminal.invocation import current, print_json
from omac.tools.terminal.render import print_line, report, report_fix, show_status
from omac.tools.terminal.screen import draw

WATCH_S = 2


def run(journal_path: str | None, as_json: bool, environment: Mapping[str, str]) -> int:
    """Show the status, once what launches that were killed have left is inspected, if it can be. Raises Refusal."""
    if StateDir.of(environment).has_inspections():
        from omac.services.sandbox.inspection import inspect_due
        from omac.tools.compose.sandbox_ports import SandboxAdapters

        try:
            inspect_due(SandboxAdapters(environment, lambda line: report(f"omac: {line}")))
        except Refusal as refusal:  # such as a disk that takes no change; the rest can be shown
            report(f"omac: what ended launches left is not inspected: {refusal.message}")
            report_fix(refusal.fix)
    recorded, why = _recorded(journal_path, environment)
    if why:
        report(f"{why}; this is from the journal, at position {recorded.position}")
    if as_json:
        print_json(recorded)
    else:
        status, gone = _living(recorded, environment)
        show_status(_wanted(status, environment), gone, _missing(status))
    if journal_path is None:
        _report_short_disks(environment)
    return 0


def _report_short_disks(environment: Mapping[str, str]) -> None:
    """Report a full disk: skills that are ready get no call then, since none can be recorded."""
    from omac.tools.compose.disks import short_disks

    for finding in short_disks(environment):
        report(f"omac: {finding.says}")
        report_fix(finding.fix)


def watch(journal_path: str | None, as_json: bool, environment: Mapping[str, str]) -> int:
    """Show the status again and again on the terminal, until the person ends it. Raises Refusal."""
    if as_json or not current().stdout.isatty():
        fix = ["omac audit --follow --json", "omac status --json"]
        raise Refusal("misuse", "--watch draws on a terminal; programs follow the audit", fix=fix)
    while True:
        status, gone = status_now(journal_path, environment)
        draw(partial(_show_watched, _wanted(status, environment), gone), "omac status")
        time.sleep(WATCH_S)


def _show_watched(status: Status, gone: Gone) -> None:
    print_line(f"every {WATCH_S} s; Ctrl-C ends it")
    show_status(status, gone, _missing(status))


def status_now(journal_path: str | None, environment: Mapping[str, str]) -> tuple[Status, Gone]:
    """Return what lives, and what ended without a record. Raises Refusal."""
    return _living(_recorded(journal_path, environment)[0], environment)


def lives_now(environment: Mapping[str, str]) -> Status:
    """Return what lives, nothing where there is no journal yet; from the journal where a server does not answer, which
    is reported: Ctrl-Z stopped it, maybe. Raises Refusal."""
    if not os.path.lexists(StateDir.of(environment).journal_in_use(environment)):
        return status_of(System())
    try:
        return status_now(None, environment)[0]
    except Refusal as refusal:
        if refusal.reason != "state-unusable":
            raise
        report(f"omac: {refusal.message}")
        report_fix(refusal.fix)
    return _living(_from_journal(None, environment), environment)[0]


def _recorded(journal_path: str | None, environment: Mapping[str, str]) -> tuple[Status, str]:
    """The status from the server; else from the journal, and why."""
    server = server_socket(environment) if journal_path is None else ""
    answer = ask_run(server, "GET", "/__omac__/status") if server else None
    if answer is None:
        return _from_journal(journal_path, environment), "no server is running here"
    try:
        return msgspec.json.decode(answer, type=Status), ""
    except msgspec.ValidationError:
        return _from_journal(None, environment), "the server here is of another version of omac"


def _living(status: Status, environment: Mapping[str, str]) -> tuple[Status, Gone]:
    state = StateDir.of(environment)
    is_run, is_launch = partial(is_living_run, state), partial(is_living_launch, state)
    return living(status, is_run, is_living, is_launch, state.known_host())


def _wanted(status: Status, environment: Mapping[str, str]) -> Status:
    """Return the status without failures of a witness, where the settings want none any more."""
    if not status.unwitnessed:
        return status
    from omac.tools.compose.witnesses import found_witness

    is_refused = found_witness(environment, StateDir.of(environment)).is_refused
    return msgspec.structs.replace(status, unwitnessed=()) if is_refused else status


def _missing(status: Status) -> frozenset[str]:
    """Return the directories that are online and do not exist any more, or are hidden by what took their place."""
    return frozenset(directory.dir for directory in status.directories if not os.path.isdir(directory.dir))


def _from_journal(journal_path: str | None, environment: Mapping[str, str]) -> Status:
    from omac.tools.compose.journals import report_missing, system_of, to_read

    with to_read(environment, journal_path) as journal:
        report_missing(journal.store)
        return status_of(system_of(journal, StateDir.of(environment)))
