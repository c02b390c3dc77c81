"""The causes and conversations of records: by the index of the audit where one helps, else from the journal, with equal
results."""

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from itertools import islice

from omac.domain.kernel.event import Recorded
from omac.domain.kernel.ids import StreamId
from omac.journal.audit_index import BROKEN
from omac.journal.link_index import LinkIndex, LinkProgress
from omac.tools.compose.searched_audit import Searched

BATCH = 50_000


class SearchedLinks(Searched):
    """The links of such a journal."""

    def at(self, position: int) -> Recorded | None:
        """Return the record at a position; None where there is none. Raises Refusal."""
        return self._journal.at(position)

    def history(self, stream: StreamId) -> Sequence[Recorded]:
        """Return the records of an aggregate, in order. Raises Refusal."""
        return self._journal.history(stream)

    def caused_by(self, positions: Collection[int]) -> Iterator[int]:
        """Yield the positions of all that follows from these records, in order. Raises Refusal."""
        last = 0
        if self._is_indexed:
            try:
                with self._index() as index:
                    for last in index.caused_by(positions):
                        yield last
                return
            except BROKEN as error:
                self._drop(error)
        yield from (position for position in self._journal.caused_by(positions) if position > last)

    def of_correlation(self, correlation: str, limit: int) -> Sequence[int]:
        """Return the first positions of a conversation. Raises Refusal."""
        if self._is_indexed:
            try:
                with self._index() as index:
                    return index.of_correlation(correlation, limit)
            except BROKEN as error:
                self._drop(error)
        return self._journal.of_correlation(correlation, limit)

    def forged_file(self) -> str:
        """Return the path of the index where it counts, and is not what the events give; "" where all is well. Raises
        Refusal."""
        try:
            if not os.path.exists(self._file):
                return ""
            with closing(LinkIndex(self._file, self._journal.store.journal_id())) as index:
                progress = index.progress()
                if progress is None or not self._counts(progress):
                    return ""
                index.hold(progress)
                stored = index.links()
                for first in range(0, progress.position, BATCH):
                    links = self._journal.store.links(first, min(first + BATCH, progress.position))
                    if links != list(islice(stored, len(links))):
                        return self._file
                return self._file if next(stored, None) is not None else ""
        except BROKEN:
            return ""  # another process is at it, or the next to ask makes it again

    def _counts(self, progress: LinkProgress) -> bool:
        """Return whether an index is of this journal, as far as it is: not of an older copy of it, nor of one that went
        on otherwise or of which less is left."""
        store = self._journal.store
        return (
            (progress.repaired, progress.pruned) == (store.repaired_at(), store.pruned_to()[0])
            and progress.position <= store.head()
            and progress.digest == self._digest(progress.position)
        )

    def _index(self) -> closing[LinkIndex]:
        """The index at the head, to be closed."""
        index = LinkIndex(self._file, self._journal.store.journal_id())
        try:
            index.hold(self._caught_up(index))
        except BaseException:
            index.close()
            raise
        return closing(index)

    def _caught_up(self, index: LinkIndex) -> LinkProgress:
        store = self._journal.store
        before = index.progress()
        head, repaired, (pruned, _) = store.head(), store.repaired_at(), store.pruned_to()
        if before is not None and not self._counts(before):
            before = None
        position = before.position if before is not None else 0
        while before is None or position < head:
            first, position = position, min(position + BATCH, head)
            after = LinkProgress(position, self._digest(position), repaired, pruned)
            index.append(before, store.links(first, position), after)
            self._progress(position, head)
            before = after
        return before
