"""The text of a proof: with any bit changed, it is another proof or none."""

import contextlib

import msgspec
import pytest

from omac.journal.proof_text import parsed


class Proof(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A small proof."""

    format: str
    path: tuple[bytes, ...] = ()


PROOF = Proof("a proof", (b"x", b"yy", b"zzz"))


def test_each_bit_means_something() -> None:
    """A text with any bit changed is no proof, or another one; UTF-8 and base64 are no exception."""
    text = msgspec.json.encode(PROOF)
    assert parsed(text, Proof) == PROOF
    for bit in range(8 * len(text)):
        changed = bytearray(text)
        changed[bit // 8] ^= 1 << bit % 8
        with contextlib.suppress(ValueError):
            assert parsed(bytes(changed), Proof) != PROOF, bytes(changed)


def test_layout_is_left_to_people() -> None:
    """A proof that a program indented, or that is in another order, is the same one."""
    assert parsed(b'{\n  "path": ["eA==", "eXk=", "enp6"],\n  "format": "a proof"\n}\n', Proof) == PROOF


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"[" * 100_000, b'{"format": "\xff"}', b'{"format": "a", "path": ["eB=="]}']
)
def test_what_is_none(text: bytes) -> None:
    """A text that is no proof is refused with a reason."""
    with pytest.raises(ValueError, match=r"."):
        parsed(text, Proof)
