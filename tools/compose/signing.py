"""The key of this host that signs, and checkpoints by it. cryptography is loaded where something is signed."""

import secrets
from collections.abc import Callable

from omac.domain.kernel.ids import HostId
from omac.services.kernel.checkpointing import SignedNote
from omac.tools.compose.state import StateDir


def signing_key(state: StateDir, host: HostId) -> tuple[str, bytes]:
    """Return the name of the key and its seed, minted where there is none. Raises Refusal."""
    return f"omac/{host}", state.signing_key(lambda: secrets.token_hex(32))


def signed(state: StateDir, host: HostId, path: str, clock: Callable[[], int]) -> SignedNote:
    """Return the signed checkpoint of the journal at `path` as it stands. Raises Refusal."""
    from omac.journal.checkpoint import sign, standing

    checkpoint = standing(path, clock())
    return SignedNote(checkpoint.size, sign(checkpoint, *signing_key(state, host)))
