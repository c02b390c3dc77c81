"""Whether a git folder that a sandbox could write would act on the host when the host's git opens it.

Looks by descriptor, follows no link, and stops at bounds: what was made to be hard to look at counts as dangerous.
"""

from __future__ import annotations

import os
import stat

from omac.adapters.git import harmless, pointers
from omac.domain.confinement import below
from omac.domain.refusal import Refusal

SETTINGS_BYTES_MAX = 20_000  # of a new repository: reading them takes 1 µs a byte, and there may be a thousand
ENTRIES_MAX = 50_000  # of one git folder, its objects not counted
DEPTH_MAX = 40
VARIANT_DIGITS_MAX = 4  # of one conflict's number in MERGE_RR: git makes room for as many
DISARMED = ".omac-disarmed"  # what follows the name of what was put out of the way
TODO_FILES = ("rebase-merge/git-rebase-todo", "rebase-merge/done", "rebase-apply/git-rebase-todo", "sequencer/todo")
_SPECIAL = (stat.S_IFLNK, stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFBLK, stat.S_IFCHR)


def verdict(git: str, workdir: str) -> list[str]:
    """Why a new git folder is dangerous; an empty list: it is not."""
    reasons: list[str] = []
    for name in ("config", "config.worktree"):
        try:
            content = pointers.read(f"{git}/{name}", SETTINGS_BYTES_MAX) or b""
        except Refusal:
            return [f"its {name} is not a file that can be read"]
        for key in harmless.dangers(content):
            if key != "core.worktree":
                reasons.append(f"its {name} sets {key}")
        worktree = harmless.worktree_of(content) if b"worktree" in content.lower() else ""
        if worktree and not below(os.path.realpath(os.path.join(git, worktree)), workdir):
            reasons.append(f"its {name} names a worktree outside the workdir")
    try:
        common = pointers.read(f"{git}/commondir", pointers.BYTES_MAX)
    except Refusal:
        common = b"?"
    if common is not None and common.strip() != b".":
        reasons.append("its commondir takes the settings from elsewhere")
    reasons += [f"it has the hook {name}" for name in live_hooks(git, 0)]
    reasons += [f"its {name} would run commands" for name in running_todos(git, 0)]
    if records_elsewhere(git, os.path.dirname(git)):
        reasons.append("its MERGE_RR names files outside the worktree")
    found, complete = specials(git, 0)
    reasons += [f"{path[len(git) + 1 :]} in it is {kind}" for path, kind in found]
    return reasons if complete else [*reasons, "it has too many files to look at"]


def is_disarmed(path: str) -> bool:
    """Whether the name of a path is one that the sweep gives, and that git passes over where it is."""
    name = path.rpartition("/")[2]
    if "/refs/" in path or "/logs/" in path:
        return DISARMED in name and name.endswith(".lock")
    return DISARMED in name


def live_hooks(git: str, since_ns: int) -> list[str]:
    """The hooks that git would run, changed at or after `since_ns`."""
    found = []
    try:
        make_listable(f"{git}/hooks")
        scan = os.scandir(f"{git}/hooks")
    except OSError:
        return []
    with scan:
        for entry in scan:
            status = entry.stat(follow_symlinks=False)
            runs = stat.S_ISLNK(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_mode & 0o111)
            if (
                runs
                and not entry.name.endswith(".sample")
                and DISARMED not in entry.name
                and status.st_ctime_ns >= since_ns
            ):
                found.append(entry.name)
    return sorted(found)


def running_todos(git: str, since_ns: int) -> list[str]:
    """The lists of an unfinished rebase or sequence that have commands to run, changed at or after `since_ns`."""
    found = []
    for name in TODO_FILES:
        path = f"{git}/{name}"
        try:
            if os.lstat(path).st_ctime_ns < since_ns:
                continue
            content = pointers.read(path, pointers.CONFIG_BYTES_MAX) or b""
        except OSError:
            continue
        except Refusal:
            found.append(name)
            continue
        words = (line.split(None, 1)[:1] for line in content.splitlines())
        if not name.endswith("done") and any(word in ([b"exec"], [b"x"]) for word in words):
            found.append(name)
    return found


def records_elsewhere(git: str, root: str) -> bool:
    """Whether MERGE_RR, the conflicts whose files git copies to rr-cache at the next commit, or writes, is not as git
    writes it, or names a file outside the worktree `root`."""
    try:
        content = pointers.read(f"{git}/MERGE_RR", pointers.CONFIG_BYTES_MAX) or b""
    except Refusal:
        return True
    within = os.path.realpath(root)
    for record in content.split(b"\0")[:-1]:
        number, _, name = record.partition(b"\t")
        number, _, variant = number.partition(b".")
        well_formed = len(number) in (40, 64) and not number.strip(b"0123456789abcdef")
        place = os.path.realpath(os.path.join(within, os.fsdecode(name)))
        if not well_formed or len(variant) > VARIANT_DIGITS_MAX or not below(place, within):
            return True
    return not content.endswith(b"\0") and content != b""


def specials(folder: str, since_ns: int, *, skipped: tuple[str, ...] = ()) -> tuple[list[tuple[str, str]], bool]:
    """(path, what it is) of links, FIFOs, sockets and devices among git's files, changed at or after `since_ns`.

    Also whether all was seen. Of `objects` only the first level; `skipped` are paths that are not gone into.
    """
    found: list[tuple[str, str]] = []
    seen = 0
    complete = True
    waiting = [(folder, 0)]
    while waiting:
        path, depth = waiting.pop()
        try:
            make_listable(path)
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        store = path.endswith("/objects") and "/refs/" not in path and "/logs/" not in path
        try:
            with os.scandir(descriptor) as scan:
                for entry in scan:
                    seen += 1
                    full = f"{path}/{entry.name}"
                    if entry.is_dir(follow_symlinks=False):
                        if depth >= DEPTH_MAX:
                            complete = False
                        elif full not in skipped and not store:
                            waiting.append((full, depth + 1))
                    elif not entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        special = stat.S_IFMT(status.st_mode) in _SPECIAL and status.st_ctime_ns >= since_ns
                        if special and not is_disarmed(full):
                            found.append((full, kind_of(status.st_mode)))
        finally:
            os.close(descriptor)
        if seen > ENTRIES_MAX:
            return found, False
    return found, complete


def make_listable(path: str, parent: int | None = None) -> None:
    """Give a folder of the user's own its owner's permissions back: git passes through what it cannot list, and finds
    what lies in it. Relative to the open folder `parent`. Raises OSError."""
    folder = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        found = os.fstat(folder)
        passed = found.st_mode & 0o100 or parent is None  # of git's own folders, all are looked at
        if found.st_uid == os.geteuid() and passed and found.st_mode & 0o500 != 0o500:
            os.chmod(f"/proc/self/fd/{folder}", stat.S_IMODE(found.st_mode) | 0o700)
    finally:
        os.close(folder)


def kind_of(mode: int) -> str:
    """What a special file is, in words."""
    if stat.S_ISLNK(mode):
        return "a symbolic link"
    return "a FIFO" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
