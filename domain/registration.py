"""A registration: what this host knows of one skill in one scope, and whether a person approved its code.

Rules

1. Finding a skill registers it; registering never approves it.
2. An approval holds for one source folder and one bundle hash. Other code under the same name inherits nothing.
3. Code that differs from what was approved is recorded as drifted, once for each new hash.
"""

from typing import assert_never

import msgspec
from msgspec.structs import replace

from omac.domain.recorded import Event


class AutoRegistered(Event, frozen=True):
    """An activation found it."""

    source: str
    bundle_hash: str


class Registered(Event, frozen=True):
    """A person registered it."""

    source: str
    bundle_hash: str


class Approved(Event, frozen=True):
    """A person approved this code in this folder."""

    source: str
    bundle_hash: str


class Drifted(Event, frozen=True):
    """Its code is no longer the approved code."""

    source: str
    bundle_hash: str


class Code(msgspec.Struct, frozen=True):
    """Which code: the skill's canonical folder and its bundle hash."""

    source: str
    bundle_hash: str


class Registration(msgspec.Struct, frozen=True):
    """`found` is the code seen last, `approved` the code that may run; None when there is none."""

    found: Code | None = None
    approved: Code | None = None

    def approves(self, code: Code) -> bool:
        """Whether exactly this code was approved."""
        return self.approved == code


class Discover(msgspec.Struct, frozen=True):
    """Command: an activation found this code."""

    code: Code


class Approve(msgspec.Struct, frozen=True):
    """Command: a person vouches for this code."""

    code: Code


Command = Discover | Approve


def decide(command: Command, state: Registration) -> list[Event]:
    """The events that `command` means in `state`; none when nothing is new."""
    source, bundle_hash = command.code.source, command.code.bundle_hash
    match command:
        case Discover(code):
            if state.found == code:
                return []
            if state.approved not in (None, code):
                return [Drifted(source, bundle_hash)]
            return [AutoRegistered(source, bundle_hash)]
        case Approve(code):
            known: list[Event] = [] if state.found == code else [Registered(source, bundle_hash)]
            return [] if state.approved == code else [*known, Approved(source, bundle_hash)]
        case _:
            assert_never(command)


def evolve(state: Registration, event: Event) -> Registration:
    """The state after `event`. Any of its events may follow any other."""
    match event:
        case AutoRegistered(source, bundle_hash) | Registered(source, bundle_hash) | Drifted(source, bundle_hash):
            return replace(state, found=Code(source, bundle_hash))
        case Approved(source, bundle_hash):
            return replace(state, approved=Code(source, bundle_hash))
        case _:
            raise KeyError(type(event).__name__)


EVENTS: tuple[type[Event], ...] = (AutoRegistered, Registered, Approved, Drifted)
