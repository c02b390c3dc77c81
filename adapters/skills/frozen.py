"""Approved copies of skills: read-only, addressed by the digest over every file, out of every agent's reach.

A copy is made in private and becomes one by a rename, so there are whole ones only. What lies here is changed under
a lock that all processes share: a copy that was just found good is not removed as an old one.
"""

import contextlib
import errno
import os
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from omac.adapters.files import atomic, lock
from omac.adapters.files.descriptor import Descriptor
from omac.adapters.skills.links import Uncopyable
from omac.adapters.skills.reading import SinkFailed, read_tree
from omac.adapters.skills.relocation import Relocation
from omac.adapters.skills.staging import STAGING_PREFIX, Staging, remove_tree
from omac.adapters.skills.stat_fingerprint import file_system_now_ns
from omac.adapters.skills.verifying import check_copy, manifest_path
from omac.adapters.skills.worker_pool import Pool
from omac.domain.kernel.paths import below
from omac.domain.kernel.refusal import Refusal, list_command, quoted
from omac.domain.kernel.terminal_escaping import printable
from omac.journal.folders import make_private
from omac.services.ports import CopyDamaged, Frozen

PRUNED_AFTER_NS = 3600 * 10**9
DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
LOCK_FILE = ".lock"
COPIES = Pool("omac.copies")


class DiskFrozenSkills:
    """The FrozenSkills port in `folder`, which is made where it is missing: each call is one hop to a worker thread.

    A cancelled call leaves its thread to end alone: the copy is made, or it is not. Those for the skills of one
    folder do not take the threads that others need. `step` gets the number of files copied, from these threads.
    """

    def __init__(self, folder: str, step: Callable[[int], None] = lambda count: None) -> None:
        self._folder = os.path.realpath(folder)
        self._step = step

    async def freeze(self, source: str) -> Frozen:
        """Implement FrozenSkills: copy a skill folder; `source` must be canonical. A damaged copy is replaced. Raises
        Refusal (state-unusable) too, if other users could change the copies."""
        return await COPIES.run(os.path.dirname(source), lambda: self._freeze(source))

    async def checked(self, digest: str, source: str) -> str:
        """Implement FrozenSkills: return the path of an unchanged copy; `source` must be the path that the copy was
        made of."""
        return await COPIES.run(os.path.dirname(source), lambda: self._checked(digest, source))

    async def prune(self, kept: Collection[str]) -> list[str]:
        """Remove copies that are neither `kept` nor new, and return their digests. A copy is new that was made, or
        asked for again, in the last hour."""
        wanted = frozenset(kept)
        return await COPIES.run("", lambda: self._prune(wanted))

    def _freeze(self, source: str) -> Frozen:
        self._prepare()
        if below(self._folder, source):
            raise Refusal("skill-invalid", f"{printable(source)} holds the folder of approved copies; move the skill")
        staging = Staging(self._folder, self._step)
        try:
            tree = read_tree(source, staging, os.fsencode(self._folder))
            digest = tree.digest()
            path = self._path(digest)
            with self._locked():
                if not self._renewed(path, source):
                    staging.complete(tree, Relocation(os.fsencode(source), os.fsencode(path)))
                    self._publish(staging.path, path)
                    check_copy(path, source)
            return Frozen(tree.bundle_hash(), digest)
        except Uncopyable as error:
            text = f"{printable(str(error.filename))} {error.strerror}"
            raise Refusal("skill-invalid", text, fix=error.fix) from None
        except SinkFailed as failed:
            raise failed.error from None
        except CopyDamaged as error:
            raise OSError(errno.EIO, f"the copy just written is missing ({error})", self._folder) from error
        finally:
            staging.drop()

    def _renewed(self, path: str, source: str) -> bool:
        """Return whether an undamaged copy exists already; such a copy counts as new from now on."""
        try:
            check_copy(path, source)
        except CopyDamaged:
            return False
        with contextlib.suppress(OSError):
            os.utime(manifest_path(path))
        return True

    def _publish(self, staged: str, path: str) -> None:
        """Put the staged copy at its path, in place of what cannot be used there."""
        if os.path.lexists(path):
            os.rename(path, f"{staged}.damaged")
        os.rename(staged, path)
        atomic.sync_folder(self._folder)
        _remove(f"{staged}.damaged")

    def _checked(self, digest: str, source: str) -> str:
        path = self._path(digest)
        check_copy(path, source)
        return path

    def _path(self, digest: str) -> str:
        match = DIGEST.fullmatch(digest)
        if match is None:
            raise CopyDamaged(f"{digest!r} is not the digest of an approved copy")
        return os.path.join(self._folder, match[1])

    def _prune(self, kept: frozenset[str]) -> list[str]:
        removed: list[str] = []
        if not os.path.isdir(self._folder):
            return removed
        with self._locked():
            before_ns = file_system_now_ns() - PRUNED_AFTER_NS
            for name in sorted(os.listdir(self._folder)):
                path = os.path.join(self._folder, name)
                digest = f"sha256:{name}"
                if name.startswith(STAGING_PREFIX) and _changed_ns(path) < before_ns:
                    _remove(path)
                elif DIGEST.fullmatch(digest) and digest not in kept and self._age_ns(path) < before_ns:
                    away = os.path.join(self._folder, f"{STAGING_PREFIX}{name}")  # what is half removed is no copy
                    os.rename(path, away)
                    removed.append(digest)
                    _remove(manifest_path(path))
                    _remove(away)
                elif name.endswith(".stat") and not os.path.lexists(path.removesuffix(".stat")):
                    _remove(path)
        return removed

    def _age_ns(self, path: str) -> int:
        """Return the time when the copy was made or last asked for, in nanoseconds since 1970 UTC."""
        return max(_changed_ns(path), _changed_ns(manifest_path(path)))

    def _prepare(self) -> None:
        """Make the folder. Raises Refusal (state-unusable) for one that others could change."""
        make_private(self._folder)
        status = os.lstat(self._folder)
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            message = f"the folder of approved copies {self._folder} is writable by other users"
            fix = [list_command(self._folder), f"chmod 700 {quoted(self._folder)}"]
            raise Refusal("state-unusable", message, fix=fix)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with Descriptor(lock.open_file(os.path.join(self._folder, LOCK_FILE))) as descriptor:
            lock.acquire(descriptor)
            yield


def _changed_ns(path: str) -> int:
    try:
        return os.lstat(path).st_ctime_ns
    except OSError:
        return 0


def _remove(path: str) -> None:
    """Remove a file, a link or a folder, as far as possible, following no link."""
    if os.path.isdir(path) and not os.path.islink(path):
        remove_tree(path)
    else:
        with contextlib.suppress(OSError):
            os.unlink(path)
