"""A setting: one of omac's own, as a person changes it in the settings file of a user.

Rules

1. A change is requested before the file is touched and recorded afterwards: `changed`, or `change-failed` with the
   reason.
2. A request without an outcome is of a command that was killed, or that could not record it. The next command for the
   setting closes it first: the file says which of the two happened. Where the file says what is asked for already,
   that is all it does.
3. The record is of who changed what; which word holds is read from the files (`omac.domain.settings.settings`).
"""

from typing import Literal

import msgspec

from omac.domain.kernel.aggregate import Aggregate
from omac.domain.kernel.event import Event
from omac.domain.kernel.refusal import Refusal


class SettingChangeRequested(Event, frozen=True):
    """A person asked for `value`; None: it shall no longer be set. `origin` names the file."""

    name: str
    value: str | None
    origin: str


class SettingChanged(Event, frozen=True):
    """A person changed a setting. `value` None: it is no longer set; `origin` is where, as in `Resolved`."""

    name: str
    value: str | None
    origin: str


class SettingChangeFailed(Event, frozen=True):
    """The file was not changed; `why` in a few words."""

    name: str
    why: str


Status = Literal["settled", "changing"]


class SettingState(msgspec.Struct, frozen=True):
    """The word that a person asked for last; `requested` is the one that is on its way to the file."""

    status: Status = "settled"
    value: str | None = None
    requested: SettingChangeRequested | None = None


TABLE: dict[tuple[Status, type[Event]], Status] = {
    ("settled", SettingChangeRequested): "changing",
    ("settled", SettingChanged): "settled",  # a change that an omac recorded which did not request first
    ("changing", SettingChanged): "settled",
    ("changing", SettingChangeFailed): "settled",
}


class RequestChange(msgspec.Struct, frozen=True):
    """Command: the file shall say `value`; `present` is what it says now."""

    name: str
    value: str | None
    origin: str
    present: str | None


class SettleChange(msgspec.Struct, frozen=True):
    """Command: the file says `present`, which is what is asked for: there is nothing to change."""

    present: str | None


class ReportChange(msgspec.Struct, frozen=True):
    """Command: the file says what was asked for."""


class ReportFailure(msgspec.Struct, frozen=True):
    """Command: the file could not be changed."""

    why: str


Command = RequestChange | SettleChange | ReportChange | ReportFailure


def decide(command: Command, state: SettingState) -> list[Event]:
    """The events that `command` means in `state`. Raises Refusal (out-of-order) for an outcome of no request."""
    match command:
        case RequestChange(name, value, origin, present):
            return [*_settled(state, present), SettingChangeRequested(name, value, origin)]
        case SettleChange(present):
            return _settled(state, present)
        case ReportChange():
            request = _pending_request(state)
            return [SettingChanged(request.name, request.value, request.origin)]
        case ReportFailure(why):
            return [SettingChangeFailed(_pending_request(state).name, why)]


def _settled(state: SettingState, present: str | None) -> list[Event]:
    """Return the outcome of a request that has none, by what the file says."""
    requested = state.requested
    if requested is None:
        return []
    if requested.value == present:
        return [SettingChanged(requested.name, requested.value, requested.origin)]
    return [SettingChangeFailed(requested.name, "omac was killed before the file was written")]


def _pending_request(state: SettingState) -> SettingChangeRequested:
    if state.requested is None:
        raise Refusal("out-of-order", "no change of this setting is under way")
    return state.requested


def evolve(state: SettingState, event: Event) -> SettingState:
    """The state after `event`. Raises KeyError for an event that cannot follow: the journal is damaged."""
    status = TABLE[state.status, type(event)]
    match event:
        case SettingChangeRequested():
            return SettingState(status, state.value, event)
        case SettingChanged(_, value):
            return SettingState(status, value)
        case _:
            return SettingState(status, state.value)


EVENTS: tuple[type[Event], ...] = (SettingChangeRequested, SettingChanged, SettingChangeFailed)
AGGREGATE = Aggregate("setting", SettingState(), decide, evolve, EVENTS)
