"""omac audit explain: what caused a record, what it caused, why a call was refused, and what else belongs to its
conversation."""

from collections.abc import Mapping
from typing import Any

from omac.domain.access.access import AccessRefused
from omac.domain.kernel import ids
from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.set_aside import PositionPruned
from omac.journal.event_kinds import KIND_OF
from omac.journal.pruned import day_of, pruned_refusal
from omac.projections.evidence.called_sidecar import CalledSidecar
from omac.projections.evidence.explanation import RECORDS_MAX, ExplainedRecord, Explanation, explain
from omac.projections.evidence.given_secrets import given_secrets, shown_secrets
from omac.tools.compose.journals import to_read
from omac.tools.terminal.invocation import print_json
from omac.tools.terminal.named_fields import named_fields
from omac.tools.terminal.render import (
    print_folded,
    print_line,
    report,
    report_cut,
    report_fix,
    shown_fields,
    with_journal,
)
from omac.tools.terminal.timestamps import rfc3339, wall_clock

INDENTED_MAX = 12  # levels; a chain that is deeper goes on below the last


def run(position: int, journal_path: str | None, as_json: bool, environment: Mapping[str, str]) -> int:
    """Show the tree. Raises Refusal."""
    with to_read(environment, journal_path) as journal:
        explanation = explain(position, journal)
        if explanation is None:
            head = journal.store.head()
            message = f"no record is at position {position}: the journal ends at {head}"
            raise Refusal("not-found", message, fix=[with_journal("omac audit", journal_path)])
        if any(record.recorded.position == position and _is_pruned(record) for record in explanation.records):
            last, at = journal.store.pruned_to()
            raise pruned_refusal(position, last, day_of(at), journal.store.path)
    if as_json:
        records = [_json(record) for record in explanation.records]
        sidecars = [_sidecar(start) for start in explanation.sidecars]
        print_json({"position": position, "is_cut": explanation.is_cut, "sidecars": sidecars, "records": records})
        return 0
    for record in explanation.records:
        _show(record, position)
    for start in explanation.sidecars:
        secrets = shown_secrets(start.spec) or "no secret"
        print_folded(f"forwarded to the sidecar {start.spec.skill} of position {start.position}, with {secrets}", 2)
    if explanation.is_cut:
        print_line(f"only the first {RECORDS_MAX} related records are shown")
    _report_more(explanation, position, journal_path)
    return 0


def _report_more(explanation: Explanation, position: int, journal_path: str | None) -> None:
    """Say how to see values that were cut, calls that ended together, and what a call met that led nowhere."""
    others = [record.recorded for record in explanation.records if record.recorded.position != position]
    report_cut(others, journal_path)
    if len(explanation.ends) > 1:
        first, last = min(explanation.ends), max(explanation.ends)
        report(f"position {position} ends {len(explanation.ends)} calls; their rows, and the explanation of the first:")
        commands = (f"omac audit --kind access --from {first} --to {last}", f"omac audit explain {first}")
        report_fix(with_journal(command, journal_path) for command in commands)
    for record in explanation.records:
        event = record.recorded.event
        if (
            record.recorded.position == position
            and isinstance(event, AccessRefused)
            and event.reason == "unknown-mount"
        ):
            report("its token or its mount led nowhere; what was online then:")
            report_fix([with_journal(f"omac replay --at {position}", journal_path)])


def _is_pruned(record: ExplainedRecord) -> bool:
    return isinstance(record.recorded.event, PositionPruned)


def _show(record: ExplainedRecord, position: int) -> None:
    recorded = record.recorded
    mark = ">" if recorded.position == position else " "
    indent = "  " * min(record.depth, INDENTED_MAX)
    key = ids.key_of(recorded.stream)
    of_what = f" of {key.name}" if key.aggregate in ("sidecar", "registration", "credential") else ""
    head = f"{mark} {indent}{recorded.position}  {wall_clock(recorded.at)}  {KIND_OF[type(recorded.event)]}{of_what}"
    why = f" because of {', '.join(map(str, record.because_of))}" if record.because_of else ""
    fields = shown_fields(recorded.event, whole=recorded.position == position)
    print_folded(f"{head} (by {recorded.actor}{why}) {fields}".rstrip(), len(indent) + 4)


def _sidecar(start: CalledSidecar) -> dict[str, Any]:
    secrets = [
        {name: getattr(secret, name) for name in ("name", "fingerprint", "store", "from_env")}
        for secret in given_secrets(start.spec)
    ]
    return {
        "position": start.position,
        "skill": start.spec.skill,
        "digest": start.spec.digest,
        "secrets": secrets,
    }


def _json(record: ExplainedRecord) -> dict[str, Any]:
    recorded = record.recorded
    return {
        "position": recorded.position,
        "depth": record.depth,
        "causation": recorded.causation,
        "because_of": record.because_of,
        "correlation": recorded.correlation,
        "at": rfc3339(recorded.at),
        "kind": KIND_OF[type(recorded.event)],
        "stream": recorded.stream,
        "run": recorded.run,
        "actor": recorded.actor,
        "event": named_fields(recorded.event),
    }
