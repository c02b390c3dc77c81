"""omac export and omac export verify: evidence for a verifier without the journal."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast, get_args

import msgspec

from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.kernel.sizes import counted
from omac.journal.bundle import SIGNATURE, BundleManifest
from omac.journal.bundle_verification import VerifiedBundle, verify_bundle
from omac.journal.checkpoint import LIST_KEYS
from omac.journal.redaction import Redaction
from omac.projections.evidence.audit_query import AuditQuery
from omac.tools.cli.audit_filters import Typed, count_command, query_of
from omac.tools.cli.checkpoint import signer_for, typed_keys
from omac.tools.compose.clock import now_ns
from omac.tools.compose.export_draft import begun_at
from omac.tools.compose.exporting import ExportRequest, derived, export_evidence
from omac.tools.terminal.export_formats import Format
from omac.tools.terminal.invocation import expanded, print_json, require_one_of, typed_with
from omac.tools.terminal.progress import Progress
from omac.tools.terminal.render import print_folded, print_line, report, report_fix
from omac.tools.terminal.timestamps import rfc3339

DAMAGED = 10


class ExportOptions(NamedTuple):
    """The command line, as typed."""

    format: str
    folder: str
    filters: Typed
    redacted: str | None
    journal: str | None
    json: bool


def run(options: ExportOptions, environment: Mapping[str, str]) -> int:
    """Export. Raises Refusal."""
    require_one_of(get_args(Format), options.format, "--format")
    folder = os.path.abspath(expanded(options.folder))
    began = begun_at(folder)
    if began is not None:
        report(f"the export to {folder} was interrupted; it goes on with the events of its first start")
    at = now_ns() if began is None else began
    query = query_of(options.filters, lambda: at)
    for name, text in {"out": folder, **_filters(query)}.items():
        if text != text.encode(errors="replace").decode():
            raise Refusal("misuse", f"{text} is no text in UTF-8: it cannot be recorded", fix=[f"--{name} NEW"])
    request = ExportRequest(
        cast("Format", options.format),
        folder,
        query,
        _filters(query),
        _policy(options.redacted),
        options.journal,
        at,
    )
    signer = signer_for(options.journal, environment)
    with Progress("events read") as reading, Progress("events exported") as writing:
        exported = export_evidence(request, environment, reading.show, writing.show, signer)
    manifest = exported.manifest
    if options.json:
        data: dict[str, Any] = {"folder": exported.folder, "events": manifest.events, "size": manifest.size}
        print_json(data | {"root": manifest.root, "without_content": manifest.without_content})
        return 0
    print_folded(f"{exported.folder}: {_number(manifest)} exported as {manifest.data}")
    if manifest.without_content:
        print_line(f"  {manifest.without_content} of them without their content")
    if not manifest.events:
        report_fix([f"{count_command(query, options.journal)}  # the values that events have"])
    print_line("  to verify it elsewhere, where KEY is what omac key show prints here:")
    print_line(f"  omac export verify {quoted(exported.folder)} --key KEY")
    return 0


def verify(folder: str, keys: Sequence[str], as_json: bool) -> int:
    """Verify a bundle; 10 where it is not what was exported. Raises Refusal."""
    with Progress("events verified") as progress:
        known = typed_keys(keys)
        bundle = verify_bundle(os.path.abspath(expanded(folder)), known, derived, progress.show)
    if as_json:
        print_json(_data(folder, bundle))
    else:
        _show(folder, bundle)
    return DAMAGED if bundle.flaws else 0


def _filters(query: AuditQuery) -> dict[str, str]:
    """The filters as they are kept: what was relative to a moment or a folder is stated."""
    wanted = {name: value for name, value in msgspec.structs.asdict(query).items() if value is not None}
    stated: dict[str, str] = {name: rfc3339(wanted[name]) for name in ("since", "until") if name in wanted}
    if query.status is not None:
        low, high = query.status
        stated["status"] = str(low) if low == high else f"{low}-{high}"
    return {name: str(value) for name, value in (wanted | stated).items()}


def _policy(typed: str | None) -> tuple[str, ...]:
    """Return the words of --redact, as the export records them. Raises Refusal for words that cannot be redacted."""
    words = tuple(word.strip() for word in typed.split(",")) if typed is not None else ()
    Redaction.of(words)
    return words


def _show(folder: str, bundle: VerifiedBundle) -> None:
    for flaw in bundle.flaws:
        print_folded(f"{flaw.file}{f', line {flaw.line}' if flaw.line else ''}: {flaw.problem}")
    if bundle.flaws:
        is_of_another = bundle.flaws[0].file == SIGNATURE
        report(f"{folder} is not what was exported{', or another key signed it' if is_of_another else ''}")
        if is_of_another:
            remark = "  # that of the key that signed then: from one that replaced it nothing leads back"
            report_fix([typed_with(f"--key KEY{remark}"), LIST_KEYS])
        return
    manifest = bundle.manifest
    assert manifest is not None, "without flaws there is one"
    events = counted(bundle.events, "event")
    print_folded(f"{folder}: {events} verified, of the {manifest.size} of journal {manifest.journal}")
    print_folded(f"  exported {rfc3339(manifest.at)} by omac {manifest.omac}, root {manifest.root}", 4)
    if manifest.filters:
        print_folded(
            f"  filters: {', '.join(f'{name} {quoted(value)}' for name, value in manifest.filters.items())}", 4
        )
    if bundle.uncompared:
        maker = f"omac {manifest.omac}{manifest.writer and f' with {manifest.writer}'} made it, not this one"
        print_folded(f"  {bundle.uncompared} was not compared with the evidence: {maker}; its digest was signed", 4)
    if manifest.without_content:
        why = ", ".join((*manifest.redacted, "pruned, or set aside by a repair"))
        print_folded(f"  {manifest.without_content} without their content: {why}", 4)
    elif manifest.redacted:
        print_line(f"  fields left out: {', '.join(manifest.redacted)}")
    if manifest.late:
        print_folded(f"  positions 1 to {manifest.late} got their proofs later than they were recorded", 4)


def _number(exported: BundleManifest) -> str:
    """Return how many events the export has, of how many. Without a filter, it lacks at most the record of itself."""
    if not exported.filters and exported.events == exported.size - 1:
        return f"{counted(exported.events, 'event')}, all before this export,"
    return f"{exported.events} of {counted(exported.size, 'event')}"


def _data(folder: str, bundle: VerifiedBundle) -> dict[str, Any]:
    manifest = bundle.manifest
    stated = {} if manifest is None else {"journal": manifest.journal, "size": manifest.size, "root": manifest.root}
    findings = [flaw._asdict() for flaw in bundle.flaws]
    return {"folder": folder, "events": bundle.events, **stated, "uncompared": bundle.uncompared, "findings": findings}
