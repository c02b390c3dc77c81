"""A git folder that a sandbox could write, held against the grammar (domain/git/grammar.py)."""

from __future__ import annotations

import os
import stat
import time

from omac.adapters.files.descriptor import Descriptor
from omac.adapters.git.entry import FoundEntry, is_link_probe
from omac.adapters.git.git_place import GitPlace
from omac.adapters.git.inspection import DEPTH_MAX, PATH_CHARACTERS_MAX, TOO_DEEP, Inspection
from omac.adapters.git.open_folder import content_of, is_there, open_listable, opened_root, put, while_writable
from omac.adapters.git.quarantine import kind_of
from omac.adapters.git.stamp import node_of, stamp_of, stamp_with_content
from omac.domain.git.config import oid_bytes_of
from omac.domain.git.folder import ADMIN, WHOLE, Folder
from omac.domain.git.grammar import AGENT, GRAMMAR, REPORT, Rule, RuleNode
from omac.domain.kernel.refusal import quoted
from omac.domain.kernel.terminal_escaping import named

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from omac.adapters.git.entry import Entry
    from omac.adapters.git.stamp import Stamp

TRIES = 5  # for a git folder in which something goes while it is judged
CHANGED_WITHIN = "is no folder of git's, and files in it are new or changed: who keeps it there may obey them"
PAUSE_S = 0.05  # between two
SLASHES_MAX = DEPTH_MAX + 40  # in a path: git folders lie in others, and each level takes two descriptors
_OPERATIONS = ("rebase-merge", "rebase-apply", "sequencer")
_GIT_ENTRIES = ("HEAD", "config", "objects", "refs", "commondir")
_OF_OTHERS = ("alternates", "autostash", "conflicts")  # judges whose verdict depends on what else there is


class GitFolder:
    """One git folder, in one inspection; with `has_others` it may hold other files, as a bare one in a worktree
    does."""

    def __init__(self, inspection: Inspection, git: str, folder: Folder, *, has_others: bool = False) -> None:
        self._inspection = inspection
        self._baseline = inspection.baseline
        self._git = git
        self._role = folder.role
        self._only = folder.only
        self._has_others = has_others
        self._place = GitPlace(git, folder.worktree, folder.common, inspection.projects, inspection.traversed)
        self._place.was_straight = git not in inspection.baseline.astray
        self._place.is_in_use = inspection.while_running
        self._is_config_judged = False

    def inspect(self, folder: int) -> None:
        """Judge everything in the open git folder. Raises Exhausted, OSError."""
        node = node_of(os.fstat(folder))
        if self._inspection.is_first:
            self._baseline.nodes[self._git] = node
        self._judge_config(folder)
        self._place.oid_bytes = self._oid_bytes(folder)
        self._inspection.places.append(self._place)
        self._inspection.gits.add(self._git)
        self._folder(folder, self._git, "", GRAMMAR[self._role], 0)

    def _judge_config(self, folder: int) -> None:
        """Judge the settings first: they say how the other files are to be read."""
        if self._role == WHOLE and is_there(folder, "config"):
            entry = FoundEntry("config", os.lstat("config", dir_fd=folder))
            self._entry(folder, entry, self._git, "", GRAMMAR[self._role], 0)
            self._is_config_judged = True

    def judge(self, folder: int, entry: Entry, path: str, within: str, node: RuleNode) -> None:
        """Judge one entry of an open folder in the git folder, and nothing in it. Raises Exhausted, OSError."""
        if not self._only or not within or within.partition("/")[0] in self._only:
            self._entry(folder, entry, path, within, node, 0)

    def _oid_bytes(self, folder: int) -> int:
        """Return the size of object ids by the settings of the common folder, which were judged before; 0 where they
        cannot be read."""
        content = content_of(folder, "config", 1 << 20) if self._role == WHOLE else settings_of(self._place.common)
        if content is None and self._role == WHOLE and is_there(folder, "config"):
            return 0
        self._inspection.budget.spend_read(content)
        return oid_bytes_of(content or b"")

    def _folder(self, folder: int, path: str, within: str, node: RuleNode, depth: int) -> None:
        """Judge what is in an open folder: `within` is its path below the git folder, `node` its place."""
        with os.scandir(folder) as scan:
            for entry in scan:
                self._inspection.budget.spend()
                self._entry(folder, entry, path, within, node, depth)

    def _entry(self, folder: int, entry: Entry, path: str, within: str, node: RuleNode, depth: int) -> None:
        name = entry.name
        if self._only and not within and name not in self._only:
            return
        child = node.child(name)
        if child is not None and child.rule and child.rule.is_open and entry.is_file(follow_symlinks=False):
            if child.rule.is_lock and not self._inspection.while_running:
                self._lock(entry, f"{path}/{name}")
            return
        here = f"{within}/{name}" if within else name
        if here == "config" and self._is_config_judged:
            return
        if entry.is_dir(follow_symlinks=False):
            if not self._inspection.while_running:  # then what is in it is judged when it appears
                self._subfolder(folder, entry, path, here, child, depth)
        elif not within and self._is_left_alone(folder, entry, child):
            return
        elif not entry.is_file(follow_symlinks=False):
            kind = kind_of(entry.stat(follow_symlinks=False).st_mode)
            self._refuse(folder, entry, f"{path}/{name}", f"is {kind} among git's files")
        elif child is None or child.rule is None:
            if not self._inspection.while_running:
                self._refuse(folder, entry, f"{path}/{name}", "is no file that git keeps there")
        else:
            self._file(folder, entry, f"{path}/{name}", here, child.rule)

    def _is_left_alone(self, folder: int, entry: Entry, child: RuleNode | None) -> bool:
        return (self._has_others and child is None) or (self._inspection.while_running and is_link_probe(folder, entry))

    def _subfolder(self, folder: int, entry: Entry, path: str, here: str, child: RuleNode | None, depth: int) -> None:
        full = f"{path}/{entry.name}"
        if here == "worktrees" and self._role == WHOLE:
            self._each_below(folder, entry.name, full, self._admin)
        elif here == "modules":
            self._each_below(folder, entry.name, full, self._module)
        elif self._has_others and child is None and "/" not in here:
            return
        elif child is None or not child.is_folder:
            self._refuse(folder, entry, full, "is no folder that git keeps there")
        else:
            self._enter(folder, entry, path, here, child, depth)

    def _enter(self, folder: int, entry: Entry, path: str, here: str, child: RuleNode, depth: int) -> None:
        full = f"{path}/{entry.name}"
        if here in _OPERATIONS:
            self._operation(full)
        if depth >= DEPTH_MAX or _is_too_deep(full):
            self._refuse(folder, entry, full, TOO_DEEP)
            return
        try:
            opened = open_listable(entry.name, folder)
        except FileNotFoundError:
            return
        except OSError as error:
            self._refuse(folder, entry, full, f"cannot be inspected: {error.strerror}")
            return
        with Descriptor(opened):
            self._folder(opened, full, here, child, depth + 1)

    def _each_below(self, folder: int, name: str, path: str, judge: Callable[[int, str], None]) -> None:
        """Judge each folder in `worktrees` or `modules` as a git folder of its own."""
        with Descriptor(open_listable(name, folder)) as opened:
            self._each_in(opened, path, judge)

    def _each_in(self, folder: int, path: str, judge: Callable[[int, str], None]) -> None:
        """Judge each folder in an open one of these; `judge` gets it open."""
        with os.scandir(folder) as scan:
            for entry in scan:
                self._inspection.budget.spend()
                full = f"{path}/{entry.name}"
                if not entry.is_dir(follow_symlinks=False):
                    self._refuse(folder, entry, full, "is no folder, and only folders are there")
                elif _is_too_deep(full):
                    self._refuse(folder, entry, full, TOO_DEEP)
                else:
                    with Descriptor(open_listable(entry.name, folder)) as opened:
                        judge(opened, full)

    def _admin(self, folder: int, path: str) -> None:
        """Judge the admin folder of a linked worktree."""
        if path in self._inspection.closed or (self._only and path in self._inspection.by_themselves):
            return
        back = (content_of(folder, "gitdir", 8192) or b"").rstrip(b"\r\n").decode(errors="surrogateescape")
        worktree = os.path.dirname(os.path.join(path, back)) if back and "\0" not in back else ""
        is_new = not self._inspection.is_first and path not in self._baseline.nodes
        GitFolder(self._inspection, path, Folder(ADMIN, worktree, self._place.common)).inspect(folder)
        if is_new and worktree and is_there(folder, "gitdir"):  # else that was set aside, which says more
            self._inspection.announced.add((path, worktree))
            self._inspection.report(path, f"a worktree was added while the program ran: {worktree}")

    def _module(self, folder: int, path: str) -> None:
        """Judge the git folder of a submodule, or a folder of such: the name of a submodule may have slashes."""
        if not any(is_there(folder, name) for name in _GIT_ENTRIES):
            self._each_in(folder, path, self._module)
            return
        is_new = not self._inspection.is_first and path not in self._baseline.nodes
        worktree = os.path.realpath(os.path.join(path, _worktree(folder) or "."))
        GitFolder(self._inspection, path, Folder(WHOLE, worktree, path)).inspect(folder)
        if is_new:
            self._inspection.announced.add((path, worktree))
            self._inspection.report(path, f"is a new submodule, of {named(worktree)}")

    def _operation(self, path: str) -> None:
        if self._inspection.is_first:
            self._baseline.operations.add(path)
        elif path not in self._baseline.operations:
            self._inspection.report(path, "is an operation that was begun and not finished")

    def _lock(self, entry: Entry, path: str) -> None:
        """Report a lock that was left: a git that is killed with the sandbox removes none."""
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return  # it was one of the host's
        if self._inspection.is_first:
            self._baseline.note(path, stamp_of(status))
        elif not self._was_there(path, status):
            message = f"keeps git from writing there, and was left: rm {quoted(path)}, unless a git works there now"
            self._inspection.report(path, message)

    def _file(self, folder: int, entry: Entry, path: str, here: str, rule: Rule) -> None:
        """Judge a regular file by the rule of its place."""
        first = self._inspection.is_first
        if rule.writer == AGENT and self._inspection.while_running:
            return
        of_others = rule.judge in _OF_OTHERS
        can_wait = rule.otherwise != REPORT and here.partition("/")[0] not in _OPERATIONS and not of_others
        if rule.writer == AGENT and can_wait:
            if first:
                self._baseline.note(path, stamp_of(entry.stat(follow_symlinks=False)))
                return
            if self._was_there(path, entry.stat(follow_symlinks=False)):
                return
        if not first and rule.judge == "log" and self._inspection.has_judged(entry, here):
            return
        content = content_of(folder, entry.name, rule.bytes_max)
        if content == b"" and self._inspection.while_running and path not in self._baseline.contents:
            return  # it was made, and is not written yet
        self._inspection.budget.spend_read(content)
        if content is None:
            self._refuse(folder, entry, path, f"is longer than {rule.bytes_max} bytes, or cannot be read")
        elif first:
            self._note(path, rule, content)
        else:
            self._compare(folder, entry, path, here, rule, content)

    def _note(self, path: str, rule: Rule, content: bytes) -> None:
        """Note a file as it is at launch."""
        self._baseline.keep(path, content, is_hosts=rule.writer != AGENT)
        if rule.judge == "config" and self._leads_past_link(content):
            self._baseline.astray.add(self._git)
        if rule.judge in _OF_OTHERS and content and not self._problem(rule, content, b""):
            self._baseline.fine.add(path)

    def _compare(self, folder: int, entry: Entry, path: str, here: str, rule: Rule, content: bytes) -> None:
        """Judge a file at the end, by what was there at launch."""
        if rule.judge in _OF_OTHERS and self._baseline.contents.get(path) == content:
            if path in self._baseline.fine and (problem := self._problem(rule, content, b"")):
                self._refuse(folder, entry, path, problem)
        elif rule.writer == AGENT or self._baseline.contents.get(path) != content:
            self._changed(folder, entry, path, here, rule, content)
        elif rule.judge == "config" and self._leads_past_link(content):
            self._act(folder, entry, path, rule, content, "has core.worktree lead past a link")

    def _leads_past_link(self, content: bytes) -> bool:
        """Return whether `core.worktree` leads past a link, to no worktree of this git folder; False if it did so at
        launch."""
        if b"worktree" not in content.lower():
            return False
        from omac.domain.git.config_allowlist import worktree_of

        worktree = worktree_of(content)
        return worktree != "" and not self._place.is_own_worktree(worktree) and self._place.leads_past_link(worktree)

    def _changed(self, folder: int, entry: Entry, path: str, here: str, rule: Rule, content: bytes) -> None:
        """Judge what is not as it was."""
        from omac.domain.git.judges import PATH_JUDGES
        from omac.domain.git.refs import packed_replacements

        if rule.named and (problem := PATH_JUDGES[rule.named](here)):
            self._refuse(folder, entry, path, problem)
            return
        before = self._baseline.contents.get(path)
        problem = self._problem(rule, content, before or b"") if rule.judge else "is new or changed"
        if rule.judge == "log" and not problem:
            self._inspection.note_log(entry)
        if rule.judge == "index":
            self._inspection.changed.add(self._git)
        if problem:
            self._act(folder, entry, path, rule, before, problem)
        elif rule.writer != AGENT and before is not None and content.strip() != b"":
            self._inspection.report(path, "was changed while the program ran")
        elif rule.otherwise == REPORT and content != (before or b""):
            self._inspection.report(path, "hides a part of the history; git fetch --unshallow brings it")
        elif here == "packed-refs" and packed_replacements(content):
            message = "names replacements of objects: git log --no-replace-objects shows the real ones"
            self._inspection.report(path, message)

    def _problem(self, rule: Rule, content: bytes, before: bytes) -> str:
        from omac.domain.git.judges import JUDGES

        return JUDGES[rule.judge](content, before, self._place)

    def _refuse(self, folder: int, entry: Entry, path: str, problem: str) -> None:
        """Note, at launch, an entry that the grammar does not allow; at the end, set it aside unless it was noted."""
        status = entry.stat(follow_symlinks=False)
        if self._inspection.is_first:
            self._baseline.note(path, self._stamp(folder, entry.name, status))
        elif not self._was_there(path, status):
            self._inspection.set_aside(folder, entry.name, path, problem)
        elif self._baseline.strays[path] != self._stamp(folder, entry.name, status):
            self._inspection.report(path, CHANGED_WITHIN)

    def _stamp(self, folder: int, name: str, status: os.stat_result) -> Stamp:
        try:
            return stamp_with_content(folder, name, status, self._inspection.budget.spend)
        except OSError:
            return stamp_of(status)

    def _was_there(self, path: str, status: os.stat_result) -> bool:
        """Return whether an entry is the one noted at launch; size and change time of a folder do not count."""
        known = self._baseline.strays.get(path)
        now = stamp_of(status)
        return known == now or (known is not None and stat.S_ISDIR(status.st_mode) and known[:3] == now[:3])

    def _act(self, folder: int, entry: Entry, path: str, rule: Rule, before: bytes | None, problem: str) -> None:
        """Take from a file what may not be in it, or the file, and put back what was there at launch."""
        if self._was_there(path, entry.stat(follow_symlinks=False)):
            return
        if rule.clean_by:
            self._clean(folder, entry.name, path, rule, before or b"")
        elif self._inspection.set_aside(folder, entry.name, path, problem) and before is not None:
            try_to_put(self._inspection, folder, entry.name, path, before)

    def _clean(self, folder: int, name: str, path: str, rule: Rule, before: bytes) -> None:
        """Take from a file what may not be in it, under git's own lock: the host may be writing it."""
        from omac.domain.git.judges import CLEANERS

        lock = f"{name}.lock"
        try:
            put(folder, lock, b"")
        except OSError:
            if self._inspection.while_running:
                return  # when it is written that is an event of its own
            lock = ""  # it was left there, and keeps nobody from writing
        try:
            content = content_of(folder, name, rule.bytes_max)
            problem = self._problem(rule, content, before) if content is not None else ""
            message = f"{problem}; that is taken out, the rest stays (if it was you who set it, set it again)"
            if content and problem and self._inspection.set_aside(folder, name, path, message):
                try_to_put(self._inspection, folder, name, path, CLEANERS[rule.clean_by](content, before, self._place))
        finally:
            if lock:
                os.unlink(lock, dir_fd=folder)


def try_to_put(inspection: Inspection, folder: int, name: str, path: str, content: bytes) -> None:
    """Put a file in the place of what was set aside, or report that it could not be: the inspection goes on."""
    try:
        while_writable(folder, lambda: put(folder, name, content))
    except OSError as error:
        inspection.report(path, f"could not be put back as it may be: {error.strerror}")


def _is_too_deep(path: str) -> bool:
    return path.count("/") > SLASHES_MAX or len(path) > PATH_CHARACTERS_MAX


def _worktree(folder: int) -> str:
    from omac.domain.git.config_allowlist import worktree_of

    return worktree_of(content_of(folder, "config", 1 << 20) or b"")


def settings_of(common: str) -> bytes | None:
    """Return what the settings file of a git folder holds; None where it cannot be read."""
    try:
        with Descriptor(opened_root(common)) as folder:
            return content_of(folder, "config", 1 << 20)
    except OSError:
        return None


def inspect_folder(inspection: Inspection, path: str, folder: Folder, opened: int, *, has_others: bool = False) -> None:
    """Judge what is in an open git folder, again where something goes meanwhile: the host's git is at work. While the
    program runs it is judged once: what goes has an event of its own. Raises Exhausted, OSError."""
    begun = inspection.position()
    for _ in range(0 if inspection.while_running else TRIES - 1):
        try:
            GitFolder(inspection, path, folder, has_others=has_others).inspect(opened)
            return
        except FileNotFoundError:
            inspection.go_back(begun)
            time.sleep(PAUSE_S)
    GitFolder(inspection, path, folder, has_others=has_others).inspect(opened)
