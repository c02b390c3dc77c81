"""The entries for git's folders: what a commit writes is writable, what the host's git would run or follow is pinned.

A git folder that can be written as a whole (plain clone, submodule, --separate-git-dir, bare): `config`,
`config.worktree`, `hooks`, `info/attributes`, `objects/info/alternates`, `refs/replace` and a `commondir` that says "."
are pinned; git writes a copy of its settings (`config_copies.py`). A program of the host that replaces such a file
while the sandbox runs (`git config` does) takes its pin away with it: the inspection at the end compares the settings.

The common folder of a linked worktree is not shown: a private folder stands in its place, with one entry for each thing
that git needs. Lock files can be made there, nothing made there reaches the host, and no pin can be lost.
"""

from __future__ import annotations

import os
import stat

from omac.adapters.git import pointers
from omac.adapters.git.config_copies import ConfigCopy
from omac.adapters.git.pins import Pins
from omac.adapters.git.repository import is_folder, is_git_folder, mode_of
from omac.adapters.linux.resolve_symlinks import resolve_symlinks
from omac.domain.kernel.paths import below
from omac.domain.kernel.refusal import quoted
from omac.domain.sandbox.confinement import DENY, GIT_HOOKS, LINK, PRIVATE, READ, WRITE, Entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEPTH_MAX = 12  # of submodules' names and nesting
PACKS_MAX = 100  # files of packs that other repositories have, too
ADMINS_MAX = 200  # linked worktrees of one repository, whose files are pinned one by one
ELSEWHERE = "worktree-outside-the-sandbox"
DECOY = b".\n"  # what `commondir` says of a folder that is its own common folder

_READABLE = ("HEAD", "config.worktree", "index", "shallow", "modules", "branches", "remotes")
_INFO = ("attributes", "exclude", "grafts", "sparse-checkout")
SHARED = ("lfs", "rr-cache", "reftable")  # contents by hash, recorded resolutions, refs


class Folders:
    """Adds entries to `pins`, and keeps what it found: the `fence`, and every git folder that may be written."""

    def __init__(self, pins: Pins, hooks: str) -> None:
        self._pins = pins
        self._hooks = READ if hooks == "read" else DENY
        self.fence: list[str] = []
        self.whole: list[str] = []  # git folders that can be written as a whole
        self.admins: list[str] = []  # admin folders of linked worktrees
        self.others: list[str] = []  # those that can only be read, unless they are among `admins`, too
        self.objects: list[str] = []  # folders of objects that can be written
        self.copies: list[ConfigCopy] = []  # of settings that are pinned
        self.absent: list[str] = []  # files of the tree that settings name, and that are not there
        self.warnings: list[str] = []

    def state(self) -> tuple[int, ...]:
        """Return the state that `restore` goes back to."""
        return tuple(len(kept) for kept in self._kept())

    def restore(self, state: tuple[int, ...]) -> None:
        """Forget what came after `state`."""
        for kept, length in zip(self._kept(), state, strict=True):
            del kept[length:]

    def _kept(self) -> tuple[list[Any], ...]:
        return self.fence, self.whole, self.admins, self.others, self.objects, self.copies, self.absent

    def whole_folder(self, git: str, *, outside: bool) -> None:
        """A git folder that can be written, its submodules' and its worktrees'. Raises Refusal."""
        if git in self.whole:
            return
        _require_own_folders(git)
        self.whole.append(git)
        pins = self._pins
        if outside:
            pins.grant(git, "git: the repository of the workdir")
            self.fence.append(git)
        self._settings(f"{git}/config", git, git)
        self._settings(f"{git}/config.worktree", git, git)
        pins.pin(f"{git}/commondir", "git: would lead to other settings", made="file", content=DECOY)
        pins.pin(f"{git}/hooks", GIT_HOOKS, made="folder", access=self._hooks)
        self.hook_links(f"{git}/hooks")
        pins.pin(f"{git}/info/attributes", "git: attributes choose filters", made="file")
        self._objects_and_replacements(git, refs=True)
        self._modules(f"{git}/modules", 0)
        self._worktrees(git)

    def linked(self, git: str, common: str, session: str, *, refs: bool) -> None:
        """The admin folder `git` and the `common` folder of a linked worktree, outside the workdir. Raises Refusal.

        `session`: the folder that `refs.py` fills; `refs`: the loose refs are the session's too, not only the packed.
        """
        pins = self._pins
        if common not in pins.entries:
            _require_own_folders(common)
            self._common(common, session, refs=refs)
        if git not in self.admins:
            pins.entries.pop(git, None)  # as one of several
            pins.grant(git, "git: index, HEAD and log of the worktree")
            self.fence.append(git)
            self._admin(git, common)

    def _common(self, common: str, session: str, *, refs: bool) -> None:
        pins = self._pins
        pins.put(Entry(common, PRIVATE, "git: lock files may be made here, and end with the sandbox"))
        for name in _READABLE:
            self._shown(f"{common}/{name}", READ, "git: read when committing")
        for name in _INFO:
            self._shown(f"{common}/info/{name}", READ, "git: read when committing")
        pins.pin(f"{common}/hooks", GIT_HOOKS, access=self._hooks)
        for name in SHARED:
            if self._shown(f"{common}/{name}", WRITE, "git: shared with the repository"):
                self.fence.append(f"{common}/{name}")
        pins.grant(f"{common}/objects", "git: commits are kept here")
        pins.grant(f"{common}/logs", "git: what branches were", made="folder")
        self.fence += [f"{common}/objects", f"{common}/logs"]
        if refs:
            pins.put(Entry(f"{common}/refs", LINK, "git: the session's own view of refs", target=f"{session}/refs"))
        else:
            pins.grant(f"{common}/refs", "git: branches and tags")
            self.fence.append(f"{common}/refs")
        for name in ("packed-refs", "config"):
            target = f"{session}/{name}"
            pins.put(Entry(f"{common}/{name}", LINK, "git: the session's own copy", target=target))
        self._objects_and_replacements(common, refs=not refs)
        self._other_worktrees(f"{common}/worktrees")

    def _other_worktrees(self, folder: str) -> None:
        """Let worktrees be added, unless there are more than ADMINS_MAX. Existing ones are readable, which shows their
        branches."""
        names = _names(folder)
        self.others += [f"{folder}/{name}" for name in names]
        if len(names) > ADMINS_MAX:
            self._shown(folder, READ, "git: which branches other worktrees have")
            return
        self._pins.grant(folder, "git: new worktrees")
        self.fence.append(folder)
        for name in names:
            self._shown(f"{folder}/{name}", READ, "git: another worktree's")

    def _shown(self, path: str, access: str, reason: str) -> bool:
        """Add an entry for an existing file or folder, but not for a link; return whether one was added."""
        mode = mode_of(path)
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            return False
        self._pins.put(Entry(path, access, reason))
        return True

    def _admin(self, admin: str, common: str) -> None:
        """An admin folder that can be written, but for what makes it one."""
        self.admins.append(admin)
        self._pins.pin(f"{admin}/commondir", "git: names the repository")
        self._pins.pin(f"{admin}/gitdir", "git: names the worktree")
        self._settings(f"{admin}/config.worktree", admin, common)
        self._modules(f"{admin}/modules", 0)

    def _worktrees(self, git: str) -> None:
        """The admin folders in a git folder that can be written."""
        for name in _names(f"{git}/worktrees")[:ADMINS_MAX]:
            admin = f"{git}/worktrees/{name}"
            if is_folder(admin) and admin not in self.admins:
                self._admin(admin, git)
                self._hold_pointer(admin)

    def _hold_pointer(self, admin: str) -> None:
        """Have something where a worktree outside the workdir has its `.git`: git prunes one that it does not find, and
        deletes of the admin folder what is not pinned. Where the worktree is granted, its own is there."""
        back = os.fsdecode(pointers.read_leniently(f"{admin}/gitdir", pointers.BYTES_MAX).strip())
        dot = os.path.join(admin, back)
        is_elsewhere = back.endswith("/.git") and not below(dot, self._pins.workdir)
        if is_elsewhere and stat.S_ISREG(mode_of(dot)) and os.path.realpath(dot) == dot:
            self._pins.put(Entry(dot, LINK, "git: a worktree that is elsewhere", target=ELSEWHERE))

    def _modules(self, folder: str, depth: int) -> None:
        """The git folders of submodules: a submodule's name may have slashes, and each may have its own."""
        for name in _names(folder):
            path = f"{folder}/{name}"
            if not is_folder(path):
                continue
            if is_git_folder(path):
                self.whole_folder(path, outside=False)
            elif depth < DEPTH_MAX:
                self._modules(path, depth + 1)

    def _settings(self, path: str, git: str, common: str) -> None:
        """Pin a file of settings; inside, git writes a copy of it."""
        self._pins.pin(path, "git: its settings can run programs", made="file")
        if path in self._pins.entries:
            self.copies.append(ConfigCopy(path, git, common))

    def _objects_and_replacements(self, git: str, *, refs: bool) -> None:
        pins = self._pins
        alternates = f"{git}/objects/info/alternates"
        pins.pin(alternates, "git: names other places for objects", made="file")
        for line in (pointers.read(alternates, pointers.CONFIG_BYTES_MAX) or b"").splitlines():
            path = os.path.normpath(os.path.join(f"{git}/objects", os.fsdecode(line)))
            if line and not line.startswith(b"#") and not below(path, pins.workdir):
                self.warnings.append(
                    f"{alternates} takes objects from {path}, which the sandbox cannot "
                    "read; if you set that, grant it with --read"
                )
        self.objects.append(f"{git}/objects")
        for pack in _shared_packs(f"{git}/objects/pack"):
            pins.pin(pack, "git: another repository has the same file")
        if refs:
            pins.pin(f"{git}/refs/replace", "git: shows one object for another", made="folder")

    def hook_links(self, hooks: str) -> None:
        """Pin the targets of hooks that are links into the tree."""
        for name in _names(hooks):
            path = f"{hooks}/{name}"
            if stat.S_ISLNK(mode_of(path)):
                self.in_tree(os.path.realpath(path), "", "a hook")

    def pin_pointer(self, dot: str) -> None:
        """The `.git` file of a worktree."""
        self._pins.pin(dot, "git: names the repository")

    def in_tree(self, path: str, made: str, why: str) -> None:
        """Keep what the repository's settings make git run or read, where it lies in what can be written."""
        pins = self._pins
        workdir = pins.workdir
        if made == "folder" and os.path.realpath(path) == workdir:
            raise pointers.unsafe(
                f"{why} names {workdir} itself, so a program could make hooks there",
                f"git -C {quoted(workdir)} config --show-origin --get-all {why}",
            )
        if not path.startswith(workdir + "/"):
            try:
                links, real = resolve_symlinks(path)
            except OSError:
                return  # in circles: nothing is run or read there
            loose = next((link for link, _ in links if link.startswith(workdir + "/")), "")
            if not loose and (real == path or not real.startswith(workdir + "/")):
                return
            path = loose or real
        if mode_of(path) == 0 and made == "":
            if any(sign in path[len(workdir) + 1 :] for sign in "./"):  # else it is a word like any other
                self.absent.append(path)
            return
        if os.path.realpath(path) != path:
            raise pointers.unsafe(
                f"{why} names {path}, which passes through a symbolic link, so an agent could redirect it",
                f"git -C {quoted(workdir)} config --list --show-origin",
            )
        if not any(below(path, f"{git}/hooks") for git in self.whole):
            pins.pin(path, f"git: {why} names it", made=made)


def _require_own_folders(git: str) -> None:
    """Raise Refusal where objects or refs are kept elsewhere: nothing below a link can be held in place."""
    for name in ("objects", "refs"):
        path = f"{git}/{name}"
        if not is_folder(path):
            kind = "a symbolic link" if stat.S_ISLNK(mode_of(path)) else "no folder"
            raise pointers.unsafe(
                f"{path} is {kind}, so git's files in it cannot be protected from the program",
                f"readlink -f {quoted(path)}  # move that folder to {path}; or git clone, and work in the clone",
            )


def _shared_packs(folder: str) -> list[str]:
    """Return packs, and what belongs to them, that have a second name: in a clone of a local path. Raises Refusal: too
    many.

    A program that writes through one name changes the file behind the other, and git does not hash an object when it
    reads it.
    """
    packs = []
    try:
        with os.scandir(folder) as scan:
            for entry in scan:
                if entry.is_file(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_nlink > 1:
                    packs.append(entry.path)
    except OSError:
        return []
    if len(packs) > PACKS_MAX:
        raise pointers.unsafe(
            f"{folder} shares {len(packs)} files with another repository, and {PACKS_MAX} can be protected",
            f"git --git-dir={quoted(folder.removesuffix('/objects/pack'))} repack -ad",
        )
    return packs


def _names(folder: str) -> list[str]:
    """The names in a folder, sorted; none where there is no folder."""
    try:
        return sorted(os.listdir(folder)) if is_folder(folder) else []
    except OSError:
        return []
