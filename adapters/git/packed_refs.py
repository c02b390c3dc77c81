"""The packed refs of a linked worktree's repository, on the host and in the sandbox's copy: what one has, both have.

`git pack-refs`, which `git gc` begins with, writes refs into `packed-refs` and then removes their files. The files are
shared with the sandbox, `packed-refs` is not (refs.py): the other side would take the branches for ones without a
commit, and begin them anew.

Rules

1. What the host packs is put into the copy at once, under git's own lock; what was packed inside stays in it.
2. What was packed inside is put into the host's file in the same way, when the ref's file is gone. No git runs for it:
   git would write files in `refs` and `logs`, through links that the program can make there before Linux 5.19.
3. What was deleted inside is deleted on the host at the end (refs.py).

The window is that of the watch (watch.py). Source: gitrepository-layout(5), git-pack-refs(1).
"""

from __future__ import annotations

import os
import stat
import time

from omac.adapters.files.descriptor import Descriptor
from omac.adapters.files.without_links import opened_folder
from omac.adapters.git import refs
from omac.adapters.git.git_folder import settings_of
from omac.adapters.git.open_folder import content_of, put
from omac.adapters.git.repository import is_folder, mode_of
from omac.adapters.git.stamp import stamp_of
from omac.domain.git.config import oid_bytes_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from omac.adapters.git.refs import Session
    from omac.adapters.git.stamp import Stamp

NAME = "packed-refs"
LOCK = f"{NAME}.lock"
BYTES_MAX = 8 << 20  # of a file that is kept in step; a longer one is compared at the end only
NAME_BYTES_MAX = 240  # of a ref that does not wait for the end: a file can have that name, and a lock
AGAIN_S = (  # how soon to look again for refs whose files git is about to remove
    0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2,
)  # fmt: skip


class PackedRefs:
    """Keeps the copy of one session in step with the host."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._stamps: list[Stamp | None] = []
        self._base: dict[str, str] = {}
        self._is_begun = False
        self._digits = 0  # of the repository's object ids
        self._rereads = 0
        self._again_at: float | None = None  # by the monotonic clock

    @property
    def again_s(self) -> float | None:
        """Return how soon to settle again though nothing happens; None: never."""
        return None if self._again_at is None else max(0.0, self._again_at - time.monotonic())

    def settle(self) -> None:
        """Bring the host's packed refs and the copy into agreement. Nothing is done, however often this is called,
        where nothing has happened and it is not time to look again."""
        folders = (self._session.common, self._session.folder)
        stamps = [_stamp(folder) for folder in folders]
        if stamps != self._stamps:
            self._rereads = 0
        elif self._again_at is None or time.monotonic() < self._again_at:
            return
        self._again_at = None
        self._stamps = stamps
        theirs, ours = (_content(folder) for folder in folders)
        if theirs is None or ours is None:
            return
        if not self._is_begun:
            self._is_begun, self._base = True, refs.parsed(self._session.packed)
            self._digits = 2 * oid_bytes_of(settings_of(self._session.common) or b"")
        before = dict(self._base)
        ours = self._take_over(theirs, ours)
        self._bring_out(theirs, refs.parsed(ours))
        if self._base != before:
            self._session.packed = _written(self._base)

    def _take_over(self, theirs: bytes, ours: bytes) -> bytes:
        """Put into the copy what the host has packed or deleted; return what the copy holds then."""
        host, inside = refs.parsed(theirs), refs.parsed(ours)
        changed = {
            name: host.get(name, "")
            for name in host.keys() | self._base.keys()
            if host.get(name) != self._base.get(name) and inside.get(name) == self._base.get(name)
        }
        if not changed:
            return ours
        merged = {name: value for name, value in (inside | changed).items() if value}
        content = theirs if merged == host else _written(merged)
        if not self._replace(self._session.folder, ours, content):
            self._plan_reread()
            return ours
        for name, value in changed.items():
            self._agree(name, value)
        return content

    def _bring_out(self, theirs: bytes, inside: dict[str, str]) -> None:
        """Pack refs on the host that were packed inside, and have no file any more."""
        common, host = self._session.common, refs.parsed(theirs)
        packed = {}
        for name, value in inside.items():
            if value == host.get(name):
                self._agree(name, value)  # both have packed it
            known = self._base.get(name)
            if value == known or host.get(name, known) != known or len(value) != self._digits:
                continue  # where the host has none, it deleted what it had packed, and the file is from afterwards
            if stat.S_ISREG(mode_of(f"{common}/{name}")):
                self._plan_reread()  # git may be about to remove it
            else:
                packed[name] = value
        all_names = host.keys() | inside.keys() if packed else set()
        in_order = sorted(all_names)
        packed = {name: value for name, value in packed.items() if _fits(common, name, all_names, in_order)}
        if packed and self._replace(common, theirs, _added(theirs, packed)):
            self._base |= packed
        elif packed:
            self._plan_reread()

    def _agree(self, name: str, value: str) -> None:
        if value:
            self._base[name] = value
        else:
            self._base.pop(name, None)

    def _plan_reread(self) -> None:
        if self._again_at is None and self._rereads < len(AGAIN_S):
            self._again_at = time.monotonic() + AGAIN_S[self._rereads]
            self._rereads += 1

    def _replace(self, path: str, before: bytes, content: bytes) -> bool:
        """Replace the packed refs in a folder as git does; False where git is at it, or has been since they were
        `before`."""
        try:
            with Descriptor(opened_folder(path)) as folder:
                put(folder, LOCK, content)
                try:
                    if (content_of(folder, NAME, BYTES_MAX) or b"") != before:
                        raise FileExistsError
                    if path == self._session.common:
                        _make_lasting(folder, mode_of(f"{path}/{NAME}") or mode_of(f"{path}/HEAD"))
                    os.rename(LOCK, NAME, src_dir_fd=folder, dst_dir_fd=folder)
                except OSError:
                    os.unlink(LOCK, dir_fd=folder)
                    raise
        except OSError:
            return False
        return True


def _fits(common: str, name: str, known: Set[str], names: Sequence[str]) -> bool:
    """Return whether git could make the file of a ref beside those that are known, whose sorted names are `names`: else
    the host's git could not delete the ref. The end reports it then (refs.py)."""
    if len(os.fsencode(name)) > NAME_BYTES_MAX or is_folder(f"{common}/{name}"):
        return False
    from bisect import bisect_left  # seldom needed

    after = bisect_left(names, f"{name}/")
    if after < len(names) and names[after].startswith(f"{name}/"):
        return False
    above = os.path.dirname(name)
    while "/" in above:
        if above in known or stat.S_ISREG(mode_of(f"{common}/{above}")):
            return False
        above = os.path.dirname(above)
    return True


def _make_lasting(folder: int, mode: int) -> None:
    """Give the new file in an open folder the mode of the one before, and flush it. Raises OSError."""
    with Descriptor(os.open(LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)) as file:
        os.fchmod(file, stat.S_IMODE(mode) & 0o666)
        os.fsync(file)


def _added(content: bytes, packed: dict[str, str]) -> bytes:
    """Return a file of packed refs with more of them. Its other lines stay but for the first, by which it is sorted."""
    lines: list[bytes] = []
    is_left_out = False
    for line in content.split(b"\n"):
        if not line.startswith(b"^"):  # else it is what the tag before leads to
            name = line.partition(b" ")[2].decode(errors="surrogateescape")
            is_left_out = not line or line.startswith(b"#") or name in packed
        if not is_left_out:
            lines.append(line + b"\n")
    return b"".join(lines) + _written(packed)


def _written(values: dict[str, str]) -> bytes:
    return "".join(f"{value} {name}\n" for name, value in sorted(values.items())).encode(errors="surrogateescape")


def _stamp(folder: str) -> Stamp | None:
    try:
        return stamp_of(os.lstat(f"{folder}/{NAME}"))
    except OSError:
        return None


def _content(path: str) -> bytes | None:
    """Return the packed refs of a folder, empty if it has none; None if they cannot be read, or are too many."""
    try:
        with Descriptor(opened_folder(path)) as folder:
            content = content_of(folder, NAME, BYTES_MAX)
    except OSError:
        return None
    return content if content is not None or mode_of(f"{path}/{NAME}") else b""
