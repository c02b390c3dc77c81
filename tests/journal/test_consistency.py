"""Consistency proofs: one checkpoint continues another, and no proof of it holds after a change.

The vectors are those of RFC 6962's reference implementation (`tests/journal/test_merkle.py`), in checkpoints.
"""

import itertools
from pathlib import Path

import msgspec
import pytest
from journal.damage import journal_of, sql
from journal.test_merkle import CONSISTENCY, ROOTS

from omac.domain.kernel.refusal import Refusal
from omac.journal.checkpoint import Checkpoint, current_checkpoint, sign, verifier_of
from omac.journal.consistency import FORMAT, ConsistencyProof, prove_consistency, proven_consistency
from omac.journal.merkle import EMPTY_ROOT, MerkleTree

SEED, OTHER = bytes(range(32)), b"o" * 32
NAME = "omac/host"
KEY, OTHER_KEY = verifier_of(NAME, SEED), verifier_of(NAME, OTHER)


def note(size: int, root: bytes, journal: str = "a1b2", seed: bytes = SEED) -> str:
    """Return a signed checkpoint."""
    return sign(Checkpoint(journal, size, root, 1, 0), NAME, seed)


def proof(old: str, new: str, path: list[bytes]) -> bytes:
    """Return the text of a proof, valid or not."""
    return msgspec.json.encode(ConsistencyProof(FORMAT, old, new, tuple(path)))


def vector(first: int, second: int) -> tuple[str, str, list[bytes]]:
    """Return a published proof, between checkpoints with the published roots."""
    path = [bytes.fromhex(text) for text in CONSISTENCY[first, second].split()]
    return note(first, bytes.fromhex(ROOTS[first - 1])), note(second, bytes.fromhex(ROOTS[second - 1])), path


@pytest.mark.parametrize(("first", "second"), CONSISTENCY)
def test_the_vectors_of_rfc_6962(first: int, second: int) -> None:
    """Each published proof holds, but none with a flipped bit, a hash more or less, or other checkpoints."""
    old, new, path = vector(first, second)
    proven = proven_consistency(proof(old, new, path), [KEY])
    assert (proven.old.size, proven.new.size) == (first, second)
    changed = [path[:-1], [*path, bytes(32)], path[::-1]] if path else [[bytes(32)]]
    changed += [[*path[:at], bytes([path[at][0] ^ 1]) + path[at][1:], *path[at + 1 :]] for at in range(len(path))]
    for hashes in changed:
        if hashes != path:
            with pytest.raises(Refusal, match="do not lead from the old checkpoint"):
                proven_consistency(proof(old, new, hashes), [KEY])
    for texts in ((note(first, bytes(32)), new), (old, note(second, bytes(32)))):
        with pytest.raises(Refusal, match="do not lead from the old checkpoint"):
            proven_consistency(proof(*texts, path), [KEY])


def test_each_checkpoint_needs_a_trusted_signature() -> None:
    """A proof needs on both checkpoints a signature that the reader trusts, by two keys where the key was rotated."""
    old, new, path = vector(3, 7) if (3, 7) in CONSISTENCY else vector(*max(CONSISTENCY))
    size, root = int(new.splitlines()[1]), bytes.fromhex(ROOTS[int(new.splitlines()[1]) - 1])
    rotated = note(size, root, seed=OTHER)
    assert proven_consistency(proof(old, rotated, path), [KEY, OTHER_KEY])
    for keys in ([KEY], [OTHER_KEY], []):
        with pytest.raises(Refusal, match="has not signed"):
            proven_consistency(proof(old, rotated, path), keys)
    with pytest.raises(Refusal, match="has not signed"):
        proven_consistency(proof(old.replace("late 0", "late 1"), new, path), [KEY])


def test_checkpoints_that_do_not_follow() -> None:
    """Checkpoints of two journals, or in the wrong order, prove nothing."""
    old, new, path = vector(1, 8)
    with pytest.raises(Refusal, match="of two journals"):
        proven_consistency(proof(note(1, bytes.fromhex(ROOTS[0]), "ffff"), new, path), [KEY])
    with pytest.raises(Refusal, match="name the older first"):
        proven_consistency(proof(new, old, path), [KEY])


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"{}", b"[" * 100_000, proof("", "", []), proof("x", "y", []).replace(b"ency-1", b"ency-2")],
)
def test_texts_that_are_none(text: bytes) -> None:
    """A text that is no consistency proof is refused as misuse."""
    with pytest.raises(Refusal) as refused:
        proven_consistency(text, [KEY])
    assert refused.value.reason == "misuse"


def test_a_journal_proves_all_its_sizes(tmp_path: Path) -> None:
    """A journal proves the consistency of any two of its sizes, 0 included; the proof holds without the journal."""
    path, notes = notes_of(tmp_path)
    for (first, old), (second, new) in itertools.combinations_with_replacement(notes.items(), 2):
        proven = proven_consistency(prove_consistency(str(path), old, new, [KEY]), [KEY])
        assert (proven.old.size, proven.new.size) == (first, second)


def test_a_journal_that_was_changed_proves_nothing(tmp_path: Path) -> None:
    """Another root, a changed leaf or a cut end is refused as damage; another journal's checkpoint is refused, too."""
    path, notes = notes_of(tmp_path)
    forged = note(4, b"f" * 32, journal_id(path))
    for old, new in ((forged, notes[9]), (notes[3], note(9, b"f" * 32, journal_id(path)))):
        with pytest.raises(Refusal) as refused:
            prove_consistency(str(path), old, new, [KEY])
        assert refused.value.reason == "journal-damaged"
    with pytest.raises(Refusal, match="of journal a1b2"):
        prove_consistency(str(path), note(0, EMPTY_ROOT), note(0, EMPTY_ROOT), [KEY])
    for statement in ("UPDATE leaf SET hash = zeroblob(32) WHERE position = 5", "DELETE FROM leaf WHERE position > 6"):
        sql(path, statement)
        with pytest.raises(Refusal) as refused:
            prove_consistency(str(path), notes[3], notes[9], [KEY])
        assert refused.value.reason == "journal-damaged"


def notes_of(folder: Path) -> tuple[Path, dict[int, str]]:
    """Make a journal of nine events, and a checkpoint for each of its sizes."""
    path = folder / "journal.db"
    journal_of(path)
    tree, notes = MerkleTree(), {0: note(0, EMPTY_ROOT, journal_id(path))}
    for (leaf,) in sql(path, "SELECT hash FROM leaf ORDER BY position"):
        tree.append(leaf)
        notes[tree.size] = note(tree.size, tree.root(), journal_id(path))
    return path, notes


def journal_id(path: Path) -> str:
    """Return the journal's id."""
    return current_checkpoint(str(path), 1).journal
