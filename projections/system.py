"""The system: every read model of one journal, folded together. This *is* the live state of omac.

`apply` takes records in the order of positions; the same records give the same system, byte for byte, on any machine.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from msgspec.structs import replace

from omac.domain.access import access, control
from omac.domain.access.control import ControlRefused
from omac.domain.access.erasure import ErasureRequested
from omac.domain.aggregates import AGGREGATES
from omac.domain.credentials import credential
from omac.domain.directories import directory
from omac.domain.guard import denial
from omac.domain.guard.denial import GuardDenied
from omac.domain.kernel import ids, run
from omac.domain.kernel.aggregate import Aggregate
from omac.domain.kernel.event import Event, Recorded
from omac.domain.kernel.redaction import ERASED
from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.set_aside import PositionEmptied, PositionPruned
from omac.domain.sandbox import launch
from omac.domain.settings import setting
from omac.domain.settings.setting import SettingChanged
from omac.domain.sidecars import sidecar
from omac.domain.skills import registration
from omac.projections.access.tokens import TokenIndex
from omac.projections.aggregates import Aggregates
from omac.projections.evidence.accesses import Accesses
from omac.projections.impossible import FIX, IMPOSSIBLE, cannot_follow
from omac.projections.run_namespaces import RunNamespaces

State = TypeVar("State")
FIRST_SETTINGS = "settings"  # the first word of that log's stream


class Controls:
    """The number of control calls that changed something, and of those that were refused."""

    def __init__(self) -> None:
        self.called = 0
        self.refused = 0

    def apply(self, recorded: Recorded) -> None:
        """Fold one control event."""
        event = recorded.event
        if isinstance(event, ControlRefused):
            self.refused += event.count
        else:
            self.called += 1


class Guarded:
    """The number of writes that the guard denied."""

    def __init__(self) -> None:
        self.denied = 0

    def apply(self, recorded: Recorded) -> None:
        """Fold denials that were recorded together."""
        event = recorded.event
        assert isinstance(event, GuardDenied)
        self.denied += event.count


class System:
    """All read models at `position`."""

    def __init__(self) -> None:
        self.position = 0
        self.aggregates: dict[str, Aggregates[Any]] = {  # by the first word of their streams
            aggregate.name: Aggregates(aggregate) for aggregate in AGGREGATES if aggregate.versioned
        }
        self.runs = self.of(run.AGGREGATE)
        self.directories = self.of(directory.AGGREGATE)
        self.registrations = self.of(registration.AGGREGATE)
        self.credentials = self.of(credential.AGGREGATE)
        self.sidecars = self.of(sidecar.AGGREGATE)
        self.sandboxes = self.of(launch.AGGREGATE)
        self.settings = self.of(setting.AGGREGATE)
        self.accesses = Accesses()
        self.guarded = Guarded()
        self.controls = Controls()
        self.tokens = TokenIndex()
        self.run_namespaces = RunNamespaces(self.directories, self.sidecars)
        self._folds = self._by_event_type()

    def apply(self, recorded: Recorded) -> None:
        """Fold one record into every read model it concerns. Raises Refusal (journal-damaged)."""
        if recorded.position != self.position + 1:
            gap = f"position {recorded.position} follows position {self.position} of the journal"
            raise Refusal("journal-damaged", gap, fix=FIX)
        try:
            for fold in self._folds[type(recorded.event)]:
                fold(recorded)
        except IMPOSSIBLE as impossible:
            raise cannot_follow(recorded, impossible) from impossible
        self.position = recorded.position

    def of(self, aggregate: Aggregate[State, Any]) -> Aggregates[State]:
        """All aggregates of one kind."""
        return self.aggregates[aggregate.name]

    def replay(self, records: Iterable[Recorded]) -> "System":
        """Fold many; returns itself."""
        for recorded in records:
            self.apply(recorded)
        return self

    def _skip(self, recorded: Recorded) -> None:
        """Pass over an event that was set aside; its stream counts it."""
        if recorded.version is not None:
            self.aggregates[ids.key_of(recorded.stream).aggregate].skip(recorded)

    def _erase(self, recorded: Recorded) -> None:
        """Forget the command lines of launches whose key is destroyed: a run that lives writes snapshots later."""
        event, host = recorded.event, ids.key_of(recorded.stream).host
        assert isinstance(event, ErasureRequested)
        for stream, entry in self.sandboxes.entries.items():
            begun = entry.state.launch
            if begun is None or not begun.argv or ids.key_of(stream).host != host:
                continue
            if ids.workdir_id(begun.workdir) == event.workdir:
                state = replace(entry.state, launch=replace(begun, argv=(ERASED,)))
                self.sandboxes.entries[stream] = replace(entry, state=state)

    def _count_pruned(self, recorded: Recorded) -> None:
        """Add what events that were pruned had added."""
        event = recorded.event
        assert isinstance(event, PositionPruned)
        self.accesses.completed += event.completed
        self.accesses.aborted += event.aborted
        self.accesses.refused += event.refused
        self.guarded.denied += event.denied
        self.controls.called += event.controls_called
        self.controls.refused += event.controls_refused

    def _change_setting(self, recorded: Recorded) -> None:
        """Fold a change of a setting. The first omac had a log of them, without versions; which word holds is read from
        the settings files, so that log changes nothing."""
        if recorded.version is not None or ids.key_of(recorded.stream).aggregate != FIRST_SETTINGS:
            self.settings.apply(recorded)

    def _by_event_type(self) -> dict[type[Event], list[Callable[[Recorded], None]]]:
        folds: dict[type[Event], list[Callable[[Recorded], None]]] = {}
        for aggregate in AGGREGATES:  # a log without a read model changes nothing
            apply = [self.aggregates[aggregate.name].apply] if aggregate.versioned else []
            folds |= {event: [*apply] for event in aggregate.events}
        folds[PositionEmptied] = [self._skip]
        folds[PositionPruned] = [self._count_pruned]
        folds[SettingChanged] = [self._change_setting]
        kinds: list[tuple[Callable[[Recorded], None], Iterable[type[Event]]]] = [
            (self.guarded.apply, denial.AGGREGATE.events),
            (self.accesses.apply, access.AGGREGATE.events),
            (self.controls.apply, control.AGGREGATE.events),
            (self.tokens.apply, TokenIndex.EVENTS),
            (self.run_namespaces.apply, RunNamespaces.EVENTS),
            (self._erase, (ErasureRequested,)),
        ]
        for fold, events in kinds:
            for event in events:
                folds[event].append(fold)
        return folds
