"""The digests of skill folders as they are now, read again only when something in them has changed."""

import hashlib
import threading

from omac.adapters.skills.links import still_leads
from omac.adapters.skills.paths import open_folder
from omac.adapters.skills.reading import read_tree
from omac.adapters.skills.stamps import Stamps, file_system_now_ns, stamps_of
from omac.domain.bundle import UNCOPIED_FOLDERS

REMEMBERED_MAX = 1024


class LiveTrees:
    """Threads may use it at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._remembered: dict[str, _Seen] = {}

    def digest(self, source: str) -> str:
        """The digest of a copy of the canonical `source`. Raises OSError (Uncopyable) naming what cannot be copied."""
        now_ns = file_system_now_ns()
        before = _stamps(source)
        mark = hashlib.sha256(before.encoded()).digest()
        with self._lock:
            seen = self._remembered.get(source)
        if seen and seen.mark == mark and all(still_leads(*way) for way in seen.outside.items()):
            return seen.digest
        tree = read_tree(source)
        digest = tree.digest()
        if before.settled_at(now_ns) and _stamps(source) == before:
            with self._lock:
                self._remembered[source] = _Seen(mark, digest, tree.outside)
                while len(self._remembered) > REMEMBERED_MAX:
                    del self._remembered[next(iter(self._remembered))]
        return digest


class _Seen:
    """A digest, the mark of the stamps that the folder had then, and where its interpreters' links led."""

    def __init__(self, mark: bytes, digest: str, outside: dict[str, str]) -> None:
        self.mark = mark
        self.digest = digest
        self.outside = outside


def _stamps(source: str) -> Stamps:
    with open_folder(source) as top:
        return stamps_of(top, source, UNCOPIED_FOLDERS)
