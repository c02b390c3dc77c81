"""Checkpoints: how many events a journal has and the root of their tree, signed, as a text that can be kept anywhere.

Rules

1. The text is a C2SP signed note with a tlog checkpoint: origin ("omac/" and the journal's id), size, root in base64,
   then lines of omac: when it was signed, and the last position whose leaf came late. Then an empty line, and a
   signature with Ed25519 (type 1) by a named key.
2. A verifier key ("NAME+HASH+KEY") is all that somebody needs to check it, on whatever machine.
3. A reader trusts nothing of a checkpoint before the signature of a key that he knows has been verified.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from omac.domain.access.signing import SIGNATURE
from omac.domain.kernel.refusal import Refusal
from omac.journal.file import reading
from omac.journal.leaves import has_tree, stored_tree, without_leaves
from omac.journal.merkle import HASH_BYTES

ED25519 = b"\x01"  # the type of a signature, in a key's id
KEY_BYTES = 32
ID_BYTES = 4
TEXT_MAX = 65_536  # characters of a checkpoint
ORIGIN = "omac/"
SIGNS = "\u2014 "  # begins a signature
LIST_KEYS = "omac audit --kind key  # on that host: names each key that another one replaced"
SIGNATURE_CHARACTERS = 92  # of the id of a key with its signature, in base64
NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")


class Checkpoint(NamedTuple):
    """The state of a journal that is signed: its id, its number of events, their root, the time (nanoseconds since 1970
    UTC), and the last position that got its leaf later than it was recorded."""

    journal: str
    size: int
    root: bytes
    at: int
    late: int


class VerifierKey(NamedTuple):
    """A public key with its name."""

    name: str
    key: bytes

    @classmethod
    def parse(cls, text: str) -> "VerifierKey":
        """Return the key of a text "NAME+HASH+KEY". Raises Refusal (misuse)."""
        name, _, rest = text.strip().partition("+")
        digits, _, encoded = rest.partition("+")
        content = _decoded(encoded)
        key = cls(name, content[1:])
        if not name or " " in name or content[:1] != ED25519 or len(key.key) != KEY_BYTES or key.id().hex() != digits:
            message = "this is no verifier key, which is NAME+HASH+KEY on one line"
            raise Refusal("misuse", message, fix=["omac key show"])
        return key

    def id(self) -> bytes:
        """Return the 4 bytes that tell keys of one name apart."""
        return hashlib.sha256(self.name.encode() + b"\n" + ED25519 + self.key).digest()[:ID_BYTES]

    def text(self) -> str:
        """Return it on one line."""
        return f"{self.name}+{self.id().hex()}+{base64.b64encode(ED25519 + self.key).decode()}"


def verifier_of(name: str, seed: bytes) -> VerifierKey:
    """Return the public key of a signing key, which is 32 random bytes."""
    return VerifierKey(name, Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw())


def sign(checkpoint: Checkpoint, name: str, seed: bytes) -> str:
    """Return the signed text of a checkpoint."""
    return sign_note(_body(checkpoint), name, seed)


def sign_note(body: str, name: str, seed: bytes) -> str:
    """Return the signed note of a text, which ends with its line."""
    signature = verifier_of(name, seed).id() + Ed25519PrivateKey.from_private_bytes(seed).sign(body.encode())
    return f"{body}\n\u2014 {name} {base64.b64encode(signature).decode()}\n"


def verified(text: str, *keys: VerifierKey) -> Checkpoint:
    """Return the checkpoint of a signed text. Raises Refusal (misuse): it is none, or none of `keys` has signed it."""
    return _parsed(verified_note(text, *keys))


def verified_note(text: str, *keys: VerifierKey) -> str:
    """Return the text of a signed note. Raises Refusal (misuse): it is none, or none of `keys` has signed it."""
    body, separator, signatures = text.rpartition("\n\n")
    body += "\n"
    if not separator or len(text) > TEXT_MAX or not signatures.endswith("\n"):
        raise _no_checkpoint("it has no signature")
    matches = [SIGNATURE.fullmatch(line) for line in signatures.removesuffix("\n").split("\n")]
    if None in matches:
        raise _no_checkpoint("a line of its signatures is none")
    signed = [(match[1], match[2]) for match in matches if match]
    if any(name == key.name and _is_signed(body, encoded, key) for key in keys for name, encoded in signed):
        return body
    names = " or ".join(f"{key.name}+{key.id().hex()}" for key in keys) or "that this host knows"
    signers = " and ".join(f"{name}+{_decoded(encoded)[:ID_BYTES].hex()}" for name, encoded in signed)
    message = f"the key {names} has not signed this checkpoint, or it was changed since: its signer is {signers}"
    fix = ["omac key show  # on the host that signed it, then: --key takes what it printed, and may be repeated"]
    raise Refusal("misuse", message, fix=[*fix, LIST_KEYS])


def notes_in(lines: Iterable[str]) -> Iterator[str]:
    """Yield the signed notes of a text, one after the other, those too that break off: a machine that lost its power
    leaves such in a witness's file. What is longer than any note comes in parts."""
    note, size = list[str](), 0
    for line in lines:
        is_signed = bool(note) and note[-1].startswith(SIGNS)
        begins = line.startswith(ORIGIN) and bool(note) and not note[-1].strip()
        if begins or (is_signed and not line.startswith(SIGNS)) or size > TEXT_MAX:
            yield "".join(note)
            note, size = [], 0
        if note or line.strip():
            note.append(line)
            size += len(line)
    if note:
        yield "".join(note)


def breaks_off(note: str) -> bool:
    """Return whether a note ends before its signature, or within it."""
    last = note.rstrip("\n").rpartition("\n")[2]
    return not last.startswith(SIGNS) or len(last.rpartition(" ")[2]) < SIGNATURE_CHARACTERS


def journal_of(text: str) -> str:
    """Return the journal that a checkpoint says it is of, which nobody has verified yet."""
    return text.partition("\n")[0].removeprefix(ORIGIN)


def current_checkpoint(path: str, at: int) -> Checkpoint:
    """Return the checkpoint of the journal at `path` as it stands. Raises Refusal."""
    with reading(path) as connection:
        connection.execute("BEGIN")
        if not has_tree(connection):
            raise without_leaves(path)
        tree, late = stored_tree(connection, path)
        journal = connection.id()
    return Checkpoint(journal, tree.size, tree.root(), at, late)


def _body(checkpoint: Checkpoint) -> str:
    root = base64.b64encode(checkpoint.root).decode()
    journal, size, _, at, late = checkpoint
    return f"{ORIGIN}{journal}\n{size}\n{root}\ntime {at}\nlate {late}\n"


def _parsed(body: str) -> Checkpoint:
    lines = body.split("\n")
    if len(lines) != 6 or not lines[0].startswith(ORIGIN) or not NUMBER.fullmatch(lines[1]):
        raise _no_checkpoint("its lines are not those of omac")
    numbers = [lines[3].removeprefix("time "), lines[4].removeprefix("late ")]
    root = _decoded(lines[2])
    if len(root) != HASH_BYTES or not all(map(NUMBER.fullmatch, numbers)):
        raise _no_checkpoint("its lines are not those of omac")
    checkpoint = Checkpoint(lines[0].removeprefix(ORIGIN), int(lines[1]), root, int(numbers[0]), int(numbers[1]))
    if _body(checkpoint) != body:
        raise _no_checkpoint("its lines are not those of omac")
    return checkpoint


def _is_signed(body: str, encoded: str, key: VerifierKey) -> bool:
    content = _decoded(encoded)
    if content[:ID_BYTES] != key.id():
        return False
    try:
        Ed25519PublicKey.from_public_bytes(key.key).verify(content[ID_BYTES:], body.encode())
    except (ValueError, InvalidSignature):
        return False
    return True


def _decoded(text: str) -> bytes:
    """The bytes of a base64 text, b"" for one that is none, or not the one that encodes them."""
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
    return content if base64.b64encode(content).decode() == text else b""


def _no_checkpoint(why: str) -> Refusal:
    return Refusal("misuse", f"this is no checkpoint of omac: {why}", fix=["omac checkpoint > FILE"])
