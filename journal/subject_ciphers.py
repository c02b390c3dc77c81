"""Subject keys in use: the cipher for the events of a directory, asked for again every LEASE_S, for keys are destroyed.

An event of several directories takes the keys of all: without one of them it is erased.
"""

import time
from collections.abc import Callable, Sequence
from functools import cached_property
from hashlib import sha256
from itertools import product
from typing import Any, NamedTuple, Protocol

from omac.domain.kernel.exhaustion import is_out_of_memory
from omac.domain.kernel.ids import WorkdirId, workdir_id
from omac.domain.kernel.refusal import Refusal

KEY_ID_BYTES = 8
UNREADABLE = frozenset(("state-unusable", "prerequisite-missing"))  # refusals that are of keys, not of events
LEASE_S = 0.05
REMEMBERED_MAX = 10_000  # directories


class SubjectKeys(Protocol):
    """A store for the keys of directories. A directory has several keys if a backup restored older ones; the newest is
    last. Every method raises Refusal."""

    def current(self, subject: WorkdirId) -> tuple[bytes, ...]:
        """Return the keys of a directory; none where they were destroyed, too."""
        ...

    def minted(self, subject: WorkdirId) -> tuple[bytes, ...]:
        """Return the keys of a directory, made durable before where it has none."""
        ...


KeysOf = Callable[[str], SubjectKeys]  # those of a journal, by its id


class Cipher:
    """A key in use; `id` tells it from another, and says nothing about it."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.id = key_id(key)

    @cached_property
    def aead(self) -> Any:
        """The cipher itself. Raises Refusal (prerequisite-missing) and MemoryError, which say nothing of what it would
        decrypt."""
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # loads for 20 ms
        except ImportError as problem:
            if is_out_of_memory(problem):
                raise MemoryError(str(problem)) from problem
            message = f"the library that encrypts personal fields cannot be loaded: {problem}"
            fix = ["omac version  # then the same command again", "uv tool install --reinstall .  # in the checkout"]
            raise Refusal("prerequisite-missing", message, fix=fix) from problem
        return AESGCM(self._key)


class _Held(NamedTuple):
    """The ciphers of some directories, the newest last, until they are asked for again."""

    subjects: tuple[WorkdirId, ...]
    keys: tuple[tuple[bytes, ...], ...]
    ciphers: tuple[Cipher, ...]
    until: float


class SubjectCiphers:
    """The ciphers of the directories that `keys` has keys of. They are named by a path, or by a tuple of paths. Every
    method raises Refusal."""

    def __init__(self, keys: SubjectKeys) -> None:
        self._keys = keys
        self._held: dict[str | tuple[str, ...], _Held] = {}
        self._by_id: dict[bytes, str | tuple[str, ...]] = {}

    def writing(self, named: str | tuple[str, ...]) -> Cipher | None:
        """Return what encrypts for these directories; None for none."""
        held = self._held.get(named)
        if held is None or held.until < time.monotonic() or not held.ciphers:
            held = self._renewed(named, self._keys.minted)
        return held.ciphers[-1] if held.ciphers else None

    def reading(self, named: str | tuple[str, ...], wanted: bytes) -> Cipher | None:
        """Return the cipher with that id, as one of these directories; None where its key is gone."""
        held = self._held.get(named)
        if held is None or held.until < time.monotonic():
            held = self._renewed(named, self._keys.current)
        for cipher in reversed(held.ciphers):
            if cipher.id == wanted:
                return cipher
        return None

    def known(self, wanted: bytes) -> Cipher | None:
        """Return the cipher with that id if it was met already; None where its key is gone, too."""
        named = self._by_id.get(wanted)
        return None if named is None else self.reading(named, wanted)

    def _renewed(self, named: str | tuple[str, ...], read: Callable[[WorkdirId], tuple[bytes, ...]]) -> _Held:
        before = self._held.get(named)
        subjects = before.subjects if before is not None else _subjects(named)
        keys, until = tuple(map(read, subjects)), time.monotonic() + LEASE_S
        if before is not None and before.keys == keys:
            held = before._replace(until=until)
        else:  # what is no key of it any more is forgotten
            for cipher in before.ciphers if before is not None else ():
                self._by_id.pop(cipher.id, None)
            held = _Held(subjects, keys, tuple(map(_cipher, product(*keys) if subjects else ())), until)
            if len(self._held) >= REMEMBERED_MAX:
                self._held.clear()
                self._by_id.clear()
            self._by_id |= {cipher.id: named for cipher in held.ciphers}
        self._held[named] = held
        return held


def key_id(key: bytes) -> bytes:
    """Return what tells a key from another."""
    return sha256(b"omac subject key\0" + key).digest()[:KEY_ID_BYTES]


def ids_of(keys: Sequence[bytes]) -> tuple[str, ...]:
    """Return the ids of keys, as they are recorded."""
    return tuple(key_id(key).hex() for key in keys)


def _subjects(named: str | tuple[str, ...]) -> tuple[WorkdirId, ...]:
    paths = named if isinstance(named, tuple) else (named,)
    return tuple(sorted({workdir_id(path) for path in paths if path}))


def _cipher(keys: tuple[bytes, ...]) -> Cipher:
    return Cipher(keys[0] if len(keys) == 1 else sha256(b"".join(keys)).digest())
