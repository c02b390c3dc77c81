"""The system: every read model of one journal, folded together. This *is* the live state of omac.

`apply` takes records in the order of positions; the same records give the same system, byte for byte, on any machine.
"""

from collections.abc import Callable, Iterable
from typing import Any

from omac.domain import credential, directory, registration, run, sandbox, sidecar
from omac.domain.access import AccessAborted, AccessCompleted, AccessRefused, AccessRequested
from omac.domain.control import ControlCalled, ControlRefused
from omac.domain.credential import Credential
from omac.domain.directory import Directory
from omac.domain.guard_record import GuardDenied
from omac.domain.recorded import Event, Recorded
from omac.domain.refusal import Refusal
from omac.domain.registration import Registration
from omac.domain.run import Run
from omac.domain.sandbox import Sandbox
from omac.domain.set_aside import PositionEmptied, PositionSetAside
from omac.domain.settings import SettingChanged
from omac.domain.sidecar import Sidecar
from omac.projections.accesses import Accesses
from omac.projections.aggregates import Aggregates
from omac.projections.tokens import TokenIndex

_FIX = ("omac journal check", "omac journal repair")


class Controls:
    """How many control calls changed something, and how many were refused."""

    def __init__(self) -> None:
        self.called = 0
        self.refused = 0

    def apply(self, recorded: Recorded) -> None:
        """Fold one control event."""
        if isinstance(recorded.event, ControlCalled):
            self.called += 1
        else:
            self.refused += 1


class Settings:
    """omac's own settings, as people changed them from a command line: the last word for each."""

    def __init__(self) -> None:
        self.words: dict[str, str | None] = {}

    def apply(self, recorded: Recorded) -> None:
        """Fold one change."""
        self.words[recorded.event.name] = recorded.event.value


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
        self.runs: Aggregates[Run] = Aggregates(Run(), run.evolve)
        self.directories: Aggregates[Directory] = Aggregates(Directory(), directory.evolve)
        self.registrations: Aggregates[Registration] = Aggregates(Registration(), registration.evolve)
        self.credentials: Aggregates[Credential] = Aggregates(Credential(), credential.evolve)
        self.sidecars: Aggregates[Sidecar] = Aggregates(Sidecar(), sidecar.evolve)
        self.sandboxes: Aggregates[Sandbox] = Aggregates(Sandbox(), sandbox.evolve)
        self.accesses = Accesses()
        self.guarded = Guarded()
        self.controls = Controls()
        self.settings = Settings()
        self.tokens = TokenIndex()
        self._folds = self._by_event_type()

    def apply(self, recorded: Recorded) -> None:
        """Fold one record into every read model it concerns. Raises Refusal (journal-damaged)."""
        if recorded.position != self.position + 1:
            found = f"position {recorded.position} follows position {self.position} of the journal"
            raise Refusal("journal-damaged", found, fix=_FIX)
        try:
            for fold in self._folds[type(recorded.event)]:
                fold(recorded)
        except KeyError as impossible:
            event = type(recorded.event).__name__
            message = (
                f"the event at position {recorded.position} ({event} in {recorded.stream}) cannot follow: {impossible}"
            )
            raise Refusal("journal-damaged", message, fix=_FIX) from impossible
        self.position = recorded.position

    def replay(self, records: Iterable[Recorded]) -> "System":
        """Fold many; returns itself."""
        for recorded in records:
            self.apply(recorded)
        return self

    def _skip(self, recorded: Recorded) -> None:
        """Pass over an event that was set aside; its stream counts it."""
        aggregates: dict[str, Aggregates[Any]] = {
            "run": self.runs,
            "directory": self.directories,
            "registration": self.registrations,
            "credential": self.credentials,
            "sidecar": self.sidecars,
            "sandbox": self.sandboxes,
        }
        if recorded.version is not None:
            aggregates[recorded.stream.partition("/")[0]].skip(recorded)

    def _by_event_type(self) -> dict[type[Event], list[Callable[[Recorded], None]]]:
        folds: dict[type[Event], list[Callable[[Recorded], None]]] = {}
        kinds: list[tuple[Callable[[Recorded], None], Iterable[type[Event]]]] = [
            (self.runs.apply, {event for _, event in run.TABLE}),
            (self.directories.apply, {event for _, event in directory.TABLE}),
            (self.registrations.apply, registration.EVENTS),
            (self.credentials.apply, credential.EVENTS),
            (self.sidecars.apply, {event for _, event in sidecar.TABLE}),
            (self.sandboxes.apply, sandbox.EVENTS),
            (self.guarded.apply, (GuardDenied,)),
            (self.accesses.apply, (AccessRequested, AccessCompleted, AccessAborted, AccessRefused)),
            (self.controls.apply, (ControlCalled, ControlRefused)),
            (self.settings.apply, (SettingChanged,)),
            (self.tokens.apply, TokenIndex.EVENTS),
            (self._skip, (PositionEmptied,)),
        ]
        folds[PositionSetAside] = []  # it says what was done to the journal, and changes no read model
        for fold, events in kinds:
            for event in events:
                folds.setdefault(event, []).append(fold)
        return folds
