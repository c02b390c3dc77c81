"""The checkpoints that a journal has of itself: which of them hold, by the key that signed them.

One that holds is a root that somebody kept, though it lies in the journal: whoever rewrites what it counts has to sign
it anew, and so every checkpoint behind it (`domain/access/signing.py`).
"""

from collections.abc import Iterator

from omac.domain.access.signing import CheckpointSigned, SignedChain, evolve
from omac.domain.kernel.refusal import Refusal
from omac.journal.checkpoint import VerifierKey, signer_of, verified
from omac.journal.codec import Codec
from omac.journal.reader import Reader, recorded
from omac.journal.verification import CHECKPOINTS, Chain, KeptRoot, Mismatch

PAGE = 1_000


def chain_of(reader: Reader, key: VerifierKey) -> Chain:
    """Return what the recorded checkpoints say to whoever knows `key`. Raises Refusal."""
    journal, unknown = reader.journal_id(), 0
    roots: list[KeptRoot] = []
    findings: list[Mismatch] = []
    states: dict[str, SignedChain] = {}  # each host that shares the journal has a chain
    for position, stream, event in _signed(reader):
        if event is None:
            findings.append(_invalid(position, "it cannot be decoded"))
            continue
        try:
            states[stream] = evolve(states.get(stream, SignedChain()), event)
            checkpoint = verified(event.note, key)
            if (checkpoint.journal, checkpoint.size) != (journal, event.size):
                findings.append(_invalid(position, "it is of another journal, or counts other events than it says"))
            else:
                roots.append(KeptRoot(checkpoint.size, checkpoint.root))
        except KeyError:
            findings.append(_invalid(position, "it does not follow the checkpoint before"))
        except Refusal as refusal:
            if signer_of(event.note) in ("", key.name):
                findings.append(_invalid(position, refusal.message))
            else:
                unknown += 1
    return Chain(tuple(roots), unknown, tuple(findings))


def _invalid(position: int, problem: str) -> Mismatch:
    return Mismatch(position, position, "checkpoint-invalid", f"its checkpoint does not hold: {problem}")


def _signed(reader: Reader) -> Iterator[tuple[int, str, CheckpointSigned | None]]:
    codec, after = Codec(), 0
    while rows := reader.select(after, PAGE, kinds=(CHECKPOINTS,)):
        for row in rows:
            try:
                event = recorded(reader.path, codec, row).event
            except Refusal:
                event = None
            yield row.id, row.originator_id, event if isinstance(event, CheckpointSigned) else None
        after = rows[-1].id
