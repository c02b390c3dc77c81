"""A seal: which events are sealed, the record of it, and the segment's file; one at a time for a journal."""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import trio

from omac.adapters.files.descriptor import FOLDER_FLAGS, Descriptor
from omac.domain.access import sealing
from omac.domain.access.signing import CheckpointSigned
from omac.domain.kernel import ids
from omac.domain.kernel.event import PERSON
from omac.domain.kernel.locks import NO_LOCKS, without_locks
from omac.domain.kernel.refusal import Refusal, list_command, quoted
from omac.domain.kernel.sizes import counted
from omac.journal.checkpoint import Checkpoint, VerifierKey, verified
from omac.journal.file import disk_refusal, refusal_of
from omac.journal.segment import Segment, SegmentError, file_of, folder_of, verify_segment, withdraw
from omac.journal.segment_writing import make_folder, require_verified, written_segment
from omac.services.kernel.opened import OpenedJournal
from omac.tools.compose.clock import now_ns
from omac.tools.compose.journals import carrying, require_existing
from omac.tools.terminal.invocation import typed_with

KeysOf = Callable[[str], Sequence[VerifierKey]]  # the public keys that can have signed the journal at a path


class SealRequest(NamedTuple):
    """The request of a seal: events up to the moment `before` (nanoseconds since 1970 UTC; None: all that a checkpoint
    counts)."""

    before: int | None
    journal: str | None


class SignedSize(NamedTuple):
    """A recorded checkpoint that holds, and its text."""

    checkpoint: Checkpoint
    note: str


class Sealed(NamedTuple):
    """The result of a seal; `segment` None: nothing was sealed, for the reason `why`. `finished` is a segment that an
    earlier seal left behind."""

    segment: Segment | None
    finished: Segment | None
    path: str
    why: str = ""


def seal(request: SealRequest, keys: KeysOf, environment: Mapping[str, str]) -> Sealed:
    """Finish what an earlier seal left, then seal what a checkpoint by one of `keys` counts. Raises Refusal."""
    with alone_with(request.journal, environment) as carrier:
        reader, path = carrier.journal.store.reader, carrier.journal.store.path
        stream = ids.segment_stream(carrier.host)
        finished = finish(carrier)
        first = reader.sealed_to() + 1
        signed = _chosen(carrier, request, keys(path))
        if signed is None or signed.checkpoint.size < first:
            return Sealed(None, finished, path, _why_nothing(signed, first, request))
        checkpoint = signed.checkpoint
        require_verified(path, first, checkpoint)
        before = carrier.entry(sealing.AGGREGATE, stream).state.sealed
        is_again = before is not None and before.last >= first
        command = sealing.RequestSeal(first, checkpoint.size, file_of(first, checkpoint.size), is_again)
        trio.run(carrier.execute, sealing.AGGREGATE, stream, command, PERSON)
        repaired_at = reader.repaired_at()
        try:
            segment = written_segment(path, first, checkpoint, signed.note)
        except Refusal as refusal:
            with contextlib.suppress(Refusal, OSError):  # the disk may be that of the journal
                withdraw(path, reader.segments())
                trio.run(carrier.execute, sealing.AGGREGATE, stream, sealing.ReportSealFailure(refusal.message), PERSON)
            raise
        outcome = sealing.ReportSealed(segment.bytes, segment.sha256, checkpoint.root.hex(), signed.note)
        trio.run(carrier.execute, sealing.AGGREGATE, stream, outcome, PERSON)
        carrier.journal.store.take_out(segment, repaired_at)
        carrier.leave_snapshot()
    return Sealed(segment, finished, path)


def finish(carrier: OpenedJournal) -> Segment | None:
    """Finish what an earlier seal or prune recorded, and remove what it left that counts for nothing; return a segment
    that was finished. Raises Refusal."""
    state = carrier.entry(sealing.AGGREGATE, ids.segment_stream(carrier.host)).state
    event, pruned, store = state.sealed, state.pruned, carrier.journal.store
    finished, reader, path = None, store.reader, store.path
    try:
        if event is not None and event.last >= reader.sealed_to() and reader.rows_before(event.last + 1):
            segment = Segment(event.first, event.last, event.file, event.bytes, event.sha256)
            try:
                verify_segment(path, reader.journal_id(), segment)
            except SegmentError:
                if event.last <= reader.sealed_to() or not reader.has_rows(event.first, event.last):
                    raise  # else nothing is lost with it, and the next seal makes it again
            else:
                store.take_out(segment, reader.repaired_at())
                finished = segment
        if pruned is not None and any(
            segment.first == pruned.first and not segment.pruned for segment in reader.segments()
        ):
            left = Segment(pruned.first, pruned.last, pruned.file, pruned.bytes, pruned.sha256, now_ns())
            verify_segment(path, reader.journal_id(), left)
            store.replace_segment(left)
        withdraw(path, reader.segments())
    except SegmentError as error:
        raise refusal_of(error, path) from error
    except OSError as error:
        raise disk_refusal(error, path) from error
    return finished


def _chosen(carrier: OpenedJournal, request: SealRequest, keys: Sequence[VerifierKey]) -> SignedSize | None:
    """The last recorded checkpoint that counts only events that may be sealed. Raises Refusal for one that none of the
    keys has signed."""
    reader = carrier.journal.store.reader
    until = reader.head() if request.before is None else reader.position_at(request.before)
    if (chosen := last_checkpoint(carrier, until)) is None:
        return None
    checkpoint = verified(chosen.note, *keys)
    if (checkpoint.journal, checkpoint.size) != (reader.journal_id(), chosen.size):
        size = counted(chosen.size, "event")
        message = f"the checkpoint of {size} is of another journal, or counts others; nothing is sealed"
        raise Refusal("journal-damaged", message, fix=[f"omac audit verify --journal {quoted(reader.path)}"])
    return SignedSize(checkpoint, chosen.note)


def last_checkpoint(carrier: OpenedJournal, until: int) -> CheckpointSigned | None:
    """Return the last checkpoint that this host recorded of positions up to `until` alone."""
    chosen: CheckpointSigned | None = None
    for recorded in carrier.journal.history(ids.checkpoint_stream(carrier.host)):
        if isinstance(recorded.event, CheckpointSigned) and recorded.event.size <= until:
            chosen = recorded.event
    return chosen


def _why_nothing(signed: SignedSize | None, first: int, request: SealRequest) -> str:
    of = " of that time" if request.before is not None else ""
    if first > 1:
        return f"positions 1 to {first - 1} are sealed, and this host has recorded no later checkpoint{of}"
    assert signed is None or signed.checkpoint.size < first
    return f"this host has recorded no checkpoint{of}"


@contextmanager
def alone_with(flag: str | None, environment: Mapping[str, str]) -> Iterator[OpenedJournal]:
    """Yield what executes commands on the journal that a command means, which nobody else seals or prunes meanwhile.
    Raises Refusal."""
    with Descriptor(_held(require_existing(environment, flag))), carrying(environment, flag) as carrier:
        yield carrier


@contextmanager
def without_seal(path: str) -> Iterator[None]:
    """Keep others from sealing and pruning the segments of the journal at `path`. Raises Refusal (contention)."""
    if not os.path.isdir(folder_of(path)):
        yield
        return
    with Descriptor(_held(path)):
        yield


def _held(path: str) -> int:
    """Open the folder of segments of a journal, locked against other seals. Raises Refusal (contention)."""
    folder = folder_of(path)
    make_folder(folder)
    try:
        held = os.open(folder, FOLDER_FLAGS)
    except NotADirectoryError:
        message = f"{folder} is no folder; the segments of the journal belong there"
        raise Refusal("state-unusable", message, fix=[list_command(folder)]) from None
    except OSError as error:
        raise disk_refusal(error, path) from error
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(held)
        if isinstance(error, BlockingIOError):
            message = f"a seal, a prune or a restore of the journal {path} is at work"
            raise Refusal("contention", message, fix=[typed_with("  # when it has ended")]) from None
        raise without_locks(folder) if error.errno in NO_LOCKS else disk_refusal(error, path) from error
    return held
