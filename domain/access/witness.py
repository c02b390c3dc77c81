"""Witnesses: who keeps signed checkpoints where omac's user, or whoever took the machine over, cannot take them back.

Rules

1. A checkpoint is recorded before it is delivered. The latest stands for those before it: its root counts their events.
2. That one was delivered is recorded, so that whoever starts next knows what is owed.
3. That none could be delivered, and why, is recorded once, until the next one is.
"""

import msgspec

from omac.domain.kernel.aggregate import Aggregate
from omac.domain.kernel.event import Event


class CheckpointWitnessed(Event, frozen=True):
    """The checkpoint of the first `size` events was delivered to `witness`: journald, syslog, or the path of a file."""

    size: int
    witness: str


class WitnessFailed(Event, frozen=True):
    """The checkpoint of the first `size` events could not be delivered to `witness`, and `why`."""

    size: int
    witness: str
    why: str


class Witnessed(msgspec.Struct, frozen=True):
    """The last checkpoint that was delivered, and to whom. `failed` is the last one that was not, and `problem` is why,
    "" once another one was."""

    size: int = 0
    witness: str = ""
    failed: int = 0
    problem: str = ""

    def records_behind(self, size: int) -> int:
        """Return how many events followed from the checkpoint of the first `size` events. They alone justify no other
        checkpoint."""
        return (self.size == size) + (self.failed == size)


class ReportDelivery(msgspec.Struct, frozen=True):
    """Command: a checkpoint was delivered."""

    size: int
    witness: str


class ReportLapse(msgspec.Struct, frozen=True):
    """Command: a checkpoint could not be delivered."""

    size: int
    witness: str
    why: str


Command = ReportDelivery | ReportLapse


def decide(command: Command, state: Witnessed) -> list[Event]:
    """The events that a command means: none for what is known."""
    match command:
        case ReportDelivery(size, witness):
            return [CheckpointWitnessed(size, witness)] if size > state.size else []
        case ReportLapse(size, witness, why):
            return [WitnessFailed(size, witness, why)] if why != state.problem and size > state.size else []


def evolve(state: Witnessed, event: Event) -> Witnessed:
    """The state after an event. Raises KeyError for one that cannot follow: the journal is damaged."""
    match event:
        case CheckpointWitnessed(size, witness) if size > state.size:
            return Witnessed(size, witness, state.failed)
        case WitnessFailed(size, _, why) if size > state.size:
            return msgspec.structs.replace(state, failed=size, problem=why)
        case _:
            raise KeyError(f"no delivery that follows the one of {state.size} events")


AGGREGATE = Aggregate("witness", Witnessed(), decide, evolve, (CheckpointWitnessed, WitnessFailed))
