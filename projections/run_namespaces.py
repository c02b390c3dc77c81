"""Run namespaces: what runs beside the server had online leaves memory with them.

Each `omac start` has directories and sidecars of its own, whose streams carry its run. Once the run has ended and all
of them are at rest nothing can follow in these streams. Those of the runs that ended last stay known, for timelines.
"""

from collections import deque
from typing import ClassVar

import msgspec

from omac.domain.directories.directory import Directory
from omac.domain.directories.events import ActivationRequested, Deactivated
from omac.domain.kernel import ids
from omac.domain.kernel.event import Event, Recorded
from omac.domain.kernel.ids import RunId, RunNamespace, StreamId
from omac.domain.kernel.run import RunRecovered, RunStopped
from omac.domain.sidecars.sidecar import Sidecar, SpawnRequested, Stopped
from omac.projections.aggregates import ENDED_KEPT, Aggregates


class RunNamespacesState(msgspec.Struct, frozen=True):
    """The complete state of a RunNamespaces, sets in order."""

    streams: dict[RunNamespace, list[StreamId]]
    ended: list[RunNamespace]
    resting: list[RunNamespace]


class RunNamespaces:
    """Drops entries of `directories` and `sidecars`; folds an event after these have."""

    EVENTS: ClassVar[tuple[type[Event], ...]] = (
        RunStopped,
        RunRecovered,
        ActivationRequested,
        SpawnRequested,
        Deactivated,
        Stopped,
    )

    def __init__(self, directories: Aggregates[Directory], sidecars: Aggregates[Sidecar]) -> None:
        self._directories = directories
        self._sidecars = sidecars
        self._streams: dict[RunNamespace, set[StreamId]] = {}
        self._ended: set[RunNamespace] = set()
        self._resting: deque[RunNamespace] = deque()  # ended, with nothing that could follow

    def state(self) -> RunNamespacesState:
        """Return all that is remembered, to go on from another time."""
        streams = {namespace: sorted(streams) for namespace, streams in self._streams.items()}
        return RunNamespacesState(streams, sorted(self._ended), list(self._resting))

    def restore(self, state: RunNamespacesState) -> None:
        """Go on from what was remembered."""
        self._streams = {namespace: set(streams) for namespace, streams in state.streams.items()}
        self._ended = set(state.ended)
        self._resting = deque(state.resting)

    def apply(self, recorded: Recorded) -> None:
        """Fold one event that begins or ends a run's directory or sidecar, or the run."""
        stream, event = recorded.stream, recorded.event
        if isinstance(event, RunStopped | RunRecovered):
            namespace = ids.namespace_beside(ids.key_of(stream).host, RunId(ids.key_of(stream).name))
            if namespace in self._streams:
                self._ended.add(namespace)
        else:
            namespace = ids.key_of(stream).namespace
            if namespace == ids.key_of(stream).host:
                return  # the server's own, which later servers bring online again
            if isinstance(event, ActivationRequested | SpawnRequested):
                self._streams.setdefault(namespace, set()).add(stream)
        if namespace in self._ended and not any(self._moves(stream) for stream in self._streams[namespace]):
            self._ended.remove(namespace)
            self._resting.append(namespace)
            if len(self._resting) > ENDED_KEPT:
                self._drop(self._resting.popleft())

    def _moves(self, stream: StreamId) -> bool:
        return self._sidecars[stream].state.live or self._directories[stream].state.status != "offline"

    def _drop(self, namespace: RunNamespace) -> None:
        for stream in self._streams.pop(namespace):
            self._directories.entries.pop(stream, None)
            self._sidecars.entries.pop(stream, None)
