"""The toolchains in the home that PATH names: a sandbox shows each with what it needs, and without credentials.

Rules

1. The table names the toolchains, and the parts of them that are shown. Being in PATH alone does not get a folder
   shown.
2. A path that a sandbox can write is no reason to show a toolchain. Nor is anything shown that a person's own entries
   decide about.
"""

from __future__ import annotations

import os

from omac.adapters.linux.resolve_symlinks import resolve_symlinks
from omac.adapters.sandbox.baseline import ITEMS_MAX, readable
from omac.domain.kernel.paths import below, below_any
from omac.domain.sandbox.confinement import DENY, LINK, PRIVATE, READ, Entry, access_at
from omac.domain.sandbox.toolchains import SHARED_BIN, SHARED_PROGRAMS, TOOLCHAINS, WITH_SHARED_BIN, Toolchain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def toolchain_entries(
    folders: Sequence[str], environment: Mapping[str, str], home: str, writable: Sequence[str], entries: Sequence[Entry]
) -> list[Entry]:
    """READ and LINK for toolchains in which `folders` of PATH lie, and DENY for credentials in them.

    `writable`: canonical folders that a sandbox can write; `entries`: what is decided already.
    """
    return _Toolchains(environment, home, writable, entries).of(folders)


class _Toolchains:
    """Collects the entries; of two for one path the first stays."""

    def __init__(
        self, environment: Mapping[str, str], home: str, writable: Sequence[str], entries: Sequence[Entry]
    ) -> None:
        self._home = resolve_symlinks(home)[1]
        self._writable = [resolve_symlinks(folder)[1] for folder in writable]
        self._entries = entries
        self._found: dict[str, Entry] = {}
        self._seen: dict[str, bool] = {}  # by a toolchain's root: whether it is shown
        # of those that are there
        self._roots = {toolchain.root: self._root(toolchain, environment) for toolchain in TOOLCHAINS}

    def of(self, folders: Sequence[str]) -> list[Entry]:
        """The entries for folders that PATH names."""
        for folder in dict.fromkeys(folders):
            links, real = resolve_symlinks(folder)
            if any(below_any(path, self._writable) for path in (real, *(link for link, _ in links))):
                continue
            reason = f"a toolchain: {folder} is in PATH"
            if real == f"{self._home}/{SHARED_BIN}":
                self._shared_bin(real, reason)
            for toolchain in TOOLCHAINS:
                if (
                    self._roots[toolchain.root]
                    and below(real, self._roots[toolchain.root])
                    and self._shown(toolchain, reason)
                ):
                    self._add(Entry(link, LINK, reason, target=target) for link, target in links)
        return list(self._found.values())

    def _root(self, toolchain: Toolchain, environment: Mapping[str, str]) -> str:
        moved = environment.get(toolchain.variable, "") if toolchain.variable else ""
        root = moved if moved.startswith("/") else f"{self._home}/{toolchain.root}"
        return resolve_symlinks(root)[1] if os.path.lexists(root) else ""

    def _shown(self, toolchain: Toolchain, reason: str) -> bool:
        """Note a toolchain and its companions, once; whether anything of it can be shown."""
        if toolchain.root not in self._seen:
            self._seen[toolchain.root] = False  # while its companions are noted, which may have it for one of theirs
            self._seen[toolchain.root] = self._note(toolchain, reason)
        return self._seen[toolchain.root]

    def _note(self, toolchain: Toolchain, reason: str) -> bool:
        root = self._roots[toolchain.root]
        if not root:
            return False
        decided = access_at(self._entries, root) not in ("", PRIVATE)
        if decided or below(self._home, root) or below_any(root, self._writable):
            return False
        for part in toolchain.parts or ("",):
            real = resolve_symlinks(f"{root}/{part}")[1]
            if below(real, root) and os.path.exists(real):
                self._add([Entry(real, READ, reason)])
        self._add(
            Entry(path, DENY, "may hold credentials")
            for pattern in toolchain.masked
            for path in _matching(root, pattern.split("/"))
        )
        for companion in (other for other in TOOLCHAINS if other.root in toolchain.companions):
            self._shown(companion, reason)
        return True

    def _shared_bin(self, folder: str, reason: str) -> None:
        """The programs of toolchains in a folder of programs of all kinds, by name and by what links lead to."""
        for toolchain in (other for other in TOOLCHAINS if other.root in WITH_SHARED_BIN):
            if self._roots[toolchain.root]:
                self._shown(toolchain, reason)
        within = tuple(f"{path}/" for path, entry in self._found.items() if entry.access == READ)
        for name in SHARED_PROGRAMS:
            self._add(readable(f"{folder}/{name}", reason))
        try:
            with os.scandir(folder) as listing:
                links = [item.path for item in listing if item.is_symlink()][:ITEMS_MAX]
        except OSError:
            return
        for link in links:
            target = os.readlink(link)
            if os.path.normpath(os.path.join(folder, target)).startswith(within):
                self._add([Entry(link, LINK, reason, target=target)])

    def _add(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._found.setdefault(entry.path, entry)


def _matching(folder: str, parts: Sequence[str]) -> list[str]:
    """The files below a folder that a pattern's parts name; `*` is any name."""
    first, *rest = parts
    try:
        names = os.listdir(folder) if first == "*" else [first]
    except OSError:
        return []
    paths = [f"{folder}/{name}" for name in names]
    if rest:
        return [path for parent in paths for path in _matching(parent, rest)]
    return [path for path in paths if os.path.isfile(path)]
