"""The verification of delivered checkpoints. cryptography is loaded where it is needed."""

import re

from omac.domain.kernel.refusal import Refusal
from omac.services.access.receiving import Delivery, Receiving, SignedCheckpoint
from omac.services.kernel.engine import Engine

_ORIGIN = re.compile("omac/(?P<journal>[0-9a-f]{32})\n")
ROTATIONS_MAX = 1_000


def receiving(engine: Engine) -> Receiving:
    """Return who receives for the journal of `engine`."""
    return Receiving(engine, claimed_journal, verified_delivery)


def claimed_journal(delivery: Delivery) -> str:
    """Return the journal that a delivery says it is of. Raises Refusal (bad-request)."""
    match = _ORIGIN.match(delivery.note)
    if match is None or len(delivery.rotations) > ROTATIONS_MAX:
        raise Refusal("bad-request", "this is no checkpoint of omac")
    return match["journal"]


def verified_delivery(delivery: Delivery, pinned: str) -> SignedCheckpoint:
    """Return what a delivery proves to whoever trusts the key `pinned`; "": the delivery's own key is trusted, as the
    first of its journal. Raises Refusal: bad-request, forbidden."""
    from omac.journal.checkpoint import VerifierKey, verified
    from omac.journal.rotation import trusted_with

    journal = claimed_journal(delivery)
    try:
        key = VerifierKey.parse(delivery.key)
        checkpoint = verified(delivery.note, key)
    except Refusal as refusal:
        raise Refusal("bad-request", refusal.message) from None
    if pinned and key not in trusted_with([VerifierKey.parse(pinned)], delivery.rotations, journal):
        message = f"journal {journal} was first signed by another key, which has not given way to this one"
        raise Refusal("forbidden", message)
    return SignedCheckpoint(checkpoint.journal, checkpoint.size, checkpoint.root.hex())
