"""Files that are hidden in a sandbox, as git has them: as content, in an index, or as the marker in their place."""

from __future__ import annotations

import os
import stat

from omac.adapters.files import bounded
from omac.adapters.linux.resolve_symlinks import resolve_symlinks
from omac.domain.kernel.paths import below
from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.sandbox.hidden_names import MARKER, MARKER_OIDS, NAMES_SHOWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from omac.adapters.git.layout import Layout
    from omac.adapters.git.repository import Repository
    from omac.domain.sandbox.confinement import Entry

ENV_BYTES_MAX = 1 << 20  # of a file that is compared with its repository's
CLOCK_LAG_NS = 20_000_000  # of the clock by which files are stamped


def added(layouts: Iterable[Layout], entries: Iterable[Entry], since_ns: int) -> list[str]:
    """A line for each worktree whose index has the marker in the place of a file that was hidden, or whose git was
    given it since: a commit that is not checked out, or a stash, may have it."""
    hidden = {entry.path for entry in entries if entry.content == MARKER}
    if not hidden:
        return []
    from omac.adapters.git.git_folder import settings_of
    from omac.adapters.git.tracked_files import names_of
    from omac.domain.git.config import oid_bytes_of

    lines = []
    for git, folder in [pair for layout in layouts for pair in layout.folders.items()]:
        oid = MARKER_OIDS.get(oid_bytes_of(settings_of(folder.common) or b""), "")
        names = [name for name in names_of(git, oid) if f"{folder.worktree}/{name}" in hidden] if oid else []
        if names:
            shown = ", ".join(names[:NAMES_SHOWN]) + (
                f" and {len(names) - NAMES_SHOWN} more" * (len(names) > NAMES_SHOWN)
            )
            command = f"git -C {quoted(folder.worktree)} log -p -- {quoted(names[0])}"
            lines.append(
                f"git in {folder.worktree} read omac's placeholder instead of {shown}: the files are unchanged, but "
                f"commits may contain the placeholder; before you push: {command}"
            )
        elif oid and folder.worktree and _was_stored(f"{folder.common}/objects/{oid[:2]}/{oid[2:]}", since_ns):
            command = f"git -C {quoted(folder.worktree)} log --all -m --name-only --find-object={oid}"
            lines.append(
                f"git in {folder.worktree} read omac's placeholder instead of a hidden file, and a commit or stash may "
                f"contain it; before you push, or use that stash: {command}"
            )
    return lines


def _was_stored(path: str, since_ns: int) -> bool:
    """Return whether git has stored the object at a path since then; of one that git has already, git renews the
    time."""
    try:
        return os.lstat(path).st_mtime_ns >= since_ns - CLOCK_LAG_NS
    except OSError:
        return False


def tracked(layouts: Iterable[Layout], entries: Iterable[Entry]) -> set[str]:
    """Return the paths of files that are hidden, and in the index of their worktree."""
    hidden = {entry.path for entry in entries if entry.content == MARKER}
    names_tracked: set[str] = set()
    if hidden:
        from omac.adapters.git.tracked_files import tracked_of

        for git, folder in [pair for layout in layouts for pair in layout.folders.items()]:
            start = f"{folder.worktree}/"
            names = [path.removeprefix(start) for path in hidden if folder.worktree and path.startswith(start)]
            names_tracked |= {start + name for name in tracked_of(git, names)}
    return names_tracked


def is_users(path: str) -> bool:
    """Return whether a path belongs to the user."""
    try:
        return os.lstat(path).st_uid == os.geteuid()
    except OSError:
        return False


def leads_to(path: str, folder: str) -> str:
    """The canonical path of what lies at `path` in `folder`; empty where that is not in there, or git's own.

    A link that an agent made leads to nothing but what its next session does without.
    """
    try:
        if not stat.S_ISLNK(os.lstat(path).st_mode):
            return path
        real = resolve_symlinks(path)[1]
        regular = stat.S_ISREG(os.lstat(real).st_mode)
    except OSError:
        return ""
    return real if regular and below(real, folder) and "/.git/" not in real else ""


def keeps(path: str, repositories: Sequence[Repository]) -> bool:
    """Return whether the repository around a file has its very content, or the file holds but a copy of the marker."""
    around = [repository for repository in repositories if below(path, repository.root)]
    try:
        content = bounded.read(path, ENV_BYTES_MAX)
        if content == MARKER or not around:
            return content == MARKER
        from omac.adapters.git import object_store  # here, for most projects have no such file

        nearest = max(around, key=lambda repository: len(repository.root))
        return object_store.holds(nearest.common, content)
    except (OSError, Refusal):
        return False  # hidden, then
