"""Checkpoints: signed notes that anyone can verify, and that no longer verify once they are changed."""

import base64
import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from omac.domain.kernel.refusal import Refusal
from omac.journal.checkpoint import Checkpoint, VerifierKey, sign, verified, verifier_of

SEED = bytes(range(32))
NAME = "omac/host"
KEY = verifier_of(NAME, SEED)
CHECKPOINT = Checkpoint("a1b2", 120, b"\x07" * 32, 1_795_451_782_508_618_318, 9)
TEXT = sign(CHECKPOINT, NAME, SEED)


def refusal_of(text: str, key: VerifierKey = KEY) -> str:
    """Return the reason why a text is no checkpoint by `key`."""
    with pytest.raises(Refusal) as refused:
        verified(text, key)
    assert refused.value.reason == "misuse"
    return refused.value.message


def test_the_text_is_a_signed_note() -> None:
    """A checkpoint verifies by the specifications alone: C2SP signed-note and tlog-checkpoint."""
    body, _, signatures = TEXT.partition("\n\n")
    origin, size, root, *_ = body.split("\n")
    assert (origin, size, base64.b64decode(root)) == ("omac/a1b2", "120", b"\x07" * 32)
    dash, name, encoded = signatures.removesuffix("\n").split(" ")
    content = base64.b64decode(encoded)
    assert (dash, name) == ("\u2014", NAME)
    assert content[:4] == hashlib.sha256(NAME.encode() + b"\n\x01" + KEY.key).digest()[:4]
    Ed25519PublicKey.from_public_bytes(KEY.key).verify(content[4:], (body + "\n").encode())


def test_a_key_is_a_line() -> None:
    """A verifier key is read as it was written, and in no other form."""
    assert VerifierKey.parse(KEY.text() + "\n") == KEY
    for text in ("", NAME, KEY.text()[:-4], KEY.text().replace("+", " "), KEY.text().replace("host", "hosts"), "a+b+c"):
        with pytest.raises(Refusal, match="no verifier key"):
            VerifierKey.parse(text)


def test_signed_by_several() -> None:
    """A witness may have added a signature; each key verifies its own."""
    witness = verifier_of("witness", b"w" * 32)
    both = TEXT + sign(CHECKPOINT, "witness", b"w" * 32).splitlines()[-1] + "\n"
    assert verified(TEXT, KEY) == verified(both, KEY) == verified(both, witness) == CHECKPOINT
    assert "has not signed" in refusal_of(TEXT, witness)
    assert "has not signed" in refusal_of(TEXT, verifier_of(NAME, b"w" * 32))


@given(st.integers(0, len(TEXT) - 1), st.characters(codec="utf-8"))
def test_no_changed_text_holds(at: int, character: str) -> None:
    """A checkpoint with any character changed is refused, also in unsigned parts, as the signature's line."""
    changed = TEXT[:at] + character + TEXT[at + 1 :]
    if changed != TEXT:
        refusal_of(changed)


@pytest.mark.parametrize(
    "text", ["", "\n\n", TEXT[:-1], TEXT + "x\n", TEXT * 2, TEXT.partition("\n\n")[0], "x" * 70_000]
)
def test_texts_that_are_none(text: str) -> None:
    """A text that is no checkpoint is refused with a reason."""
    assert refusal_of(text)


@pytest.mark.parametrize(
    "checkpoint",
    [CHECKPOINT._replace(journal="a\nb"), CHECKPOINT._replace(root=b"short"), CHECKPOINT._replace(size=-1)],
)
def test_what_is_signed_is_still_checked(checkpoint: Checkpoint) -> None:
    """A checkpoint with nonsense in it is refused, although the key has signed it."""
    assert "not those of omac" in refusal_of(sign(checkpoint, NAME, SEED))
