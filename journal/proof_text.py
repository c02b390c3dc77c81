"""The text of a proof: JSON that says one thing in one way, so that no bit of it can be changed unnoticed."""

from typing import TypeVar

import msgspec

from omac.domain.kernel.undecodable import UNDECODABLE

ProofT = TypeVar("ProofT")


def parsed(text: bytes, form: type[ProofT]) -> ProofT:
    """Return the proof of that form. Raises ValueError for bytes that are none."""
    try:
        proof = msgspec.json.decode(text, type=form)
        stated = msgspec.json.decode(text)
    except UNDECODABLE as error:
        raise ValueError(str(error)) from None
    # The last character of base64 may have bits that encode nothing; layout and order of JSON are left to people.
    if stated != msgspec.json.decode(msgspec.json.encode(proof)):
        raise ValueError("its base64 is not the one that encodes these bytes")
    return proof
