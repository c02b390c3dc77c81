"""A journal that is read on as it grows, by a command that opens it again and again.

A backup that is restored takes its place under the same name and id: then the positions that were read are those of
other records. The leaf of the last of them shows it, whatever was sealed, pruned or repaired meanwhile.
"""

from collections.abc import Iterator, Mapping

from omac.domain.kernel.event import Recorded
from omac.domain.kernel.refusal import Refusal
from omac.journal.reader import ReadJournal
from omac.tools.compose.journals import to_read
from omac.tools.terminal.invocation import typed_with


class FollowedJournal:
    """The journal that a command means, read up to `position`, whose leaf is `leaf`: from where `journal` ends."""

    def __init__(self, journal: ReadJournal, environment: Mapping[str, str], flag: str | None) -> None:
        self.position = journal.store.head()
        self.leaf = journal.store.leaf(self.position)
        self._environment = environment
        self._flag = flag

    def later(self) -> Iterator[Recorded]:
        """Yield the records that came since; `position` and `leaf` are those of the last one that was yielded. Raises
        Refusal (journal-unavailable) where the journal does not go on from what was read."""
        with to_read(self._environment, self._flag) as journal:
            if journal.store.head() < self.position or journal.store.leaf(self.position) != self.leaf:
                path = journal.store.path
                message = f"the journal {path} has other records than those that were read: a backup was restored"
                fix = [typed_with("  # shows the restored one")]
                raise Refusal("journal-unavailable", f"{message} meanwhile", fix=fix)
            for recorded in journal.records(self.position):
                self.position, self.leaf = recorded.position, journal.store.leaf(recorded.position)
                yield recorded
