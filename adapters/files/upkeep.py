"""The upkeep of omac's own files: what is wrong with them, and the repair of what can be repaired safely.

A file is inspected again before its repair, by a descriptor to which no link leads: where others could write, its path
may name another file by then. The journal is never opened for it (an O_PATH descriptor holds no lock, and drops none).
"""

import contextlib
import os
import stat
from collections.abc import Collection, Iterator

from omac.adapters.files.descriptor import Descriptor
from omac.adapters.files.state import StateDir
from omac.adapters.files.without_links import opened_path
from omac.domain.kernel.ids import RunId
from omac.domain.sandbox.own_files import Flaw, private_mode
from omac.journal.folders import make_private, nearest_existing

ENTRIES_MAX = 10_000  # in one folder: what is beyond is left to the next time
RUN_DEPTH = 3  # run/ID/logs/FILE, below the state directory
LEFT_ALONE = ("frozen", "set-aside")  # whose contents have modes of their own


def flaws_of(state: StateDir, public: Collection[str] = (), unended: Collection[RunId] = ()) -> tuple[Flaw, ...]:
    """Return what is wrong with the state directory, which is this user's own. `public` are files of omac's elsewhere
    which others may read and not change; `unended` are runs whose end is not recorded."""
    flaws = [flaw for path in map(_resolved, public) if (flaw := _flaw(path, is_secret=False))]
    if not os.path.isdir(state.path):
        there = nearest_existing(state.path)
        if not os.path.isdir(there):
            return (*flaws, Flaw("not-a-folder", there))
        return (*flaws, Flaw("missing", state.path) if os.access(there, os.W_OK) else _unwritable(there))
    status = os.stat(state.path)
    if status.st_mode & 0o200 and not os.access(state.path, os.W_OK):  # a mode that forbids it is a flaw of its own
        return (*flaws, _unwritable(state.path))
    own = os.path.realpath(state.path)
    flaws += [flaw for path in _own(own) if (flaw := _flaw(path, is_written=os.path.dirname(path) == own))]
    current = os.path.join(state.path, "run", "current")
    if os.path.islink(current) and not os.path.exists(current):
        flaws.append(Flaw("dangling", current))
    stale = state.stale_runs(unended)
    flaws += [Flaw("stale", path) for path in stale]
    return (*flaws, *(Flaw("sockets", path) for path in state.runs_with_dead_sockets() if path not in stale))


def _unwritable(folder: str) -> Flaw:
    return Flaw("read-only-disk" if os.statvfs(folder).f_flag & os.ST_RDONLY else "read-only", folder)


def free_bytes_at(path: str) -> int:
    """Return the bytes that this user can still write on the disk of a path, which need not exist; 0 where its files
    have run out. Raises OSError."""
    figures = os.statvfs(nearest_existing(path))
    if figures.f_files and not figures.f_favail:
        return 0
    return figures.f_bavail * figures.f_frsize


def repair(state: StateDir, flaw: Flaw, unended: Collection[RunId] = ()) -> bool:
    """Mend a flaw, and return whether that was done: False for one that is gone, or is something else by now. Raises
    OSError."""
    match flaw.kind:
        case "missing":
            make_private(flaw.path)
            return True
        case "mode":
            return _repair_mode(flaw)
        case "dangling":
            if not os.path.islink(flaw.path) or os.path.exists(flaw.path):
                return False
            os.unlink(flaw.path)
            return True
        case "stale":
            return state.remove_stale_run(flaw.path, unended)
        case "sockets":
            return state.remove_dead_sockets(flaw.path)
        case "host-id" if flaw.host is not None:
            return state.write_host_id(flaw.host)
        case _:
            return False


def _resolved(path: str) -> str:
    """The path of what may be a link, without links before it."""
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def _own(folder: str, depth: int = 0) -> Iterator[str]:
    """The paths of a folder of omac's and of what is in it; links, and what is in another user's folder, left out."""
    yield folder
    with contextlib.suppress(OSError):
        if os.lstat(folder).st_uid != os.geteuid():
            return
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for _, entry in zip(range(ENTRIES_MAX), entries, strict=False):
            if entry.is_symlink():
                continue
            is_left = depth == 0 and (entry.name in LEFT_ALONE or entry.name.startswith("frozen-"))
            if entry.is_dir(follow_symlinks=False) and depth < RUN_DEPTH and not is_left:
                yield from _own(entry.path, depth + 1)
            else:
                yield entry.path


def _flaw(path: str, *, is_secret: bool = True, is_written: bool = False) -> Flaw | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    if stat.S_ISLNK(status.st_mode):
        return None
    if status.st_uid != os.geteuid():
        return Flaw("foreign", path)
    mode = stat.S_IMODE(status.st_mode)
    is_folder = stat.S_ISDIR(status.st_mode)
    wanted = private_mode(mode, is_folder=is_folder, is_secret=is_secret, is_written=is_written)
    return Flaw("mode", path, mode, wanted) if mode != wanted else None


def _repair_mode(flaw: Flaw) -> bool:
    try:
        descriptor = opened_path(flaw.path)
    except FileNotFoundError:
        return False
    with Descriptor(descriptor):
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) != flaw.mode or stat.S_ISLNK(status.st_mode):
            return False
        os.chmod(f"/proc/self/fd/{descriptor}", flaw.wanted)
        return True
