"""A change on disk that was made, but not confirmed by the disk: it is recorded as made, and reported."""

from __future__ import annotations

from omac.domain.kernel.refusal import Reason, Refusal, quoted


class Unflushed(OSError):
    """The disk failed to flush the folder of a file behind its change: readers meet the new content, and a power cut
    may bring back the old one."""

    def refusal(self, reason: Reason, path: str, folder: str) -> Refusal:
        """Return how it is reported: `path` names the file to a person."""
        message = (
            f"the change of {path} is made, but its disk did not confirm it ({self.strerror}): a power cut may undo it"
        )
        return Refusal(reason, message, fix=[f"sync {quoted(folder)}  # flushes it, or fails again"])
