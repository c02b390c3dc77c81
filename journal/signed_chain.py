"""The checkpoints that a journal has of itself: which of them hold, by the key that signed them.

One that holds is a root that somebody kept, though it lies in the journal: whoever rewrites what it counts has to sign
it anew, and so every checkpoint behind it (`domain/access/signing.py`).
"""

from collections.abc import Iterator

from omac.domain.access.signing import AGGREGATE, CheckpointSigned, SignedChain, evolve
from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.set_aside import PositionEmptied
from omac.journal.checkpoint import VerifierKey, signer_of, verified
from omac.journal.codec import Codec
from omac.journal.reader import Reader, recorded
from omac.journal.verification import Chain, KeptRoot, Mismatch


def chain_of(reader: Reader, key: VerifierKey) -> Chain:
    """Return what the recorded checkpoints say to whoever knows `key`. Raises Refusal."""
    journal, unknown = reader.journal_id(), 0
    roots: list[KeptRoot] = []
    findings: list[Mismatch] = []
    states: dict[str, SignedChain] = {}  # each host that shares the journal has a chain
    gaps: set[str] = set()  # chains whose last checkpoint a repair has set aside
    for position, stream, event in _signed(reader):
        if event is None:
            findings.append(_invalid(position, "it cannot be decoded"))
            continue
        if isinstance(event, PositionEmptied):
            gaps.add(stream)
            continue
        state = states.get(stream, SignedChain())
        try:
            states[stream] = evolve(state, event)
            if event.previous != state.digest and stream not in gaps:
                raise KeyError(event.previous)
            gaps.discard(stream)
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


def _signed(reader: Reader) -> Iterator[tuple[int, str, CheckpointSigned | PositionEmptied | None]]:
    """Yield the checkpoints of each chain with their positions and streams; None for one that cannot be decoded, and
    the positions that a repair has emptied."""
    codec = Codec()
    for stream in reader.streams(AGGREGATE.name):
        for row in reader.versions(stream):
            try:
                event = recorded(reader.path, codec, row).event
            except Refusal:
                event = None
            yield row.id, stream, event if isinstance(event, CheckpointSigned | PositionEmptied) else None
