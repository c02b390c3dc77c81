"""Receipts: checkpoints of other journals that this one keeps, as their witness.

Rules

1. The first checkpoint of a journal pins the public key that signed it; what that key, or one that it gave way to, has
   signed is kept from then on. Nothing is recorded of a note that no such key has signed.
2. A journal only grows. A checkpoint of as many events with another root, or of fewer events, shows that its history
   was rewritten or taken back: it is recorded as contested, once, and what was received before stays.
"""

import msgspec

from omac.domain.kernel.aggregate import Aggregate
from omac.domain.kernel.event import Event
from omac.domain.kernel.refusal import Refusal


class CheckpointReceived(Event, frozen=True):
    """Another journal had `size` events with this root (64 hex digits), which `key`, a verifier key, has signed in
    `note`."""

    journal: str
    size: int
    root: str
    key: str
    note: str


class CheckpointContested(Event, frozen=True):
    """A signed checkpoint contradicts the one of `received` events that was received before."""

    journal: str
    size: int
    root: str
    note: str
    received: int


class Receipt(msgspec.Struct, frozen=True):
    """The last checkpoint that was received, and the last that contradicts it; `key` is the one that was pinned."""

    size: int = 0
    root: str = ""
    key: str = ""
    contested_size: int = 0
    contested_root: str = ""


class Receive(msgspec.Struct, frozen=True):
    """Command: keep a checkpoint. `pinned` is the key by which trust in `key` was found, "" where none is pinned."""

    journal: str
    size: int
    root: str
    key: str
    note: str
    pinned: str


def decide(command: Receive, state: Receipt) -> list[Event]:
    """The events that a checkpoint means: none for one that is known. Raises Refusal (contention): another key was
    pinned meanwhile."""
    journal, size, root, key, note, pinned = msgspec.structs.astuple(command)
    if pinned != state.key:
        raise Refusal("contention", "another checkpoint of this journal came first; try again")
    if size > state.size:
        return [CheckpointReceived(journal, size, root, key, note)]
    if (size, root) in ((state.size, state.root), (state.contested_size, state.contested_root)):
        return []
    return [CheckpointContested(journal, size, root, note, state.size)]


def evolve(state: Receipt, event: Event) -> Receipt:
    """The state after an event. Raises KeyError for one that cannot follow: the journal is damaged."""
    match event:
        case CheckpointReceived(_, size, root, key) if size > state.size:
            return msgspec.structs.replace(state, size=size, root=root, key=state.key or key)
        case CheckpointContested(_, size, root) if size <= state.size:
            return msgspec.structs.replace(state, contested_size=size, contested_root=root)
        case CheckpointReceived() | CheckpointContested():
            raise KeyError(f"no checkpoint that follows the one of {state.size} events")
        case _:
            raise KeyError(type(event).__name__)


AGGREGATE = Aggregate("receipt", Receipt(), decide, evolve, (CheckpointReceived, CheckpointContested))
