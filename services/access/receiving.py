"""Receiving: this journal as the witness of others. A signed checkpoint comes in, and is kept for good or contested."""

from collections.abc import Callable

import msgspec

from omac.domain.access import receipt
from omac.domain.kernel import ids
from omac.domain.kernel.event import Cause
from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.sizes import counted
from omac.services.kernel.engine import Engine

ATTEMPTS = 3  # where several first checkpoints of one journal come at once


class Delivery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A checkpoint that another omac sends: its signed note, its verifier key, and the notes of rotations that lead
    from that journal's first key to this one."""

    note: str
    key: str
    rotations: tuple[str, ...] = ()


class SignedCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint that a trusted key has signed, as its note states it; `root` in hex digits."""

    journal: str
    size: int
    root: str


# The journal that a delivery says it is of, which nobody has verified yet. Raises Refusal (bad-request).
ClaimedJournal = Callable[[Delivery], str]
# What a delivery proves to whoever trusts the pinned key; "": to whoever knows none. Raises Refusal (forbidden).
VerifyDelivery = Callable[[Delivery, str], SignedCheckpoint]


class Receiving:
    """Keeps what other journals deliver."""

    def __init__(self, engine: Engine, claimed: ClaimedJournal, verify: VerifyDelivery) -> None:
        self._engine = engine
        self._claimed = claimed
        self._verify = verify

    async def receive(self, delivery: Delivery, correlation: str) -> dict[str, object]:
        """Keep a checkpoint; what is kept of its journal now. Raises Refusal: bad-request, forbidden,
        checkpoint-contested."""
        stream = ids.receipt_stream(self._engine.host, self._claimed(delivery))
        for last in reversed(range(ATTEMPTS)):
            pinned = self._engine.entry(receipt.AGGREGATE, stream).state.key
            checkpoint = self._verify(delivery, pinned)
            command = receipt.Receive(
                checkpoint.journal, checkpoint.size, checkpoint.root, delivery.key, delivery.note, pinned
            )
            try:
                await self._engine.execute(receipt.AGGREGATE, stream, command, Cause("bridge", correlation))
                break
            except Refusal as refusal:
                if refusal.reason != "contention" or not last:
                    raise
        kept = self._engine.entry(receipt.AGGREGATE, stream).state
        if checkpoint.size <= kept.size and (checkpoint.size, checkpoint.root) != (kept.size, kept.root):
            raise _contested(checkpoint, kept)
        return {"journal": checkpoint.journal, "size": kept.size, "root": kept.root}


def _contested(checkpoint: SignedCheckpoint, kept: receipt.Receipt) -> Refusal:
    present = "another root" if checkpoint.size == kept.size else counted(checkpoint.size, "event")
    message = (
        f"journal {checkpoint.journal} had {counted(kept.size, 'event')} when last seen here, and now shows {present}"
    )
    why = "its history was rewritten, or an old copy was put back; one of more events is kept again"
    return Refusal("checkpoint-contested", f"{message}: {why}")
