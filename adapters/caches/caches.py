"""All tool caches of this user: their inspection, and their removal while nobody uses them.

What is removed was written by programs in a sandbox. It is moved into the trash first, where nobody finds it: its name
is free at once, and the next removal continues with what an interrupted one leaves.
"""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from omac.adapters.caches.size import Size, measured
from omac.adapters.caches.tree import CacheRoot, hold, marked, open_root
from omac.adapters.files import lock
from omac.adapters.files.descriptor import FOLDER_FLAGS, Descriptor
from omac.adapters.files.emptying import Step, clear, move
from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.sandbox.cache_eviction import Cache
from omac.domain.sandbox.tool_cache import is_cache_id

TRASH = ".trash"
TRIES = 3  # who only looks holds a lock for a moment, too
PAUSE_S = 0.01


@contextmanager
def opened(environment: Mapping[str, str], step: Step) -> Iterator["Caches | None"]:
    """Yield all caches; None where there has never been one. Raises Refusal (cache-unsafe)."""
    root = open_root(environment, make=False)
    if root is None:
        yield None
        return
    try:
        yield Caches(root, step)
    except OSError as error:
        path = error.filename if isinstance(error.filename, str) and error.filename.startswith("/") else root.path
        message = f"the tool caches in {path} cannot be used: {error.strerror or error}"
        raise Refusal("cache-unsafe", message, fix=[f"ls -la {quoted(root.path)}"]) from error
    finally:
        root.close()


class Caches:
    """The caches below one root; `step` gets the number of names that were visited or removed, now and then."""

    def __init__(self, root: CacheRoot, step: Step) -> None:
        self._root = root
        self._step = step

    @property
    def path(self) -> str:
        """The folder that holds them."""
        return self._root.path

    def ids(self) -> list[str]:
        """Return the names of the caches, sorted: every name of that form, whether usable or not. Raises OSError."""
        return sorted(name for name in os.listdir(self._root.folder) if is_cache_id(name))

    def inspect(self, identity: str) -> Cache:
        """Return one cache as it is now. Raises OSError."""
        workdir, size = "", Size(0, True)
        with (
            suppress(NotADirectoryError),
            Descriptor(os.open(identity, FOLDER_FLAGS, dir_fd=self._root.folder)) as folder,
        ):
            with suppress(OSError):  # a marker that cannot be read names none
                workdir = os.fsdecode(marked(folder) or b"")
            size = measured(folder, self._step)
        return Cache(
            identity,
            workdir,
            os.path.join(self._root.path, identity),
            size.bytes,
            size.whole,
            self._last_used(identity),
            self._in_use(identity),
            bool(workdir) and os.path.isdir(workdir),
        )

    def take_away(self, identity: str, token: str, last_used: int | None = None) -> bool:
        """Move a cache to the trash, under the new name `token`; False if it is in use. Raises OSError.

        With `last_used`, as `inspect` returned it, also return False if the cache was used meanwhile.
        """
        used = self._lock_time(identity)
        held = self._exclusive(identity)
        if held is None:
            return False
        with Descriptor(held):
            if last_used is not None and used is not None and used != last_used:
                return False
            with suppress(FileNotFoundError), Descriptor(self._trash()) as trash:
                os.mkdir(token, 0o700, dir_fd=trash)
                with Descriptor(os.open(token, FOLDER_FLAGS, dir_fd=trash)) as draft:
                    move(self._root.folder, identity, draft, "0")
            os.unlink(f"{identity}.lock", dir_fd=self._root.locks)  # who waits for it finds out, and takes a new one
        return True

    def empty_trash(self) -> list[str]:
        """Remove what is in the trash, from now or from a run that was cut off. Return what could not be removed, and
        why. Raises OSError."""
        problems: list[str] = []
        with Descriptor(self._trash()) as trash:
            for token in os.listdir(trash):
                try:
                    heap = os.open(token, FOLDER_FLAGS, dir_fd=trash)
                except FileNotFoundError:
                    continue  # another process was first
                with Descriptor(heap):
                    if not lock.try_acquire(heap):
                        continue  # another process is at it
                    folder = os.path.join(self._root.path, TRASH, token)
                    problems += [f"{folder}: {text}" for text in clear(heap, self._step)]
                with suppress(OSError):  # the rest of it is reported
                    os.rmdir(token, dir_fd=trash)
        return problems

    def _trash(self) -> int:
        with suppress(FileExistsError):
            os.mkdir(TRASH, 0o700, dir_fd=self._root.folder)
        return os.open(TRASH, FOLDER_FLAGS, dir_fd=self._root.folder)

    def drop_loose_locks(self) -> None:
        """Remove the locks of caches that are not there. Raises OSError."""
        for name in os.listdir(self._root.locks):
            identity = name.removesuffix(".lock")
            if not is_cache_id(identity) or self._is_there(identity):
                continue
            held = self._exclusive(identity)
            if held is None:
                continue
            with Descriptor(held):
                if not self._is_there(identity):
                    os.unlink(name, dir_fd=self._root.locks)

    def _is_there(self, identity: str) -> bool:
        try:
            os.stat(identity, dir_fd=self._root.folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def _last_used(self, identity: str) -> int:
        used = self._lock_time(identity)
        if used is None:
            used = os.stat(identity, dir_fd=self._root.folder, follow_symlinks=False).st_mtime_ns
        return used

    def _lock_time(self, identity: str) -> int | None:
        """Return when the cache was last used, in ns: the modification time of its lock; None without a lock."""
        try:
            return os.stat(f"{identity}.lock", dir_fd=self._root.locks, follow_symlinks=False).st_mtime_ns
        except FileNotFoundError:
            return None

    def _in_use(self, identity: str) -> bool:
        if self._lock_time(identity) is None:
            return False  # looking at it makes no lock: its time says when the cache was used
        held = self._exclusive(identity)
        if held is not None:
            os.close(held)
        return held is None

    def _exclusive(self, identity: str) -> int | None:
        """The lock, held; None if the cache is in use."""
        for attempt in range(TRIES):
            if attempt:
                time.sleep(PAUSE_S)
            with suppress(BlockingIOError):
                return hold(self._root, identity)
        return None
