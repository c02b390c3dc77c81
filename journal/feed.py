"""The feed: every committed event, once, in the order of positions, whichever process appended it.

The writer's own batches are at hand; what other processes committed in between is read from the store. Used by the
writer's thread only.
"""

from collections.abc import Sequence

from omac.domain.recorded import Recorded
from omac.journal.application import Journal


class Feed:
    """Reads on from position `seen`. Methods block and raise Refusal when the journal cannot be read."""

    def __init__(self, journal: Journal, seen: int) -> None:
        self._journal = journal
        self.seen = seen

    def with_others(self, own: Sequence[Recorded]) -> Sequence[Recorded]:
        """`own`, just committed, with what others committed before and in between; none of it is given out again."""
        last = own[-1].position
        records = own if last - self.seen == len(own) else list(self._journal.records(self.seen, last))
        self.seen = last
        return records

    def news(self) -> list[Recorded]:
        """What others have committed and nobody here has seen."""
        head = self._journal.store.head()
        if head == self.seen:
            return []
        found = list(self._journal.records(self.seen, head))
        self.seen = head
        return found
