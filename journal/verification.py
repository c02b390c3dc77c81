"""The verification of a journal: every event against its leaf, every leaf against the tree, the tree against roots that
somebody kept.

Rules

1. A verification reads one snapshot and changes nothing; it works beside a server, whatever is appended meanwhile.
2. Each event must be what its leaf was made of, and the leaves must be those of the stored tree.
3. A kept root must be that of the journal's first events, as many as it counted. Where one is and the next is not, what
   lies between was rewritten, and its leaves with it.
4. What a repair set aside is no damage, and is named (`journal/set_aside_positions.py`).
5. Leaves that came later than their events prove nothing about the time before: how far they go is part of the answer.
"""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.sizes import counted
from omac.journal.file import reading, unproven
from omac.journal.leaves import HASHES, LEAVES, Contents, has_tree, without_leaves
from omac.journal.log_connection import JournalConnection
from omac.journal.merkle import HASH_BYTES, MerkleTree, Range, leaf_hash
from omac.journal.pruned import PrunedPositions
from omac.journal.segment import SegmentProblem, SegmentPrunedMeanwhile
from omac.journal.segment_check import damaged_segments
from omac.journal.set_aside_positions import SetAsidePositions
from omac.journal.verification_workers import VerificationWorkers

NEAR = 100  # positions around one, where an event that was moved is looked for
PART = 1_024  # events that are read and hashed at once: a power of two, so that their subtree is perfect
PARTS_SHARED_MIN = 100  # below that a process would take longer to begin than to compare
TOLD_EVERY = 10_000
LACKING_MAX = 100_000  # leaves that are looked for one by one; a size beyond that was never one of this tree
FINDINGS_MAX = 100  # those that come later tell nothing new

Kind = Literal[
    "altered", "missing", "leaf-missing", "out-of-place", "tree-altered", "rewritten", "truncated",
    "checkpoint-invalid", SegmentProblem,
]  # fmt: skip


class KeptRoot(NamedTuple):
    """The root of a journal's first `size` events, as somebody kept it; `late` is the last of them whose leaf came
    later than it was recorded (None: not known)."""

    size: int
    root: bytes
    late: int | None = None


class Mismatch(NamedTuple):
    """A mismatch at the positions from `position` up to and with `last`."""

    position: int
    last: int
    kind: Kind
    problem: str


class Chain(NamedTuple):
    """The roots of the checkpoints in a journal that hold, how many others are signed by keys that are not known, and
    what is wrong with the rest. `keys` are the public keys that are known: those that were named, and those that gave
    way to them or that they gave way to. At `breaks` a key was lost, and another began a new chain."""

    roots: tuple[KeptRoot, ...]
    unknown: int
    findings: tuple[Mismatch, ...]
    keys: tuple[str, ...] = ()
    breaks: tuple[int, ...] = ()


class Verified(NamedTuple):
    """The result of verifying a journal of `size` leaves with this root. `checked` events were compared with their
    leaves. Events up to `late` had got theirs later than they were recorded, those above `size` have none yet."""

    size: int
    root: bytes
    checked: int
    late: int
    head: int
    set_aside: tuple[int, ...]
    findings: tuple[Mismatch, ...]
    pruned: int = 0  # of those that were checked, only the leaf is left: their contents were pruned


def late_problem(late: int, kept: KeptRoot) -> str:
    """Return what is wrong with how far late leaves go, by a checkpoint: those that it counts came before it was
    signed. "" for nothing."""
    if kept.late is None or (kept.late <= late and not kept.late < late <= kept.size):
        return ""
    return f"the journal says that leaves came late up to {late}, its checkpoint says up to {kept.late}"


def verify(
    path: str,
    kept: Sequence[KeptRoot] = (),
    first: int = 1,
    last: int | None = None,
    progress: Callable[[int, int], None] = lambda done, whole: None,
    known: Sequence[Mismatch] = (),
    workers: int = 0,
) -> Verified:
    """Verify the journal at `path`, its events from position `first` to `last`; `progress` gets how many events are
    verified, of how many. `known` was found before. `workers` processes help, which a process without threads may ask
    for. Raises Refusal: it cannot be read, or it has no leaves at all."""
    with reading(path, lenient=True) as connection:
        connection.text_factory = _text
        connection.execute("BEGIN")
        verification = _Verification(connection, path, kept, known)
        return verification.run(first, last, progress, workers)


class _Verification:
    """One pass over events and leaves, in the order of positions."""

    def __init__(
        self, connection: JournalConnection, path: str, kept: Sequence[KeptRoot], known: Sequence[Mismatch]
    ) -> None:
        self._path = path
        self._connection = connection
        self._tree = MerkleTree()
        self._contents = Contents(connection)
        self._kept = sorted(kept, key=lambda root: root.size)
        self._sound_to = 0  # the size of the last kept root that holds
        self._lacks_leaf = False
        self._checked = 0
        self._findings: list[Mismatch] = list(known)
        self._pruned: PrunedPositions | None = None
        self._dropped = 0  # events whose contents were pruned
        self._absent: list[tuple[int, int]] = []  # above which position, to which, events cannot be read
        self._set_aside: list[int] = []
        self._repaired = SetAsidePositions(connection, self._absent)
        if not has_tree(connection):
            if kept:
                raise _beyond_proof(
                    path, f"a kept root counts {counted(kept[-1].size, 'event')}, and it has no leaves at all"
                )
            raise without_leaves(path)
        rows = connection.execute("SELECT size, peaks, late FROM tree").fetchall()
        if len(rows) != 1 or [type(value) for value in rows[0]] != [int, bytes, int]:
            raise _beyond_proof(path, "the tree of its leaves is missing")
        self._size, self._peaks, self._late = rows[0]
        self._bound_size()
        self._head = int(connection.execute("SELECT coalesce(max(position), 0) FROM event").fetchone()[0])

    def run(self, first: int, last: int | None, progress: Callable[[int, int], None], workers: int) -> Verified:
        """Return what is found."""
        first, until = max(first, 1), self._size if last is None else min(last, self._size)
        self._kept_roots()
        self._verify_segments()
        parts = list(self._parts(first - 1, until, *(bound for absent in self._absent for bound in absent)))
        wanted = {(start, end) for start, end in parts if first <= start + 1 and end <= until}
        wanted = {(start, end) for start, end in wanted if not self._is_absent(start, end)}
        with contextlib.closing(self._workers([part for part in parts if part in wanted], workers)) as beside:
            reported = 0
            for start, end in parts:
                self._take(start, end, beside.root(start), is_wanted=(start, end) in wanted)
                if self._checked - reported >= TOLD_EVERY:
                    reported = self._checked
                    progress(reported, until - first + 1)
        self._end()
        findings = tuple(sorted(set(self._findings)))  # each kept root may find the same
        return Verified(
            self._size,
            self._tree.root(),
            self._checked,
            self._late,
            self._head,
            tuple(self._set_aside),
            findings,
            self._dropped,
        )

    def _workers(self, parts: Sequence[Range], count: int) -> VerificationWorkers:
        """Have parts compared beside, where they are so many that it is worth it."""
        whole = [(start, end) for start, end in parts if end - start == PART]
        return VerificationWorkers(self._path, whole, count if len(whole) >= PARTS_SHARED_MIN else 0)

    def _take(self, start: int, end: int, root: bytes | None, *, is_wanted: bool) -> None:
        """Verify the leaves from `start` to `end`, unless they are known to be sound and to have this `root`."""
        if root is not None:
            self._tree.append_subtree(root, end - start)
        else:
            leaves = [leaf for (leaf,) in self._connection.execute(HASHES, (start, end))]
            if not is_wanted or self._hashes(start, end) != leaves:
                leaves = self._examine(start, end, is_wanted)
            self._tree.extend(leaves)
        self._compare()
        if is_wanted:
            self._checked += end - start

    def _parts(self, *bounds: int) -> Iterator[tuple[int, int]]:
        """The tree in ranges of leaves that are read at once; each bound and each kept root is at the end of one."""
        wanted = {bound for bound in (*bounds, *(root.size for root in self._kept)) if 0 < bound < self._size}
        start = 0
        for bound in sorted(wanted | {self._size}):
            while start < bound:
                end = min(bound, (start // PART + 1) * PART)
                yield start, end
                start = end

    def _verify_segments(self) -> None:
        for position, error in damaged_segments(self._connection):
            segment = error.segment
            self._report(position, segment.last, error.kind, str(error))
            if not error.is_readable:
                self._absent.append((segment.first - 1, segment.last))

    def _is_pruned(self, position: int) -> bool:
        if self._pruned is None:
            self._pruned = PrunedPositions(self._connection)
        return self._pruned.has(position)

    def _is_absent(self, start: int, end: int) -> bool:
        return any(after <= start and end <= until for after, until in self._absent)

    def _examine(self, start: int, end: int, is_wanted: bool) -> list[bytes]:
        """Look at one leaf after the other, and at its event where that is wanted; returns what the tree has of them.
        Only a range where something is wrong gets here, or one whose events nobody asked for."""
        stored = dict(self._connection.execute(LEAVES, (start, end)))
        texts = dict(Contents(self._connection).between(start, end)) if is_wanted else {}
        leaves = []
        for position in range(start + 1, end + 1):
            leaf, text = stored.get(position), texts.get(position)
            if type(leaf) is not bytes or len(leaf) != HASH_BYTES:
                problem = "its leaf is no hash" if position in stored else "its leaf is missing"
                self._report(position, position, "leaf-missing", problem)
                leaf, self._lacks_leaf = _NO_LEAF, True
            elif is_wanted and position not in texts and self._is_pruned(position):
                self._dropped += 1
            elif is_wanted and (text is None or leaf_hash(text) != leaf):
                self._mismatch(position, leaf, text)
            leaves.append(leaf)
        return leaves

    def _hashes(self, start: int, end: int) -> list[bytes] | None:
        self._connection.text_factory = str  # ten times quicker than a function, and strict
        try:
            return self._contents.hashes(start, end)
        except SegmentPrunedMeanwhile:
            raise
        except sqlite3.OperationalError:  # a text that is none, say: whoever reads row by row meets it again
            return None
        finally:
            self._connection.text_factory = _text

    def _bound_size(self) -> None:
        """Take a size that is far beyond all leaves for what it is: each of that many would be looked for."""
        (count,) = self._connection.execute("SELECT count(*) FROM leaf").fetchone()
        if self._size - count > LACKING_MAX:
            problem = f"the stored tree counts {counted(self._size, 'leaf', 'leaves')}, the journal has {count}"
            self._report(count + 1, self._size, "tree-altered", problem)
            self._size = count

    def _kept_roots(self) -> None:
        for kept in [root for root in self._kept if root.size > self._size or not root.size]:
            self._kept.remove(kept)
            if kept.size:
                problem = (
                    f"a kept root counts {counted(kept.size, 'event')}, the journal has {self._size}: its end was cut"
                )
                self._report(self._size + 1, kept.size, "truncated", problem)

    def _compare(self) -> None:
        while self._kept and self._kept[0].size == self._tree.size:
            size, root, late = self._kept.pop(0)
            if self._lacks_leaf:
                continue  # no root can be computed behind it
            if root == self._tree.root():
                self._sound_to = size
                if problem := late_problem(self._late, KeptRoot(size, root, late)):
                    assert late is not None, "else nothing is compared"
                    self._report(min(late, self._late) + 1, max(late, self._late), "tree-altered", problem)
            else:
                first = self._first_changed()
                problem = f"events {first} to {size} are not those of the kept root: history was rewritten"
                self._report(first, size, "rewritten", problem)

    def _first_changed(self) -> int:
        """Return where the leaves that no kept root proves begin, or where the first of them was found to be wrong."""
        wrong = [
            finding.position
            for finding in self._findings
            if finding.kind in _OF_LEAVES and finding.position > self._sound_to
        ]
        return min(wrong, default=self._sound_to + 1)

    def _mismatch(self, position: int, leaf: bytes, text: bytes | None) -> None:
        if self._repaired.has(position, leaf):
            self._set_aside.append(position)
            return
        if len(self._findings) >= FINDINGS_MAX:
            return
        if not self._connection.rows(_POSITIONS, position - 1, position):
            self._report(position, position, "missing", "its event is missing")
            return
        if text is not None and (origin := self._origin(position, leaf)):
            problem = f"what was recorded here is at position {origin}"
            self._report(position, position, "out-of-place", problem)
        else:
            self._report(position, position, "altered", "its event is not what was recorded")

    def _origin(self, position: int, leaf: bytes) -> int:
        """Return where the event of a leaf stands now, near its position, with none between that cannot be read; 0 for
        nowhere."""
        first = max(0, position - NEAR, *(until for _, until in self._absent if until < position))
        last = min(position + NEAR, self._head, *(after for after, _ in self._absent if after >= position))
        for at, text in Contents(self._connection).between(first, last):
            if text is not None and leaf_hash(_moved(text, position)) == leaf:
                return at
        return 0

    def _end(self) -> None:
        if not self._lacks_leaf and b"".join(self._tree.peaks) != self._peaks:
            self._report(self._first_changed(), self._size, "tree-altered", "the stored tree is not that of the leaves")
        for position in self._repaired.lost():
            self._report(position, position, "altered", "the row that this repair set aside is not kept as it was")
        ranges: tuple[tuple[Kind, str, str], ...] = (
            ("tree-altered", "leaves stand where the stored tree has none", _BEYOND),
            ("altered", "a row holds what no omac writes", _ODD),
        )
        for kind, problem, query in ranges:
            ((lowest, highest),) = self._connection.execute(query, {"size": self._size})
            if lowest is not None:
                self._report(lowest, highest, kind, problem)

    def _report(self, position: int, last: int, kind: Kind, problem: str) -> None:
        if len(self._findings) < FINDINGS_MAX or kind in _OF_MANY or kind.startswith("segment-"):
            self._findings.append(Mismatch(position, last, kind, problem))


def _beyond_proof(path: str, problem: str) -> Refusal:
    """Return the refusal of a journal in which nothing can be verified."""
    refusal = unproven(path, problem)
    return Refusal(refusal.reason, refusal.message, fix=refusal.fix[1:])  # the first is this verification


def _text(content: bytes) -> str:
    """A text, whatever bytes were put in its place."""
    return content.decode("utf-8", "surrogateescape")


def _moved(text: bytes, position: int) -> bytes:
    """Return the content of a leaf as it would be at another position."""
    return msgspec.msgpack.encode([position, *msgspec.msgpack.decode(text)[1:]])


_OF_MANY = ("rewritten", "truncated", "tree-altered")  # findings that no number of others crowds out
_OF_LEAVES = ("altered", "out-of-place")  # found at one position, whose leaf may be the one that was changed
_NO_LEAF = bytes(HASH_BYTES)
_POSITIONS = "SELECT 1 FROM event WHERE position > ? AND position <= ?"
_BEYOND = "SELECT min(position), max(position) FROM leaf WHERE position < 1 OR position > :size"
_ODD = "SELECT min(position), max(position) FROM event WHERE (position < 1 OR leaf IS NOT NULL) AND :size >= 0"
