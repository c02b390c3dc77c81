"""journal/rotation.py: the keys that notes of rotations lead to, and those that they do not."""

from itertools import pairwise

import pytest

from omac.journal.checkpoint import VerifierKey, verifier_of
from omac.journal.rotation import is_loss, is_rotation, sign_loss, sign_rotation, trusted_with

NAME, JOURNAL = "omac/host1", "4f" * 16
SEEDS = [bytes([number]) * 32 for number in range(1, 5)]
KEYS = [verifier_of(NAME, seed) for seed in SEEDS]
NOTES = [sign_rotation(JOURNAL, 7, NAME, old, new) for old, new in pairwise(SEEDS)]


def test_trust_gets_forward_only() -> None:
    """Notes of rotations extend the trust in a key to all keys after it, in the order of the notes, never back."""
    assert trusted_with(KEYS[:1], NOTES, JOURNAL) == KEYS
    assert trusted_with(KEYS[2:3], NOTES, JOURNAL) == KEYS[2:]
    assert trusted_with(KEYS[:1], [NOTES[0], NOTES[2]], JOURNAL) == KEYS[:2]
    assert trusted_with([], NOTES, JOURNAL) == []


@pytest.mark.parametrize(
    "note",
    [
        "", "old x\nnew y\ntime 7\n", NOTES[0].replace("time 7", "time 8"), NOTES[0].replace("time 7", "time 07"),
        "\n".join(NOTES[0].split("\n")[:-2]) + "\n",  # the signature of the new key is missing
        sign_rotation("0" * 32, 7, NAME, SEEDS[0], SEEDS[1]),
        sign_rotation(JOURNAL, 7, NAME, SEEDS[1], SEEDS[1]).replace(f"old {KEYS[1].text()}", f"old {KEYS[0].text()}"),
        sign_rotation(JOURNAL, 7, "omac/other", SEEDS[0], SEEDS[1]),
        sign_loss(JOURNAL, 7, "omac/host1+00000000", NAME, SEEDS[1]),
    ],
)  # fmt: skip
def test_what_is_no_rotation(note: str) -> None:
    """A note that is no rotation leads to no key, whatever it contains, and raises nothing."""
    assert trusted_with(KEYS[:1], [note], JOURNAL) == KEYS[:1]
    assert not is_rotation(note, JOURNAL, KEYS[0], KEYS[1])


def test_a_loss_names_what_was_lost() -> None:
    """A note of a loss holds by the new key, for this journal and the key that it names."""
    lost = "omac/host1+00000000"
    note = sign_loss(JOURNAL, 7, lost, NAME, SEEDS[1])

    def holds(text: str = note, journal: str = JOURNAL, key: VerifierKey = KEYS[1], of: str = lost) -> bool:
        return is_loss(text, journal, of, key)

    assert holds()
    assert not any((holds(note + " "), holds(journal="0" * 32), holds(key=KEYS[0]), holds(of="omac/host1+00000001")))
