"""The checkpoints among the events of a bundle: each is compared with the tree of the bundle's own first events.

Who rewrites what a checkpoint counts has to sign that checkpoint again, too (`domain/access/signing.py`). A checkpoint
by a key that no rotation of the bundle leads to says nothing here.
"""

from collections.abc import Sequence

from omac.domain.access.signing import CheckpointSigned, signer_of
from omac.domain.kernel.refusal import Refusal
from omac.journal.checkpoint import VerifierKey, verified
from omac.journal.codec import Codec
from omac.journal.merkle import MerkleTree
from omac.journal.verification import KeptRoot, late_problem

_KIND = "checkpoint.signed"
_codec = Codec()


class BundleCheckpoints:
    """The leaves of a bundle that has each event, up to the one that is read, and the last checkpoint among them."""

    def __init__(self, journal: str, late: int, keys: Sequence[VerifierKey]) -> None:
        self._journal = journal
        self._late = late
        self._keys = keys
        self._counted = MerkleTree()  # the events that the last checkpoint counts
        self._leaves: list[bytes] = []  # of those behind

    def append(self, leaf: bytes) -> None:
        """Add the leaf of the next event."""
        self._leaves.append(leaf)

    def problem(self, kind: str, body: bytes) -> str:
        """Return what is wrong with an event that records a checkpoint; "" for nothing, and for any other event."""
        event = _codec.decode(kind, body) if kind == _KIND else None
        if not isinstance(event, CheckpointSigned):
            return ""
        try:
            checkpoint = verified(event.note, *self._keys)
        except Refusal as refusal:
            known = {f"{key.name}+{key.id().hex()}" for key in self._keys}
            return refusal.message if signer_of(event.note) in known else ""
        count = checkpoint.size - self._counted.size
        if checkpoint.journal != self._journal or checkpoint.size != event.size or count > len(self._leaves):
            return "its checkpoint is of another journal, or counts other events than it says"
        if count < 0:  # of another host, which signed it before the last one and recorded it behind
            return ""
        self._counted.extend(self._leaves[:count])
        del self._leaves[:count]
        if self._counted.root() != checkpoint.root:
            return f"the first {checkpoint.size} events are not those of this signed checkpoint: history was rewritten"
        return late_problem(self._late, KeptRoot(checkpoint.size, checkpoint.root, checkpoint.late))
