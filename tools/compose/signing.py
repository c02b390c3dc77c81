"""The key of this host that signs, and checkpoints by it. cryptography is loaded where something is signed."""

import secrets
from collections.abc import Callable

from omac.services.kernel.checkpointing import SignedNote
from omac.tools.compose.state import StateDir, host_id


def signing_key(state: StateDir) -> tuple[str, bytes]:
    """Return the name of the key and its seed, minted where there is none. Raises Refusal."""
    return f"omac/{host_id(state)}", state.signing_key(lambda: secrets.token_hex(32))


def signed(state: StateDir, path: str, clock: Callable[[], int]) -> SignedNote:
    """Return the signed checkpoint of the journal at `path` as it stands. Raises Refusal."""
    from omac.journal.checkpoint import sign, standing

    checkpoint = standing(path, clock())
    return SignedNote(checkpoint.size, sign(checkpoint, *signing_key(state)))
