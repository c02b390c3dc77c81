"""Sealing: the oldest events of a journal move into a read-only file, a segment, of which the journal keeps the proofs.

Rules

1. A seal is requested before its file is written, and recorded before the rows leave the journal's file: `sealed`, or
   `seal-failed` with the reason.
2. Segments follow one another, from the first position on; each ends where a signed checkpoint does.
3. A request without an outcome is of a command that was killed. The next request closes it first.
4. A segment is pruned after all before it: requested before the file without the contents is written, and recorded
   before the one with them is removed.
5. A file that was lost between its record and the journal's list of segments took nothing with it: the rows are still
   in the journal. A request for the same positions says so, and they are sealed again.
"""

import msgspec
from msgspec.structs import replace

from omac.domain.kernel.aggregate import Aggregate
from omac.domain.kernel.event import Event
from omac.domain.kernel.refusal import Refusal


class SealRequested(Event, frozen=True):
    """The events from position `first` to `last` shall be in the segment `file`."""

    first: int
    last: int
    file: str


class SegmentSealed(Event, frozen=True):
    """The events are in the segment `file`, which has this number of `bytes` and this SHA-256. `root` is the root of
    the first `last` events, `note` the signed checkpoint that covers them. Digests are in hexadecimal digits."""

    first: int
    last: int
    file: str
    bytes: int
    sha256: str
    root: str
    note: str


class SealFailed(Event, frozen=True):
    """The events could not be sealed; `why` is the reason in a few words."""

    why: str


class PruneRequested(Event, frozen=True):
    """Contents shall be dropped from the segment with these positions; `file` is the one that has the rest."""

    first: int
    last: int
    file: str


class SegmentPruned(Event, frozen=True):
    """The contents were dropped: `file` has this number of `bytes` and this SHA-256, and lacks the contents of
    `dropped` events. `state` is the SHA-256 of the state at `last`, with and without them."""

    first: int
    last: int
    file: str
    bytes: int
    sha256: str
    dropped: int
    state: str


class PruneFailed(Event, frozen=True):
    """The contents could not be dropped; `why` is the reason in a few words."""

    why: str


class Sealing(msgspec.Struct, frozen=True):
    """The last segment that was sealed and that was pruned, and requests that have no outcome yet."""

    sealed: SegmentSealed | None = None
    requested: SealRequested | None = None
    pruned: SegmentPruned | None = None
    prune_requested: PruneRequested | None = None


class RequestSeal(msgspec.Struct, frozen=True):
    """Command: seal these positions; `is_again`: the file of the last seal was lost before it was listed."""

    first: int
    last: int
    file: str
    is_again: bool = False


class ReportSealed(msgspec.Struct, frozen=True):
    """Command: the file that was asked for is written and verified."""

    bytes: int
    sha256: str
    root: str
    note: str


class ReportSealFailure(msgspec.Struct, frozen=True):
    """Command: it could not be written."""

    why: str


class RequestPrune(msgspec.Struct, frozen=True):
    """Command: drop contents of the segment with these positions."""

    first: int
    last: int
    file: str


class ReportPruned(msgspec.Struct, frozen=True):
    """Command: the file without them is written and verified."""

    bytes: int
    sha256: str
    dropped: int
    state: str


class ReportPruneFailure(msgspec.Struct, frozen=True):
    """Command: it could not be written."""

    why: str


SealCommand = RequestSeal | ReportSealed | ReportSealFailure
PruneCommand = RequestPrune | ReportPruned | ReportPruneFailure
Command = SealCommand | PruneCommand


def decide(command: Command, state: Sealing) -> list[Event]:
    """The events that `command` means in `state`. Raises Refusal (out-of-order): an outcome of no request, or positions
    that are sealed, or pruned, already."""
    match command:
        case RequestSeal() | ReportSealed() | ReportSealFailure():
            return _decide_seal(command, state)
        case RequestPrune(first, last, file):
            if not (state.pruned.last if state.pruned else 0) < first <= last:
                raise Refusal("out-of-order", f"positions {first} to {last} are pruned already")
            failed: list[Event] = [PruneFailed("omac was killed before it was pruned")] if state.prune_requested else []
            return [*failed, PruneRequested(first, last, file)]
        case ReportPruned(size, sha256, dropped, digest):
            request = _pruning(state)
            return [SegmentPruned(request.first, request.last, request.file, size, sha256, dropped, digest)]
        case ReportPruneFailure(why):
            _pruning(state)
            return [PruneFailed(why)]


def _decide_seal(command: SealCommand, state: Sealing) -> list[Event]:
    match command:
        case RequestSeal(first, last, file, is_again):
            if not (_can_begin(state, first) if is_again else _sealed_to(state) < first) or first > last:
                message = f"positions {first} to {last} do not follow the last segment, to {_sealed_to(state)}"
                raise Refusal("out-of-order", message, fix=["omac journal seal"])
            failed: list[Event] = [SealFailed("omac was killed before it was sealed")] if state.requested else []
            if is_again and (lost := state.sealed) is not None:
                why = f"{lost.file} was lost before it was listed; its events are in the journal, and are sealed again"
                failed += [SealRequested(lost.first, lost.last, lost.file), SealFailed(why)]
            return [*failed, SealRequested(first, last, file)]
        case ReportSealed(size, sha256, root, note):
            request = _pending_request(state)
            return [SegmentSealed(request.first, request.last, request.file, size, sha256, root, note)]
        case ReportSealFailure(why):
            _pending_request(state)
            return [SealFailed(why)]


def _sealed_to(state: Sealing) -> int:
    return state.sealed.last if state.sealed else 0


def _can_begin(state: Sealing, first: int) -> bool:
    return _sealed_to(state) < first or (state.sealed is not None and first == state.sealed.first)


def _pending_request(state: Sealing) -> SealRequested:
    if state.requested is None:
        raise Refusal("out-of-order", "no seal is under way")
    return state.requested


def _pruning(state: Sealing) -> PruneRequested:
    if state.prune_requested is None:
        raise Refusal("out-of-order", "no prune is under way")
    return state.prune_requested


def evolve(state: Sealing, event: Event) -> Sealing:
    """The state after `event`. Raises KeyError for an event that cannot follow: the journal is damaged."""
    match event:
        case SealRequested(first, last) if state.requested is None and _can_begin(state, first) and first <= last:
            return replace(state, requested=event)
        case SegmentSealed(first, last, file) if state.requested == SealRequested(first, last, file):
            return replace(state, sealed=event, requested=None)
        case SealFailed() if state.requested is not None:
            return replace(state, requested=None)
        case PruneRequested(first, last) if state.prune_requested is None and first <= last:
            return replace(state, prune_requested=event)
        case SegmentPruned(first, last, file) if state.prune_requested == PruneRequested(first, last, file):
            return replace(state, pruned=event, prune_requested=None)
        case PruneFailed() if state.prune_requested is not None:
            return replace(state, prune_requested=None)
        case _:
            raise KeyError(f"a {type(event).__name__} that does not follow")


EVENTS = (SealRequested, SegmentSealed, SealFailed, PruneRequested, SegmentPruned, PruneFailed)
AGGREGATE = Aggregate("segment", Sealing(), decide, evolve, EVENTS)
