"""The proof of one event: what was recorded, and hashes that lead to a signed checkpoint, for whoever has no journal.

Rules

1. A proof is one JSON object: the content of the leaf, the hashes of RFC 6962's audit path, and the signed checkpoint.
2. A verification needs a public key and nothing else. The event that it shows is the one that was proven, decoded from
   the content itself; the body stays the msgpack that was recorded.
3. Where the key was rotated, the notes of that are part of it: whoever has the first public key can verify it too.
"""

from typing import Any, NamedTuple

import msgspec

from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.kernel.undecodable import UNDECODABLE
from omac.journal.bundle import LeafContent
from omac.journal.checkpoint import Checkpoint, VerifierKey, journal_of, verified
from omac.journal.codec import Codec
from omac.journal.file import reading, unproven
from omac.journal.leaves import HASHES, Contents, stored_leaves
from omac.journal.merkle import includes, inclusion_ranges, leaf_hash, root_of
from omac.journal.openings import Opening, openings_of, require_committed, shown_values
from omac.journal.proof_text import parsed
from omac.journal.pruned import day_of, pruned_refusal
from omac.journal.rotation import require_rotations, trusted_with
from omac.journal.set_aside_positions import SetAsidePositions

FORMAT = "omac-proof-1"
BYTES_MAX = 64 << 20


class EventProof(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The proof of an event; bytes are base64 in JSON. `rotations` lead to the key that signed the checkpoint;
    `openings` are personal fields that are shown."""

    format: str
    position: int
    content: bytes
    path: tuple[bytes, ...]
    checkpoint: str
    rotations: tuple[str, ...] = ()
    openings: tuple[Opening, ...] = ()


class ProvenEvent(NamedTuple):
    """The content of a leaf, and its `body` as it is shown. `is_late`: the leaf came later than the event, so the time
    before is not proven."""

    content: LeafContent
    body: Any
    checkpoint: Checkpoint
    is_late: bool


def prove(
    path: str, position: int, note: str, checkpoint: Checkpoint, rotations: tuple[str, ...], codec: Codec
) -> bytes:
    """Return the proof that the event at `position` is in the journal of a signed checkpoint (`note` is its text), as
    JSON. `rotations` are the notes that lead to the key that signed it; `codec` opens its personal fields. Raises
    Refusal: the checkpoint does not count that position, or the event is not what was recorded."""
    if not 1 <= position <= checkpoint.size:
        message = f"position {position} is not among the {checkpoint.size} events of the checkpoint"
        raise Refusal("misuse", message, fix=[f"omac journal stats --journal {quoted(path)}"])
    try:
        with reading(path) as connection:
            connection.execute("BEGIN")
            text = next((text for _, text in Contents(connection).between(position - 1, position)), None)
            pruned = max((segment for segment in connection.segments() if segment.pruned), default=None)
            leaf = connection.execute(HASHES, (position - 1, position)).fetchone()
            is_set_aside = leaf is not None and SetAsidePositions(connection).has(position, leaf[0])
            ranges = inclusion_ranges(position - 1, checkpoint.size)
            hashes = tuple(root_of(stored_leaves(connection, *range_)) for range_ in ranges)
    except ValueError as error:
        raise unproven(path, str(error)) from None
    if text is None and pruned is not None and position <= pruned.last:
        raise pruned_refusal(position, pruned.last, day_of(pruned.pruned), path)
    if is_set_aside:
        raise unproven(path, f"the event at position {position} was set aside by omac journal repair; its leaf is left")
    if text is None or not includes(checkpoint.root, checkpoint.size, position - 1, leaf_hash(text), hashes):
        raise unproven(path, f"the event at position {position} is not what was recorded")
    content = msgspec.msgpack.decode(text, type=LeafContent)
    openings = openings_of(codec, content.kind, content.stream, content.body, content.sealed)
    return msgspec.json.encode(EventProof(FORMAT, position, text, hashes, note, rotations, openings))


def proven(text: bytes, *keys: VerifierKey) -> ProvenEvent:
    """Return the event that a proof proves. Raises Refusal (misuse): it proves nothing to whoever trusts `keys`."""
    try:
        proof = parsed(text, EventProof)
        content = msgspec.msgpack.decode(proof.content, type=LeafContent)
        require_rotations(proof.rotations, journal_of(proof.checkpoint))
    except (*UNDECODABLE, ValueError) as error:
        raise _no_proof(str(error)) from None
    if proof.format != FORMAT:
        raise _no_proof(f"it has the form {proof.format!r}; this omac knows {FORMAT}")
    known = trusted_with(keys, proof.rotations, journal_of(proof.checkpoint))
    checkpoint = verified(proof.checkpoint, *known)
    leaf = leaf_hash(proof.content)
    if not includes(checkpoint.root, checkpoint.size, proof.position - 1, leaf, proof.path):
        raise _no_proof("its hashes do not lead to the root of its checkpoint")
    if content.position != proof.position:
        raise _no_proof(f"its event was recorded at position {content.position}, not {proof.position}")
    try:
        require_committed(content.kind, content.body, proof.openings)
    except (ValueError, Refusal) as problem:
        raise _no_proof(str(problem)) from None
    return ProvenEvent(content, _values(content, proof.openings), checkpoint, content.position <= checkpoint.late)


def _values(content: LeafContent, openings: tuple[Opening, ...]) -> Any:
    """The fields of an event as they were stored; the bytes, in hexadecimal digits, where they are none."""
    try:
        return shown_values(content.kind, content.body, openings)
    except (*UNDECODABLE, TypeError):
        return content.body.hex()


def _no_proof(why: str) -> Refusal:
    return Refusal("misuse", f"this proves nothing: {why}", fix=["omac audit prove POSITION > FILE"])
