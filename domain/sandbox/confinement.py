"""The policy of one sandbox, as data: which paths, which network, which variables, which limits, and why.

Rules

1. Nothing of the host is there unless an entry says so.
2. The entry with the longest path that is a prefix of a path decides about it; one path has one entry.
3. "read" beneath "write" pins: what is there can be neither changed, moved nor replaced.
4. What omac keeps for itself (`hidden`) is out of reach, whatever an entry says.
5. A policy is computed once, shown by `--explain`, recorded by its digest, and enforced by a backend, or refused.

Loaded by programs whose whole start is a few milliseconds, so it imports nothing that costs one.
"""

from __future__ import annotations

from omac.domain.kernel import PlainData
from omac.domain.kernel.paths import below

TYPE_CHECKING = False  # importing typing would take longer than all the rest
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

READ = "read"  # may be read; where it lies in something writable, it stays as it is
WRITE = "write"  # may be read and changed; the path itself cannot be moved or removed
DENY = "deny"  # neither its names nor its content
PRIVATE = "private"  # an empty folder of the sandbox's own, gone with it
COPY = "copy"  # a file of the sandbox's own with `content`; changing it changes nothing outside
LINK = "link"  # a symbolic link to `target`, as it is on the host

NETWORKS = ("host", "none")
BACKENDS = ("auto", "bubblewrap", "landlock")
# processes, bytes, processors (a fraction may do), open files of a process, bytes of each folder that lives in memory
LIMITS = ("pids", "memory", "cpu", "files", "tmp")
_BY_NAME = "--deny"  # the reason of denials
ALLOWED = "--allow"  # the reason of what a person lets be changed
GIT_HOOKS = "git: hooks run on the host"  # the reason of such denials, which look like empty folders
SOCKETS_OUTSIDE = "sockets of programs outside are not part of a broader grant"  # the reason of such denials
REPLACEABLE = "/run/omac/replaceable"  # inside: a private folder of copies that stand for pinned files


class Entry:
    """One path, what may be done there, and why. `path` is canonical and absolute.

    `content` is for COPY, and for DENY what is read in place of a file; `target` is for LINK. `source` is what is shown
    there, where that lies elsewhere. `made` is "file" or "folder" for a path that must exist to be pinned and does not:
    it is made on the host at launch (a file with `content`) and removed at exit, where it is still that. If it is
    `shared`, every user who can read its folder can read it.
    """

    __slots__ = ("access", "content", "made", "path", "reason", "shared", "source", "target")

    def __init__(
        self,
        path: str,
        access: str,
        reason: str,
        *,
        content: bytes = b"",
        target: str = "",
        made: str = "",
        shared: bool = False,
        source: str = "",
    ) -> None:
        self.path = path
        self.access = access
        self.reason = reason
        self.content = content
        self.target = target
        self.made = made
        self.shared = shared
        self.source = source or path

    def __repr__(self) -> str:
        return f"Entry({self.path!r}, {self.access!r}, {self.reason!r})"


class Policy(PlainData):
    """The permissions of one program. `entries` are in the order of `ordered`; `limits` are by name, as of LIMITS."""

    workdir: str
    entries: tuple[Entry, ...]
    environment: Mapping[str, str]
    hidden: tuple[str, ...] = ()  # canonical folders that are omac's own (rule 4)
    network: str = "host"
    ports: tuple[int | str, ...] = ()  # TCP ports, and ranges, that it may listen on, beside those the system deals out
    limits: Mapping[str, float] = {}  # which nobody changes
    fence: tuple[str, ...] = ()  # where no special files and links may be made: git's folders of a linked worktree
    warnings: tuple[str, ...] = ()  # what a person should know before it runs


def ordered(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """One entry a path, parents before what is below them; of two for the same path, the later one counts."""
    last = {entry.path: entry for entry in entries}
    return tuple(last[path] for path in sorted(last, key=lambda path: path.split("/")))


def governing(entries: Iterable[Entry], path: str) -> Entry | None:
    """The entry that decides about a canonical path (rule 2); None: it is not there (rule 1).

    Of two for the same path the later one counts, as of `ordered`.
    """
    nearest: Entry | None = None
    length = 0
    for entry in entries:  # asked so often in a launch that `below` is written out
        folder = entry.path
        if path.startswith(folder) and len(folder) >= length and (folder == path or below(path, folder)):
            nearest, length = entry, len(folder)
    return nearest


def access_at(entries: Iterable[Entry], path: str) -> str:
    """Return the access to a canonical path, by the entry that decides about it; empty where it is not there."""
    around = governing(entries, path)
    return around.access if around is not None else ""


def denials(paths: Iterable[str]) -> list[Entry]:
    """Return the entries for paths that a person denies by name."""
    return [Entry(path, DENY, _BY_NAME) for path in paths]


class Closing:
    """The entries that keep paths from being written although `folder` may be. A denial by the person counts outside
    the folder, too. `paths` are those in the folder below which nothing can be written."""

    def __init__(self, entries: Iterable[Entry] = (), folder: str = "") -> None:
        deciding = [entry for entry in entries if _decides(entry, folder)]
        closed = [entry.path for entry in deciding if entry.access in (READ, DENY, PRIVATE)]
        self._deciding = deciding if closed else []
        writable = [entry.path for entry in deciding if entry.access == WRITE]
        self.paths = tuple(
            path for path in closed if below(path, folder) and not any(below(within, path) for within in writable)
        )

    def __call__(self, path: str) -> str:
        """Return the access of the entry that keeps a path from being written; empty where none does."""
        access = access_at(self._deciding, path)
        return access if access != WRITE else ""


def _decides(entry: Entry, folder: str) -> bool:
    by_name = entry.access == DENY and entry.reason == _BY_NAME
    return entry.access == WRITE or by_name or below(entry.path, folder)
