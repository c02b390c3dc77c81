"""What is hidden by its name in everything that was granted: files of environment variables, and a person's patterns.

Rules

1. What an entry names is shown: a name that a person wrote out counts more than one that was found.
2. A file of environment variables that its repository keeps as it is could be read there anyway, and git works on it:
   it is shown. What the repository says of it does not count, only whether it has the content.
3. A mount on a file goes with it wherever a folder above is moved, so no folder is held in place for it.
"""

from __future__ import annotations

import os
import stat

from omac.adapters.files import bounded
from omac.adapters.git.tree import ENTRIES_MAX, walk
from omac.adapters.linux.resolve_symlinks import trail
from omac.domain.kernel.paths import below
from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.sandbox.confinement import DENY, LINK, READ, WRITE, Entry, governing
from omac.domain.sandbox.hidden_names import MARKER, MARKER_OID

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from omac.adapters.git.layout import Layout
    from omac.adapters.git.repository import Repository
    from omac.adapters.git.tree import Found
    from omac.domain.sandbox.hidden_names import HiddenNames

FILES_MAX = 400  # that are hidden one by one, each by a mount
ENV_BYTES_MAX = 1 << 20  # of a file that is compared with its repository's

CLOCK_LAG_NS = 20_000_000  # of the clock by which files are stamped
NAMES_SHOWN = 5  # of files in whose place the marker was added

_SHOW = "omac sandbox run --allow-env-files -- COMMAND"


def added(layouts: Iterable[Layout], entries: Iterable[Entry], since_ns: int) -> list[str]:
    """A line for each worktree whose index has the marker in the place of a file that was hidden, or whose git was
    given it since: a commit that is not checked out, or a stash, may have it."""
    hidden = {entry.path for entry in entries if entry.content == MARKER}
    if not hidden:
        return []
    from omac.adapters.git.tracked_files import names_of

    found = []
    for git, folder in [pair for layout in layouts for pair in layout.folders.items()]:
        names = [name for name in names_of(git, MARKER_OID) if f"{folder.worktree}/{name}" in hidden]
        if names:
            shown = ", ".join(names[:NAMES_SHOWN]) + (
                f" and {len(names) - NAMES_SHOWN} more" * (len(names) > NAMES_SHOWN)
            )
            command = f"git -C {quoted(folder.worktree)} log -p -- {quoted(names[0])}"
            found.append(
                f"git in {folder.worktree} read omac's placeholder instead of {shown}: the files are unchanged, but "
                f"commits may contain the placeholder; before you push: {command}"
            )
        elif folder.worktree and _was_given(f"{folder.common}/objects", since_ns):
            command = f"git -C {quoted(folder.worktree)} log --all -m --name-only --find-object={MARKER_OID}"
            found.append(
                f"git in {folder.worktree} read omac's placeholder instead of a hidden file, and a commit or stash may "
                f"contain it; before you push, or use that stash: {command}"
            )
    return found


def _was_given(objects: str, since_ns: int) -> bool:
    """Whether git has kept the marker since; of what it has already, it renews the time."""
    try:
        return os.lstat(f"{objects}/{MARKER_OID[:2]}/{MARKER_OID[2:]}").st_mtime_ns >= since_ns - CLOCK_LAG_NS
    except OSError:
        return False


def tracked(layouts: Iterable[Layout], entries: Iterable[Entry]) -> set[str]:
    """Return the paths of files that are hidden, and in the index of their worktree."""
    hidden = {entry.path for entry in entries if entry.content == MARKER}
    found: set[str] = set()
    if hidden:
        from omac.adapters.git.tracked_files import tracked_of

        for git, folder in [pair for layout in layouts for pair in layout.folders.items()]:
            start = f"{folder.worktree}/"
            names = [path.removeprefix(start) for path in hidden if folder.worktree and path.startswith(start)]
            found |= {start + name for name in tracked_of(git, names)}
    return found


def newly_tracked(before: set[str], now: set[str]) -> list[str]:
    """A line for each file that is hidden, and that the program has put into an index."""
    what = "is in git's index now: your next git stash or git commit -a would put what it holds among git's objects,"
    return [
        f"{path} {what} where programs can read it: "
        f"git -C {quoted(os.path.dirname(path))} rm --cached -- {quoted(os.path.basename(path))}"
        for path in sorted(now - before)[:NAMES_SHOWN]
    ]


class HiddenSearch:
    """Looks through the granted folders, each once; `found` is by folder."""

    def __init__(self, names: HiddenNames, entries_max: int = ENTRIES_MAX) -> None:
        self._names = names
        self._entries_max = entries_max  # of each folder
        self.found: dict[str, Found] = {}

    def look(self, folder: str, left_out: Iterable[str] = ()) -> Found:
        """What is in a canonical folder. Raises Refusal (policy-too-large) where a pattern could not be looked for."""
        found = self.found[folder] = walk(folder, self._entries_max, self._names, frozenset(left_out))
        if self._names.patterns and not found.complete:
            message = f"{folder} has more than {self._entries_max} files: too many for --deny-name to search"
            raise Refusal("policy-too-large", message, fix=["omac sandbox run --deny PATH -- COMMAND"])
        return found

    def readable(self, entries: Sequence[Entry], granted: Sequence[Entry]) -> None:
        """Look through what was granted for reading, but for what is denied there, or was looked through."""
        if not (self._names.env_files or self._names.patterns):
            return
        left_out = {*self.found, *(entry.path for entry in entries if entry.access == DENY)}
        for one in sorted(granted, key=lambda entry: len(entry.path)):
            if one.access == READ and not any(below(one.path, folder) for folder in self.found):
                self.look(one.path, left_out)

    def entries(self, entries: Sequence[Entry], repositories: Sequence[Repository]) -> list[Entry]:
        """DENY for what is to be hidden, where `entries` show it. Raises Refusal (policy-too-large)."""
        hidden: dict[str, Entry] = {}
        named = {entry.path for entry in entries if entry.access != LINK}
        for folder, found in self.found.items():
            for path in (*found.named, *found.env_files):
                real = _led_to(path, folder)
                around = governing(entries, real) if real and real not in named else None
                if around is None or around.access not in (READ, WRITE):
                    continue
                if path in found.named:
                    hidden[real] = Entry(real, DENY, "--deny-name", content=MARKER)
                elif real not in hidden and not _kept(real, repositories):
                    hidden[real] = Entry(real, DENY, "may hold secrets: --allow-env-files shows it", content=MARKER)
            self._hide_unread(found, entries, hidden)
        if len(hidden) > FILES_MAX:
            first = next(iter(hidden))
            message = f"{len(hidden)} files have names to hide, {first} among them; the limit is {FILES_MAX}"
            raise Refusal("policy-too-large", message, fix=[_SHOW, f"omac sandbox run --deny {quoted(first)} -- true"])
        return list(hidden.values())

    def _hide_unread(self, found: Found, entries: Sequence[Entry], hidden: dict[str, Entry]) -> None:
        """What its owner cannot list now, a program that runs as the owner can list as soon as it likes."""
        for path in found.unread:
            around = governing(entries, path)
            if path in self.found:
                message = f"{path} cannot be listed, so files to hide in it cannot be found"
                raise Refusal("path-changed", message, fix=[f"chmod u+rx {quoted(path)}"])
            if around is not None and around.access in (READ, WRITE) and _is_users(path):
                hidden[path] = Entry(path, DENY, f"cannot be listed: chmod u+rx {quoted(path)} shows it")

    def warnings(self) -> list[str]:
        """What was not looked through to its end."""
        return [
            f"{folder} has more than {self._entries_max} files: .env files among the rest can be read"
            for folder, found in self.found.items()
            if not found.complete and self._names.env_files
        ]


def _is_users(path: str) -> bool:
    try:
        return os.lstat(path).st_uid == os.geteuid()
    except OSError:
        return False


def _led_to(path: str, folder: str) -> str:
    """The canonical path of what lies at `path` in `folder`; empty where that is not in there, or git's own.

    A link that an agent made leads to nothing but what its next session does without.
    """
    try:
        if not stat.S_ISLNK(os.lstat(path).st_mode):
            return path
        real = trail(path)[1]
        regular = stat.S_ISREG(os.lstat(real).st_mode)
    except OSError:
        return ""
    return real if regular and below(real, folder) and "/.git/" not in real else ""


def _kept(path: str, repositories: Sequence[Repository]) -> bool:
    """Whether the repository around a file has its very content (rule 2)."""
    around = [one for one in repositories if below(path, one.root)]
    if not around:
        return False
    from omac.adapters.git import object_store  # here, for most projects have no such file

    try:
        nearest = max(around, key=lambda one: len(one.root))
        return object_store.holds(nearest.common, bounded.read(path, ENV_BYTES_MAX))
    except (OSError, Refusal):
        return False  # hidden, then
