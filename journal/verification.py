"""The verification of a journal: that each event is the one whose leaf was recorded with it, and the tree over all.

Rules

1. A verification reads one snapshot, in the order of positions, in bounded memory; it changes nothing and works beside
   a server.
2. The first position that is wrong is named; what follows it is not judged.
3. A position that a repair replaced is not proven and no damage: its leaf is that of the event that was recorded, and
   the repair is on record.
4. Whoever may write the journal can change an event, its leaf and the tree together. Only an earlier checkpoint that
   is kept elsewhere shows that: the tree must have had that root at that size.
"""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from omac.domain.evidence.merkle_tree import HASH_BYTES, MerkleTree
from omac.domain.kernel.refusal import Refusal
from omac.journal.file import connect_for_reading, damaged, refusal_of
from omac.journal.leaves import leaf_of, read_tree, rows_with_leaves

PROGRESS_EVERY = 100_000

Problem = Literal["missing", "changed", "without-leaf", "truncated", "rewritten"]
Progress = Callable[[int, int], None]  # how many events are verified, of how many


class Known(NamedTuple):
    """What somebody knows of a journal: that its tree of `size` leaves had this root."""

    size: int
    root: bytes


class Violation(NamedTuple):
    """What is wrong, at the first position where it shows."""

    position: int
    problem: Problem
    detail: str


class Verdict(NamedTuple):
    """What a verification found. `size` leaves are in the tree with `root`; `since` is the first position whose leaf
    was made with its event; `set_aside` counts positions that a repair replaced; `uncovered` events have no leaf yet.
    """

    journal: str
    head: int
    size: int
    since: int
    root: bytes
    set_aside: int
    uncovered: int
    finding: Violation | None


def verify(path: str, known: Sequence[Known] = (), progress: Progress = lambda done, whole: None) -> Verdict:
    """Verify the journal at `path` against itself and what is `known` of it. Raises Refusal: there is none, it is of a
    later omac or cannot be read."""
    connection = connect_for_reading(path, lenient=True)
    try:
        # A text that is none is a finding, not the end of the verification.
        connection.text_factory = lambda content: content.decode("utf-8", "surrogateescape")
        connection.execute("BEGIN")
        return _Verification(connection, path, sorted(known), progress).verdict()
    except sqlite3.Error as error:
        raise refusal_of(error, path) from error
    finally:
        connection.close()


class _Verification:
    def __init__(self, connection: sqlite3.Connection, path: str, known: Sequence[Known], progress: Progress) -> None:
        self._connection = connection
        self._path = path
        self._progress = progress
        self._known = list(known)
        self._tree = MerkleTree()
        self._set_aside = 0

    def verdict(self) -> Verdict:
        finding: Violation | None = None
        try:
            stored = read_tree(self._connection, self._path)
        except Refusal as refusal:
            stored, finding = None, Violation(0, "rewritten", refusal.message)
        heads = [head for (head,) in self._connection.execute("SELECT position FROM head")]
        if len(heads) != 1 or not isinstance(heads[0], int):
            raise damaged(self._path, "it has no head")
        (head,) = heads
        size = stored.leaves.size if stored else 0
        finding = finding or self._walk(size)
        if finding is None and stored is not None and self._tree.root != stored.leaves.root:
            finding = Violation(size, "rewritten", "its leaves do not make the stored tree")
        finding = finding or self._ends(head, size)
        ((journal,),) = self._connection.execute("SELECT id FROM journal").fetchall()
        since = stored.since if stored else head + 1
        return Verdict(
            str(journal), head, self._tree.size, since, self._tree.root, self._set_aside, max(0, head - size), finding
        )

    def _walk(self, size: int) -> Violation | None:
        """Rebuild the tree of `size` leaves from what is stored; return the first thing that is wrong."""
        replaced = {position for (position,) in self._connection.execute("SELECT position FROM set_aside")}
        tree, known = self._tree, self._known
        while known and known[0].size == 0:
            known.pop(0)
        for values, leaf in rows_with_leaves(self._connection, 0, size):
            position = values[0]
            if position != tree.size + 1:
                return Violation(tree.size + 1, "missing", "the event is missing")
            if type(leaf) is not bytes or len(leaf) != HASH_BYTES:
                return Violation(position, "without-leaf", "its leaf is missing")
            if leaf != leaf_of(values):
                if position not in replaced:
                    return Violation(position, "changed", "it is not the event that was recorded")
                self._set_aside += 1
            tree.append(leaf)
            while known and known[0].size == tree.size:
                if known.pop(0).root != tree.root:
                    detail = f"events up to position {position} are not those of the checkpoint of {tree.size}"
                    return Violation(position, "rewritten", detail)
            if tree.size % PROGRESS_EVERY == 0:
                self._progress(tree.size, size)
        if tree.size != size:
            return Violation(tree.size + 1, "missing", "the event is missing")
        return None

    def _ends(self, head: int, size: int) -> Violation | None:
        (last,) = self._connection.execute("SELECT max(position) FROM event").fetchone()
        last = last or 0
        if head != last:
            return Violation(min(head, last) + 1, "truncated", f"its head is {head}, its last event is at {last}")
        if self._known:
            lost = self._known[0].size
            return Violation(size + 1, "truncated", f"a checkpoint has {lost} events, the journal proves {size}")
        return None
