"""Erasure: the key of a project directory's personal fields is destroyed, and so is what it encrypted. One stream for a
directory.

Rules

1. An erasure is requested before the key is destroyed, and recorded as done when nothing of omac's holds a copy of what
   it encrypted.
2. A request without an outcome is of a command that was killed: the next one goes on with it.
3. Keys are recorded by their ids, which say nothing about them. So a backup brings none of them back.
"""

import msgspec

from omac.domain.kernel.aggregate import Aggregate
from omac.domain.kernel.event import Event
from omac.domain.kernel.refusal import Refusal


class ErasureRequested(Event, frozen=True):
    """The personal fields of the directory `workdir` (its workdir id) shall be erased; `keys` are the ids of the keys
    that it had, in hexadecimal digits."""

    workdir: str
    keys: tuple[str, ...]


class SubjectErased(Event, frozen=True):
    """The personal fields were erased: these keys are destroyed."""

    workdir: str
    keys: tuple[str, ...]


class Subject(msgspec.Struct, frozen=True):
    """A directory whose fields can be erased: a request that has no outcome yet, and how often it was done."""

    requested: ErasureRequested | None = None
    erased: int = 0


class RequestErasure(msgspec.Struct, frozen=True):
    """Command: erase what these keys encrypted."""

    workdir: str
    keys: tuple[str, ...]


class ReportErased(msgspec.Struct, frozen=True):
    """Command: the keys that were asked for are destroyed."""


Command = RequestErasure | ReportErased


def decide(command: Command, state: Subject) -> list[Event]:
    """The events that `command` means in `state`: none for a request that has been made. Raises Refusal (out-of-order):
    an outcome of no request."""
    match command:
        case RequestErasure(workdir, keys):
            known = state.requested.keys if state.requested is not None else ()
            if state.requested is not None and set(keys) <= set(known):
                return []
            return [ErasureRequested(workdir, tuple(dict.fromkeys((*known, *keys))))]
        case ReportErased():
            if state.requested is None:
                raise Refusal("out-of-order", "no erasure is under way")
            return [SubjectErased(state.requested.workdir, state.requested.keys)]


def evolve(state: Subject, event: Event) -> Subject:
    """The state after `event`. Raises KeyError for an event that cannot follow: the journal is damaged."""
    match event:
        case ErasureRequested():
            return Subject(event, state.erased)
        case SubjectErased(workdir, keys) if state.requested == ErasureRequested(workdir, keys):
            return Subject(None, state.erased + 1)
        case _:
            raise KeyError(f"a {type(event).__name__} that does not follow")


AGGREGATE = Aggregate("subject", Subject(), decide, evolve, (ErasureRequested, SubjectErased))
