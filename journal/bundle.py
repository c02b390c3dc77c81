"""A bundle of evidence: events taken out of a journal, with all that proves them to whoever has a public key.

Rules

1. `evidence.jsonl` has a line for each event, in order: the content of its leaf with the personal fields that are
   shown (`journal/openings.py`), or, where the content was left out, the leaf alone. `gaps.jsonl` has the roots of the
   largest perfect subtrees without any of these events (`journal/merkle.py: gap_ranges`). Together they give the root
   that `checkpoint.txt` signs.
2. `events.*` says the same in a form for readers, derived line by line from the evidence.
3. `manifest.json` names what was asked for, and each file with its size and SHA-256; `manifest.sig` is a signed note of
   the manifest's digest. Nothing else belongs to a bundle.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from omac.journal.codec import Codec
from omac.journal.file import reading, unproven
from omac.journal.leaves import Contents, stored_leaves
from omac.journal.log_connection import JournalConnection
from omac.journal.merkle import MerkleTree, gap_ranges, leaf_hash, perfect_root
from omac.journal.openings import Opening, openings_of
from omac.journal.pruned import PrunedPositions
from omac.journal.redaction import Redaction
from omac.journal.set_aside_positions import SetAsidePositions

FORMAT = "omac-export-2"
FORMATS = ("omac-export-1", FORMAT)  # the first one knew no openings
EVIDENCE, GAPS, CHECKPOINT, MANIFEST, SIGNATURE = (
    "evidence.jsonl", "gaps.jsonl", "checkpoint.txt", "manifest.json", "manifest.sig",
)  # fmt: skip
LINE_BYTES_MAX = 16 << 20


class EvidenceLine(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """An event of a bundle; bytes are base64 in JSON. It has a content, with the personal fields that are shown, or a
    leaf where that was left out."""

    position: int
    content: bytes = b""
    leaf: bytes = b""
    openings: tuple[Opening, ...] = ()


class GapLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The root of `leaves` events that are not in a bundle, the first of which is at `position`."""

    position: int
    leaves: int
    root: bytes


class LeafContent(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The content of a leaf (`journal/leaves.py: content`)."""

    position: int
    stream: str
    version: int | None
    kind: str
    at: int
    run: str
    actor: str
    correlation: str | None
    causation: int | None
    happened: int | None
    sealed: bytes | None
    body: bytes


class BundleFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of a bundle."""

    bytes: int
    sha256: str


class BundleManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The manifest of a bundle. `at` is in nanoseconds since 1970 UTC; `size` and `root` (hexadecimal) are of the
    journal's tree. `late` is the last position that got its leaf later than it was recorded. `rotations` are notes,
    each signed by two keys, that lead to the key that signs the manifest. `writer` is the library, with its version,
    that decides the bytes of the data, if a library does."""

    format: str
    data: str
    omac: str
    journal: str
    at: int
    size: int
    root: str
    late: int
    filters: dict[str, str]
    redacted: tuple[str, ...]
    events: int
    without_content: int
    files: dict[str, BundleFile]
    rotations: tuple[str, ...] = ()
    writer: str = ""


class EventContent(NamedTuple):
    """An event of a bundle, and which of its personal fields are shown; `content` None: it was left out."""

    position: int
    content: LeafContent | None
    openings: tuple[Opening, ...] = ()


class TakenEvent(NamedTuple):
    """An event as it goes into a bundle, or, instead, a gap before the next."""

    line: EvidenceLine | GapLine
    event: EventContent | None = None


def taken(
    path: str, positions: Iterable[int], size: int, root: bytes, redaction: Redaction, codec: Codec
) -> Iterator[TakenEvent]:
    """Yield the lines of a bundle of the events at `positions`, which ascend, of a journal whose first `size` events
    have this `root`, with the personal fields that `codec` can read. Raises Refusal (journal-damaged) for an event that
    is not what was recorded, at the latest behind the last line."""
    tree = MerkleTree()
    try:
        with reading(path) as connection:
            source, renewed = _Source(path, connection), 0
            for first, last in _runs(positions):
                if last - renewed > RUN_MAX:
                    source.renew()
                    renewed = last
                for gap in _gaps(connection, tree, first - 1):
                    yield TakenEvent(gap)
                for position, leaf, text in source.contents(tree, first, last):
                    yield _taken(position, leaf, text, redaction, codec)
            for gap in _gaps(connection, tree, size):
                yield TakenEvent(gap)
    except (msgspec.MsgspecError, ValueError) as error:
        raise unproven(path, str(error)) from None
    if tree.size != size or tree.root() != root:
        raise unproven(path, "its events do not lead to the root of its tree")


def _taken(position: int, leaf: bytes, text: bytes | None, redaction: Redaction, codec: Codec) -> TakenEvent:
    """An event with that content of its leaf, as far as it is shown; without one the leaf alone."""
    if text is None:
        return TakenEvent(EvidenceLine(position, leaf=leaf), EventContent(position, None))
    content = msgspec.msgpack.decode(text, type=LeafContent)
    kind, sealed = content.kind, content.sealed
    if redaction.leaves_out(kind, is_clear=sealed is None):
        return TakenEvent(EvidenceLine(position, leaf=leaf), EventContent(position, None))
    openings = redaction.shown(kind, openings_of(codec, kind, content.stream, content.body, sealed))
    return TakenEvent(EvidenceLine(position, text, openings=openings), EventContent(position, content, openings))


class _Source:
    """The events of a journal as they go into a bundle, each against its leaf, in one snapshot."""

    def __init__(self, path: str, connection: JournalConnection) -> None:
        self._path = path
        self._connection = connection
        self.renew()

    def renew(self) -> None:
        """Go on in a snapshot of now: the write-ahead log keeps all that is appended behind the oldest one."""
        if self._connection.in_transaction:
            self._connection.execute("COMMIT")
        self._connection.execute("BEGIN")
        self._pruned = PrunedPositions(self._connection)
        self._repaired = SetAsidePositions(self._connection)

    def contents(self, tree: MerkleTree, first: int, last: int) -> Iterator[tuple[int, bytes, bytes | None]]:
        """Yield the positions from `first` to `last` with their leaves, which are appended to the tree, and what these
        are the hashes of; None where that was pruned, or set aside by a repair. Raises Refusal."""
        leaves = dict(self._connection.execute(_POSITIONED, (first - 1, last)))
        stored = Contents(self._connection).between(first - 1, last)
        at, text = next(stored, (0, None))
        for position in range(first, last + 1):
            leaf, own = leaves.get(position), text if at == position else None
            is_proven = own is not None and leaf_hash(own) == leaf
            is_pruned = at != position and self._pruned.has(position)
            if not isinstance(leaf, bytes) or not (is_proven or is_pruned or self._repaired.has(position, leaf)):
                raise unproven(self._path, f"the event at position {position} is not what was recorded")
            tree.append(leaf)
            yield position, leaf, own if is_proven else None
            if at == position:
                at, text = next(stored, (0, None))


def _runs(positions: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last of those that follow one another, at most as many as are read at once."""
    first = last = 0
    for position in positions:
        if first and position == last + 1 and last - first < RUN_MAX:
            last = position
            continue
        if first:
            yield first, last
        first = last = position
    if first:
        yield first, last


def _gaps(connection: JournalConnection, tree: MerkleTree, until: int) -> Iterator[GapLine]:
    for start, end in gap_ranges(tree.size, until):
        root = perfect_root(list(stored_leaves(connection, start, end)))
        tree.append_subtree(root, end - start)
        yield GapLine(start + 1, end - start, root)


def digest_of(manifest: bytes) -> str:
    """Return the text that a manifest's signature signs."""
    return f"omac/export\n{hashlib.sha256(manifest).hexdigest()}\n"


RUN_MAX = 5_000
_POSITIONED = "SELECT position, hash FROM leaf WHERE position > ? AND position <= ?"
