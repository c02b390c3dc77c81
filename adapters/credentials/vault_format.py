"""The form of a vault, version 1: bytes in, bytes out. Numbers are big-endian.

    offset  bytes
         0      8  "omacvlt" and a line feed
         8      2  version: 1
        10      1  the key is 0: 32 random bytes, 1: scrypt (RFC 7914) of a passphrase (NFC, UTF-8) and the salt
        11      1  scrypt's log2(N)  \
        12      2  scrypt's r         > 0 where the key is random
        14      2  scrypt's p        /
        16     16  salt, random, new with each vault
        32     16  key check: the first bytes of HMAC-SHA256(key, "omac vault 1 check" + salt)
        48     12  nonce, random, new with each write
        60      4  n, the length of what is sealed
        64      n  AES-256-GCM (SP 800-38D) under HMAC-SHA256(key, "omac vault 1 seal" + salt), its tag at the end,
                   of a msgpack map {service: {name: value}}; the 64 bytes before are its associated data
      64+n     32  SHA-256 of all that precedes

Any reader can check that a file is whole (the SHA-256), only a holder of the key that it is genuine (the tag). A wrong
key shows in the key check. An earlier vault put back in the place of a later one is genuine and does not show. Every
later version keeps the first 10 bytes and the last 32.
"""

import hashlib
import hmac
import os
import struct
import unicodedata
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from omac.domain.kernel.hidden import Hidden

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MAGIC = b"omacvlt\n"
VERSION = 1
KEY_BYTES = 32
BYTES_MAX = 16 * 1024 * 1024
MEMORY_MAX = 256 * 1024 * 1024  # of scrypt, which takes 128 * N * r bytes
_HEADER = struct.Struct(">8sHBBHH16s16s12sI")
_DIGEST_BYTES = 32
_TAG_BYTES = 16

Contents = dict[str, dict[str, Hidden]]


class Damaged(Exception):
    """The bytes are no vault, or not the one that was written; the text says what is wrong with them."""


class Newer(Exception):
    """A later omac wrote the vault."""


class WrongKey(Exception):
    """The vault is whole, and sealed under another key."""


class Unsealable(Exception):
    """The contents to be sealed are too large, or a text in them is not Unicode."""


class HiddenBytes(bytes):
    """Bytes that are shown to nobody by accident: printing them shows "<hidden>"."""

    def __repr__(self) -> str:
        return "<hidden>"

    __str__ = __repr__

    def __format__(self, _spec: str) -> str:
        return "<hidden>"


class VaultKey(HiddenBytes):
    """The key of a vault: KEY_BYTES bytes. Raises ValueError for another length."""

    def __new__(cls, key: bytes) -> "VaultKey":
        if len(key) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes, not {len(key)}")
        return super().__new__(cls, key)


class Scrypt(NamedTuple):
    """The cost of scrypt: 128 * 2**log2_n * r bytes of memory, and time in proportion to that and to `p`."""

    log2_n: int
    r: int
    p: int

    def bearable(self) -> bool:
        """Return whether this cost is accepted from a header: a hostile header must not exhaust this machine."""
        sane = 1 <= self.log2_n <= 24 and self.r >= 1 and 1 <= self.p <= 4
        return sane and 128 * self.r << self.log2_n <= MEMORY_MAX


COST = Scrypt(17, 8, 1)  # 128 MiB, and the better part of a second


class Header(NamedTuple):
    """The part of a vault that anybody may read. `cost` is None where the key is random."""

    cost: Scrypt | None
    salt: bytes
    check: bytes

    @classmethod
    def of_random(cls, key: VaultKey) -> "Header":
        """The header of a new vault under a random key."""
        salt = os.urandom(16)
        return cls(None, salt, _derived(key, b"check", salt)[:16])

    @classmethod
    def of_passphrase(cls, passphrase: Hidden, cost: Scrypt) -> tuple["Header", VaultKey]:
        """The header of a new vault under a passphrase, and the key it makes."""
        salt = os.urandom(16)
        key = stretched(passphrase, salt, cost)
        return cls(cost, salt, _derived(key, b"check", salt)[:16]), key

    def fits(self, key: VaultKey) -> bool:
        """Return whether the vault was sealed under this key."""
        return hmac.compare_digest(_derived(key, b"check", self.salt)[:16], self.check)


def stretched(passphrase: Hidden, salt: bytes, cost: Scrypt) -> VaultKey:
    """The key that a passphrase makes."""
    return VaultKey(
        hashlib.scrypt(
            unicodedata.normalize("NFC", passphrase.reveal()).encode("utf-8", "surrogatepass"),
            salt=salt,
            n=1 << cost.log2_n,
            r=cost.r,
            p=cost.p,
            maxmem=MEMORY_MAX + 16 * 1024 * 1024,  # OpenSSL counts a little beside the 128 * N * r
            dklen=KEY_BYTES,
        )
    )


def seal(contents: Contents, header: Header, key: VaultKey) -> bytes:
    """A whole vault. Raises Unsealable: a text is not Unicode, or it would exceed BYTES_MAX."""
    packed = _packed(contents)
    if packed is None:
        raise Unsealable("a text is not Unicode")
    if len(packed) > BYTES_MAX - _HEADER.size - _TAG_BYTES - _DIGEST_BYTES:
        raise Unsealable(f"it would be larger than {BYTES_MAX // 2**20} MiB")
    nonce = os.urandom(12)
    made, cost = (1, header.cost) if header.cost else (0, (0, 0, 0))
    head = _HEADER.pack(MAGIC, VERSION, made, *cost, header.salt, header.check, nonce, len(packed) + _TAG_BYTES)
    whole = head + _aead(key, header.salt).encrypt(nonce, packed, head)
    return whole + hashlib.sha256(whole).digest()


def open_header(vault: bytes) -> Header:
    """Return the part of a vault that anybody may read. Raises Damaged, Newer."""
    body, digest = vault[:-_DIGEST_BYTES], vault[-_DIGEST_BYTES:]
    if not body.startswith(MAGIC):
        raise Damaged("it does not begin like a vault" if vault else "it is empty")
    if hashlib.sha256(body).digest() != digest:
        raise Damaged("it was cut off or changed: its checksum is wrong")
    version = int.from_bytes(body[8:10], "big")
    if version > VERSION:
        raise Newer(f"its version is {version}, and this omac knows {VERSION}")
    if len(body) < _HEADER.size:
        raise Damaged("its header was cut off")
    _, _, made, log2_n, r, p, salt, check, _, size = _HEADER.unpack_from(body)
    cost = Scrypt(log2_n, r, p)
    sane = cost.bearable() if made == 1 else (made, *cost) == (0, 0, 0, 0)
    if version != VERSION or not sane or size < _TAG_BYTES or len(body) != _HEADER.size + size:
        raise Damaged("its header was changed: it makes no sense")
    return Header(cost if made else None, salt, check)


def unseal(vault: bytes, key: VaultKey) -> Contents:
    """Return the contents of a vault. Raises Damaged, Newer, WrongKey."""
    header = open_header(vault)
    if not header.fits(key):
        raise WrongKey
    contents = _contents(vault, header, key)
    if contents is None:
        raise Damaged("it was changed: what is sealed in it does not bear the seal of its key")
    return contents


def _contents(vault: bytes, header: Header, key: VaultKey) -> Contents | None:
    """Return the contents of a vault; None when the seal is broken."""
    from cryptography.exceptions import InvalidTag

    nonce, sealed = vault[48:60], vault[_HEADER.size : -_DIGEST_BYTES]
    try:
        plain = HiddenBytes(_aead(key, header.salt).decrypt(nonce, sealed, vault[: _HEADER.size]))
        decoded = msgspec.msgpack.decode(plain, type=dict[str, dict[str, str]])
    except (InvalidTag, msgspec.MsgspecError, UnicodeError):
        return None
    return {service: {name: Hidden(text) for name, text in values.items()} for service, values in decoded.items()}


def _packed(contents: Contents) -> HiddenBytes | None:
    """Return the contents as msgpack; None for what cannot be packed, as the error would hold the text."""
    try:
        return HiddenBytes(
            msgspec.msgpack.encode(
                {
                    service: {name: text.reveal() for name, text in values.items()}
                    for service, values in contents.items()
                }
            )
        )
    except UnicodeError:
        return None


def _derived(key: VaultKey, purpose: bytes, salt: bytes) -> bytes:
    return hmac.digest(key, b"omac vault 1 " + purpose + salt, "sha256")


def _aead(key: VaultKey, salt: bytes) -> "AESGCM":
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # takes 40 ms, which most commands need not spend

    return AESGCM(_derived(key, b"seal", salt))
