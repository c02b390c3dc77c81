"""While a program runs: what must not wait for its end is set aside as soon as it appears.

Rules

1. The grammar is the same. Judged at once are links and odd files among git's own, files that only the host may change,
   and each new `.git` in the worktree. What git itself changes all the time (refs, the index, objects) is judged at the
   end, and so is whatever the table does not name: nothing of it is run by a mere `git status`. Where a remote leads is
   judged at the end too: to set it aside takes git's own lock, on which a `git clone` at work would fail. So is the
   link by which git, in each new repository, finds out whether there can be links: without it git does without them.
2. The program is there and can undo or repeat what it did. So this shortens the time in which the host's programs can
   meet such a thing, and replaces nothing of the inspection at the end.
3. Each thing is opened from the project downwards without following a link, and moved relative to its folder.
4. Packed refs of which the sandbox has a copy are kept in step (packed_refs.py).
5. Git's folders are watched first, then the worktree's, parents first, up to a bound; nothing waits for it.
6. A session lasts for weeks: of what was judged, only what was set aside is remembered, up to a bound.

Source: inotify(7).
"""

from __future__ import annotations

import _thread
import os
import select
import time

from omac.adapters.files.descriptor import Descriptor
from omac.adapters.files.without_links import opened_folder
from omac.adapters.git.dot_git import DotJudge, innermost, outermost
from omac.adapters.git.entry import FoundEntry
from omac.adapters.git.git_folder import GitFolder
from omac.adapters.git.inspection import FINDINGS_MAX, Budget, Exhausted, Finding, Inspection
from omac.adapters.git.open_folder import content_of
from omac.adapters.git.packed_refs import PackedRefs
from omac.adapters.git.pointers import BYTES_MAX
from omac.adapters.git.worktree_scan import judge_bare
from omac.adapters.linux import inotify
from omac.domain.git.folder import MARKS
from omac.domain.git.grammar import AGENT, GRAMMAR
from omac.domain.kernel.sizes import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omac.adapters.git.launch_record import Record
    from omac.adapters.git.quarantine import Quarantine

WATCHES_MAX = 8192
BEGINS_AFTER_S = 0.03  # giving up a watch takes the kernel some 10 ms: what ends before that is not watched
GATHER_S = 0.02  # changes come in bursts: they are judged together, this long after the first
SETTLES = 10  # of packed refs meanwhile: until then git inside takes a branch for what it was packed at before
IDLE_S = 3600.0
ENDS_WITHIN_S = 5.0
SETTLES_WITHIN_S = 30.0  # the person who typed ^Z waits meanwhile
_PAUSE_S = 0.005
_OF_A_WORKTREE = inotify.IN_CREATE | inotify.IN_MOVED_TO | inotify.IN_ONLYDIR | inotify.IN_DONT_FOLLOW
_OF_GIT = _OF_A_WORKTREE | inotify.IN_MODIFY  # whether or not who wrote a file closes it
READS_MAX = 16  # before what they brought is judged
_OF_A_BARE_ONE = (*MARKS, "config")  # a folder that has one of them may be a repository now
_JUDGED = frozenset(name.lower() for name in (".git", *_OF_A_BARE_ONE))  # of the files in a worktree
_UNWATCHED = frozenset(("objects", "lfs", "annex"))  # of a git folder: a file there is what its name says, or nothing


class GitWatch:
    """The watch of one launch, in a thread of its own. Where the kernel has none, there is none. It has its descriptor
    from `start` on, before the program begins: the kernel gives a user so many, and a program can take all."""

    def __init__(self, record: Record, quarantine: Quarantine) -> None:
        assert record.baseline is not None
        self._projects = record.projects
        self._folders = record.folders
        self._quarantine = quarantine
        self._record = record
        self._baseline = record.baseline
        self._moved: list[Finding] = []
        self._unlisted = 0
        self._inspection = self._begun_inspection()
        self._packed = [PackedRefs(session) for session in record.sessions if not session.narrowed]
        self._watched: dict[int, str] = {}
        self._of_git: set[int] = set()  # those of folders in a git folder: there, every file is judged
        self._files: dict[int, set[tuple[str, str]]] = {}  # folders and names, by the watch of their inode
        self._inotify = -1
        self._stop, self._stopped = -1, -1
        self._is_stopped = False
        self._is_judging = True  # until all that was there when it began is judged
        self._ended = _thread.allocate_lock()

    def start(self) -> None:
        if not self._begin():
            return
        self._stopped, self._stop = os.pipe()
        self._ended.acquire()
        try:
            _thread.start_new_thread(self._run, ())
        except RuntimeError:  # the system starts no more threads for this user
            for descriptor in (self._inotify, self._stopped, self._stop):
                os.close(descriptor)
            self._inotify = self._stopped = self._stop = -1

    @property
    def is_watching(self) -> bool:
        """Return whether the kernel has a watch for this launch."""
        return self._inotify >= 0

    def settle(self) -> None:
        """Return when all is judged that the program has left, which is held, as far as there is time."""
        deadline = time.monotonic() + SETTLES_WITHIN_S
        if not self.is_watching:
            return
        waiting = select.poll()
        waiting.register(self._inotify, select.POLLIN)
        while (waiting.poll(0) or self._is_judging) and self._ended.locked() and time.monotonic() < deadline:
            time.sleep(_PAUSE_S)

    def end(self) -> list[Finding]:
        """Stop, and return what was set aside."""
        self._is_stopped = True
        if self._stop >= 0:
            os.close(self._stop)
            self._stop = -1
            if self._ended.acquire(timeout=ENDS_WITHIN_S):
                os.close(self._stopped)
        self._keep_moved()
        if self._unlisted:
            what = f"{counted(self._unlisted, 'more entry is', 'more entries are')} not listed"
            self._moved.append(Finding(self._projects[0], what, self._quarantine.path))
        return self._moved

    def _begun_inspection(self) -> Inspection:
        return Inspection(self._record, self._baseline, Budget(float("inf")), self._quarantine, while_running=True)

    def _keep_moved(self) -> None:
        """Remember what was set aside, and forget the rest of what was judged."""
        moved = [finding for finding in self._inspection.findings if finding.moved]
        self._unlisted += self._inspection.unlisted
        self._inspection = self._begun_inspection()
        room = FINDINGS_MAX - len(self._moved)
        self._moved += moved[:room]
        self._unlisted += len(moved[room:])

    def _begin(self) -> bool:
        try:
            self._inotify = inotify.opened()
        except OSError:
            return False
        return True

    def _run(self) -> None:
        try:
            stopping = select.poll()
            stopping.register(self._stopped, select.POLLIN)
            if stopping.poll(BEGINS_AFTER_S * 1000):
                return
            waiting = select.poll()
            waiting.register(self._inotify, select.POLLIN)
            waiting.register(self._stopped, select.POLLIN)
            for git in self._folders:
                self._watch(git)
            self._settle()
            for project in self._projects:
                self._watch(project)
            self._is_judging = False
            while not any(descriptor == self._stopped for descriptor, _ in waiting.poll(self._settle() * 1000)):
                for _ in range(SETTLES):
                    self._settle()
                    if stopping.poll(GATHER_S * 1000 / SETTLES):
                        return  # the end judges all of it
                self._is_judging = True  # before it takes what there is to judge
                self._judge_all()
                self._keep_moved()
                self._is_judging = False
        finally:
            self._ended.release()
            os.close(self._inotify)  # the kernel takes 5 ms for it: the end has begun meanwhile

    def _settle(self) -> float:
        """Keep packed refs in step; how soon there may be more to do."""
        for packed in self._packed:
            packed.settle()
        return min([IDLE_S, *(packed.again_s for packed in self._packed if packed.again_s is not None)])

    def _watch(self, path: str) -> None:
        """Watch a folder and all in it, and judge what is there; git's own before the rest."""
        waiting = [path]
        while waiting and len(self._watched) < WATCHES_MAX and not self._is_stopped:
            folder = waiting.pop(0)
            root = outermost(folder, self._folders)
            if folder in self._inspection.closed:
                continue
            if root and folder != root and self._is_left_out(root, folder[len(root) + 1 :]):
                continue
            try:
                mask = _OF_GIT if root else _OF_A_WORKTREE
                watch = inotify.watch(self._inotify, folder, mask)
                self._watched[watch] = folder
                (self._of_git.add if root else self._of_git.discard)(watch)
                self._judge_in(folder, waiting)
            except OSError:
                continue  # gone, or too many are watched

    def _is_left_out(self, root: str, within: str) -> bool:
        """Return whether a path in a git folder is not watched: the program cannot write it, or nothing is run of it.
        Others, such as the settings of submodules in a shared git folder, were not noted at launch."""
        known = self._folders.get(root)
        return within.partition("/")[0] in _UNWATCHED or (known is not None and not known.inspects(within))

    def _judge_in(self, folder: str, waiting: list[str]) -> None:
        """Judge what is in a folder; its folders are to be watched too, as many as can be. Raises OSError."""
        with os.scandir(folder) as scan:
            for entry in scan:
                if self._is_stopped:
                    return
                name, is_folder = entry.name, entry.is_dir(follow_symlinks=False)
                self._judge(folder, name)
                if is_folder and len(waiting) < WATCHES_MAX and not (name == ".git" and folder in self._projects):
                    waiting.insert(0 if name == ".git" else len(waiting), f"{folder}/{name}")

    def _judge_all(self) -> None:
        changed: dict[tuple[str, str], bool] = {}
        for watch, mask, raw in self._events():
            if mask & inotify.IN_Q_OVERFLOW:
                for path in (*self._folders, *self._projects):
                    self._watch(path)
            elif mask & inotify.IN_IGNORED:  # it is gone, and makes room
                self._files.pop(watch, None)
                self._watched.pop(watch, None)
                self._of_git.discard(watch)
            elif watch in self._files:
                for key in self._files[watch]:
                    changed.setdefault(key, False)
            elif raw and watch in self._watched:
                is_folder = bool(mask & inotify.IN_ISDIR)
                if is_folder or watch in self._of_git or os.fsdecode(raw).lower() in _JUDGED:
                    key = self._watched[watch], os.fsdecode(raw)
                    changed[key] = changed.get(key, False) or is_folder
        for (folder, name), is_folder in changed.items():
            if self._is_stopped:
                return
            self._settle()
            self._judge(folder, name)
            if is_folder:
                self._watch(f"{folder}/{name}")

    def _events(self) -> list[tuple[int, int, bytes]]:
        parsed: list[tuple[int, int, bytes]] = []
        for _ in range(READS_MAX):
            try:
                parsed += inotify.events(self._inotify)
            except OSError:  # there are no more
                break
        return parsed

    def _judge(self, folder: str, name: str) -> None:
        """Judge one entry, by what it is now."""
        root = outermost(folder, self._folders)
        is_dot = name.lower() == ".git"
        if (not root and name.lower() not in _JUDGED) or f"{folder}/{name}" in self._inspection.closed:
            return
        try:
            with Descriptor(opened_folder(folder)) as opened:
                entry = FoundEntry(name, os.lstat(name, dir_fd=opened))
                if root:
                    self._judge_git(root, folder, opened, entry)
                elif not is_dot:
                    judge_bare(self._inspection, opened, folder)
                elif not (entry.is_file(follow_symlinks=False) and self._is_unwritten(opened, folder, name)):
                    DotJudge(self._inspection, frozenset(self._folders)).judge(opened, folder, entry)
        except (OSError, Exhausted):
            return  # it is gone, or something else is in its place: that has an event of its own

    def _is_unwritten(self, opened: int, folder: str, name: str) -> bool:
        """Watch a `.git` file, and return whether it holds nothing yet; it is judged when it does."""
        return self._follow(folder, name) and content_of(opened, name, BYTES_MAX) == b""

    def _follow(self, folder: str, name: str) -> bool:
        """Watch a file itself, whichever of its names it is written by; False where there are too many."""
        if len(self._watched) + len(self._files) >= WATCHES_MAX:
            return False
        watch = inotify.watch(self._inotify, f"{folder}/{name}", inotify.IN_MODIFY | inotify.IN_DONT_FOLLOW)
        self._files.setdefault(watch, set()).add((folder, name))
        return True

    def _judge_git(self, root: str, folder: str, opened: int, entry: FoundEntry) -> None:
        git, known = innermost(root, folder, self._folders.get(root))
        within = folder[len(git) + 1 :]
        node = GRAMMAR[known.role]
        for part in within.split("/") if within else ():
            below = node.child(part)
            if below is None:
                return  # the folder itself is what should not be there
            node = below
        child = node.child(entry.name)
        if child is not None and child.rule and child.rule.writer != AGENT and entry.is_file(follow_symlinks=False):
            self._follow(folder, entry.name)
        GitFolder(self._inspection, git, known).judge(opened, entry, folder, within, node)
