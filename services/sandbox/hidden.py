"""Files hidden in every granted folder: files of environment variables, a person's patterns, and sockets.

Rules

1. A file that an entry names is shown: a name that a person wrote out counts more than one that was found.
2. A file of environment variables that its repository keeps as it is could be read there anyway, and git works on it:
   it is shown. The repository must have exactly this content; its statements about the file do not count. So is a
   copy of the marker, which a build inside leaves.
3. Who connects to a socket that a program outside has acts by that program: in a project, and in an agent's own
   folders, it is hidden. One that was only left there is not, for a program inside puts its own in the place.
4. A mount on a file goes with it wherever a folder above is moved, so no folder is held in place for it.
"""

from __future__ import annotations

from omac.domain.kernel.paths import below, below_any
from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.sandbox.confinement import DENY, LINK, READ, SOCKETS_OUTSIDE, WRITE, Entry, access_at, governing
from omac.domain.sandbox.hidden_names import ENTRIES_MAX, MARKER, NAMES_SHOWN, SOCKET_MARKER, HiddenNames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from omac.services.sandbox.ports import FoundFiles, GitRepository, SandboxPorts

FILES_MAX = 400  # that are hidden one by one, each by a mount
NAMED_MAX = 5_000  # with names to hide, hidden or not: reading one, or following it, takes milliseconds
PACKAGES = ("node_modules", "site-packages", "vendor")  # folders of what package managers install, replace and remove

_SHOW = "omac sandbox run --allow-env-files -- COMMAND"


def newly_tracked(before: set[str], now: set[str]) -> list[str]:
    """A line for each file that is hidden, and that the program has put into an index."""
    warning = "is in git's index now: your next git stash or git commit -a would put what it holds among git's objects,"
    return [
        f"{path} {warning} where programs can read it: "
        f"git -C {quoted(path.rpartition('/')[0])} rm --cached -- {quoted(path.rpartition('/')[2])}"
        for path in sorted(now - before)[:NAMES_SHOWN]
    ]


class HiddenSearch:
    """Looks through the granted folders, each once; `found` is by folder."""

    def __init__(self, names: HiddenNames, ports: SandboxPorts, entries_max: int = ENTRIES_MAX) -> None:
        self._ports = ports
        self._names = names
        self._entries_max = entries_max  # of each folder
        self.found: dict[str, FoundFiles] = {}
        self._unnamed: list[FoundFiles] = []  # of folders in which sockets are hidden
        self._sockets: list[str] = []
        self._of_packages: list[str] = []  # hidden files that installed packages brought

    def search(self, folder: str, left_out: Iterable[str] = (), *, is_granted: bool = True) -> FoundFiles:
        """Search a canonical folder, which a person named as a grant or not, and return the files in it that matter.
        Raises Refusal (policy-too-large) where the folder is too large to find a pattern in."""
        files = self.found[folder] = self._ports.git.walk(folder, self._entries_max, self._names, left_out)
        if self._names.patterns and not files.complete:
            message = f"{folder} has more than {self._entries_max} files: too many for --deny-name to search"
            raise Refusal("policy-too-large", message, fix=["omac sandbox run --deny PATH -- COMMAND"])
        if not is_granted:
            self._unnamed.append(files)
        return files

    def search_agents(self, folder: str) -> FoundFiles:
        """Search a canonical folder that an agent keeps, where only sockets are hidden."""
        files = self._ports.git.walk(folder, self._entries_max, HiddenNames(env_files=False), ())
        self._unnamed.append(files)
        return files

    def readable(self, entries: Sequence[Entry], granted: Sequence[Entry]) -> None:
        """Look through what was granted for reading, but for what is denied there, or was looked through."""
        if not (self._names.env_files or self._names.patterns):
            return
        left_out = {*self.found, *(entry.path for entry in entries if entry.access == DENY)}
        for entry in sorted(granted, key=lambda entry: len(entry.path)):
            if entry.access == READ and not below_any(entry.path, self.found):
                self.search(entry.path, left_out)

    def entries(
        self, entries: Sequence[Entry], granted: Sequence[Entry], repositories: Sequence[GitRepository]
    ) -> list[Entry]:
        """DENY for what is to be hidden, where `entries` show it. Raises Refusal (policy-too-large)."""
        _require_few([path for files in self.found.values() for path in (*files.named, *files.env_files)], NAMED_MAX)
        hidden: dict[str, Entry] = {}
        named = {entry.path for entry in entries if entry.access != LINK}
        for folder, files in self.found.items():
            for path in (*files.named, *files.env_files):
                real = self._ports.hidden_files.leads_to(path, folder)
                if not real or real in named or access_at(entries, real) not in (READ, WRITE):
                    continue
                if path in files.named:
                    hidden[real] = Entry(real, DENY, "--deny-name", content=MARKER)
                elif real not in hidden and not self._ports.hidden_files.keeps(real, repositories):
                    hidden[real] = Entry(real, DENY, "may hold secrets: --allow-env-files shows it", content=MARKER)
            self._hide_unread(files, entries, hidden)
        self._of_packages = [path for path in hidden if self._is_of_package(path)]
        self._sockets = self._shown_sockets(entries, {entry.path for entry in granted})
        hidden |= {path: Entry(path, DENY, SOCKETS_OUTSIDE, content=SOCKET_MARKER) for path in self._sockets}
        _require_few(list(hidden), FILES_MAX)
        return list(hidden.values())

    def _is_of_package(self, path: str) -> bool:
        within = [path.removeprefix(folder) for folder in self.found if below(path, folder)]
        return any(f"/{name}/" in rest for rest in within for name in PACKAGES)

    def _shown_sockets(self, entries: Sequence[Entry], granted: AbstractSet[str]) -> list[str]:
        """Return the sockets that `entries` show, where no entry is for that very path, or a person's grant."""
        found = [(path, governing(entries, path)) for files in self._unnamed for path in files.sockets]
        return [
            path
            for path, around in found
            if around is not None and around.access in (READ, WRITE) and around.path not in (path, *granted)
        ]

    def _hide_unread(self, files: FoundFiles, entries: Sequence[Entry], hidden: dict[str, Entry]) -> None:
        """Hide the user's folders that cannot be listed now: a program that runs as their owner can open them at any
        time. Raises Refusal (path-changed) where a searched folder itself cannot be listed."""
        for path in files.unread:
            if path in self.found:
                message = f"{path} cannot be listed, so files to hide in it cannot be found"
                raise Refusal("path-changed", message, fix=[f"chmod u+rx {quoted(path)}"])
            if access_at(entries, path) in (READ, WRITE) and self._ports.hidden_files.is_users(path):
                hidden[path] = Entry(path, DENY, f"cannot be listed: chmod u+rx {quoted(path)} shows it")

    def warnings(self) -> list[str]:
        """Return warnings of sockets and of packages, and one for each folder that was not searched completely."""
        warnings = [
            f"{what}: {_first(paths)}; --allow PATH shows one"
            for what, paths in (
                ("sockets of programs outside are hidden", self._sockets),
                ("packages with hidden files cannot be removed inside", self._of_packages),
            )
            if paths
        ]
        return warnings + [
            f"{folder} has more than {self._entries_max} files: .env files among the rest can be read"
            for folder, files in self.found.items()
            if not files.complete and self._names.env_files
        ]


def _require_few(paths: Sequence[str], limit: int) -> None:
    if len(paths) > limit:
        message = f"{len(paths)} files have names to hide, {paths[0]} among them; the limit is {limit}"
        raise Refusal("policy-too-large", message, fix=[_SHOW, f"omac sandbox run --deny {quoted(paths[0])} -- true"])


def _first(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - NAMES_SHOWN} more" * (len(paths) > NAMES_SHOWN)
    return ", ".join(paths[:NAMES_SHOWN]) + more
