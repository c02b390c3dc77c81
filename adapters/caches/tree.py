"""A workdir's tool cache on disk: made or verified at a launch, and held for as long as the launched runs.

    ~/.cache/omac/                    the root; $XDG_CACHE_HOME/omac where that is set and absolute
        0123456789ab/                 one workdir's, 0700
            workdir                   the marker: the canonical path of the workdir, and a newline
            tools/                    all that a sandbox is granted of it
        .locks/0123456789ab.lock      shared by those who use it, exclusive to those who make or remove it; its time of
                                      change is when the cache was last used
        .trash/                       what is being removed

Nothing above `tools` is within a sandbox's reach, so a marker says what omac wrote. Each component is opened by its
name in its open parent and never through a link, and is a folder of the user's own that nobody else can change.
"""

from __future__ import annotations

import errno
import os
import stat
import time

from omac.adapters.files import atomic, lock
from omac.adapters.files.descriptor import FOLDER_FLAGS, Descriptor
from omac.adapters.linux.home import home_of
from omac.domain.kernel import PlainData
from omac.domain.kernel.digest import sha256_hex
from omac.domain.kernel.refusal import Refusal, list_command, quoted
from omac.domain.sandbox.tool_cache import cache_id
from omac.journal.folders import write_command

TYPE_CHECKING = False  # importing typing would take longer than all the rest
if TYPE_CHECKING:
    from collections.abc import Mapping

MARKER = "workdir"
TOOLS = "tools"
LOCKS = ".locks"
WAIT_S = 5.0  # for whoever makes or removes the same cache: that takes them an instant
PAUSE_S = 0.005

_FILE_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PATH_BYTES_MAX = 4096
_DRAFT = "workdir.new"  # a draft's name begins with it
_OTHERS_WRITE = 0o022
_OTHERS = 0o077
_WITHOUT = "omac sandbox run --ephemeral-cache -- COMMAND  # with a temporary cache"


class ToolCache:
    """A workdir's cache that this process uses. `path` is the folder to be granted, `root` that of all caches."""

    def __init__(self, root: str, path: str, lock: int) -> None:
        self.root = root
        self.path = path
        self._lock = lock

    def end(self) -> None:
        """Release the cache; the end of the process does so too."""
        if self._lock >= 0:
            os.utime(self._lock)
            os.close(self._lock)
            self._lock = -1


def open_cache(workdir: str, environment: Mapping[str, str]) -> ToolCache:
    """The cache of a canonical workdir, made where it is missing, and not removed by anybody until it ends. Raises
    Refusal: cache-unsafe, contention."""
    identity = identity_of(workdir)
    root = open_root(environment, make=True)
    assert root is not None
    try:
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                held = hold(root, identity, shared=True)
            except BlockingIOError:
                _pause(root, identity, deadline)
                continue
            try:
                if _verified(root, identity, workdir):
                    os.utime(held)
                    return ToolCache(root.path, os.path.join(root.path, identity, TOOLS), held)
            except BaseException:
                os.close(held)
                raise
            os.close(held)
            try:
                held = hold(root, identity)
            except BlockingIOError:  # another launch makes it, or has made and uses it: what is there now?
                _pause(root, identity, deadline)
                continue
            with Descriptor(held):
                _make(root, identity, workdir)
    except OSError as error:
        raise _unusable(os.path.join(root.path, identity), error) from None
    finally:
        root.close()


def held_path(workdir: str, environment: Mapping[str, str]) -> str:
    """Return the path of the cache, as `open_cache` makes it, which nobody removes until this process ends. Raises
    Refusal: cache-unsafe, contention."""
    return open_cache(workdir, environment).path


def path_of(workdir: str, environment: Mapping[str, str]) -> str:
    """Return the path of the cache that `open_cache` would return; nothing is inspected, made or held. Raises Refusal
    (cache-unsafe)."""
    return os.path.join(root_of(environment), identity_of(workdir), TOOLS)


def root_of(environment: Mapping[str, str]) -> str:
    """The folder of all caches, whether it is there or not. Raises Refusal (cache-unsafe)."""
    return os.path.join(*_home(environment), "omac")


def identity_of(workdir: str) -> str:
    """The name of the cache of a canonical workdir."""
    return cache_id(sha256_hex(os.fsencode(workdir)))


class CacheRoot(PlainData):
    """The folder of all caches, open: `folder` is its descriptor, `locks` that of the folder of locks."""

    path: str
    folder: int
    locks: int

    def close(self) -> None:
        os.close(self.locks)
        os.close(self.folder)


def open_root(environment: Mapping[str, str], make: bool) -> CacheRoot | None:
    """The folder of all caches; None where it is missing and not to be made. Raises Refusal (cache-unsafe)."""
    above, home = _home(environment)
    path = os.path.join(above, home, "omac")
    passed: list[int] = []
    try:
        if make and environment.get("XDG_CACHE_HOME", "").startswith("/"):  # a home that is missing is not ours to make
            os.makedirs(above, 0o700, exist_ok=True)
        passed.append(os.open(above, FOLDER_FLAGS))
        _require_safe(os.fstat(passed[0]), above, own=False)
        passed.append(_enter(passed[0], home, os.path.join(above, home), make, own=False))
        passed.append(_enter(passed[1], "omac", path, make))
        passed.append(_enter(passed[2], LOCKS, os.path.join(path, LOCKS), make=True))
        return CacheRoot(path, os.dup(passed[2]), os.dup(passed[3]))
    except FileNotFoundError as error:
        if make:
            raise _unusable(path, error) from None
        return None
    except OSError as error:
        raise _unusable(path, error) from None
    finally:
        for descriptor in passed:
            os.close(descriptor)


def hold(root: CacheRoot, identity: str, *, shared: bool = False) -> int:
    """Return the lock of a cache, open and acquired. Raises BlockingIOError if others hold it, OSError."""
    while True:
        flags = os.O_RDWR | os.O_CREAT | _FILE_FLAGS
        descriptor = os.open(f"{identity}.lock", flags, 0o600, dir_fd=root.locks)
        try:
            if not lock.try_acquire(descriptor, shared=shared):
                raise BlockingIOError
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
                raise OSError(errno.EPERM, "its lock is not a file you own")
        except BaseException:
            os.close(descriptor)
            raise
        if status.st_nlink:  # else it was removed between the two steps, and guards nothing
            return descriptor
        os.close(descriptor)


def marked(folder: int) -> bytes | None:
    """The workdir that the marker in a cache's open folder names; None where there is none. Raises OSError."""
    try:
        file = os.open(MARKER, os.O_RDONLY | _FILE_FLAGS, dir_fd=folder)
    except FileNotFoundError:
        return None
    with Descriptor(file):
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise OSError(errno.EPERM, "its marker is not a file you own")
        return os.read(file, _PATH_BYTES_MAX + 1).removesuffix(b"\n")


def _home(environment: Mapping[str, str]) -> tuple[str, str]:
    """The canonical folder above the user's cache folder, and the name of that."""
    home = environment.get("XDG_CACHE_HOME", "")
    if not home.startswith("/"):
        home = os.path.join(home_of(environment), ".cache")
    above, name = os.path.split(home.rstrip("/"))
    if name in ("", ".", ".."):
        fix = ["unset XDG_CACHE_HOME", _WITHOUT]
        raise Refusal("cache-unsafe", f"XDG_CACHE_HOME={home} is not a folder for caches", fix=fix)
    return os.path.realpath(above), name


def _pause(root: CacheRoot, identity: str, deadline: float) -> None:
    """Wait for others. Raises Refusal (contention) when that has taken too long."""
    if time.monotonic() >= deadline:
        path = os.path.join(root.path, LOCKS, f"{identity}.lock")
        message = f"another process has held {path} for {WAIT_S:g} s"
        raise Refusal("contention", message, fix=[f"fuser {quoted(path)}", _WITHOUT])
    time.sleep(PAUSE_S)


def _verified(root: CacheRoot, identity: str, workdir: str) -> bool:
    """Return whether the cache exists; False if it was never finished. Raises Refusal (cache-unsafe), OSError."""
    path = os.path.join(root.path, identity)
    try:
        folder = _enter(root.folder, identity, path, make=False, workdir=workdir)
    except FileNotFoundError:
        return False
    with Descriptor(folder):
        named = marked(folder)
        if named is None:
            return False
        if named != os.fsencode(workdir):
            other = os.fsdecode(named) or "none"
            message = f"{path} is the tool cache of another workdir: its marker names {other}, not {workdir}"
            raise _refusal(message, workdir)
        _require_tools(folder, path, workdir)
        return True


def _require_tools(folder: int, path: str, workdir: str) -> None:
    """A sandbox may have changed the mode of what it was granted: it shall be of use to the next one."""
    try:
        status = os.stat(TOOLS, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        raise _refusal(f"{path} is damaged: it has no {TOOLS}", workdir) from None
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise _refusal(f"{os.path.join(path, TOOLS)} is not a folder you own", workdir)
    if stat.S_IMODE(status.st_mode) != 0o700:
        os.chmod(TOOLS, 0o700, dir_fd=folder)


def _make(root: CacheRoot, identity: str, workdir: str) -> None:
    """Make a cache, or finish what was begun; the marker is the last step. Raises Refusal (cache-unsafe), OSError."""
    path = os.path.join(root.path, identity)
    with Descriptor(_enter(root.folder, identity, path, make=True, workdir=workdir)) as folder:
        if marked(folder) is not None:
            return
        try:
            for name in os.listdir(folder):
                if name.startswith(_DRAFT):
                    os.unlink(name, dir_fd=folder)
                else:
                    os.rmdir(name, dir_fd=folder)
        except OSError:
            message = f"{path} has no marker that names its workdir, so omac did not make it"
            raise _refusal(message, workdir) from None
        os.mkdir(TOOLS, 0o700, dir_fd=folder)
        atomic.replace_in(folder, MARKER, os.fsencode(workdir) + b"\n", prefix=_DRAFT)


def _enter(above: int, name: str, path: str, make: bool, own: bool = True, workdir: str = "") -> int:
    """The folder `name` in the open folder `above`, open. Raises Refusal (cache-unsafe), FileNotFoundError, OSError.

    `own`: it is omac's own, not one that other programs use too; `workdir` says whose cache it is, if it is one.
    """
    try:
        folder = _opened(above, name, make)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise _no_folder(above, name, path, workdir) from None
        raise
    try:
        _require_safe(os.fstat(folder), path, own)
    except BaseException:
        os.close(folder)
        raise
    return folder


def _opened(above: int, name: str, make: bool) -> int:
    try:
        return os.open(name, FOLDER_FLAGS, dir_fd=above)
    except FileNotFoundError:
        if not make:
            raise
    try:
        os.mkdir(name, 0o700, dir_fd=above)
    except FileExistsError:
        pass  # another process was first
    return os.open(name, FOLDER_FLAGS, dir_fd=above)


def _require_safe(status: os.stat_result, path: str, own: bool) -> None:
    """Raise Refusal (cache-unsafe) for a folder that another user owns or can write to, or, of omac's `own`, can read.
    A folder that is not `own` may belong to root, or be writable with the sticky bit."""
    if status.st_uid != os.geteuid() and (own or status.st_uid):
        message = f"{path} belongs to user {status.st_uid}, not to you ({os.geteuid()})"
        raise Refusal("cache-unsafe", message, fix=[list_command(path), _WITHOUT])
    kept = not own and status.st_mode & stat.S_ISVTX  # nobody can replace what is not theirs
    if status.st_mode & (_OTHERS if own else _OTHERS_WRITE) and not kept:
        message = f"{path} is {'writable' if status.st_mode & _OTHERS_WRITE else 'readable'} by other users"
        fix = [f"chmod {'700' if own else 'go-w'} {quoted(path)}", _WITHOUT]
        raise Refusal("cache-unsafe", message, fix=fix)


def _no_folder(above: int, name: str, path: str, workdir: str) -> Refusal:
    try:
        target: str | None = os.readlink(name, dir_fd=above)
    except OSError:
        target = None
    problem = "is no folder" if target is None else f"is a link (to {target}); omac keeps no tool caches behind links"
    if workdir:
        return _refusal(f"{path} {problem}", workdir)
    fix = [list_command(path), _WITHOUT]
    if target is not None and not path.endswith("/omac"):  # people move their whole cache folder to another disk
        fix.insert(0, f"export XDG_CACHE_HOME={quoted(os.path.realpath(path))}")
    return Refusal("cache-unsafe", f"{path} {problem}", fix=fix)


def _refusal(message: str, workdir: str) -> Refusal:
    return Refusal("cache-unsafe", message, fix=[f"omac cache clear --workdir {quoted(workdir)}", _WITHOUT])


def _unusable(path: str, error: OSError) -> Refusal:
    fix = [write_command(error, os.path.dirname(path)), _WITHOUT]
    return Refusal("cache-unsafe", f"the tool cache {path} cannot be used: {error.strerror or error}", fix=fix)
