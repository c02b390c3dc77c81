"""A prune: which contents are dropped from sealed segments, the record of it, and what is left.

What omac's state follows from is kept as events, not as a state: so a later omac, whose folds are others, computes its
own state from the same events. That both give the same state is compared before anything is dropped.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import NamedTuple

import trio
from msgspec.structs import replace

from omac.domain.access import sealing
from omac.domain.access.access import accesses_of, position_of
from omac.domain.access.export import ExportCreated
from omac.domain.access.sealing import SegmentSealed
from omac.domain.kernel import ids
from omac.domain.kernel.event import PERSON, Recorded
from omac.domain.kernel.ids import HostId, RunId, StreamId
from omac.domain.kernel.refusal import Refusal, list_command, quoted
from omac.domain.kernel.set_aside import PositionPruned, PositionSetAside
from omac.journal.audit_index import delete_index
from omac.journal.checkpoint import VerifierKey, verified
from omac.journal.codec import Codec
from omac.journal.event_kinds import KIND_OF
from omac.journal.file import disk_refusal
from omac.journal.reader import ReadJournal
from omac.journal.segment import PrunedContent, Segment, pruned_file_of, withdraw
from omac.journal.segment_writing import require_verified, written_pruned
from omac.projections.snapshot import encoded
from omac.projections.system import System
from omac.services.kernel.opened import OpenedJournal
from omac.tools.compose.clock import now_ns
from omac.tools.compose.export_draft import empty_draft
from omac.tools.compose.journals import mark_of
from omac.tools.compose.sealing import KeysOf, alone_with, finish, last_checkpoint
from omac.tools.compose.state import StateDir
from omac.tools.terminal.invocation import typed_with


class PlannedPrune(NamedTuple):
    """The events that a prune drops of a segment: how many of which kinds, from when to when (nanoseconds since 1970
    UTC). `kept` are the positions that stay, `state` is the SHA-256 of the state at its end."""

    segment: Segment
    dropped: Counter[str]
    kept: frozenset[int]
    counted_at: int
    counts: PositionPruned
    begun: int
    ended: int
    state: str


class Pruning:
    """A journal that is about to be pruned. Methods raise Refusal."""

    def __init__(self, carrier: OpenedJournal, keys: Sequence[VerifierKey]) -> None:
        self.path = carrier.journal.store.path
        self._journal = carrier.journal
        self._carrier = carrier
        self._stream = ids.segment_stream(carrier.host)
        self._keys = keys
        self._exports: Sequence[str] = ()

    def finish(self) -> None:
        """Finish what an earlier prune or seal left."""
        finish(self._carrier)

    def plan(self, moment: int) -> list[PlannedPrune]:
        """Return what is dropped when all segments are pruned whose events are of that moment or before."""
        reader = self._journal.store.reader
        until = reader.position_at(moment)
        segments = [segment for segment in reader.segments() if not segment.pruned and segment.last <= until]
        for segment in segments:
            self._require_signed(segment)
        if segments:
            with closing(ReadJournal(self.path)) as journal:
                created = [record.event for record in journal.of_kinds([KIND_OF[ExportCreated]])]
            self._exports = [event.folder for event in created if isinstance(event, ExportCreated)]
        return [self._planned(segment) for segment in segments]

    def can_seal(self, moment: int) -> bool:
        """Return whether a checkpoint counts events of that moment or before alone, some of which are in no segment."""
        reader = self._journal.store.reader
        signed = last_checkpoint(self._carrier, reader.position_at(moment))
        return signed is not None and signed.size > reader.sealed_to()

    def perform(self, planned: PlannedPrune) -> Segment:
        """Drop it, and return what is left."""
        segment = planned.segment
        left = PrunedContent(
            planned.kept, planned.counted_at, Codec().encode(planned.counts)[1], planned.ended, now_ns()
        )
        self._record(sealing.RequestPrune(segment.first, segment.last, pruned_file_of(segment.first, segment.last)))
        self._empty_drafts()
        try:
            pruned = written_pruned(self.path, segment, left)
        except Refusal as refusal:
            with suppress(Refusal, OSError):  # the disk may be that of the journal
                withdraw(self.path, self._journal.store.reader.segments())
                self._record(sealing.ReportPruneFailure(refusal.message))
            raise
        dropped = planned.dropped.total()
        self._record(sealing.ReportPruned(pruned.bytes, pruned.sha256, dropped, planned.state))
        self._journal.store.replace_segment(pruned)
        try:
            withdraw(self.path, self._journal.store.reader.segments())
        except OSError as error:
            raise disk_refusal(error, self.path) from error
        return pruned

    def _empty_drafts(self) -> None:
        """Remove what interrupted exports wrote: it has contents, and the records by which an erasure would find it are
        dropped. An export that is at work goes on."""
        exports, self._exports = self._exports, ()
        try:
            for folder in exports:
                with suppress(BlockingIOError):
                    empty_draft(folder, self._journal.store.journal_id())
        except OSError as error:
            message = f"{error.filename} cannot be removed: {error.strerror}; no more was dropped"
            fix = [list_command(str(error.filename)), typed_with("  # then again")]
            raise Refusal("state-unusable", message, fix=fix) from error

    def _record(self, command: sealing.Command) -> None:
        trio.run(self._carrier.execute, sealing.AGGREGATE, self._stream, command, PERSON)

    def _require_signed(self, segment: Segment) -> None:
        notes = [
            recorded.event.note
            for stream in self._journal.store.reader.streams(sealing.AGGREGATE.name)  # each host has one
            for recorded in self._journal.history(StreamId(stream))
            if isinstance(recorded.event, SegmentSealed) and recorded.event.first == segment.first
        ]
        if not notes:
            message = f"the journal has no record that positions {segment.first} to {segment.last} were sealed"
            raise Refusal("journal-damaged", message, fix=[f"omac journal check --journal {quoted(self.path)}"])
        try:
            checkpoint = verified(notes[-1], *self._keys)
        except Refusal as refusal:
            message = f"positions {segment.first} to {segment.last} cannot be pruned: {refusal.message}"
            fix = [
                typed_with("--key KEY  # the public key of then: of another host, or lost since"),
                f"omac audit --kind key --journal {quoted(self.path)}",
            ]
            raise Refusal(refusal.reason, message, fix=fix) from refusal
        if checkpoint.size != segment.last or checkpoint.journal != self._journal.store.journal_id():
            message = f"the checkpoint of positions {segment.first} to {segment.last} counts other events"
            raise Refusal("journal-damaged", message, fix=[f"omac audit verify --journal {quoted(self.path)}"])
        require_verified(self.path, segment.first, checkpoint)

    def _planned(self, segment: Segment) -> PlannedPrune:
        system = System().replay(self._journal.folded(0, segment.last))
        streams, under_way = _living(system), set(map(position_of, system.accesses.open))
        kept, dropped, seen = set[int](), Counter[str](), set[StreamId]()
        counted_at = begun = ended = 0
        for recorded in self._journal.records(segment.first - 1, segment.last):
            begun, ended = begun or recorded.at, recorded.at
            if recorded.version is not None and recorded.stream not in seen:
                seen.add(recorded.stream)
                if recorded.version > 1:
                    streams.add(recorded.stream)  # an earlier segment has its beginning
            if _is_kept(recorded, segment.first, under_way, streams):
                kept.add(recorded.position)
            else:
                counted_at = counted_at or recorded.position
                dropped[KIND_OF[type(recorded.event)]] += 1
        counts = self._counted(segment, system, kept)
        digest = hashlib.sha256(encoded(system)).hexdigest()
        return PlannedPrune(segment, dropped, frozenset(kept), counted_at, counts, begun, ended, digest)

    def _counted(self, segment: Segment, system: System, kept: set[int]) -> PositionPruned:
        """Return what the dropped events add to counts. Raises Refusal where the state without them would differ
        otherwise."""
        left = System()
        for recorded in self._journal.folded(0, segment.last):
            is_left = recorded.position < segment.first or recorded.position in kept
            left.apply(recorded if is_left else replace(recorded, version=None, event=PositionPruned()))
        before, after = _counts(left), _counts(system)
        counts = PositionPruned(*(whole - part for whole, part in zip(after, before, strict=True)))
        left.position -= 1
        stream = ids.journal_stream(HostId("-"))
        left.apply(Recorded(left.position + 1, stream, None, 0, "", "omac", None, None, counts))
        if encoded(left) != encoded(system):
            message = (
                f"positions {segment.first} to {segment.last} cannot be pruned: the state would be another; "
                "nothing was dropped"
            )
            raise Refusal("unfoldable", message, fix=["omac version  # and report it"])
        return counts


@contextmanager
def pruning(flag: str | None, keys: KeysOf, environment: Mapping[str, str]) -> Iterator[Pruning]:
    """A journal that nobody else seals or prunes meanwhile, what an earlier seal or prune left being finished. `keys`
    have signed its checkpoints. Raises Refusal."""
    with alone_with(flag, environment) as carrier:
        work = Pruning(carrier, keys(carrier.journal.store.path))
        try:
            work.finish()
            yield work
        finally:
            delete_index(mark_of(StateDir.of(environment), work.path).file + ".audit")  # it has rows of what is gone


def _living(system: System) -> set[StreamId]:
    """The streams whose events the state follows from."""
    streams = {stream for aggregates in system.aggregates.values() for stream in aggregates.entries}
    for namespace, of_run in system.run_namespaces.state().streams.items():
        host, _, run = namespace.partition("@")
        streams |= {*of_run, ids.run_stream(HostId(host), RunId(run))}
    return streams


def _is_kept(recorded: Recorded, first: int, under_way: set[int], streams: set[StreamId]) -> bool:
    """Return whether an event of the segment that begins at position `first` stays; `under_way` are the positions of
    requests that are under way at its end."""
    if isinstance(recorded.event, PositionSetAside):
        return True  # it excuses a position from its proof
    if recorded.version is not None:
        return recorded.stream in streams
    # A request that is kept keeps its outcome, and those of all that came with it: it was under way at the end of an
    # earlier segment, or one of its record is.
    requested = {position_of(access) for access, _ in accesses_of(recorded.position, recorded.event)}
    return any(position < first or position in under_way for position in requested)


def _counts(system: System) -> tuple[int, ...]:
    ended, controls = system.accesses, system.controls
    counts = ended.completed, ended.aborted, ended.refused, system.guarded.denied
    return (*counts, controls.called, controls.refused)
