"""Digests and code hashes of skill folders as they are now; a folder is read again only after something in it has
changed."""

import hashlib
import threading
from collections.abc import Collection, Mapping
from typing import Generic, NamedTuple, TypeVar

import msgspec

from omac.adapters.skills.code_hash import code_hash_of
from omac.adapters.skills.links import still_leads
from omac.adapters.skills.paths import open_folder
from omac.adapters.skills.reading import read_tree
from omac.adapters.skills.stat_fingerprint import Stamps, file_system_now_ns, stamps_of
from omac.domain.skills.bundle import PRUNED_FOLDERS, UNCOPIED_FOLDERS

REMEMBERED_MAX = 1024

Seen = TypeVar("Seen")


class LiveTrees:
    """Digests over all of a folder. Threads may use it at the same time."""

    def __init__(self) -> None:
        self._memory: _Memory[_Digest] = _Memory()

    def digest(self, source: str) -> str:
        """The digest of a copy of the canonical `source`. Raises OSError (Uncopyable) naming what cannot be copied."""
        now_ns = file_system_now_ns()
        before = _stamps(source, UNCOPIED_FOLDERS)
        mark = hashlib.sha256(before.encoded()).digest()
        seen = self._memory.recall(source, mark)
        if seen and all(still_leads(*way) for way in seen.outside.items()):
            return seen.digest
        tree = read_tree(source)
        digest = tree.digest()
        if before.settled_at(now_ns) and _stamps(source, UNCOPIED_FOLDERS) == before:
            self._memory.keep(source, mark, _Digest(digest, tree.outside))
        return digest


class LiveCode:
    """Hashes of the code in a folder. Threads may use it at the same time."""

    def __init__(self) -> None:
        self._memory: _Memory[str] = _Memory()

    def code_hash(self, source: str, known: Mapping[str, bytes]) -> str:
        """Return what `code_hash_of` returns, from memory where it was computed with the very same `known` and the
        folder has not changed since. Raises OSError."""
        now_ns = file_system_now_ns()
        try:
            before = _stamps(source, PRUNED_FOLDERS)
        except OSError:  # an editor's leavings, say, which come and go and do not count
            return code_hash_of(source, known)
        mark = hashlib.sha256(before.encoded() + msgspec.msgpack.encode(sorted(known.items()))).digest()
        seen = self._memory.recall(source, mark)
        if seen is not None:
            return seen
        digest = code_hash_of(source, known)
        if before.settled_at(now_ns) and _still(source, before):
            self._memory.keep(source, mark, digest)
        return digest


class _Digest(NamedTuple):
    """A digest, and where the links of its folder's interpreters led."""

    digest: str
    outside: dict[str, str]


class _Memory(Generic[Seen]):
    """By folder what was seen last, and the mark of the stamps that it had then; the oldest is forgotten first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._remembered: dict[str, tuple[bytes, Seen]] = {}

    def recall(self, source: str, mark: bytes) -> Seen | None:
        """Return the value that was stored for `source` under this very mark, None otherwise."""
        with self._lock:
            remembered = self._remembered.get(source)
        return remembered[1] if remembered and remembered[0] == mark else None

    def keep(self, source: str, mark: bytes, seen: Seen) -> None:
        """Remember it, in place of what was seen before."""
        with self._lock:
            self._remembered.pop(source, None)
            self._remembered[source] = (mark, seen)
            while len(self._remembered) > REMEMBERED_MAX:
                del self._remembered[next(iter(self._remembered))]


def _still(source: str, before: Stamps) -> bool:
    try:
        return _stamps(source, PRUNED_FOLDERS) == before
    except OSError:
        return False


def _stamps(source: str, skipped: Collection[str]) -> Stamps:
    with open_folder(source) as top:
        return stamps_of(top, source, skipped)
