"""The proof of one event: what was recorded, and hashes that lead to a signed checkpoint, for whoever has no journal.

Rules

1. A proof is one JSON object: the content of the leaf, the hashes of RFC 6962's audit path, and the signed checkpoint.
2. A verification needs a public key and nothing else. The event that it shows is the one that was proven, decoded from
   the content itself; the body stays the msgpack that was recorded.
"""

import sqlite3
from typing import Any, NamedTuple

import msgspec

from omac.domain.kernel.refusal import Refusal
from omac.journal.checkpoint import Checkpoint, VerifierKey, verified
from omac.journal.file import connect_for_reading, damaged, refusal_of
from omac.journal.leaves import Contents
from omac.journal.merkle import includes, inclusion_ranges, leaf_hash, root_of

FORMAT = "omac-proof-1"
BYTES_MAX = 64 << 20


class EventProof(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The proof of an event; bytes are base64 in JSON."""

    format: str
    position: int
    content: bytes
    path: tuple[bytes, ...]
    checkpoint: str


class ProvenEvent(NamedTuple):
    """An event as its leaf says it was recorded; times in nanoseconds since 1970 UTC. `is_late`: the leaf came later
    than the event, so the time before is not proven."""

    position: int
    stream: str
    version: int | None
    kind: str
    at: int
    run: str
    actor: str
    correlation: str | None
    causation: int | None
    happened: int | None
    body: Any
    checkpoint: Checkpoint
    is_late: bool


def prove(path: str, position: int, note: str, checkpoint: Checkpoint) -> bytes:
    """Return the proof that the event at `position` is in the journal of a signed checkpoint (`note` is its text), as
    JSON. Raises Refusal: the checkpoint does not count that position, or the event is not what was recorded."""
    if not 1 <= position <= checkpoint.size:
        message = f"position {position} is not among the {checkpoint.size} events of the checkpoint"
        raise Refusal("misuse", message, fix=["omac journal stats"])
    connection = connect_for_reading(path)
    try:
        connection.execute("BEGIN")
        text = next((text for _, text in Contents(connection).between(position - 1, position)), None)
        ranges = inclusion_ranges(position - 1, checkpoint.size)
        hashes = tuple(root_of(leaf for (leaf,) in connection.execute(_LEAVES, (start, end))) for start, end in ranges)
    except sqlite3.Error as error:
        raise refusal_of(error, path) from error
    finally:
        connection.close()
    if text is None or not includes(checkpoint.root, checkpoint.size, position - 1, leaf_hash(text), hashes):
        raise damaged(path, f"the event at position {position} is not what was recorded: see omac audit verify")
    return msgspec.json.encode(EventProof(FORMAT, position, text, hashes, note))


def proven(text: bytes, *keys: VerifierKey) -> ProvenEvent:
    """Return the event that a proof proves. Raises Refusal (misuse): it proves nothing to whoever trusts `keys`."""
    try:
        proof = msgspec.json.decode(text, type=EventProof)
        content = msgspec.msgpack.decode(proof.content, type=_Content)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _no_proof(str(error)) from None
    if proof.format != FORMAT:
        raise _no_proof(f"it has the form {proof.format!r}; this omac knows {FORMAT}")
    checkpoint = verified(proof.checkpoint, *keys)
    leaf = leaf_hash(proof.content)
    if not includes(checkpoint.root, checkpoint.size, proof.position - 1, leaf, proof.path):
        raise _no_proof("its hashes do not lead to the root of its checkpoint")
    if content.position != proof.position:
        raise _no_proof(f"its event was recorded at position {content.position}, not {proof.position}")
    return ProvenEvent(
        content.position, content.stream, content.version, content.kind, content.at, content.run, content.actor,
        content.correlation, content.causation, content.happened, _values(content.body), checkpoint,
        content.position <= checkpoint.late,
    )  # fmt: skip


class _Content(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The content of a leaf (`journal/leaves.py: content`)."""

    position: int
    stream: str
    version: int | None
    kind: str
    at: int
    run: str
    actor: str
    correlation: str | None
    causation: int | None
    happened: int | None
    sealed: bytes | None
    body: bytes


def _values(body: bytes) -> Any:
    """The fields of an event as they were stored; the bytes, in hexadecimal digits, where they are none."""
    try:
        return msgspec.msgpack.decode(body[1:])  # the first byte is the kind's version
    except (msgspec.MsgspecError, RecursionError):
        return body.hex()


def _no_proof(why: str) -> Refusal:
    return Refusal("misuse", f"this proves nothing: {why}", fix=["omac audit prove POSITION > FILE"])


_LEAVES = "SELECT hash FROM leaf WHERE position > ? AND position <= ? ORDER BY position"
