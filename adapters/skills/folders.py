"""Project directories and the skill folders in them, read without leaving the project.

An agent in a sandbox may write all of it while omac reads, outside that sandbox. So a path is resolved once, checked,
and then opened part by part without following links: a link that appears in between is an error, never a way out.
"""

import os
import shlex
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from omac.adapters.skills.canonical import PATH_BYTES_MAX, OutsideRootsError, canonical_folder
from omac.adapters.skills.code_hash import code_hash_of
from omac.adapters.skills.digest_cache import LiveCode, LiveTrees
from omac.adapters.skills.discovery import discover, global_roots, workdir_roots
from omac.adapters.skills.paths import is_utf8
from omac.adapters.skills.worker_pool import THREADS_MAX, Pool
from omac.domain.kernel.exhaustion import is_exhaustion
from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.kernel.terminal_escaping import printable
from omac.domain.skills.meta import FoundSkill
from omac.journal.folders import write_command

CANONICAL = Pool("omac.canonical", per_key_max=THREADS_MAX)
LOOKS = Pool("omac.looks")
WORKDIRS_MAX = 1024  # remembered as such
NOTHING: Mapping[str, str] = MappingProxyType({})


class DiskSkillFolders:
    """The SkillFolders port on a local disk: each call is one hop to a worker thread.

    `environment` says where the folders of this user are (HOME, XDG_CONFIG_HOME). A cancelled call leaves its thread
    to end alone, which it does soon; it only reads. No project can take the threads that others need.
    """

    def __init__(self, environment: Mapping[str, str] = NOTHING) -> None:
        self._environment = environment
        self._trees = LiveTrees()
        self._code = LiveCode()
        self._shared_code = LiveCode()  # no project makes omac forget it
        self._workdirs: dict[str, None] = {}

    async def canonical(self, path: str, roots: Sequence[str]) -> str:
        """Implement SkillFolders: return the canonical path of a directory. One that may not be read, or whose name is
        not UTF-8, is a bad-request."""
        return await CANONICAL.run("", lambda: _canonical(path, tuple(roots)))

    async def discover(self, workdir: str, bases: Sequence[str], *, guidance: bool = False) -> list[FoundSkill]:
        """Implement SkillFolders: return the skills of a project; `workdir` must be canonical. A fault that keeps a
        skill from being read becomes its `problem`.

        With `guidance`, the skills without a sidecar whose name no other skill has follow the others. Their `guide` is
        set, and their `meta` is None or has no sidecar.
        """
        self._workdirs.pop(workdir, None)
        self._workdirs[workdir] = None
        if len(self._workdirs) > WORKDIRS_MAX:
            del self._workdirs[next(iter(self._workdirs))]
        roots, code_hash = workdir_roots(workdir, bases), self._code.code_hash
        return await LOOKS.run(workdir, lambda: discover(roots, code_hash, guidance=guidance))

    async def discover_global(self, bases: Sequence[str], *, guidance: bool = False) -> list[FoundSkill]:
        """Implement SkillFolders: return the skills of this user, none without HOME. `guidance` is as for
        `discover`."""
        roots, code_hash = global_roots(self._environment, bases), self._shared_code.code_hash
        return await LOOKS.run("", lambda: discover(roots, code_hash, guidance=guidance))

    async def bundle_hash(self, source: str) -> str:
        """Implement SkillFolders: return the bundle hash of a skill folder. `source` must be canonical: a link on the
        way raises OSError too."""
        return await LOOKS.run(self._owner(source), lambda: code_hash_of(source, {}))

    async def digest(self, source: str) -> str:
        """Implement SkillFolders: return the digest of a skill folder; `source` must be canonical. An OSError names the
        culprit, also a file that cannot be copied.

        A folder that has not changed since it was last read is not read again.
        """
        return await LOOKS.run(self._owner(source), lambda: self._trees.digest(source))

    def _owner(self, source: str) -> str:
        """The project that a skill is in; of one in none that is known, the folder of skills."""
        above = os.path.dirname(source)
        path = above
        while path not in self._workdirs:
            if path == os.path.dirname(path):
                return above
            path = os.path.dirname(path)
        return path


def _canonical(path: str, roots: tuple[str, ...]) -> str:
    if not isinstance(path, str) or "\0" in path:
        raise Refusal("bad-request", "a directory must be an absolute path: text without NUL")
    if not is_utf8(path):
        raise _not_utf8(path)
    if not path.startswith("/"):
        raise Refusal("bad-request", f"{printable(path)!r} is a relative path; give an absolute path")
    if len(path.encode()) > PATH_BYTES_MAX:
        raise Refusal("bad-request", f"a directory's path has at most {PATH_BYTES_MAX} bytes; give a shorter one")
    shown = printable(path)
    try:
        folder = canonical_folder(path, roots)
    except OutsideRootsError:
        raise _outside(shown, roots) from None
    except FileNotFoundError:
        raise Refusal(
            "directory-missing", f"{shown} does not exist; create it or give another path", fix=[_list_parent(path)]
        ) from None
    except NotADirectoryError:
        raise Refusal(
            "not-a-directory", f"not a directory: {shown}; give the directory that holds it", fix=[_list_parent(path)]
        ) from None
    except OSError as error:
        message = f"{shown} cannot be read ({error.strerror or type(error).__name__})"
        if is_exhaustion(error):  # it says nothing about the directory
            raise Refusal("state-unusable", message, fix=[write_command(error, path)]) from None
        raise Refusal("bad-request", f"{message}; give a directory omac may read", fix=[_list_parent(path)]) from None
    if not is_utf8(folder):
        raise _not_utf8(folder)
    return folder


def _not_utf8(path: str) -> Refusal:
    return Refusal("bad-request", f"{printable(path)} is not a UTF-8 path; rename the directory")


def _outside(shown: str, roots: tuple[str, ...]) -> Refusal:
    """The one answer for whatever lies outside; its command names no path that an agent asked for."""
    allowed = ", ".join(printable(root) for root in roots) or "none"
    command = ["omac", "serve", "--no-inner", *(part for root in roots for part in ("--root", root))]
    text = f"{shown} is not under any allowed --root (allowed: {allowed})"
    return Refusal("outside-roots", text, fix=[f"{shlex.join(command)} --root DIR  # in place of the server that runs"])


def _list_parent(path: str) -> str:
    """The command that shows what there is instead."""
    return f"ls -la {quoted(os.path.dirname(path.rstrip('/')) or '/')}"
