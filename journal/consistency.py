"""The proof that one checkpoint continues another, for whoever has both and no journal.

Rules

1. A proof is one JSON object: the two signed checkpoints, and the hashes of RFC 6962's consistency proof.
2. It says that the journal of the second begins with every event of the first, unchanged and in order. A verification
   needs the public keys that signed them and nothing else.
3. What a journal cannot prove is refused when the proof is made: no proof is printed that would fail.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.sizes import counted
from omac.journal.checkpoint import Checkpoint, VerifierKey, journal_of, verified
from omac.journal.file import reading, unproven
from omac.journal.leaves import stored_leaves
from omac.journal.merkle import consistency_ranges, continues, root_of
from omac.journal.proof_text import parsed
from omac.journal.rotation import require_rotations, trusted_with

FORMAT = "omac-consistency-1"


class ConsistencyProof(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The proof; bytes are base64 in JSON, checkpoints are their signed texts. `rotations` lead from one key that
    signed to another."""

    format: str
    old: str
    new: str
    path: tuple[bytes, ...]
    rotations: tuple[str, ...] = ()


class Continuation(NamedTuple):
    """Two checkpoints, of which `new` continues `old`."""

    old: Checkpoint
    new: Checkpoint


def prove_consistency(
    path: str, old_note: str, new_note: str, keys: Sequence[VerifierKey], rotations: tuple[str, ...] = ()
) -> bytes:
    """Return the proof, as JSON, that the journal at `path` of the new checkpoint begins with the events of the old
    one. Raises Refusal: a checkpoint is not signed by one of `keys`, they do not follow one another, or the journal is
    not what they signed."""
    old, new = _ordered(verified(old_note, *keys), verified(new_note, *keys))
    try:
        with reading(path) as connection:
            connection.execute("BEGIN")
            journal = connection.id()
            ranges = consistency_ranges(old.size, new.size)
            hashes = tuple(root_of(stored_leaves(connection, *range_)) for range_ in ranges)
    except ValueError as error:
        raise unproven(path, str(error)) from None
    if journal != new.journal:
        message = f"these are checkpoints of journal {new.journal}; {path} is journal {journal}"
        raise Refusal("misuse", message, fix=["omac proof consistency OLD NEW --journal FILE"])
    if not continues(old.size, old.root, new.size, new.root, hashes):
        raise unproven(path, "its leaves do not lead from the old checkpoint to the new one")
    return msgspec.json.encode(ConsistencyProof(FORMAT, old_note, new_note, hashes, rotations))


def proven_consistency(text: bytes, keys: Sequence[VerifierKey]) -> Continuation:
    """Return what a proof proves to whoever trusts `keys`. Raises Refusal (misuse): it proves nothing."""
    try:
        proof = parsed(text, ConsistencyProof)
        require_rotations(proof.rotations, journal_of(proof.new))
    except ValueError as error:
        raise _no_proof(str(error)) from None
    if proof.format != FORMAT:
        raise _no_proof(f"it has the form {proof.format!r}; this omac knows {FORMAT}")
    known = trusted_with(keys, proof.rotations, journal_of(proof.new))
    old, new = _ordered(verified(proof.old, *known), verified(proof.new, *known))
    if not continues(old.size, old.root, new.size, new.root, proof.path):
        raise _no_proof("its hashes do not lead from the old checkpoint to the new one")
    return Continuation(old, new)


def _ordered(old: Checkpoint, new: Checkpoint) -> Continuation:
    if old.journal != new.journal:
        raise _no_proof(f"the checkpoints are of two journals, {old.journal} and {new.journal}")
    if old.size > new.size:
        raise _no_proof(
            f"the first checkpoint counts {counted(old.size, 'event')}, the second {new.size}: name the older first"
        )
    return Continuation(old, new)


def _no_proof(why: str) -> Refusal:
    return Refusal("misuse", f"this proves nothing: {why}", fix=["omac proof consistency OLD NEW > FILE"])
