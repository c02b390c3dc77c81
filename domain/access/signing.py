"""Signed checkpoints in the journal: what it held at some time, in a chain that nobody can continue without the key.

Rules

1. A checkpoint is recorded when the tree is larger than at the last one. It names the digest of the one before.
2. So who rewrites what a checkpoint counted has to sign that checkpoint anew, and all that come after it.
"""

import hashlib

import msgspec

from omac.domain.kernel.aggregate import Aggregate
from omac.domain.kernel.event import Event


class CheckpointSigned(Event, frozen=True):
    """`note` is the signed checkpoint of the first `size` events; `previous` the SHA-256 of the note before, in
    hexadecimal digits, "" for the first."""

    size: int
    note: str
    previous: str


class SignedChain(msgspec.Struct, frozen=True):
    """The last checkpoint: how many events it counts, and the SHA-256 of its note."""

    size: int = 0
    digest: str = ""


class RecordCheckpoint(msgspec.Struct, frozen=True):
    """Command: this checkpoint was signed."""

    size: int
    note: str


def digest_of(note: str) -> str:
    """Return what the next checkpoint names this one by."""
    return hashlib.sha256(note.encode()).hexdigest()


def decide(command: RecordCheckpoint, state: SignedChain) -> list[Event]:
    """The events that a command means: none where another one counts as many events."""
    if command.size <= state.size:
        return []
    return [CheckpointSigned(command.size, command.note, state.digest)]


def evolve(state: SignedChain, event: Event) -> SignedChain:
    """The state after an event. Raises KeyError for one that cannot follow: the journal is damaged. Whether each names
    the one before, the verification compares: behind one that a repair set aside, the next can still be folded."""
    match event:
        case CheckpointSigned(size, note) if size > state.size:
            return SignedChain(size, digest_of(note))
        case _:
            raise KeyError(f"a checkpoint that does not follow the one of {state.size} events")


AGGREGATE = Aggregate("checkpoint", SignedChain(), decide, evolve, (CheckpointSigned,))
