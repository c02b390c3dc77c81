"""The token index: which directory a routing token opens.

It is keyed by the digest of the token, so it is rebuilt from the journal without knowing any token.
"""

from typing import ClassVar

from omac.domain.directories.events import (
    ActivationFailed,
    ActivationRequested,
    DeactivationRequested,
    SessionAdmitted,
    SessionEnded,
)
from omac.domain.kernel.event import Event, Recorded
from omac.domain.kernel.ids import StreamId, TokenDigest


class TokenIndex:
    """Digests of living tokens, and the stream of the directory each opens."""

    EVENTS: ClassVar[tuple[type[Event], ...]] = (
        ActivationRequested,
        SessionAdmitted,
        SessionEnded,
        ActivationFailed,
        DeactivationRequested,
    )

    def __init__(self) -> None:
        self.streams: dict[TokenDigest, StreamId] = {}

    def apply(self, recorded: Recorded) -> None:
        """Fold one event that makes or ends tokens."""
        match recorded.event:
            case ActivationRequested(_, _, digest) | SessionAdmitted(_, digest):
                if digest:
                    self.streams[digest] = recorded.stream
            case SessionEnded(_, digest):
                self.streams.pop(digest, None)
            case _:
                stream = recorded.stream
                self.streams = {digest: other for digest, other in self.streams.items() if other != stream}
