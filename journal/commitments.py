"""Commitments: what stands in the body of an event for its personal fields, and how these are read again.

Rules

1. A commitment is the SHA-256 of a random salt and the field's msgpack: a msgpack extension in the field's place. A
   field that is empty stays as it is.
2. Salts and values are encrypted together (AES-256-GCM) with the key of the event's directory, and bound to kind and
   stream: the id of the key, the nonce, the ciphertext. They stand beside the body, in the column `sealed`.
3. The leaf of an event binds both. So its proof holds, whether the key is still there or not.
4. A value that is read is the one that was committed to. What a key that is gone has encrypted is read as erased.
"""

import os
from collections.abc import Collection, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import astuple

from omac.domain.kernel.event import Event
from omac.domain.kernel.redaction import ERASED
from omac.journal.personal_fields import PERSONAL
from omac.journal.subject_ciphers import KEY_ID_BYTES, Cipher, SubjectCiphers, SubjectKeys

COMMITMENT = 1  # the code of the msgpack extension
SALT_BYTES = 16
NONCE_BYTES = 12
HEAD_BYTES = KEY_ID_BYTES + NONCE_BYTES
FIELDS_MAX = 8  # of one event
PIECE_BYTES = NONCE_BYTES + FIELDS_MAX * SALT_BYTES
PIECES = 64

_Ext = msgspec.msgpack.Ext
_EXTENSION = b"\xc7\x20" + bytes((COMMITMENT,))  # msgpack's heads: of an extension of 32 bytes,
_ARRAY = [bytes((0x90 | length,)) for length in range(FIELDS_MAX + 1)]  # of an array,
_SALT = b"\x92\xc4" + bytes((SALT_BYTES,))  # and of a salt with its value
EXTENSION_BYTES = len(_EXTENSION) + 32
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode
_BLANK = _encode(ERASED)
_decode_opened = msgspec.msgpack.Decoder(list[tuple[bytes, msgspec.Raw]]).decode


class OpenedField(NamedTuple):
    """A personal field that is shown: with its salt, anybody can compute the commitment to it."""

    salt: bytes
    value: bytes  # as msgpack

    def commitment(self) -> bytes:
        """Return what stands in the body for it."""
        return sha256(self.salt + self.value).digest()


class _FieldIndexes(NamedTuple):
    """The indexes of the fields of a kind: the field that names the directory, and the personal fields in order, each
    with the value that an erased one is read as. `has_texts_alone`: no field can hold the bytes that begin a
    commitment."""

    directory: int
    blanks: dict[int, Any]
    has_texts_alone: bool


class Commitments:
    """Replaces personal fields by commitments, and back, with the keys that `keys` gives; None: there are none."""

    def __init__(self, keys: SubjectKeys | None = None) -> None:
        self._ciphers = SubjectCiphers(keys) if keys is not None else None
        self._indexes: dict[str, _FieldIndexes] = {}

    def protect(self, kind: str, stream: str, event: Event) -> tuple[bytes, bytes] | None:
        """Return the fields of an event with commitments in them, and what is sealed beside them; None for an event
        whose personal fields are empty, or that is of no directory. Raises Refusal: no key can be kept."""
        if self._ciphers is None or kind not in PERSONAL:
            return None
        indexes, values = self._indexes.get(kind) or self._indexes_of(kind, type(event)), list(astuple(event))
        directory, count, random, opened = values[indexes.directory], 0, b"", b""
        for index in indexes.blanks:
            if values[index]:
                random, count = random or _random(), count + 1
                salt = random[NONCE_BYTES + SALT_BYTES * (count - 1) : NONCE_BYTES + SALT_BYTES * count]
                salted = salt + _encode(values[index])
                opened += _SALT + salted
                values[index] = _Ext(COMMITMENT, sha256(salted).digest())
        if not count or (cipher := self._ciphers.writing(directory)) is None:
            return None
        nonce = random[:NONCE_BYTES]
        text = cipher.aead.encrypt(nonce, _ARRAY[count] + opened, _bound(kind, stream))
        return _encode(values), cipher.id + nonce + text

    def plain(self, kind: str, stream: str, body: bytes, sealed: bytes) -> bytes | None:
        """Return a body with its personal fields in their places; None where their key was not met yet, or is gone: see
        `opened`. Raises ValueError: they are not what was committed to."""
        if self._ciphers is None or (cipher := self._ciphers.known(sealed[:KEY_ID_BYTES])) is None:
            return None
        parts, at = [], 0
        for salt, value in _pairs(cipher, kind, stream, sealed):
            end = body.find(_EXTENSION + sha256(salt + value).digest(), at)
            if end < 0:
                raise ValueError("its personal fields are not those that it commits to")
            parts += [body[at:end], value]
            at = end + EXTENSION_BYTES
        return b"".join((*parts, body[at:]))

    def blanked(self, kind: str, cls: type[Event], body: bytes) -> bytes | None:
        """Return a body with "(erased)" for each commitment, whether there is a key or not; None for a kind of which
        that cannot be said by its bytes."""
        if not self._indexes_of(kind, cls).has_texts_alone:
            return None
        while (at := body.find(_EXTENSION)) >= 0:  # these are no UTF-8
            body = body[:at] + _BLANK + body[at + EXTENSION_BYTES :]
        return body

    def opened(self, kind: str, stream: str, cls: type[Event], fields: Sequence[Any], sealed: bytes) -> list[Any]:
        """Return the fields of an event as they were, "(erased)" for those whose key is gone. Raises ValueError: they
        are not what was committed to."""
        shown = self.fields(kind, stream, cls, fields, sealed)
        if shown is not None:
            return [_decode(shown[index].value) if index in shown else field for index, field in enumerate(fields)]
        blanks = self._indexes_of(kind, cls).blanks
        return [blanks[index] if type(field) is _Ext else field for index, field in enumerate(fields)]

    def fields(
        self, kind: str, stream: str, cls: type[Event], fields: Sequence[Any], sealed: bytes
    ) -> dict[int, OpenedField] | None:
        """Return the personal fields of an event, by their indexes; None where their key is gone. Raises ValueError:
        they are not what was committed to."""
        indexes = self._indexes_of(kind, cls)
        commitments = _committed(fields, indexes.blanks)
        named = fields[indexes.directory]
        wanted, cipher = sealed[:KEY_ID_BYTES], None
        if self._ciphers is not None:
            cipher = self._ciphers.reading(tuple(named) if isinstance(named, list) else named, wanted)
        if cipher is None:
            return None
        shown = [OpenedField(salt, bytes(value)) for salt, value in _pairs(cipher, kind, stream, sealed)]
        if [field.commitment() for field in shown] != [*commitments.values()]:
            raise ValueError("its personal fields are not those that it commits to")
        return dict(zip(commitments, shown, strict=True))

    def _indexes_of(self, kind: str, cls: type[Event]) -> _FieldIndexes:
        indexes = self._indexes.get(kind)
        if indexes is None:
            personal = PERSONAL[kind]
            blanks = {
                index: [ERASED] if getattr(field.type, "__origin__", None) is tuple else ERASED
                for index, field in enumerate(msgspec.structs.fields(cls))
                if field.name in personal.names
            }
            is_text = all(field.type in (str, str | None) for field in msgspec.structs.fields(cls))
            indexes = self._indexes[kind] = _FieldIndexes(
                cls.__struct_fields__.index(personal.directory), blanks, is_text
            )
        return indexes


def committed_in(cls: type[Event], fields: Sequence[Any]) -> dict[str, bytes]:
    """Return the commitments among the fields of an event, by the names of these."""
    named = zip(cls.__struct_fields__, fields, strict=False)
    return {name: bytes(field.data) for name, field in named if type(field) is _Ext and field.code == COMMITMENT}


def _committed(fields: Sequence[Any], allowed: Collection[int]) -> dict[int, bytes]:
    """Return the commitments among the fields of an event, by index. Raises ValueError where others stand there."""
    exts = {index: field for index, field in enumerate(fields) if type(field) is _Ext}
    if not exts or any(index not in allowed or ext.code != COMMITMENT for index, ext in exts.items()):
        raise ValueError("its commitments are not where they belong")
    return {index: bytes(ext.data) for index, ext in exts.items()}


def _pairs(cipher: Cipher, kind: str, stream: str, sealed: bytes) -> list[tuple[bytes, msgspec.Raw]]:
    aead = cipher.aead
    try:
        nonce, text = sealed[KEY_ID_BYTES:HEAD_BYTES], sealed[HEAD_BYTES:]
        return _decode_opened(aead.decrypt(nonce, text, _bound(kind, stream)))
    except MemoryError:
        raise
    except Exception as problem:  # InvalidTag, of a library that is loaded late
        raise ValueError("its personal fields were changed") from problem


def _random() -> bytes:
    """Return random bytes for a nonce and the salts of an event, which no other event gets.

    Each call of os.urandom lets another thread take the interpreter, so that a commit would be in the way of the next
    events: many are drawn at once. A list gives each piece away once, whichever threads ask.
    """
    while True:
        try:
            return _pieces.pop()
        except IndexError:
            block = os.urandom(PIECE_BYTES * PIECES)
            _pieces.extend(block[at : at + PIECE_BYTES] for at in range(0, len(block), PIECE_BYTES))


_pieces: list[bytes] = []
os.register_at_fork(after_in_child=_pieces.clear)  # else two processes would encrypt with one nonce


@lru_cache(maxsize=1_024)
def _bound(kind: str, stream: str) -> bytes:
    return f"{kind}\0{stream}".encode("utf-8", "surrogateescape")
