"""The leaves of a journal: each event is one of a Merkle tree (RFC 6962), which grows in the transaction of the event.

Rules

1. A leaf is the hash of everything that is stored of an event, names resolved, as a msgpack array in the order of
   `COLUMNS`. It is kept in the event's row; the event at position P is the leaf with index P - 1.
2. The row `tree` holds the size and the peaks of the tree. An append reads it after it has the write lock.
3. Events without a leaf, recorded before there were leaves or by an omac that knows none, get theirs from the next
   omac that opens the journal, some thousand in a transaction, or else from its next append. `since` is the position
   from which on every leaf was made with its event: what was changed before cannot show.
4. A leaf that is there is never made again, not even where a repair replaced the event: what it proves is the event
   that was recorded.
"""

import sqlite3
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa

from omac.domain.evidence.merkle_tree import MerkleTree, leaf_hash
from omac.journal.file import damaged
from omac.journal.reader import COLUMNS

ROWS_AT_ONCE = 20_000  # a fraction of a second's work, for which other writers wait

Progress = Callable[[int, int], None]  # how many events have a leaf, of how many

_encode = msgspec.msgpack.Encoder().encode


class LeafTree(NamedTuple):
    """A journal's tree, and the first position whose leaf was made with its event."""

    leaves: MerkleTree
    since: int


def leaf_of(values: tuple[Any, ...]) -> bytes:
    """Return the leaf of an event by what is stored of it, in the order of COLUMNS, names as texts."""
    try:
        return leaf_hash(_encode(values))
    except UnicodeEncodeError:  # a text that somebody damaged
        return leaf_hash(_encode([_bytes_of(one) if isinstance(one, str) else one for one in values]))


def read_tree(raw: sqlite3.Connection, path: str) -> LeafTree | None:
    """Return the tree of the journal at `path` as it is stored; None where no omac made one. Raises Refusal
    (journal-damaged), sqlite3.Error."""
    if raw.execute("SELECT 1 FROM sqlite_master WHERE name = 'tree'").fetchone() is None:
        return None
    rows = raw.execute("SELECT size, peaks, since FROM tree").fetchall()
    if not rows:
        return None
    try:
        ((size, peaks, since),) = rows
        return LeafTree(MerkleTree(size, peaks), int(since))
    except (TypeError, ValueError) as problem:
        raise damaged(path, f"its tree of leaves is none: {problem}") from problem


def tree_at(connection: sa.Connection, top: int, path: str) -> LeafTree:
    """Return the tree over all events up to `top`, the last, in a transaction that may write. Raises Refusal
    (journal-damaged)."""
    raw = _raw(connection)
    tree = read_tree(raw, path) or LeafTree(MerkleTree(), top + 1)
    if tree.leaves.size > top:
        raise damaged(path, f"its tree has {tree.leaves.size} leaves, its last event is at position {top}")
    if tree.leaves.size < top:
        _grow(raw, tree.leaves, top, path)
        tree = LeafTree(tree.leaves, top + 1)
    return tree


def keep_tree(connection: sa.Connection, tree: LeafTree) -> None:
    """Store the tree in the transaction of its last leaves."""
    row = (tree.leaves.size, tree.leaves.peaks, tree.since)
    _raw(connection).execute("INSERT OR REPLACE INTO tree (id, size, peaks, since) VALUES (1, ?, ?, ?)", row)


def give_leaves(engine: sa.Engine, path: str, progress: Progress) -> None:
    """Give every event its leaf, in transactions of `ROWS_AT_ONCE`: whoever is killed has done a part. Events that
    cannot be read stop it there. Raises sqlalchemy's and sqlite3's errors."""
    while True:
        with engine.begin() as connection:
            raw = _raw(connection)
            (head,) = raw.execute("SELECT max(position) FROM head").fetchone()
            tree = read_tree(raw, path) or LeafTree(MerkleTree(), 1)
            begin, end = tree.leaves.size, min(head or 0, tree.leaves.size + ROWS_AT_ONCE)
            if begin >= end or not _is_whole(raw, begin, end):
                return
            if end - begin >= ROWS_AT_ONCE:
                progress(begin, head)
            _grow(raw, tree.leaves, end, path)
            keep_tree(connection, LeafTree(tree.leaves, end + 1))


def grow_anew(raw: sqlite3.Connection, path: str) -> None:
    """Make the tree again over the leaves as they are, after a repair: events that have none get theirs. Raises Refusal
    (journal-damaged), sqlite3.Error."""
    before = read_tree(raw, path)
    tree = MerkleTree()
    (head,) = raw.execute("SELECT max(position) FROM head").fetchone()
    _grow(raw, tree, head or 0, path)
    since = head + 1 if before is None else before.since
    raw.execute(
        "INSERT OR REPLACE INTO tree (id, size, peaks, since) VALUES (1, ?, ?, ?)", (tree.size, tree.peaks, since)
    )


def rows_with_leaves(raw: sqlite3.Connection, after: int, until: int) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Return what is stored of each event above position `after`, up to `until`, in the order of COLUMNS, and its leaf;
    a name that is missing is None. Raises sqlite3.Error."""
    texts: dict[Any, str | None] = {}
    for row in raw.execute(_ROWS, (after, until)):
        position, stream, version, kind, at, run, actor, *rest, leaf = row
        names = []
        for number in (stream, kind, run, actor):
            if number not in texts:
                found = raw.execute("SELECT text FROM name WHERE id = ?", (number,)).fetchone()
                texts[number] = found[0] if found else None
            names.append(texts[number])
        yield (position, names[0], version, names[1], at, names[2], names[3], *rest), leaf


def _grow(raw: sqlite3.Connection, tree: MerkleTree, until: int, path: str) -> None:
    made = []
    for values, leaf in rows_with_leaves(raw, tree.size, until):
        if values[0] != tree.size + 1:
            break
        if leaf is None:
            leaf = leaf_of(values)
            made.append((leaf, values[0]))
        tree.append(leaf)
    if tree.size != until:
        raise damaged(path, f"position {tree.size + 1} is missing")
    raw.executemany("UPDATE event SET leaf = ? WHERE position = ?", made)


def _bytes_of(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _is_whole(raw: sqlite3.Connection, after: int, until: int) -> bool:
    (count,) = raw.execute("SELECT count(*) FROM event WHERE position > ? AND position <= ?", (after, until)).fetchone()
    return bool(count == until - after)


def _raw(connection: sa.Connection) -> sqlite3.Connection:
    raw = connection.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)
    return raw


_ROWS = f"""
    SELECT {", ".join(COLUMNS)}, leaf FROM event WHERE position > ? AND position <= ? ORDER BY position
"""  # noqa: S608  # our own names
