"""The system of a journal: the newest snapshot that counts, and the events behind it.

A process that had to fold many events leaves a snapshot for the next, and a server leaves one now and then, so that a
start does not grow with the journal.
"""

import contextlib
import logging
import time
from collections.abc import Callable

from omac.domain.kernel.refusal import Refusal
from omac.journal.reader import Records
from omac.journal.snapshot_store import APART, SnapshotStore
from omac.projections.evidence.unfinished import erasures_of
from omac.projections.snapshot import decoded, encoded
from omac.projections.system import System

WORTH = 5_000  # events behind a snapshot that make another one worth it: folding them takes 30 ms
SHOW_S = 2.0
LOOKED_AT = 1_024  # events between two looks at the clock

_log = logging.getLogger("omac.journal")


def restored(journal: Records, snapshots: SnapshotStore | None, head: int) -> System:
    """Return the system at position `head`. Raises Refusal."""
    system = nearest(snapshots, head)
    began = system.position
    kept, shown = KeptSnapshots(snapshots, system.position, head), time.monotonic()
    for recorded in journal.folded(system.position, head):
        system.apply(recorded)
        kept.notice(system)
        if not system.position % LOOKED_AT and time.monotonic() - shown >= SHOW_S:
            shown = time.monotonic()
            _log.warning("reading the journal: %d of %d events", system.position, head)
    is_sealed = snapshots is not None and began < snapshots.sealed_to() < head
    kept.notice(system, 1 if is_sealed else WORTH)  # who comes next needs no segment for it, which may be lost
    return system


def forged(journal: Records, snapshots: SnapshotStore, head: Callable[[], int]) -> list[int]:
    """Return the positions whose snapshot counts and is not what the events give; all are folded for it.

    While an erasure is not finished, a snapshot may still have what the events no longer tell; it removes them all.
    Raises Refusal.
    """
    waiting, system, mismatches = set(snapshots.positions()), System(), []
    while system.position < (last := head()):  # what was appended meanwhile may be an erasure
        for recorded in journal.folded(system.position, last):
            system.apply(recorded)
            if system.position in waiting and snapshots.read(system.position) not in (None, encoded(system)):
                mismatches.append(system.position)
    return [] if any(erasures_of(system)) else [at for at in mismatches if snapshots.read(at) is not None]


class KeptSnapshots:
    """Keeps a snapshot of a system now and then; the last one was of `position`. Events up to `known` were there when
    the fold began."""

    def __init__(self, store: SnapshotStore | None, position: int, known: int = 0) -> None:
        self._store = store
        self._position = position
        self._known = known

    def notice(self, system: System, worth: int = APART) -> None:
        """Keep one if `worth` events or more were folded since the last; none where the journal is away."""
        if self._store is not None and system.position - self._position >= worth:
            with contextlib.suppress(Refusal):
                self._store.write(system.position, encoded(system), self._known)
            self._position = system.position


def nearest(snapshots: SnapshotStore | None, position: int) -> System:
    """Return the system of the newest snapshot that counts, at `position` or before; an empty one without any. Raises
    Refusal."""
    if snapshots is not None:
        for at, snapshot in snapshots.newest(position):
            try:
                system = decoded(snapshot)
            except ValueError:
                snapshots.remove(at)
                continue
            if system.position == at:
                return system
    return System()
