"""An export: which events are taken, the record of it, and the bundle's files.

They are written in a folder beside their place, which is moved there as a whole: what was killed leaves no bundle, and
the same command goes on with it (`tools/compose/export_draft.py`).
"""

import hashlib
import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec
import trio

from omac.adapters.files.atomic import sync_folder
from omac.domain.access import export
from omac.domain.access.export import ExportCreated
from omac.domain.kernel import ids
from omac.domain.kernel.aggregate import Addressed
from omac.domain.kernel.event import PERSON
from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.sizes import counted
from omac.domain.kernel.unflushed import Unflushed
from omac.domain.skills.values import shown
from omac.journal.bundle import (
    CHECKPOINT,
    EVIDENCE,
    FORMAT,
    GAPS,
    MANIFEST,
    SIGNATURE,
    BundleManifest,
    EventContent,
    digest_of,
    taken,
)
from omac.journal.checkpoint import Checkpoint, current_checkpoint, sign, sign_note
from omac.journal.codec import Codec
from omac.journal.merkle import HASH_BYTES
from omac.journal.reader import ReadJournal
from omac.journal.redaction import Redaction
from omac.projections.evidence.accesses import AuditFold, ended_rows
from omac.projections.evidence.audit_query import AuditQuery
from omac.tools.compose.clock import now_ns
from omac.tools.compose.export_draft import Begun, DraftRefused, ExportDraft, draft_path, held_draft
from omac.tools.compose.journals import carrying, codec_of, to_read
from omac.tools.compose.signing import Signer
from omac.tools.compose.state import StateDir
from omac.tools.terminal.export_formats import FILES, Format, parts_of, require_writer, writer_of
from omac.tools.terminal.version import VERSION

Tell = Callable[[int, int], None]


class ExportRequest(NamedTuple):
    """The request of an export. `folder` is absolute; `filters` are the options as typed; `redacted` the kinds and
    fields that are left out; times that were typed are relative to `at`."""

    format: Format
    folder: str
    query: AuditQuery
    filters: Mapping[str, str]
    redacted: tuple[str, ...]
    journal: str | None
    at: int


class Exported(NamedTuple):
    """The bundle that was written: its folder and its manifest."""

    folder: str
    manifest: BundleManifest


def export_evidence(
    request: ExportRequest,
    environment: Mapping[str, str],
    reading: Tell,
    writing: Tell,
    signer: Signer,
) -> Exported:
    """Record the export, then write its bundle, signed by `signer`; go on with one that was interrupted. `reading`
    and `writing` are told of how many events were done, of how many. Raises Refusal: what writes its form is not there,
    its place is taken or cannot be written, or the journal is not what was recorded."""
    require_writer(request.format)
    if os.path.lexists(request.folder):
        raise Refusal("misuse", f"{request.folder} exists already: an export makes its folder", fix=["--out NEW"])
    signer.require_sound_and_open()
    with held_draft(request.folder) as draft:
        with to_read(environment, request.journal) as journal:
            path = journal.store.path
            begun = draft.begun
            if begun is not None:
                _require_same(journal, request, begun)
            head = begun.head if begun is not None else journal.store.head()
            selection = _positions(journal, request.query, head, reading)
            if begun is not None and (len(selection) if selection is not None else head) != begun.events:
                raise _chosen_otherwise(request, begun, len(selection or ()))
            journal_id, codec = journal.store.journal_id(), codec_of(StateDir.of(environment), journal.store)
        if begun is None:
            count = len(selection) if selection is not None else head
            fact = ExportCreated(request.format, request.folder, dict(request.filters), request.redacted, count)
            _record(fact, request.journal, environment)
            tree = current_checkpoint(path, request.at)
            begun = Begun(
                request.at, journal_id, fact.format, fact.filters, fact.redacted, head, count, tree.size, tree.root
            )
            draft.begin(begun)
        checkpoint = Checkpoint(journal_id, begun.size, begun.root, now_ns(), current_checkpoint(path, now_ns()).late)
        name, seed = signer.key()
        positions = selection if selection is not None else range(1, head + 1)
        counts = _write_events(draft, request, path, codec, journal_id, checkpoint, positions, writing, begun.events)
        draft.write(CHECKPOINT, sign(checkpoint, name, seed).encode())  # its root is that of the journal's events
        manifest = BundleManifest(
            FORMAT, request.format, VERSION, journal_id, checkpoint.at, checkpoint.size, checkpoint.root.hex(),
            checkpoint.late, dict(request.filters), request.redacted, *counts, draft.written, signer.rotations(),
            writer_of(request.format),
        )  # fmt: skip
        text = msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"
        draft.write(MANIFEST, text)
        draft.write(SIGNATURE, sign_note(digest_of(text), name, seed).encode())
        draft.finish(request.folder)
    try:
        sync_folder(os.path.dirname(request.folder))
    except Unflushed as problem:
        raise problem.refusal("state-unusable", request.folder, os.path.dirname(request.folder)) from None
    return Exported(request.folder, manifest)


def _record(fact: ExportCreated, flag: str | None, environment: Mapping[str, str]) -> None:
    with carrying(environment, flag) as execution:
        record = Addressed(export.AGGREGATE, ids.export_stream(execution.host), fact)
        trio.run(execution.record, [record], PERSON)


def _require_same(journal: ReadJournal, request: ExportRequest, begun: Begun) -> None:
    """Raise DraftRefused unless the draft is of this very export, as it is recorded in this journal."""
    draft = draft_path(request.folder)
    if begun.journal != journal.store.journal_id():
        raise DraftRefused(f"{draft} is an interrupted export of another journal, {begun.journal}")
    stated = (begun.format, begun.filters, begun.redacted)
    if stated != (request.format, dict(request.filters), request.redacted):
        options = [f"--format {begun.format}", *(f"{name} {value}" for name, value in begun.filters.items())]
        options += [f"--redact {','.join(begun.redacted)}"] if begun.redacted else []
        message = f"{draft} is an interrupted export with other options: {', '.join(map(shown, options))}"
        raise DraftRefused(message)
    fact = ExportCreated(begun.format, request.folder, begun.filters, begun.redacted, begun.events)
    head = journal.store.head()
    is_known = 0 <= begun.head < begun.size <= head and len(begun.root) == HASH_BYTES
    if not is_known or not any(recorded.event == fact for recorded in journal.records(begun.head, begun.size)):
        raise DraftRefused(f"{draft} is not what an export of this journal left: the journal has no record of it")


def _chosen_otherwise(request: ExportRequest, begun: Begun, count: int) -> DraftRefused:
    description = (
        f"an export of {counted(begun.events, 'event')}, which can no longer be chosen: its filters find {count} now"
    )
    return DraftRefused(
        f"{draft_path(request.folder)} is {description}; fields were erased or pruned meanwhile: begin again"
    )


def derived(manifest: BundleManifest, events: Iterator[EventContent]) -> bytes | None:
    """Return the SHA-256 of a bundle's data as this omac derives it; None where another version derived it."""
    made_by = (manifest.format, manifest.omac, manifest.writer)
    if manifest.data not in FILES or made_by != (FORMAT, VERSION, writer_of(manifest.data)):
        for _ in events:
            pass
        return None
    digest = hashlib.sha256()
    for part in parts_of(manifest.data, manifest.journal, events):
        digest.update(part)
    return digest.digest()


def _positions(journal: ReadJournal, query: AuditQuery, head: int, tell: Tell) -> "array[int] | None":
    """The positions of the events that begin and end the wanted rows, up to `head`, in order; None: all."""
    if not query.is_selective:
        return None
    positions, fold = array("q"), AuditFold()
    for ended, rows in ended_rows(journal.records(0, head), fold):
        tell(ended, head)
        wanted = [row.position for row in rows if query.matches(row)]
        positions.extend(wanted)
        if wanted:
            positions.append(ended)
    positions.extend(row.position for row in fold.open() if query.matches(row))
    return array("q", sorted(set(positions)))


def _write_events(
    files: ExportDraft,
    request: ExportRequest,
    path: str,
    codec: Codec,
    journal_id: str,
    checkpoint: Checkpoint,
    positions: Iterable[int],
    tell: Tell,
    whole: int,
) -> tuple[int, int]:
    """Write evidence, gaps and data in one pass; how many events there are, and how many without content."""
    counts, redaction = [0, 0], Redaction.of(request.redacted)
    with files.open(EVIDENCE) as evidence, files.open(GAPS) as gaps, files.open(FILES[request.format]) as data:

        def events() -> Iterator[EventContent]:
            for line, event in taken(path, positions, checkpoint.size, checkpoint.root, redaction, codec):
                (gaps if event is None else evidence).write(msgspec.json.encode(line) + b"\n")
                if event is not None:
                    counts[0] += 1
                    counts[1] += event.content is None
                    tell(counts[0], whole)
                    yield event

        for part in parts_of(request.format, journal_id, events()):
            data.write(part)
    return counts[0], counts[1]
