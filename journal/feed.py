"""The feed: every committed event, once, in the order of positions, whichever process appended it.

The writer's own batches are at hand; what other processes committed in between is read from the store, where a gap
is damage (journal-damaged). Used by the writer's thread only.
"""

from collections.abc import Sequence

from omac.domain.kernel.event import Recorded
from omac.journal.application import Journal
from omac.journal.file import damaged


class Feed:
    """Reads on from position `seen`. Methods block and raise Refusal when the journal cannot be read."""

    def __init__(self, journal: Journal, seen: int) -> None:
        self._journal = journal
        self.seen = seen

    def with_others(self, own: Sequence[Recorded]) -> Sequence[Recorded]:
        """`own`, just committed, with what others committed before and in between; none of it is given out again."""
        last = own[-1].position
        if last - self.seen != len(own):
            return self._up_to(last)
        self.seen = last
        return own

    def news(self) -> list[Recorded]:
        """Return the records that other processes committed after position `seen`."""
        return self._up_to(self._journal.store.head())

    def _up_to(self, head: int) -> list[Recorded]:
        """The records above `seen`, up to `head`, without a gap."""
        records = list(self._journal.records(self.seen, head)) if head > self.seen else []
        if self.seen + len(records) != head:
            last = self.seen + len(records)
            raise damaged(self._journal.store.path, f"its head is {head}, its last event is at position {last}")
        self.seen = head
        return records
