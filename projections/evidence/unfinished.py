"""The evidence that a host still owes: checkpoints not signed or not delivered, and erasures that are not finished."""

from collections.abc import Iterator

import msgspec

from omac.domain.access import erasure, signing, witness
from omac.domain.kernel import ids
from omac.projections.system import System


class DelayStatus(msgspec.Struct, frozen=True):
    """A host that signs no checkpoints, and why; the last one counts `signed` events."""

    host: str
    signed: int
    why: str


class LapseStatus(msgspec.Struct, frozen=True):
    """A host whose witness does not get checkpoints, and why; the last one that a witness has counts `witnessed`."""

    host: str
    witnessed: int
    why: str


class ErasureStatus(msgspec.Struct, frozen=True):
    """An erasure that a host recorded and has not finished: of the directory `workdir` (its workdir id)."""

    host: str
    workdir: str


def delays_of(system: System) -> Iterator[DelayStatus]:
    """Yield the hosts that sign no checkpoints of this journal."""
    for stream, entry in system.of(signing.AGGREGATE).entries.items():
        if entry.state.problem:
            yield DelayStatus(ids.key_of(stream).host, entry.state.size, entry.state.problem)


def lapses_of(system: System) -> Iterator[LapseStatus]:
    """Yield the hosts whose witness does not get the checkpoints of this journal."""
    for stream, entry in system.of(witness.AGGREGATE).entries.items():
        if entry.state.problem:
            yield LapseStatus(ids.key_of(stream).host, entry.state.size, entry.state.problem)


def erasures_of(system: System) -> Iterator[ErasureStatus]:
    """Yield the erasures of this journal that are under way, or were killed."""
    for stream, entry in system.of(erasure.AGGREGATE).entries.items():
        if entry.state.requested is not None:
            yield ErasureStatus(ids.key_of(stream).host, entry.state.requested.workdir)
