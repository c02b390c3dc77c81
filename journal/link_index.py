"""The index of causes and conversations, in the file of the audit's index (`journal/audit_index.py`).

It has a progress of its own, and needs no event decoded. Methods raise sqlite3.Error or OSError; the caller reads the
journal instead.
"""

import heapq
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from omac.journal.audit_index import Index

# A position, the position of its cause, and its conversation; None where it has none.
Link = tuple[int, int | None, str | None]


class LinkProgress(NamedTuple):
    """The progress of the index: `digest` is that of the record at `position`. `repaired` is the position of the
    journal's last repair, `pruned` the last position that was pruned."""

    position: int
    digest: bytes
    repaired: int
    pruned: int


class LinkIndex(Index):
    """The index of links."""

    def progress(self) -> LinkProgress | None:
        """Return how far it is; None for an empty one."""
        query = "SELECT position, digest, repaired, pruned FROM linked WHERE name = ?"
        row = self._connection.execute(query, (self._name,)).fetchone()
        return LinkProgress(*row) if row is not None else None

    def append(self, before: LinkProgress | None, links: Iterable[Link], after: LinkProgress) -> None:
        """Add links in one transaction. Without `before`, what it held is dropped."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            if before is None:
                self._connection.execute("DELETE FROM link")
            elif self.progress() != before:
                raise BlockingIOError("another process indexes")
            self._connection.execute("DELETE FROM linked")
            self._connection.executemany("INSERT INTO link VALUES (?, ?, ?)", links)
            self._connection.execute("INSERT INTO linked VALUES (?, ?, ?, ?, ?)", (self._name, *after))
            self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def hold(self, at: LinkProgress) -> None:
        """Read one snapshot from now on. Raises sqlite3.Error where the index is no longer where it was."""
        self._connection.execute("BEGIN")
        if self.progress() != at:
            raise sqlite3.OperationalError("another process has changed the index")

    def links(self) -> Iterator[Link]:
        """Return all links, in order."""
        return self._connection.execute("SELECT position, cause, correlation FROM link ORDER BY position")

    def caused_by(self, positions: Collection[int]) -> Iterator[int]:
        """Yield the positions of all that follows from these records, in order."""
        following: list[tuple[int, int]] = []  # the next consequence of each record that was met, and that record
        for position in positions:
            self._push(following, position, position)
        while following:
            position, cause = heapq.heappop(following)
            yield position
            self._push(following, cause, position)
            if position not in positions:
                self._push(following, position, position)

    def of_correlation(self, correlation: str, limit: int) -> Sequence[int]:
        """Return the first positions of a conversation."""
        query = "SELECT position FROM link WHERE correlation = ? ORDER BY position LIMIT ?"
        return [position for (position,) in self._connection.execute(query, (correlation, limit))]

    def _push(self, following: list[tuple[int, int]], cause: int, after: int) -> None:
        """Add the first consequence of a record behind position `after`, if there is one."""
        query = "SELECT position FROM link WHERE cause = ? AND position > ? ORDER BY position LIMIT 1"
        for (position,) in self._connection.execute(query, (cause, after)):
            heapq.heappush(following, (position, cause))
