"""What lies in the tree after the program ended and was not there before, or is not as it was.

One walk by descriptors, about a microsecond an entry: it goes into every folder but git's own, follows no link, and
stats only names that matter and what lies in a folder that has changed.
"""

from __future__ import annotations

import os
import stat

from omac.adapters.git import judging, pointers
from omac.adapters.git.layout import Layout, node_of
from omac.adapters.git.repository import is_git_folder, mode_of
from omac.adapters.git.watched import FILES, FOLDERS
from omac.domain.confinement import below
from omac.domain.refusal import Refusal

ENTRIES_MAX = 500_000
DEPTH_MAX = 200
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Strays:
    """Walk once; then `reported` has (path, what) of what a person should know, `dangerous` of what to disarm."""

    def __init__(self, workdir: str, layout: Layout, since_ns: int) -> None:
        self._workdir = workdir
        self._layout = layout
        self._since_ns = since_ns
        self._seen = 0
        self.reported: list[tuple[str, str]] = []
        self.dangerous: list[tuple[str, str]] = []

    def walk(self) -> None:
        """Look through the workdir."""
        try:
            descriptor = os.open(self._workdir, _DIRECTORY)
        except OSError as error:
            self.reported.append((self._workdir, f"cannot be looked at: {error.strerror}"))
            return
        stack: list[tuple[int, str, list[tuple[str, tuple[str, ...]]]]] = []
        try:
            stack.append((descriptor, self._workdir, self._folder(descriptor, self._workdir, ())))
            while stack:
                parent, path, below_it = stack[-1]
                if not below_it:
                    os.close(parent)
                    stack.pop()
                    continue
                name, obeyed = below_it.pop()
                if self._seen > ENTRIES_MAX:
                    self.reported.append((self._workdir, f"has more than {ENTRIES_MAX} files; not all were looked at"))
                    return
                self._enter(stack, parent, f"{path}/{name}", name, obeyed)
        finally:
            for opened, _, _ in stack:
                os.close(opened)

    def _enter(
        self,
        stack: list[tuple[int, str, list[tuple[str, tuple[str, ...]]]]],
        parent: int,
        path: str,
        name: str,
        obeyed: tuple[str, ...],
    ) -> None:
        """Go into a folder of the folder on top of the stack."""
        if len(stack) >= DEPTH_MAX:
            self.dangerous.append((path, f"lies deeper than {DEPTH_MAX} folders, and was not looked at"))
            return
        try:
            judging.make_listable(name, parent)
            descriptor = os.open(name, _DIRECTORY, dir_fd=parent)
        except OSError as error:
            self.reported.append((path, f"cannot be looked at: {error.strerror}"))
            return
        try:
            stack.append((descriptor, path, self._folder(descriptor, path, obeyed)))
        except OSError as error:
            os.close(descriptor)
            self.reported.append((path, f"cannot be looked at: {error.strerror}"))

    def _folder(self, descriptor: int, path: str, obeyed: tuple[str, ...]) -> list[tuple[str, tuple[str, ...]]]:
        """Judge what lies in a folder; returns the folders in it, each with what begins the names obeyed there."""
        changed = os.fstat(descriptor).st_ctime_ns >= self._since_ns
        below_it: list[tuple[str, tuple[str, ...]]] = []
        head = store = False
        with os.scandir(descriptor) as scan:
            for entry in scan:
                self._seen += 1
                name = entry.name
                if len(name) == 4 and name.lower() == ".git":
                    self._dot(f"{path}/{name}")
                elif entry.is_dir(follow_symlinks=False):
                    below_it.append((name, FOLDERS.get(name) or self._still_obeyed(name, obeyed)))
                    store = store or name == "objects"
                else:
                    if changed or name in FILES or (obeyed and name.startswith(obeyed)):
                        self._file(entry, path, name, obeyed)
                    head = head or name == "HEAD"
                    store = store or name == "commondir"
        if head and store and path not in self._layout.known:
            self._bare(path)
        return below_it

    @staticmethod
    def _still_obeyed(name: str, obeyed: tuple[str, ...]) -> tuple[str, ...]:
        """Below a folder whose names are obeyed, everything is."""
        return ("",) if obeyed and name.startswith(obeyed) else ()

    def _file(self, entry: os.DirEntry[str], path: str, name: str, obeyed: tuple[str, ...]) -> None:
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            return
        if status.st_ctime_ns < self._since_ns:
            return
        full = f"{path}/{name}"
        mode = status.st_mode
        if stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID):
            self.reported.append((full, _without_set_id(full, status)))
        elif stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            self.reported.append((full, f"is {judging.kind_of(mode)}, which can keep a program waiting that opens it"))
        elif name in FILES or (obeyed and name.startswith(obeyed)):
            self.reported.append((full, "is new or changed, and programs of the host may obey it"))

    def _dot(self, path: str) -> None:
        """A `.git` entry: one that was there, or a new one."""
        layout = self._layout
        mode = mode_of(path)
        if path in layout.pointers and stat.S_ISREG(mode) and _content(path) == layout.pointers[path]:
            return
        node = node_of(path)
        same = layout.seen.get(path) == node
        if same and path in layout.known:
            return
        if stat.S_ISLNK(mode):
            if not same:
                self.dangerous.append((path, "is a symbolic link to a git folder"))
        elif stat.S_ISDIR(mode):
            self._new_folder(path, path, same=same)
        elif stat.S_ISREG(mode):
            try:
                target = os.path.realpath(pointers.target(path))
            except Refusal:
                if not same or os.lstat(path).st_ctime_ns >= self._since_ns:  # git may read it in another way
                    self.dangerous.append((path, "is new, and names no git folder in a way that git writes"))
                return
            self._pointer(path, target, same=same)

    def _pointer(self, path: str, target: str, *, same: bool) -> None:
        """A `.git` file: where it leads must be a folder that was looked at, or is harmless."""
        known = self._layout.known
        common, _, name = target.rpartition("/worktrees/")
        if target in known or (common in known and name and "/" not in name):
            if not same:
                self.reported.append((path, f"is new, and leads to {target}"))  # the folder was judged by itself
        elif below(target, self._workdir) or any(below(target, git) for git in known):
            self._new_folder(path, target, same=same)
        elif not same:
            self.dangerous.append((path, f"is new, and leads out of the workdir: {target}"))

    def _new_folder(self, path: str, git: str, *, same: bool) -> None:
        """A nested repository that was not looked at before the program began, or could not be held."""
        if same and not self._touched(git):
            return
        reasons = judging.verdict(git, self._workdir)
        what = "is a nested repository" + (" that was changed" if same else " that is new")
        if reasons:
            self.dangerous.append((path, f"{what}: {'; '.join(reasons[:3])}"))
        elif is_git_folder(git) or not same:
            self.reported.append((path, what))

    def _bare(self, path: str) -> None:
        """A folder that git takes for a repository when it is run there."""
        same = self._layout.seen.get(path) == node_of(path)
        if same and not self._touched(path):
            return
        reasons = judging.verdict(path, self._workdir)
        if reasons:
            self.dangerous.append((f"{path}/HEAD", f"makes its folder a repository: {'; '.join(reasons[:3])}"))
        elif self._touched(path):
            self.reported.append((path, "is a repository without a worktree, new or changed"))

    def _touched(self, git: str) -> bool:
        """Whether something that git obeys is new or changed there."""
        for name in ("HEAD", "config", "config.worktree", "commondir", "hooks"):
            try:
                if os.lstat(f"{git}/{name}").st_ctime_ns >= self._since_ns:
                    return True
            except OSError:
                continue
        return bool(judging.live_hooks(git, self._since_ns) or judging.running_todos(git, self._since_ns))


def _content(path: str) -> bytes | None:
    try:
        return pointers.read(path, pointers.BYTES_MAX)
    except Refusal:
        return None


def _without_set_id(path: str, status: os.stat_result) -> str:
    """Take set-uid and set-gid bits from a file that has one name; says what was done."""
    what = "is a set-uid or set-gid file, new or changed"
    if status.st_nlink != 1:
        return f"{what}; it has other names, so it is left as it is"
    try:
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        return f"{what}: {error.strerror}"
    try:
        now = os.fstat(descriptor)
        if (now.st_dev, now.st_ino) != (status.st_dev, status.st_ino):
            return what
        os.chmod(f"/proc/self/fd/{descriptor}", stat.S_IMODE(status.st_mode) & 0o777)
    except OSError as error:
        return f"{what}: {error.strerror}"
    finally:
        os.close(descriptor)
    return f"{what}; the bits were taken from it"
