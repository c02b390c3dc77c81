"""The checkpoints that a journal has of itself: which of them hold, by the keys that signed them.

A checkpoint that holds is a kept root, though it lies in the journal: a rewrite of the events that it counts needs a
new signature of it, and of every checkpoint behind it (`domain/access/signing.py`). A verifier that knows one key of a
host knows those that it was rotated to and from: each rotation is signed by both. Each key counts for its own time
only. Behind a lost key a new chain begins, by a key that no other has signed: a break, which is reported.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

from omac.domain.access.signing import AGGREGATE, CheckpointSigned, KeyLost, KeyRotated, SignedChain, evolve, signer_of
from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.set_aside import PositionEmptied
from omac.journal.checkpoint import VerifierKey, verified
from omac.journal.codec import Codec
from omac.journal.file import reading, unproven
from omac.journal.leaves import stored_leaves, stored_tree
from omac.journal.merkle import MerkleTree
from omac.journal.reader import Reader, recorded
from omac.journal.rotation import is_loss, is_rotation
from omac.journal.verification import Chain, KeptRoot, Mismatch, late_problem

PART = 8_192  # leaves that are read at once

_Signed = CheckpointSigned | KeyRotated | KeyLost


class _Link(NamedTuple):
    """An event of a chain; `event` None: it cannot be decoded."""

    position: int
    stream: str
    event: _Signed | PositionEmptied | None


def chain_of(reader: Reader, keys: Sequence[VerifierKey]) -> Chain:
    """Return what the recorded checkpoints say to whoever knows `keys`. Raises Refusal."""
    journal, links = reader.journal_id(), list(_links(reader))
    known = _known(links, journal, keys)
    hosts = []
    for stream in dict.fromkeys(link.stream for link in links):  # each host that shares the journal has a chain
        own = [link for link in links if link.stream == stream]
        hosts.append(_HostChain(journal, known, own))
        for link in own:
            hosts[-1].take(link)
        hosts[-1].end()
    return Chain(
        tuple(sorted(root for host in hosts for root in host.roots)),
        sum(host.unknown for host in hosts),
        tuple(finding for host in hosts for finding in host.findings),
        tuple(key.text() for key in known),
        tuple(sorted(position for host in hosts for position in host.breaks)),
    )


def rotations(reader: Reader) -> tuple[str, ...]:
    """Return the notes of the rotations in a journal, in the order of each chain. Raises Refusal."""
    return tuple(link.event.note for link in _links(reader) if isinstance(link.event, KeyRotated))


def require_holding(path: str, keys: Sequence[VerifierKey]) -> None:
    """Raise Refusal (journal-damaged) where a checkpoint in a journal does not hold, or the leaves are not those that
    it counts: whatever is signed then testifies to a history that was rewritten."""
    with closing(Reader(path, lenient=True)) as reader:
        chain, tree = chain_of(reader, keys), MerkleTree()
    for finding in chain.findings:
        raise unproven(path, f"{finding.problem} (position {finding.position})")
    try:
        with reading(path, lenient=True) as connection:
            late = stored_tree(connection, path).late if chain.roots else 0
            for kept in chain.roots:
                before = tree.size
                while tree.size < kept.size:
                    until = min(kept.size, tree.size + PART)
                    tree.extend(list(stored_leaves(connection, tree.size, until)))
                if tree.root() != kept.root:
                    events = f"events {before + 1} to {kept.size}"
                    raise unproven(path, f"{events} are not those of a signed checkpoint: history was rewritten")
                if problem := late_problem(late, kept):
                    raise unproven(path, problem)
    except ValueError as problem:
        raise unproven(path, str(problem)) from None


class _HostChain:
    """The chain of one host, as it is read: which roots it gives, and what is wrong."""

    def __init__(self, journal: str, known: Sequence[VerifierKey], links: Collection[_Link]) -> None:
        self.roots: list[KeptRoot] = []
        self.findings: list[Mismatch] = []
        self.breaks: list[int] = []
        self.unknown = 0
        self._journal = journal
        self._known = known
        self._names = {"", *(key.name for key in known)}
        self._state = SignedChain()
        self._signer = _first_signer(links)  # the key that signs, on one line; "" where any known one may
        self._has_gap = False  # a repair has set aside what was last
        self._broken_at = 0  # the last position that does not continue the chain, or that a repair set aside
        self._unverified: list[tuple[int, str]] = []  # checkpoints by no known key, and why
        losses = [link.position for link in links if isinstance(link.event, KeyLost) and self._is_known(link.event)]
        self._bridged = max(losses, default=0)  # the last break behind which a known key signs

    def take(self, link: _Link) -> None:
        """Judge the next event."""
        position, _, event = link
        if event is None:
            self._break(position, "it cannot be decoded")
            return
        if isinstance(event, PositionEmptied):
            self._has_gap, self._signer = True, ""
            self._broken_at = position  # what was set aside may be a rotation
            return
        try:
            previous, self._state = self._state.digest, evolve(self._state, event)
        except KeyError:
            self._break(position, "it does not follow the checkpoint before")
            return
        if event.previous != previous and not self._has_gap:
            self._break(position, "it does not follow the checkpoint before")
            return
        self._has_gap = False
        match event:
            case CheckpointSigned():
                self._take_checkpoint(position, event)
            case KeyRotated():
                self._take_rotation(position, event)
            case KeyLost():
                self._take_loss(position, event)

    def end(self) -> None:
        """Judge what no known key signed: where the chain breaks behind it, or a repair set aside what continued it,
        the rotation from its key may be lost."""
        for position, problem in self._unverified:
            if position < self._broken_at:
                self.unknown += 1
            else:
                self._find(position, problem)

    def _take_checkpoint(self, position: int, event: CheckpointSigned) -> None:
        keys = [key for key in self._known if self._signer in ("", key.text())]
        problem = "it is signed by a key that no rotation leads to from the one that is known"
        try:
            if keys:
                self.roots.append(_root(event, self._journal, keys))
                return
        except Refusal as refusal:
            problem = refusal.message
        signer = signer_of(event.note)
        if position < self._bridged or signer.partition("+")[0] not in self._names:
            self.unknown += 1
        elif any(signer == f"{key.name}+{key.id().hex()}" for key in keys):
            self._find(position, problem)
        else:
            self._unverified.append((position, problem))

    def _take_rotation(self, position: int, event: KeyRotated) -> None:
        if self._signer not in ("", event.old) or not _is_valid(event, self._journal):
            self._break(position, "the keys that it names have not both signed it")
            return
        self._signer = event.new

    def _take_loss(self, position: int, event: KeyLost) -> None:
        key = _key(event.new)
        if key is None or not is_loss(event.note, self._journal, event.old, key):
            self._find(position, "the key that it names has not signed it")
            return
        self.breaks.append(position)
        self._signer = event.new
        if position > self._bridged and key.name in self._names:
            self._find(position, "a new chain begins, by a key that no rotation leads to from the one that is known")

    def _is_known(self, event: KeyLost) -> bool:
        """Return whether a known key signs behind a loss."""
        new = [key for key in self._known if key.text() == event.new]
        return bool(new) and is_loss(event.note, self._journal, event.old, new[0])

    def _break(self, position: int, problem: str) -> None:
        self._broken_at = position
        self._find(position, problem)

    def _find(self, position: int, problem: str) -> None:
        message = f"its checkpoint does not hold: {problem}"
        self.findings.append(Mismatch(position, position, "checkpoint-invalid", message))


def _root(event: CheckpointSigned, journal: str, keys: Sequence[VerifierKey]) -> KeptRoot:
    checkpoint = verified(event.note, *keys)
    if (checkpoint.journal, checkpoint.size) != (journal, event.size):
        raise Refusal("misuse", "it is of another journal, or counts other events than it says")
    return KeptRoot(checkpoint.size, checkpoint.root, checkpoint.late)


def _known(links: Collection[_Link], journal: str, keys: Sequence[VerifierKey]) -> list[VerifierKey]:
    """`keys`, and those that rotations lead to from them, in either direction."""
    known = list(dict.fromkeys(keys))
    events = [link.event for link in links if isinstance(link.event, KeyRotated)]
    pairs = [
        (VerifierKey.parse(rotation.old), VerifierKey.parse(rotation.new))
        for rotation in events
        if _is_valid(rotation, journal)
    ]
    for old, new in (*pairs, *reversed(pairs)):
        if (old in known) != (new in known):
            known.append(new if old in known else old)
    return known


def _first_signer(links: Collection[_Link]) -> str:
    """The key that signed before the first rotation; "" where no one knows it."""
    first = next((link.event for link in links if isinstance(link.event, KeyRotated | KeyLost | PositionEmptied)), None)
    return first.old if isinstance(first, KeyRotated) else ""


def _is_valid(event: KeyRotated, journal: str) -> bool:
    old, new = _key(event.old), _key(event.new)
    return old is not None and new is not None and is_rotation(event.note, journal, old, new)


def _key(text: str) -> VerifierKey | None:
    try:
        return VerifierKey.parse(text)
    except Refusal:
        return None


def _links(reader: Reader) -> Iterator[_Link]:
    """Yield the events of each chain."""
    for stream in reader.streams(AGGREGATE.name):
        yield from _links_of(reader, stream)


def _links_of(reader: Reader, stream: str) -> Iterator[_Link]:
    """Yield the checkpoints and notes of a chain, what cannot be decoded, and the positions that a repair emptied."""
    codec = Codec()
    for row in reader.versions(stream):
        try:
            event = recorded(reader.path, codec, row).event
        except Refusal:
            yield _Link(row.id, stream, None)
            continue
        if isinstance(event, CheckpointSigned | KeyRotated | KeyLost | PositionEmptied):
            yield _Link(row.id, stream, event)
