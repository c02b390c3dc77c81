"""omac journal check and omac journal repair: what is damaged in the journal, and setting that aside."""

import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import NamedTuple

from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.kernel.sizes import counted
from omac.journal.check import Damage
from omac.journal.check import check as findings_of
from omac.journal.reader import ReadJournal
from omac.journal.repair import Repair, require_repairable
from omac.projections.evidence.unfinished import erasures_of
from omac.projections.system import System
from omac.services.kernel.restoring import forged
from omac.tools.compose.clock import now_ns
from omac.tools.compose.journals import codec_of_damaged, keys_of, mark_of, path_in_use, snapshots_of
from omac.tools.compose.searched_audit import SearchedAudit
from omac.tools.compose.state import StateDir, host_id, is_living_run
from omac.tools.terminal.invocation import print_json
from omac.tools.terminal.prompts import confirm
from omac.tools.terminal.render import print_folded, report, report_fix

DAMAGED = 10
ACTIONS = {
    "empty": "set it aside",
    "fill": "put an emptied position there",
    "retime": "keep the event, at the time of the one before",
    "remove": "set it aside",
    "head": "set the head to the last event",
    "reindex": "make the index again",
    "segment": "no repair changes a segment: put its file back",
    "snapshot": "delete the file; omac writes it again",
    "none": "no repair is possible",
}


class RepairRequest(NamedTuple):
    """A command line of `omac journal repair`; no positions mean all that are damaged."""

    positions: tuple[int, ...]
    journal: str | None
    dry_run: bool
    yes: bool


def positions_of(words: Sequence[str]) -> tuple[int, ...]:
    """Return the positions that were typed. Raises Refusal (misuse)."""
    try:
        return tuple(int(word) for word in words)
    except ValueError:
        raise Refusal(
            "misuse", f"--position takes a number, not {' '.join(words)}", fix=["omac journal check"]
        ) from None


def check(journal_path: str | None, as_json: bool, environment: Mapping[str, str]) -> int:
    """Print each finding; 10 when there is one. Raises Refusal."""
    state = StateDir.of(environment)
    path = path_in_use(state, environment, journal_path)
    system = System()
    findings = findings_of(path, system.apply, codec_of_damaged(state, path)) or _forged_files(state, path, system)
    if as_json:
        print_json({"path": path, "position": system.position, "findings": _data(findings)})
    elif findings:
        _show(findings)
        report(f"{counted(len(findings), 'finding')} in {path}")
        report_fix(_commands(path, findings))
    else:
        print_folded(f"{path}: {counted(system.position, 'position')}, nothing is damaged")
    return DAMAGED if findings else 0


def _forged_files(state: StateDir, path: str, system: System) -> list[Damage]:
    """The snapshots and indexes of a sound journal that say what its events do not: a start, or an audit, would believe
    them. While an erasure is not finished the index of the audit may have what it erases, and is removed by it."""
    with closing(ReadJournal(path, mark_of(state, path), keys_of(state, path))) as journal:
        head, snapshots = journal.store.head(), snapshots_of(state, journal.store)
        files = [(at, "snapshot", snapshots.path(at)) for at in forged(journal, snapshots, journal.store.head)]
        if index := SearchedAudit(journal, state, head).forged_file():
            for recorded in journal.folded(system.position, journal.store.head()):
                system.apply(recorded)  # what was appended meanwhile may be an erasure
            if not any(erasures_of(system)) and os.path.exists(index):
                files.append((0, "index of the audit", index))
    return [
        Damage(at, "", None, "", f"the {what} {file} is not what the events give", "snapshot",
               fix=f"rm {quoted(file)}")
        for at, what, file in files
    ]  # fmt: skip


def _commands(path: str, findings: Sequence[Damage]) -> list[str]:
    """The commands that mend what was found."""
    if fixes := [finding.fix for finding in findings if finding.fix]:
        return fixes
    beyond = any(finding.remedy == "none" for finding in findings)
    return [f"omac journal {'restore BACKUP' if beyond else 'repair --dry-run'} --journal {quoted(path)}"]


def repair(request: RepairRequest, environment: Mapping[str, str]) -> int:
    """Show what is damaged, ask, and set it aside. Raises Refusal."""
    state = StateDir.of(environment)
    path = path_in_use(state, environment, request.journal)
    require_repairable(path)  # before its lock is made beside what is no journal
    with state.without_server(path):
        return _repair(request, path, state)


def _repair(request: RepairRequest, path: str, state: StateDir) -> int:
    run, codec = secrets.token_hex(6), codec_of_damaged(state, path)
    work = Repair(path, host_id(state), run, now_ns, lambda: System().apply, partial(is_living_run, state), codec)
    planned = work.plan(request.positions)
    if not planned:
        print_folded(f"nothing in {path} is damaged")
        return 0
    _show(planned)
    if request.dry_run:
        return 0
    if not request.yes and not confirm(f"Do this for {counted(len(planned), 'finding')}?"):
        report("nothing was changed")
        return 1
    done = work.perform(request.positions)
    print_folded(f"{counted(len(done), 'finding')} repaired in {path}; replaced rows are kept in its table set_aside")
    return 0


def _show(findings: Sequence[Damage]) -> None:
    for finding in findings:
        where = f"position {finding.position}" if finding.position else "journal"
        if finding.kind or finding.stream:
            version = f", version {finding.version}" if finding.version is not None else ""
            where += f" ({finding.kind or 'unknown kind'} in {finding.stream or 'unknown stream'}{version})"
        print_folded(f"{where}: {finding.problem}; repair: {ACTIONS[finding.remedy]}")


def _data(findings: Sequence[Damage]) -> list[dict[str, object]]:
    shown = ("position", "stream", "version", "kind", "problem", "remedy")
    return [{name: getattr(finding, name) for name in shown} for finding in findings]
