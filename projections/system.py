"""The system: every read model of one journal, folded together. This *is* the live state of omac.

`apply` takes records in the order of positions; the same records give the same system, byte for byte, on any machine.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from omac.domain.access import access, control
from omac.domain.access.control import ControlRefused
from omac.domain.credentials import credential
from omac.domain.credentials.credential import Credential
from omac.domain.directories import directory
from omac.domain.directories.directory import Directory
from omac.domain.guard import denial
from omac.domain.kernel import ids, run
from omac.domain.kernel.aggregate import Aggregate
from omac.domain.kernel.event import Event, Recorded
from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.run import Run
from omac.domain.kernel.set_aside import PositionEmptied, PositionSetAside
from omac.domain.sandbox import inspection, launch
from omac.domain.sandbox.launch import Sandbox
from omac.domain.settings import setting
from omac.domain.settings.setting import SettingState
from omac.domain.sidecars import sidecar
from omac.domain.sidecars.sidecar import Sidecar
from omac.domain.skills import registration
from omac.domain.skills.registration import Registration
from omac.projections.access.tokens import TokenIndex
from omac.projections.aggregates import Aggregates
from omac.projections.evidence.accesses import Accesses
from omac.projections.run_namespaces import RunNamespaces

State = TypeVar("State")
_FIX = ("omac journal check", "omac journal repair")


class Controls:
    """How many control calls changed something, and how many were refused."""

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
    """How many writes the guard refused."""

    def __init__(self) -> None:
        self.denied = 0

    def apply(self, _recorded: Recorded) -> None:
        """Fold one denial."""
        self.denied += 1


class System:
    """All read models at `position`."""

    def __init__(self) -> None:
        self.position = 0
        self.runs: Aggregates[Run] = Aggregates(Run(), run.evolve, lambda state: state.ended)
        self.directories: Aggregates[Directory] = Aggregates(Directory(), directory.evolve)
        self.registrations: Aggregates[Registration] = Aggregates(Registration(), registration.evolve)
        self.credentials: Aggregates[Credential] = Aggregates(Credential(), credential.evolve)
        self.sidecars: Aggregates[Sidecar] = Aggregates(Sidecar(), sidecar.evolve)
        self.sandboxes: Aggregates[Sandbox] = Aggregates(Sandbox(), launch.evolve, lambda state: state.ended)
        self.settings: Aggregates[SettingState] = Aggregates(SettingState(), setting.evolve)
        self.aggregates: dict[str, Aggregates[Any]] = {  # by the first word of their streams
            "run": self.runs,
            "directory": self.directories,
            "registration": self.registrations,
            "credential": self.credentials,
            "sidecar": self.sidecars,
            "sandbox": self.sandboxes,
            "setting": self.settings,
        }
        self.accesses = Accesses()
        self.guarded = Guarded()
        self.controls = Controls()
        self.tokens = TokenIndex()
        self.run_namespaces = RunNamespaces(self.directories, self.sidecars)
        self._folds = self._by_event_type()

    def apply(self, recorded: Recorded) -> None:
        """Fold one record into every read model it concerns. Raises Refusal (journal-damaged)."""
        if recorded.position != self.position + 1:
            found = f"position {recorded.position} follows position {self.position} of the journal"
            raise Refusal("journal-damaged", found, fix=_FIX)
        try:
            for fold in self._folds[type(recorded.event)]:
                fold(recorded)
        except (KeyError, ValueError, TypeError, AttributeError) as impossible:  # no stream of omac, say
            event = type(recorded.event).__name__
            message = (
                f"the event at position {recorded.position} ({event} in {recorded.stream}) cannot follow: {impossible}"
            )
            raise Refusal("journal-damaged", message, fix=_FIX) from impossible
        self.position = recorded.position

    def of(self, aggregate: Aggregate[State, Any]) -> Aggregates[State]:
        """All aggregates of one kind."""
        return self.aggregates[aggregate.name]

    def replay(self, records: Iterable[Recorded]) -> "System":
        """Fold many; returns itself."""
        for recorded in records:
            self.apply(recorded)
        return self

    def _fold_setting(self, recorded: Recorded) -> None:
        if recorded.version is None:  # an older omac kept one log of all settings
            host, name = ids.key_of(recorded.stream).host, recorded.event.name
            self.settings.absorb(ids.setting_stream(host, name), recorded)
        else:
            self.settings.apply(recorded)

    def _skip(self, recorded: Recorded) -> None:
        """Pass over an event that was set aside; its stream counts it."""
        if recorded.version is not None:
            self.aggregates[ids.key_of(recorded.stream).aggregate].skip(recorded)

    def _by_event_type(self) -> dict[type[Event], list[Callable[[Recorded], None]]]:
        folds: dict[type[Event], list[Callable[[Recorded], None]]] = {}
        kinds: list[tuple[Callable[[Recorded], None], Iterable[type[Event]]]] = [
            (self.runs.apply, run.AGGREGATE.events),
            (self.directories.apply, directory.AGGREGATE.events),
            (self.registrations.apply, registration.AGGREGATE.events),
            (self.credentials.apply, credential.AGGREGATE.events),
            (self.sidecars.apply, sidecar.AGGREGATE.events),
            (self.sandboxes.apply, launch.AGGREGATE.events),
            (self._fold_setting, setting.AGGREGATE.events),
            (self.guarded.apply, denial.AGGREGATE.events),
            (self.accesses.apply, access.AGGREGATE.events),
            (self.controls.apply, control.AGGREGATE.events),
            (self.tokens.apply, TokenIndex.EVENTS),
            (self.run_namespaces.apply, RunNamespaces.EVENTS),
            (self._skip, (PositionEmptied, *inspection.AGGREGATE.events)),
        ]
        folds[PositionSetAside] = []  # it says what was done to the journal, and changes no read model
        for fold, events in kinds:
            for event in events:
                folds.setdefault(event, []).append(fold)
        return folds
