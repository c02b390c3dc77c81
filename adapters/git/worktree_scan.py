"""A project without git's own folders: repositories in it, files that programs of the host obey, odd files.

The walk keeps an open descriptor and a listing for each folder on the way down, and nothing of a folder that it has
left. A folder is judged as a repository where git takes it for one: a `.git` entry, or a folder with `HEAD` and what
goes for `objects` and `refs`, of any kind (is_git_directory in git's setup.c).
"""

from __future__ import annotations

import os
import stat

from omac.adapters.files.descriptor import Descriptor
from omac.adapters.git.dot_git import UNJUDGED, DotJudge
from omac.adapters.git.entry import FoundEntry
from omac.adapters.git.git_folder import inspect_folder
from omac.adapters.git.inspection import DEPTH_MAX, PATH_CHARACTERS_MAX, TOO_DEEP, Exhausted, Inspection
from omac.adapters.git.link_stamps import LinkStamps
from omac.adapters.git.open_folder import is_there, open_listable, opened_root
from omac.adapters.git.quarantine import kind_of
from omac.adapters.git.stamp import node_of, stamp_of
from omac.adapters.linux.resolve_symlinks import leads_into, resolve_symlinks
from omac.domain.git.folder import ADMIN, ALL_MARKS, MARKS, WHOLE, Folder
from omac.domain.kernel.paths import below, below_any
from omac.domain.sandbox.autorun_files import GIVEN_ALL, OF_JUPYTER, OF_OTHERS, Obeyed, is_option

MARGIN_NS = 20_000_000  # files are stamped with a clock that lags by up to a tick
_MARKS = {name.lower(): bits for name, bits in MARKS.items()}  # for file systems that take upper for lower case
_SET_ID = stat.S_ISUID | stat.S_ISGID
_STREAMS = frozenset(  # links to these lead to no folder but that of descriptors
    f"{folder}{name}" for folder in ("/dev/fd", "/proc/1/fd", "/proc/self/fd") for name in ("", "/0", "/1", "/2")
) | {"/dev/stderr", "/dev/stdin", "/dev/stdout"}


class _Level:
    """A folder on the way down."""

    __slots__ = ("folder", "has_dot", "is_changed", "is_odd", "marks", "named_by", "obeyed", "path", "scan")

    def __init__(
        self, folder: int, path: str, since_ns: int, obeyed: Obeyed | None, named_by: str | None = None
    ) -> None:
        self.folder = folder
        self.path = path
        self.obeyed = obeyed  # None: what is in it is others'
        self.named_by = named_by  # settings of a program that obeys what is in it
        self.is_changed = os.fstat(folder).st_ctime_ns >= since_ns
        self.marks = 0
        self.has_dot = False
        self.is_odd = False  # it has names in letters that its file system may take for those of git's names
        self.scan = os.scandir(folder)

    def close(self) -> None:
        self.scan.close()
        os.close(self.folder)


class WorktreeScan:
    """The walk through one project, in one inspection. `known`: git folders that are judged by themselves."""

    def __init__(self, inspection: Inspection, project: str, known: frozenset[str]) -> None:
        self._inspection = inspection
        self._baseline = inspection.baseline
        self._is_last = not inspection.is_first
        self._closed = inspection.closed
        self._named = inspection.named
        self._named_parts: dict[str, list[tuple[str, str]]] = {}  # by their last part: paths in the project, who
        for path, who in self._named.items():
            if below(path, project):
                self._named_parts.setdefault(os.path.basename(path), []).append((path[len(project) :], who))
        self._project = project
        self._known = known
        self._links = LinkStamps((*inspection.projects, *inspection.unjudged), inspection.budget.spend)
        self._dots = DotJudge(inspection, known)
        self._below = len(project) + 1  # where a path below the project begins
        self._since_ns = inspection.baseline.since_ns - MARGIN_NS
        self._levels: list[_Level] = []

    def run(self) -> None:
        """Walk through the project. Raises Exhausted, when what was not reached has been set aside; OSError for the
        project itself."""
        obeyed = None if self._project in self._inspection.kept else Obeyed("")
        self._levels = [_Level(opened_root(self._project), self._project, self._since_ns, obeyed)]
        try:
            while self._levels:
                try:
                    self._step(self._levels[-1])
                except Exhausted:
                    if not self._inspection.hurry():
                        raise
        except Exhausted:
            if self._is_last:
                self._set_rest_aside()
            raise
        finally:
            for level in self._levels:
                level.close()

    def _step(self, level: _Level) -> None:
        """Inspect what is left of a folder, as far as the next folder in it."""
        try:
            for entry in level.scan:
                try:
                    self._entry(level, entry)
                except OSError as error:  # what else is there is inspected
                    self._report_unread(f"{level.path}/{entry.name}", error)
                self._inspection.budget.spend()
                if self._levels[-1] is not level:
                    return
        except OSError as error:
            self._report_unread(level.path, error)
            level.marks = ALL_MARKS  # it may have what was not listed
        self._leave(level)

    def _report_unread(self, path: str, error: OSError) -> None:
        if self._is_last:
            self._inspection.report(path, f"cannot be inspected: {error.strerror}")

    def _leave(self, level: _Level) -> None:
        if level.is_odd:
            self._find_by_names(level)
        if level.marks == ALL_MARKS and level.path not in self._known:
            try:
                judge_bare(self._inspection, level.folder, level.path)
            except OSError:
                if self._is_last:
                    self._inspection.set_aside(level.folder, "HEAD", f"{level.path}/HEAD", UNJUDGED)
        if level.marks:
            self._inspection.mark(level.path, level.marks)
        self._levels.pop()
        level.close()

    def _find_by_names(self, level: _Level) -> None:
        """Find what git would find by its names, however they are spelled in the listing."""
        for name, bits in MARKS.items():
            level.marks |= bits if is_there(level.folder, name) else 0
        if not level.has_dot and is_there(level.folder, ".git"):
            try:
                self._dots.judge(level.folder, level.path, FoundEntry(".git", os.lstat(".git", dir_fd=level.folder)))
            except OSError as error:
                self._report_unread(f"{level.path}/.git", error)

    def _entry(self, level: _Level, entry: os.DirEntry[str]) -> None:
        name = entry.name
        if self._closed and f"{level.path}/{name}" in self._closed:
            return
        level.marks |= _MARKS.get(name.lower(), 0)
        level.is_odd |= not name.isascii()
        if len(name) == 4 and name.lower() == ".git":
            level.has_dot = True
            self._dots.judge(level.folder, level.path, entry)
        elif entry.is_dir(follow_symlinks=False):
            self._enter(level, entry)
        elif self._is_last and entry.is_symlink() and self._leads_to_unjudged(level, entry):
            problem = (
                "leads to a tool cache, around one, into /proc or too far: git may obey what a program wrote there"
            )
            self._inspection.set_aside(level.folder, name, f"{level.path}/{name}", problem)
        elif not self._inspection.is_hurried:
            who = level.obeyed.by(name) if level.obeyed else None
            if self._named and who is None:
                who = self._named_by(level, name)
            if who is not None or not entry.is_file(follow_symlinks=False):
                self._file(level, entry, who)
            if self._is_last and level.is_changed and entry.stat(follow_symlinks=False).st_mode & _SET_ID:
                self._take_set_id(level, entry)

    def _enter(self, level: _Level, entry: os.DirEntry[str]) -> None:
        name, path = entry.name, f"{level.path}/{entry.name}"
        if path in self._known:
            return
        if len(self._levels) >= DEPTH_MAX or len(path) > PATH_CHARACTERS_MAX:
            if self._is_last:
                problem = f"{TOO_DEEP}, and was not inspected"
                self._inspection.set_aside(level.folder, name, path, problem)
            return
        try:
            folder = open_listable(name, level.folder)
        except OSError as error:
            # Nobody who runs as the user, as the program did, has been in a folder that the user may not pass through.
            if not isinstance(error, PermissionError) or os.access(name, os.X_OK, dir_fd=level.folder):
                self._report_unread(path, error)
            return
        if is_option(name) and self._is_last and level.obeyed and os.fstat(folder).st_ctime_ns >= self._since_ns:
            self._inspection.report(path, f"is a folder, new or changed, and {GIVEN_ALL} takes its name for an option")
        is_installed = name in OF_OTHERS or path.endswith(OF_JUPYTER)
        obeyed = None if level.obeyed is None or is_installed else Obeyed(path[self._below :])
        self._levels.append(_Level(folder, path, self._since_ns, obeyed, self._named_by(level, name)))

    def _named_by(self, level: _Level, name: str) -> str | None:
        """Return who obeys an entry because settings name it, or a folder around it, also in another worktree, which
        has the same settings; None: nobody."""
        path = f"{level.path}/{name}"
        who = self._named.get(path, level.named_by)
        for part, by in self._named_parts.get(name, ()) if who is None else ():
            if path.endswith(part) and os.path.lexists(f"{path.removesuffix(part)}/.git"):
                who = by
        return who

    def _file(self, level: _Level, entry: os.DirEntry[str], who: str | None) -> None:
        """A file that a program obeys, or something that is no file."""
        path = f"{level.path}/{entry.name}"
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            self._link(level, entry.name, path, status, who)
            return
        can_wait = stat.S_ISFIFO(status.st_mode) or stat.S_ISSOCK(status.st_mode)
        if who is None and not can_wait:
            return
        stamp = stamp_of(status)
        if self._inspection.is_first:
            self._baseline.note_obeyed(path, stamp)
        elif self._baseline.obeyed.get(path) != stamp:
            if can_wait or who is None:
                problem = f"is {kind_of(status.st_mode)}, which can keep a program waiting that opens it"
                self._inspection.report(path, problem)
            else:
                self._inspection.obey(self._project, path[self._below :], who)

    def _leads_to_unjudged(self, level: _Level, entry: os.DirEntry[str]) -> bool:
        """Return whether a link, by itself and not by another one, leads to a folder that nobody inspects, or to where
        one can be made; also by what /proc shows of a process, which differs between omac and the host's git, or too
        far to tell. A new link to a folder around one counts, too: git goes to submodules behind it."""
        unjudged, text = self._inspection.unjudged, os.readlink(entry.name, dir_fd=level.folder)
        parts, path = text.split("/"), f"{level.path}/{entry.name}"
        ups = next((number for number, part in enumerate(parts) if part != ".."), len(parts))
        stays = parts[0] != "" and ".." not in parts[ups:] and ups < len(self._levels)
        if stays or below_any(level.path, unjudged):
            return False
        is_of_process = leads_into(path, "/proc")
        try:
            target = resolve_symlinks(path)[1]
        except OSError:  # in circles, of which omac sees other ones than git in /proc, or too far
            return is_of_process
        if is_of_process:
            return text not in _STREAMS and not (below(target, "/proc") and os.path.isfile(target))
        if any(below(folder, target) and folder != target for folder in unjudged):
            return entry.stat(follow_symlinks=False).st_ctime_ns >= self._since_ns
        return below_any(target, unjudged) and not os.path.isfile(target)

    def _link(self, level: _Level, name: str, path: str, status: os.stat_result, who: str | None) -> None:
        """A link: by its name, a program may obey files of any other."""
        who = who or (level.obeyed.through(name) if level.obeyed else None)
        if who is None:
            return
        stamp = self._links.of(path, status)
        if self._inspection.is_first:
            self._baseline.note_obeyed(path, stamp)
        elif self._baseline.obeyed.get(path) != stamp:
            what = f"is a link, and {who} obeys what it leads to; the one or the other is new or changed"
            self._inspection.report(path, what)

    def _take_set_id(self, level: _Level, entry: os.DirEntry[str]) -> None:
        """Take set-uid and set-gid bits from a new file that has one name."""
        status = entry.stat(follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode) or status.st_ctime_ns < self._since_ns:
            return
        problem = "is a set-uid or set-gid file, new or changed"
        if status.st_nlink != 1:
            problem += "; it has other names, so it is left as it is"
        else:
            try:
                flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
                with Descriptor(os.open(entry.name, flags, dir_fd=level.folder)) as file:
                    os.chmod(f"/proc/self/fd/{file}", stat.S_IMODE(status.st_mode) & 0o777)
                problem += "; the bits were taken from it"
            except OSError as error:
                problem += f": {error.strerror}"
        self._inspection.report(f"{level.path}/{entry.name}", problem)

    def _set_rest_aside(self) -> None:
        """The budget is spent: what was not reached is moved away unjudged, the folder that took so long first."""
        problem = "was not inspected: the project holds too much"
        if len(self._levels) > 1:
            name = self._levels[1].path.rpartition("/")[2]
            self._inspection.set_aside(self._levels[0].folder, name, self._levels[1].path, problem)
        first = self._levels[0]
        for entry in first.scan:
            path = f"{first.path}/{entry.name}"
            if entry.is_dir(follow_symlinks=False) and path not in self._known and path not in self._closed:
                self._inspection.set_aside(first.folder, entry.name, path, problem)


def judge_bare(inspection: Inspection, folder: int, path: str) -> None:
    """Judge an open folder if git takes it for its own when it is run there; other files may lie in it too. Raises
    Exhausted, OSError."""
    marks = 0
    for name, bits in MARKS.items():
        marks |= bits if is_there(folder, name) else 0
    if marks != ALL_MARKS:
        return
    if inspection.is_hurried:
        inspection.set_aside(folder, "HEAD", f"{path}/HEAD", UNJUDGED)
        return
    known = inspection.baseline.nodes.get(path)
    role = WHOLE if is_there(folder, "objects") else ADMIN
    inspect_folder(inspection, path, Folder(role, path, path), folder, has_others=True)
    if not inspection.is_first and known != node_of(os.fstat(folder)):
        inspection.report(path, "is a repository without a worktree, and new")
