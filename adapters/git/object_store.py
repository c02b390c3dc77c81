"""A search for a file's content in a repository: by its hash, in loose objects and in indexes of packs.

Formats: gitformat-pack(5), version 2 of an index; an object's name is the hash of `blob SIZE`, NUL and the content.
"""

from __future__ import annotations

import os

from omac.adapters.files.descriptor import Descriptor
from omac.adapters.git import pointers
from omac.domain.git.config import oid_bytes_of
from omac.domain.git.place import SHA256_BYTES

PACKS_MAX = 200
_HEADER = b"\xfftOc\x00\x00\x00\x02"
_FANOUT_BYTES = 256 * 4
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def holds(common: str, content: bytes) -> bool:
    """Return whether the repository whose common folder is `common` has `content` as a blob."""
    name = _name(common, b"blob %d\0" % len(content) + content)
    digits = name.hex()
    if os.path.isfile(f"{common}/objects/{digits[:2]}/{digits[2:]}"):
        return True
    try:
        packs = [pack for pack in os.listdir(f"{common}/objects/pack") if pack.endswith(".idx")]
    except OSError:
        return False
    return any(_lists(f"{common}/objects/pack/{pack}", name) for pack in packs[:PACKS_MAX])


def _name(common: str, encoded: bytes) -> bytes:
    import hashlib  # here, for most projects have no file to ask about

    config = pointers.read(f"{common}/config", pointers.CONFIG_BYTES_MAX) or b""
    if oid_bytes_of(config) == SHA256_BYTES:
        return hashlib.sha256(encoded).digest()
    return hashlib.sha1(encoded, usedforsecurity=False).digest()


def _lists(index: str, name: bytes) -> bool:
    """Return whether the index of a pack has an object of that name, found by bisection."""
    try:
        descriptor = os.open(index, _READ)
    except OSError:
        return False
    with Descriptor(descriptor):
        head = os.pread(descriptor, len(_HEADER) + _FANOUT_BYTES, 0)
        if not head.startswith(_HEADER) or len(head) < len(_HEADER) + _FANOUT_BYTES:
            return False
        until = _count(head, name[0])
        at = _count(head, name[0] - 1) if name[0] else 0
        while at < until:
            middle = (at + until) // 2
            seen = os.pread(descriptor, len(name), len(head) + middle * len(name))
            if seen == name:
                return True
            at, until = (middle + 1, until) if seen < name else (at, middle)
        return False


def _count(head: bytes, byte: int) -> int:
    """Return how many objects have names that begin with `byte` or less."""
    at = len(_HEADER) + 4 * byte
    return int.from_bytes(head[at : at + 4], "big")
