"""Notes about the key that signs: it gave way to another, which both have signed, or it was lost.

Rules

1. A rotation names the journal, the old and the new key, and has the signatures of both. A verifier that trusts one of
   the two trusts the other: so trust gets from the first key of a journal to the one that signs today.
2. The note of a loss names the new key and is signed by it alone: trust does not get past it.
"""

import contextlib
import re
from collections.abc import Iterable, Sequence

from omac.domain.kernel.refusal import Refusal
from omac.journal.checkpoint import NUMBER, ORIGIN, VerifierKey, sign_note, verified_note, verifier_of

_ROTATION = re.compile(r"old (?P<old>[^\n]+)\nnew (?P<new>[^\n]+)\ntime [0-9]+\n")


def sign_rotation(journal: str, at: int, name: str, old: bytes, new: bytes) -> str:
    """Return the note that a key gives way to another of its name, signed by both (`old` and `new` are their seeds)."""
    body = _rotation(journal, at, verifier_of(name, old), verifier_of(name, new))
    return sign_note(body, name, old) + sign_note(body, name, new).rpartition("\n\n")[2]


def is_rotation(text: str, journal: str, old: VerifierKey, new: VerifierKey) -> bool:
    """Return whether a text is the note that `old` gives way to `new` in this journal, signed by both."""
    try:
        body = verified_note(text, old)
        if verified_note(text, new) != body:
            return False
    except Refusal:
        return False
    return body == _rotation(journal, _time_of(body), old, new)


def sign_loss(journal: str, at: int, lost: str, name: str, new: bytes) -> str:
    """Return the note that the key `lost` (name and id) is gone and that `new` (a seed) signs, which it signs alone."""
    return sign_note(_loss(journal, at, lost, verifier_of(name, new)), name, new)


def is_loss(text: str, journal: str, lost: str, new: VerifierKey) -> bool:
    """Return whether a text is the note that `new` signs in this journal in place of the key `lost`."""
    try:
        body = verified_note(text, new)
    except Refusal:
        return False
    return body == _loss(journal, _time_of(body), lost, new)


def trusted_with(keys: Sequence[VerifierKey], notes: Iterable[str], journal: str) -> list[VerifierKey]:
    """Return `keys`, and those that rotations of a journal lead to from them, in the order of the notes. A note that
    proves nothing is passed over."""
    known = list(keys)
    for note in notes:
        named = _keys_of(note)
        if named and named[0] in known and named[1] not in known and is_rotation(note, journal, *named):
            known.append(named[1])
    return known


def require_rotations(notes: Iterable[str], journal: str) -> None:
    """Raise ValueError for a note that is no rotation of this journal, signed by both keys that it names."""
    for number, note in enumerate(notes, 1):
        named = _keys_of(note)
        if named is None or not is_rotation(note, journal, *named):
            raise ValueError(f"rotation {number} in it is not signed by the keys that it names, or was changed")


def _keys_of(note: str) -> tuple[VerifierKey, VerifierKey] | None:
    """The old and the new key that a rotation names; None for a text that names none."""
    if match := _ROTATION.search(note):
        with contextlib.suppress(Refusal):
            return VerifierKey.parse(match["old"]), VerifierKey.parse(match["new"])
    return None


def _rotation(journal: str, at: int, old: VerifierKey, new: VerifierKey) -> str:
    return f"{ORIGIN}{journal}/key\nold {old.text()}\nnew {new.text()}\ntime {at}\n"


def _loss(journal: str, at: int, lost: str, new: VerifierKey) -> str:
    return f"{ORIGIN}{journal}/key\nlost {lost}\nnew {new.text()}\ntime {at}\n"


def _time_of(body: str) -> int:
    """The time that a note names; -1, which none has, for a text that names none."""
    digits = body.rstrip("\n").rpartition("\ntime ")[2]
    return int(digits) if NUMBER.fullmatch(digits) else -1
