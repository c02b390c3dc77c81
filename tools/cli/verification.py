"""omac audit verify: whether the journal holds what was recorded."""

import os
from collections.abc import Mapping
from typing import Any

from omac.journal.verification import Verdict
from omac.journal.verification import verify as verdict_on
from omac.tools.compose.journals import mark_of
from omac.tools.compose.state import StateDir
from omac.tools.terminal.invocation import print_json
from omac.tools.terminal.progress import Progress
from omac.tools.terminal.render import report, say_folded

CHANGED = 10


def verify(journal: str | None, as_json: bool, environment: Mapping[str, str]) -> int:
    """Print what a verification finds; 10 where an event is not the one that was recorded. Raises Refusal."""
    state = StateDir.of(environment)
    path = state.journal_in_use(environment, journal)
    if not os.path.lexists(path):
        mark_of(state, path).require_unmarked()
    with Progress("events verified") as progress:
        verdict = verdict_on(path, progress=progress.show)
    if as_json:
        print_json(_document(path, verdict))
    else:
        _show(path, verdict)
    return CHANGED if verdict.finding else 0


def _show(path: str, verdict: Verdict) -> None:
    if verdict.finding is not None:
        where = f"position {verdict.finding.position}" if verdict.finding.position else "the journal"
        say_folded(f"{where}: {verdict.finding.detail} ({verdict.finding.problem})")
        report(f"{path} does not hold what was recorded; nothing behind this position was verified")
        report("  try: omac journal check  # whether it can still be read, and what a repair would do")
        return
    say_folded(f"{path}: {verdict.size} events are those that were recorded")
    say_folded(f"root {verdict.root.hex()}")
    if verdict.since > 1:
        say_folded(f"positions below {verdict.since} had no proof when they were recorded: they are proven since then")
    if verdict.uncovered:
        say_folded(f"{verdict.uncovered} later events have no proof yet: an omac that makes none recorded them")
    if verdict.set_aside:
        say_folded(f"{verdict.set_aside} positions were replaced by a repair, which is on record: omac journal stats")


def _document(path: str, verdict: Verdict) -> dict[str, Any]:
    finding = verdict.finding
    return {
        "path": path, "id": verdict.journal, "events": verdict.head, "verified": verdict.size,
        "proven_since": verdict.since, "root": verdict.root.hex(), "set_aside": verdict.set_aside,
        "without_proof": verdict.uncovered, "finding": None if finding is None else finding._asdict(),
    }  # fmt: skip
