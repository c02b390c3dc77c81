"""An installation: omac's hooks, or its plugin, in a settings file of an agent, which a person has omac put there.

Rules

1. A change is requested before the file is touched and recorded afterwards: `bridge.changed`, or
   `bridge.change-failed` with the reason.
2. A request without an outcome is of a command that was killed. The next change of the file closes it first: the
   file's digest says which of the two happened.
3. A request holds what omac inserts and what it makes. Where the file still has the digest that it had then, that is
   enough to restore it to the byte. It never holds what others wrote there.
4. The write guard that was put there by itself stays when the hooks of sessions go.
"""

from typing import Literal

import msgspec

from omac.domain.harness.names import GUARDED
from omac.domain.kernel.aggregate import Aggregate
from omac.domain.kernel.event import Event
from omac.domain.kernel.refusal import Refusal


class BridgeChangeRequested(Event, frozen=True):
    """A person wants omac called for the hooks `events` of `harness`, from the settings file `file`; none: no longer.

    `digest` is the SHA-256 that the file will have, "" without a file. omac inserts `texts` at `offsets`, in characters
    of the text before. `made` are the file and the folders that omac makes, innermost first.
    """

    harness: str
    file: str
    events: tuple[str, ...]
    digest: str
    offsets: tuple[int, ...] = ()
    texts: tuple[str, ...] = ()
    made: tuple[str, ...] = ()


class BridgeChanged(Event, frozen=True):
    """A settings file calls omac for the hooks `events`, and for no others."""

    harness: str
    file: str
    events: tuple[str, ...]


class BridgeChangeFailed(Event, frozen=True):
    """The file was not changed; `why` in a few words."""

    harness: str
    file: str
    why: str


Status = Literal["settled", "changing"]


class InstallationState(msgspec.Struct, frozen=True):
    """The state of omac's bridge in one file. `installed` is what omac inserted last, None for nothing; `requested` is
    the change under way. `keeps_guard`: the write guard was put there by itself."""

    status: Status = "settled"
    installed: BridgeChangeRequested | None = None
    requested: BridgeChangeRequested | None = None
    keeps_guard: bool = False

    def before(self, digest: str) -> BridgeChangeRequested | None:
        """Return what omac inserted into the file, which has this digest now; None: nothing that is known."""
        if self.requested is not None and self.requested.digest == digest:
            return self.requested
        return self.installed


TABLE: dict[tuple[Status, type[Event]], Status] = {
    ("settled", BridgeChangeRequested): "changing",
    ("changing", BridgeChanged): "settled",
    ("changing", BridgeChangeFailed): "settled",
}


class RequestInstallation(msgspec.Struct, frozen=True):
    """Command: the file shall be changed so; `present` is the digest that it has now."""

    change: BridgeChangeRequested
    present: str


class ReportInstalled(msgspec.Struct, frozen=True):
    """Command: the file is as was asked for."""


class ReportNotInstalled(msgspec.Struct, frozen=True):
    """Command: the file could not be changed."""

    why: str


Command = RequestInstallation | ReportInstalled | ReportNotInstalled


def decide(command: Command, state: InstallationState) -> list[Event]:
    """The events that `command` means in `state`. Raises Refusal (out-of-order) for an outcome of no request."""
    requested = state.requested
    match command:
        case RequestInstallation(change, present):
            events: list[Event] = []
            if requested and requested.digest == present:
                events.append(BridgeChanged(requested.harness, requested.file, requested.events))
            elif requested:
                why = "omac was killed before the file was written"
                events.append(BridgeChangeFailed(requested.harness, requested.file, why))
            return [*events, change]
        case ReportInstalled():
            request = _pending_request(state)
            return [BridgeChanged(request.harness, request.file, request.events)]
        case ReportNotInstalled(why):
            request = _pending_request(state)
            return [BridgeChangeFailed(request.harness, request.file, why)]


def _pending_request(state: InstallationState) -> BridgeChangeRequested:
    if state.requested is None:
        raise Refusal("out-of-order", "no change of this file is under way")
    return state.requested


def evolve(state: InstallationState, event: Event) -> InstallationState:
    """The state after `event`. Raises KeyError for an event that cannot follow: the journal is damaged."""
    status = TABLE[state.status, type(event)]
    match event:
        case BridgeChangeRequested():
            return InstallationState(status, state.installed, event, state.keeps_guard)
        case BridgeChanged(events=events):
            keeps_guard = events == (GUARDED,) or (state.keeps_guard and GUARDED in events)
            return InstallationState(status, state.requested if events else None, None, keeps_guard)
        case _:
            return InstallationState(status, state.installed, None, state.keeps_guard)


EVENTS: tuple[type[Event], ...] = (BridgeChangeRequested, BridgeChanged, BridgeChangeFailed)
AGGREGATE = Aggregate("bridge", InstallationState(), decide, evolve, EVENTS)
