"""Folders among git's own that another program keeps there, such as `.git/sl` of Sapling: git's grammar says nothing of
what is in them, and a program of the host may obey it.
"""

from __future__ import annotations

import os
import stat

from omac.adapters.files.descriptor import Descriptor
from omac.adapters.git.open_folder import open_listable
from omac.adapters.git.stamp import stamp_of
from omac.domain.kernel.digest import sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from omac.adapters.git.stamp import Stamp

FILES_MAX = 50_000
DEPTH_MAX = 50


def stamp_with_content(parent: int, name: str, status: os.stat_result, spend: Callable[[], None]) -> Stamp:
    """Return the stamp of an entry of an open folder, of a folder by all files in it. Where these are too many, no two
    stamps are the same. `spend` is called for each, and may raise what it likes. Raises OSError."""
    stamp = stamp_of(status)
    if not stat.S_ISDIR(status.st_mode):
        return stamp
    files = []
    for file in _files(parent, name, "", 0):
        spend()
        files.append(repr(file))
        if len(files) > FILES_MAX:
            return (*stamp[:3], 0, int.from_bytes(os.urandom(7), "big"))
    digest: bytes = sha256("\n".join(sorted(files)).encode()).digest()
    return (*stamp[:3], 0, int.from_bytes(digest[:7], "big"))


def _files(parent: int, name: str, path: str, depth: int) -> Iterator[tuple[str, Stamp]]:
    """Yield the path and the stamp of all that is no folder, and the path of what lies too deep. Raises OSError."""
    with Descriptor(open_listable(name, parent)) as folder, os.scandir(folder) as scan:
        for entry in scan:
            below, status = f"{path}/{entry.name}", entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode) and depth < DEPTH_MAX:
                yield from _files(folder, entry.name, below, depth + 1)
            else:
                yield below, stamp_of(status)
