"""Signed checkpoints in the journal: what it held at some time, in a chain that nobody can continue without the key.

Rules

1. A checkpoint is recorded when the tree is larger than at the last one. It names the digest of the one before.
2. So who rewrites what a checkpoint counted has to sign that checkpoint anew, and all that come after it.
3. A key is replaced by a note that the old and the new key have both signed: whoever knows one of them gets to know
   the other. From then on the old one signs nothing more: what it signs is not recorded.
4. A key that is lost signs nothing, so its successor signs alone and proves nothing about what is before: a break; it
   stays visible, and only a checkpoint that was kept elsewhere gets across.
5. That a key is moved to another store is recorded before that, and when it was done: the same key signs.
6. Why no checkpoint could be signed is recorded once, until the next one is.
"""

import base64
import binascii
import hashlib
import re

import msgspec

from omac.domain.kernel.aggregate import Aggregate
from omac.domain.kernel.event import Event
from omac.domain.kernel.refusal import Refusal

ID_BYTES = 4  # of a key, in front of each of its signatures
SIGNATURE = re.compile("\u2014 ([^ +]+) ([A-Za-z0-9+/=]+)")


class CheckpointSigned(Event, frozen=True):
    """`note` is the signed checkpoint of the first `size` events; `previous` the SHA-256 of the note before, in
    hexadecimal digits, "" for the first."""

    size: int
    note: str
    previous: str


class KeyRotated(Event, frozen=True):
    """The public key `old` (a verifier key, on one line) was replaced by `new`. `note` says so, signed by both;
    `previous` is the SHA-256 of the note before, as in a checkpoint."""

    old: str
    new: str
    note: str
    previous: str


class KeyLost(Event, frozen=True):
    """The key that signed is gone (`old` is its name and id, "" where no one knows it); `new`, a verifier key, begins a
    new chain. `note` says so, signed by `new` alone; `previous` is as in a checkpoint."""

    old: str
    new: str
    note: str
    previous: str


class KeyMoveRequested(Event, frozen=True):
    """The private key of `key` (name and id) shall be kept in `to` (file, vault or keychain) instead of in `store`."""

    key: str
    store: str
    to: str


class KeyMoved(Event, frozen=True):
    """The private key of `key` (name and id) is in `store`, which a move was to change."""

    key: str
    store: str


class CheckpointDelayed(Event, frozen=True):
    """No checkpoint could be signed, and `why`. The next one counts what was recorded meanwhile."""

    why: str


class SignedChain(msgspec.Struct, frozen=True):
    """The last checkpoint: how many events it counts, and the SHA-256 of the last note. `key` is the name and the id of
    the key that signs, "" where none has; `problem` is why nothing was signed since, "" where nothing hinders it;
    `moving` is the store that the key is on its way to, "" for none."""

    size: int = 0
    digest: str = ""
    key: str = ""
    problem: str = ""
    moving: str = ""


class RecordCheckpoint(msgspec.Struct, frozen=True):
    """Command: this checkpoint was signed."""

    size: int
    note: str


class RecordRotation(msgspec.Struct, frozen=True):
    """Command: the key `old` gives way to `new`, as both have signed."""

    old: str
    new: str
    note: str


class RecordLoss(msgspec.Struct, frozen=True):
    """Command: the key `old` (name and id) is lost, and `new` signs from now on."""

    old: str
    new: str
    note: str


class RequestKeyMove(msgspec.Struct, frozen=True):
    """Command: keep `key` (name and id) in `to`, from `store`."""

    key: str
    store: str
    to: str


class ReportKeyMoved(msgspec.Struct, frozen=True):
    """Command: `key` (name and id) is in `store`, whatever was to be."""

    key: str
    store: str


class RecordDelay(msgspec.Struct, frozen=True):
    """Command: no checkpoint can be signed."""

    why: str


Command = RecordCheckpoint | RecordRotation | RecordLoss | RequestKeyMove | ReportKeyMoved | RecordDelay


def digest_of(note: str) -> str:
    """Return what the next checkpoint names this one by."""
    return hashlib.sha256(note.encode()).hexdigest()


def key_id(key: str) -> str:
    """Return the name and the id of a verifier key, "NAME+ID"."""
    return "+".join(key.split("+")[:2])


def signer_of(note: str) -> str:
    """Return the name and the id of the key that a note says it is signed by; "" for a text that says none."""
    match = SIGNATURE.fullmatch(note.removesuffix("\n").rpartition("\n")[2])
    try:
        content = base64.b64decode(match[2], validate=True) if match else b""
    except (binascii.Error, ValueError):
        return ""
    return f"{match[1]}+{content[:ID_BYTES].hex()}" if match else ""


def decide(command: Command, state: SignedChain) -> list[Event]:
    """The events that a command means: none for a checkpoint where another one counts as many events, for a delay that
    is known, for a move that was asked for, and for the end of none. Raises Refusal (out-of-order) for what another key
    signed than the one that signs this journal."""
    match command:
        case RecordCheckpoint(size, note):
            _require_current(signer_of(note), state)
            return [] if size <= state.size else [CheckpointSigned(size, note, state.digest)]
        case RecordRotation(old, new, note):
            _require_current(key_id(old), state)
            return [KeyRotated(old, new, note, state.digest)]
        case RecordLoss(old, new, note):
            _require_current(old, state)
            return [KeyLost(old, new, note, state.digest)]
        case RequestKeyMove(key, store, to):
            _require_current(key, state)
            return [] if to == state.moving else [KeyMoveRequested(key, store, to)]
        case ReportKeyMoved(key, store):
            return [KeyMoved(key, store)] if state.moving else []
        case RecordDelay(why):
            return [] if why == state.problem else [CheckpointDelayed(why)]


def other_key(key: str, signer: str) -> Refusal:
    """Return the refusal of what `key` signs, where `signer` is the key that signs the journal (names and ids)."""
    message = f"the key {key} signs nothing in this journal: its checkpoints are signed by {signer}"
    fix = ["omac audit --kind key  # who replaced it, and when", "omac key rotate --lost  # where that key is gone"]
    return Refusal("out-of-order", message, fix=fix)


def _require_current(key: str, state: SignedChain) -> None:
    if key and state.key and key != state.key:
        raise other_key(key, state.key)


def evolve(state: SignedChain, event: Event) -> SignedChain:
    """The state after an event. Raises KeyError for one that cannot follow: the journal is damaged. Whether each names
    the one before, the verification compares: behind one that a repair set aside, the next can still be folded."""
    match event:
        case CheckpointSigned(size, note) if size > state.size:
            return SignedChain(size, digest_of(note), signer_of(note) or state.key, moving=state.moving)
        case KeyRotated(_, new, note) | KeyLost(_, new, note):
            return SignedChain(state.size, digest_of(note), key_id(new), state.problem)
        case KeyMoveRequested(_, _, to):
            return msgspec.structs.replace(state, moving=to)
        case KeyMoved() if state.moving:
            return msgspec.structs.replace(state, moving="")
        case CheckpointDelayed(why):
            return msgspec.structs.replace(state, problem=why)
        case _:
            raise KeyError(f"a checkpoint that does not follow the one of {state.size} events")


AGGREGATE = Aggregate(
    "checkpoint",
    SignedChain(),
    decide,
    evolve,
    (CheckpointSigned, KeyRotated, KeyLost, KeyMoveRequested, KeyMoved, CheckpointDelayed),
)
