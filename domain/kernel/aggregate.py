"""An aggregate as data: its initial state, how it decides, and how it folds.

Every change of state is a typed command that `Aggregate.decided` turns into events. The events are folded on the state
they were decided on before anybody may append them, so an event that cannot follow never becomes durable.
"""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import msgspec

from omac.domain.kernel.event import Event
from omac.domain.kernel.ids import StreamId
from omac.domain.kernel.refusal import Refusal

State = TypeVar("State")
Command = TypeVar("Command")


class Aggregate(msgspec.Struct, Generic[State, Command], frozen=True):
    """The rules of one kind of stream.

    `decide` gives the events that a command means in a state and raises Refusal; `evolve` gives the state after an
    event and raises KeyError for one that cannot follow. `events` are all that may stand in such a stream. A log
    (`versioned` false) has no versions and nothing to decide on: its state is always `initial`. `has_ended` says of
    which states no event can follow. `name` begins the ids of its streams.
    """

    name: str
    initial: State
    decide: Callable[[Command, State], list[Event]]
    evolve: Callable[[State, Event], State]
    events: tuple[type[Event], ...]
    versioned: bool = True
    has_ended: Callable[[State], bool] = lambda _: False

    def decided(
        self, command: Command, state: State, scrub: Callable[[Event], Event] = lambda event: event
    ) -> list[Event]:
        """The events that `command` means in `state`, each passed through `scrub`, and proven to fold. Raises what
        `decide` raises, and Refusal (unfoldable) when the fold would not take what was decided."""
        events = [scrub(event) for event in self.decide(command, state)]
        for event in events:
            try:
                if type(event) not in self.events:
                    raise KeyError(f"no event of a {self.name}")
                state = self.evolve(state, event)
            except KeyError as impossible:
                raise self._unfoldable(event, command, impossible) from impossible
        return events

    def fact(self, event: Event) -> Event:
        """An event of a log, which is decided and folded without a state. Raises as `decided`."""
        assert not self.versioned, f"{self.name} is decided on its state"
        if type(event) not in self.events:
            raise self._unfoldable(event, event, KeyError(f"no event of a {self.name}"))
        return event

    def _unfoldable(self, event: object, command: object, impossible: KeyError) -> Refusal:
        message = (
            f"{type(event).__name__}, from {type(command).__name__} for a {self.name}, cannot follow in this "
            f"state ({impossible}); nothing was recorded: this is a defect of omac"
        )
        return Refusal("unfoldable", message, fix=["omac version  # and report it"])


def log(name: str, events: Sequence[type[Event]]) -> "Aggregate[None, Event]":
    """A log without versions whose commands are the facts it records: each is an event as it shall stand there."""

    def evolve(_: None, event: Event) -> None:
        if type(event) not in events:
            raise KeyError(type(event).__name__)

    return Aggregate(name, None, lambda fact, _: [fact], evolve, tuple(events), versioned=False)


class Addressed(msgspec.Struct, Generic[State, Command], frozen=True, gc=False):
    """A command, and the stream of the aggregate that it is for."""

    aggregate: Aggregate[State, Command]
    stream: StreamId
    command: Command
