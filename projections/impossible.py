"""The exceptions of a fold for an event that nothing of omac appends, and the refusal that follows from them."""

from omac.domain.kernel.event import Recorded
from omac.domain.kernel.refusal import Refusal

IMPOSSIBLE = (KeyError, ValueError, TypeError, AttributeError)  # no stream of omac, say
FIX = ("omac journal check", "omac journal repair")


def cannot_follow(recorded: Recorded, impossible: Exception) -> Refusal:
    """Return the refusal of an event that no fold can take."""
    event = type(recorded.event).__name__
    message = f"the event at position {recorded.position} ({event} in {recorded.stream}) cannot follow: {impossible}"
    return Refusal("journal-damaged", message, fix=FIX)
