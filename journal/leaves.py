"""The stored tree: a leaf for every event, and how large the tree is, kept in the transaction that appends.

Rules

1. The leaf of an event binds all that is stored of it: position, stream, version, kind, recorded time, run, actor,
   correlation, causation, time it happened, sealed fields and body, with names as texts: a msgpack array in that order.
2. Leaves and peaks advance in the transaction of the events. Leaf n is that of position n.
3. Events that came without leaves (from an earlier omac) get them when the journal is next opened to be written, in
   parts, each a transaction: whatever ends it, the next opening goes on. `late` is the last position that got its
   leaf later than it was recorded: proofs begin after it.
4. Leaves are a table of their own: no stored event is rewritten, and a leaf outlives the row that it proves.
5. A tree that is larger than the journal says that events were lost: nothing is appended to such a journal.
"""

import logging
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.kernel.sizes import counted
from omac.journal.file import damaged, refusal_of, unproven
from omac.journal.log_connection import JournalConnection
from omac.journal.merkle import HASH_BYTES, MerkleTree, leaf_hash

LEAVES = "SELECT position, hash FROM leaf WHERE position > ? AND position <= ? ORDER BY position"
HASHES = "SELECT hash FROM leaf WHERE position > ? AND position <= ? ORDER BY position"
PART = 5_000  # leaves computed later in one transaction
NEAR = 1_000  # leaves that an append computes first: what an earlier omac appended meanwhile
SHOWN = 50_000  # leaves that are worth a word

_log = logging.getLogger("omac.journal")
_encode = msgspec.msgpack.Encoder().encode


class StoredTree(NamedTuple):
    """The tree as it is stored, and the last position that got its leaf later than it was recorded (0 for none)."""

    tree: MerkleTree
    late: int


def content(
    position: int,
    stream: str,
    version: int | None,
    kind: str,
    at: int,
    run: str,
    actor: str,
    correlation: str | None,
    causation: int | None,
    happened: int | None,
    sealed: bytes | None,
    body: bytes,
) -> bytes:
    """Return what the leaf of an event is the hash of."""
    return _encode((position, stream, version, kind, at, run, actor, correlation, causation, happened, sealed, body))


class Contents:
    """The contents whose hashes are the leaves of stored events, read by one connection."""

    def __init__(self, connection: JournalConnection) -> None:
        self._connection = connection
        self._names: dict[Any, Any] = {}

    def between(self, after: int, until: int) -> Iterator[tuple[int, bytes | None]]:
        """Return positions above `after` up to `until` that exist, in order, each with its content; None for a row that
        cannot have one: it refers to a name that does not exist, say. Raises sqlite3.Error."""
        for rows in self._connection.pages(_ROWS, after, until):
            self._learn({id_ for row in rows for id_ in (row[1], row[3], row[5], row[6])} - self._names.keys())
            names = self._names
            for position, stream, version, kind, at, run, actor, *others in rows:
                try:
                    texts = names[stream], names[kind], names[run], names[actor]
                    values = (position, texts[0], version, texts[1], at, texts[2], texts[3], *others)
                    yield position, _encode(values)
                except (KeyError, ValueError):  # no such name, or one that is no text
                    yield position, None

    def hashes(self, after: int, until: int) -> list[bytes] | None:
        """Return the leaf of each position above `after` up to `until`, as its event stands; None where one of them
        does not exist, or has a name that does not. Raises sqlite3.Error."""
        rows = self._connection.rows(_FIELDS, after, until)
        if len(rows) != until - after:
            return None  # positions are integers and unique: as many as there should be are all there are
        try:
            return self._hashed(after, rows)
        except (KeyError, ValueError):
            self._learn({id_ for row in rows for id_ in (row[0], row[2], row[4], row[5])} - self._names.keys())
        try:
            return self._hashed(after, rows)
        except (KeyError, ValueError):
            return None

    def _hashed(self, after: int, rows: Sequence[Any]) -> list[bytes]:
        """The hashes of rows that follow one another: the one loop over every event that must be quick."""
        names, encode = self._names, _encode
        return [
            sha256(
                b"\x00"
                + encode((position, names[stream], version, names[kind], at, names[run], names[actor],
                          correlation, causation, happened, sealed, body))
            ).digest()
            for position, (stream, version, kind, at, run, actor, correlation, causation, happened, sealed, body)
            in enumerate(rows, after + 1)
        ]  # fmt: skip

    def _learn(self, ids: set[Any]) -> None:
        for id_ in ids:
            for (text,) in self._connection.execute(_NAME, (id_,)):
                self._names[id_] = text


def stored_leaves(connection: JournalConnection, after: int, until: int) -> Iterator[bytes]:
    """Yield the stored leaf of each position above `after` up to `until`. Raises ValueError where one is missing, or no
    hash, which the last of them may tell; sqlite3.Error."""
    expected = after
    for position, leaf in connection.execute(LEAVES, (after, until)):
        expected += 1
        if position != expected:
            break
        if type(leaf) is not bytes or len(leaf) != HASH_BYTES:
            raise ValueError(f"the leaf of position {position} is no hash")
        yield leaf
    if expected != until:
        raise ValueError(f"leaves are missing behind position {expected}")


def without_leaves(path: str) -> Refusal:
    """Return the refusal of a journal that no omac with proofs has opened to write."""
    message = f"the events of the journal {path} have no proofs yet: an earlier omac recorded them"
    fix = [f"omac start --journal {quoted(path)} -- true  # opens it, which computes them"]
    return Refusal("prerequisite-missing", message, fix=fix)


def has_tree(connection: sqlite3.Connection | JournalConnection) -> bool:
    """Return whether a journal has a tree, which an earlier omac did not make. Raises sqlite3.Error."""
    return connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'tree'").fetchone() is not None


def current_tree(connection: JournalConnection, head: int, path: str) -> StoredTree:
    """Return the tree as it stands, `head` being the last position. Raises Refusal (journal-damaged)."""
    stored = stored_tree(connection, path)
    if stored.tree.size > head:
        message = f"it has leaves of {counted(stored.tree.size, 'event')}, its last event is at position {head}"
        raise damaged(path, message)
    return stored


def stored_tree(connection: JournalConnection, path: str) -> StoredTree:
    """Return the tree as it is stored, whatever events there are. Raises Refusal (journal-damaged), sqlite3.Error."""
    row = connection.execute("SELECT size, peaks, late FROM tree").fetchone()
    if row is None:
        raise unproven(path, "the tree of its leaves is missing")
    size, peaks, late = row
    if [type(value) for value in row] != [int, bytes, int]:
        raise unproven(path, "the tree of its leaves cannot be used: its size is no number, or its peaks are no bytes")
    try:
        return StoredTree(MerkleTree(size, _cut(peaks)), late)
    except ValueError as error:
        raise unproven(path, f"the tree of its leaves cannot be used: {error}") from None


def grow(connection: JournalConnection, stored: StoredTree, leaves: Sequence[bytes]) -> None:
    """Add leaves to a tree that stands, and store how large it is; their rows are inserted beside."""
    tree = stored.tree
    tree.extend(leaves)
    statement = "UPDATE tree SET size = ?, peaks = ?, late = ?"
    connection.execute(statement, (tree.size, b"".join(tree.peaks), stored.late))


def completed(connection: JournalConnection, stored: StoredTree, head: int) -> StoredTree | None:
    """Return the tree with a leaf for every event up to `head`, a few of them computed now; None for one that lacks
    more, which the next opening computes."""
    if 0 < head - stored.tree.size <= NEAR:
        stored = _advance(connection, stored, head)
    return stored if stored.tree.size == head else None


def take_over(connection: JournalConnection, path: str, progress: Callable[[int, int], None]) -> None:
    """Compute the leaves that are missing; `progress` gets how many events have theirs, of how many. Stops where a
    position is damaged: reading says so. Raises Refusal."""
    begun: int | None = None
    try:
        while True:
            with connection.transaction():
                (head,) = connection.execute("SELECT position FROM head").fetchone()
                stored = current_tree(connection, head, path)
                before = stored.tree.size
                if begun is None and head - before >= SHOWN:
                    _log.warning("an earlier omac recorded %d events without proofs: they get them now", head - before)
                stored = _advance(connection, stored, min(head, before + PART))
            begun = before if begun is None else begun
            if stored.tree.size == before or stored.tree.size >= head:
                break
            progress(stored.tree.size - begun, head - begun)
    except sqlite3.Error as error:
        raise refusal_of(error, path) from error


def _advance(connection: JournalConnection, stored: StoredTree, until: int) -> StoredTree:
    """Append the leaves of events that lie in the journal already, as far as they follow one another."""
    leaves: list[bytes] = []
    size = stored.tree.size
    if size < until:
        for position, text in Contents(connection).between(size, until):
            if text is None or position != size + len(leaves) + 1:
                break
            leaves.append(leaf_hash(text))
    if leaves:
        stored = stored._replace(late=size + len(leaves))
        connection.executemany("INSERT INTO leaf (position, hash) VALUES (?, ?)", enumerate(leaves, size + 1))
        grow(connection, stored, leaves)
    return stored


def _cut(peaks: bytes) -> list[bytes]:
    return [peaks[at : at + HASH_BYTES] for at in range(0, len(peaks), HASH_BYTES)]


_NAME = "SELECT text FROM name WHERE id = ? AND typeof(text) = 'text'"
_FIELDS = """
    SELECT stream, version, kind, at, run, actor, correlation, causation, happened, sealed, body FROM event
    WHERE position > ? AND position <= ? ORDER BY position
"""
_ROWS = """
    SELECT position, stream, version, kind, at, run, actor, correlation, causation, happened, sealed, body FROM event
    WHERE position > ? AND position <= ? ORDER BY position
"""
