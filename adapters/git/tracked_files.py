"""The state of a worktree, read from git's files without running git: its commit, and which files its index has."""

from __future__ import annotations

import os
import stat
import time

from omac.adapters.files import bounded
from omac.adapters.git import pointers, refs
from omac.adapters.git.inspection import Finding
from omac.domain.git.grammar import is_oid
from omac.domain.kernel.refusal import Refusal
from omac.domain.sandbox.autorun_files import Obeyed
from omac.domain.sandbox.autorun_files import described as sentence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping

    from omac.adapters.git.genuine_objects import GenuineObjects
    from omac.domain.git.folder import Folder

COMPARED_WITHIN_S = 5.0  # all objects of one repository
INDEX_BYTES_MAX = 32 << 20
COPY_BYTES_MAX = 4 << 20  # of a file that is compared with the one it may be a copy of
NONE = ("", b"", False)  # a commit has no blob there
FORGED = ("", b"", True)
_EXECUTABLE = b"100755"
_FILE_MODES = (b"100644", _EXECUTABLE)
_LENGTH_BITS = 0xFFF  # of an entry's flags, before its name (gitformat-index(5))
_EXTENDED = 0x40  # of the first byte of its flags: two more follow
_NAME_ENDS_WITHIN = 4_100  # bytes from the flags: no system call takes a longer path


def commit_of(git: str, common: str) -> str:
    """Return the commit that HEAD of a git folder names; empty: it has none yet, or cannot be read."""
    try:
        head = (pointers.read(f"{git}/HEAD", pointers.BYTES_MAX) or b"").decode(errors="replace").strip()
        if is_oid(head):
            return head
        name = head.removeprefix("ref: ")
        if not refs.is_name(name):
            return ""
        loose = (pointers.read(f"{common}/{name}", pointers.BYTES_MAX) or b"").decode(errors="replace").strip()
        if is_oid(loose):
            return loose
        packed = pointers.read(f"{common}/packed-refs", refs.BYTES_MAX) or b""
        at = packed.find(f" {name}\n".encode(errors="replace"))
        value = packed[packed.rfind(b"\n", 0, max(at, 0)) + 1 : max(at, 0)].decode(errors="replace")
        return value if is_oid(value) else ""
    except Refusal:
        return ""


def names_of(git: str, oid: str) -> list[str]:
    """Return the names of entries of the index of a git folder that have an object; of an index of version 4 none."""
    index = pointers.read_leniently(f"{git}/index", INDEX_BYTES_MAX)
    names, wanted = [], bytes.fromhex(oid)
    at = index.find(wanted) if index[4:8] in (b"\0\0\0\2", b"\0\0\0\3") else -1
    while at >= 0:
        flags = at + len(wanted)
        is_extended = int.from_bytes(index[flags : flags + 1], "big") & _EXTENDED  # an agent's index may end anywhere
        name, _, _ = index[flags + (4 if is_extended else 2) : flags + _NAME_ENDS_WITHIN].partition(b"\0")
        names.append(name.decode(errors="surrogateescape"))
        at = index.find(wanted, flags + len(name))
    return names


def tracked_of(git: str, names: Iterable[str]) -> set[str]:
    """Return those names that the index of a git folder has; of an index of version 4 some may be missing."""
    index = pointers.read_leniently(f"{git}/index", INDEX_BYTES_MAX)
    return {name for name in names if _has(index, name)}


def described(
    obeyed: Iterable[tuple[str, str, str]],
    folders: Mapping[str, Folder],
    commits: Mapping[str, str],
    had: Container[str],
    worktrees: Mapping[str, Iterable[str]],
    named: Mapping[str, str],
) -> Iterator[Finding]:
    """Yield a finding for each (project, path in it, who obeys it), with the command that shows what is new. `had`:
    the paths of files that were there at launch, which alone can be in the commit of that time.

    There is none for a new file in a linked worktree that is as it was in that commit. `worktrees` are folders by the
    git folder that their `.git` names, `named` what settings name, with who obeys it.
    """
    before = {
        project: _Commit(project, _git_of(project, folders), commits.get(project, "")) for project, _, _ in obeyed
    }
    linked = _linked(before, folders, worktrees)
    try:
        for project, path, who in obeyed:
            file = f"{project}/{path}"
            is_new = file not in had
            if is_new and _is_copy(file, who, linked, named):
                continue
            blob, _, is_forged = NONE if is_new else before[project].blob_of(path)
            text = sentence(project, path, who, since=blob, is_forged=is_forged)
            yield Finding(file, text, group="" if blob or is_forged else who)
    finally:
        for commit in before.values():
            commit.close()


def _linked(
    before: Mapping[str, _Commit], folders: Mapping[str, Folder], worktrees: Mapping[str, Iterable[str]]
) -> dict[str, _Commit]:
    """Return for each linked worktree that the launch did not know the commit of a project in the same repository: the
    first one, where several launches are inspected together."""
    known = {folder.worktree for folder in folders.values()}
    repositories: dict[str, _Commit] = {}
    for folder in folders.values():
        if folder.worktree in before and before[folder.worktree].is_known:
            repositories.setdefault(folder.common, before[folder.worktree])
    return {
        root: repositories[common]
        for git, roots in worktrees.items()
        if (common := git.rpartition("/worktrees/")[0]) in repositories
        for root in roots
        if root not in known
    }


def _is_copy(file: str, who: str, linked: Mapping[str, _Commit], named: Mapping[str, str]) -> bool:
    """Return whether a file is in a linked worktree as its commit has it, where `who` obeys it wherever that lies."""
    root = os.path.dirname(file)
    while root not in linked:
        if len(root) <= 1:
            return False
        root = os.path.dirname(root)
    path = file[len(root) + 1 :]
    by = Obeyed(os.path.dirname(path)).by(os.path.basename(path))
    return (by or _named_by(f"{linked[root].project}/{path}", named)) == who and linked[root].has(path, file)


def _named_by(path: str, named: Mapping[str, str]) -> str | None:
    """Return who obeys a path because settings name it, or a folder around it; None: nobody."""
    while path not in named and len(path) > 1:
        path = os.path.dirname(path)
    return named.get(path)


class _Commit:
    """The files of a commit of a project, whose git folder is `git`; none where either is empty."""

    def __init__(self, project: str, git: str, commit: str) -> None:
        self.project = project
        self._git = git
        self._commit = commit
        self._index = pointers.read_leniently(f"{git}/index", INDEX_BYTES_MAX) if git and commit else b""
        self._objects: GenuineObjects | None = None
        self._deadline = 0.0
        self._blobs: dict[str, tuple[str, bytes, bool]] = {}

    @property
    def is_known(self) -> bool:
        """Return whether the launch noted the commit."""
        return self._commit != ""

    def blob_of(self, path: str) -> tuple[str, bytes, bool]:
        """Return the name of the blob at a path, empty if it has none, and its mode; and whether an object on the way
        to it, or the blob, is not what its name says."""
        now = time.monotonic()
        self._deadline = self._deadline or now + COMPARED_WITHIN_S
        if now > self._deadline:
            return FORGED
        if path not in self._blobs:  # of several worktrees, a path is read once
            self._blobs[path] = self._read(path)
        return self._blobs[path]

    def _read(self, path: str) -> tuple[str, bytes, bool]:
        if not _has(self._index, path):  # of a long index that takes a while, too
            return NONE
        from omac.adapters.git.genuine_objects import ForgedObject, GenuineObjects  # here, for few launches need it

        try:
            self._objects = self._objects or GenuineObjects(self._git, self._deadline)
            return (*self._objects.blob_of(self._commit, path), False)
        except (ForgedObject, OSError, ValueError):
            self.close()  # where it stopped reading is not where an answer begins
            return FORGED

    def has(self, path: str, file: str) -> bool:
        """Return whether the commit has a file of this content at a path, and one to be executed if this one can be."""
        blob, mode, _ = self.blob_of(path)
        if mode not in _FILE_MODES:
            return False
        from omac.adapters.git.genuine_objects import name_of

        try:
            content, status = bounded.read_with_status(file, COPY_BYTES_MAX)
        except OSError:
            return False
        is_executable = status.st_mode & stat.S_IXUSR != 0
        return (mode == _EXECUTABLE or not is_executable) and name_of(b"blob", content, like=blob) == blob

    def close(self) -> None:
        """End git, where it was begun."""
        if self._objects is not None:
            self._objects.close()
            self._objects = None


def _git_of(project: str, folders: Mapping[str, Folder]) -> str:
    return next((path for path, folder in folders.items() if folder.worktree == project and not folder.only), "")


def _has(index: bytes, path: str) -> bool:
    """Return whether an index has an entry of this name; of version 4 only those whose whole name is written there."""
    name = path.encode(errors="surrogateescape")
    at = index.find(name + b"\0")
    while at >= 0:
        if int.from_bytes(index[at - 2 : at], "big") & _LENGTH_BITS == min(len(name), _LENGTH_BITS):
            return True
        at = index.find(name + b"\0", at + 1)
    return False
