"""omac's own paths, which no program in a sandbox reaches, wherever variables, settings and options put them."""

from __future__ import annotations

from omac.domain.kernel import state_paths
from omac.domain.kernel.paths import below, folder_of
from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.sandbox.confinement import DENY, READ, WRITE, access_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from omac.domain.sandbox.confinement import Entry
    from omac.domain.sandbox.request import SandboxRequest
    from omac.services.sandbox.ports import SandboxPorts

OF_A_JOURNAL = ("", "-wal", "-shm", "-journal", ".segments")  # what its files' names end with


class OwnPaths:
    """State directory, journals, vault key file (also the one that opened the vault last), witness and its token; all
    are canonical. `journals` are those that lie elsewhere than in the state directory, `missing` are files without
    which omac makes them later, each with the command that names another."""

    def __init__(self, request: SandboxRequest, ports: SandboxPorts) -> None:
        self._files = files = ports.files
        state = ports.state
        canonical = map(files.canonical, ports.journals())
        self.journals = [path for path in dict.fromkeys(canonical) if not below(path, state)]
        origin = "omac settings show --show-origin  # which names it"
        named = dict.fromkeys(map(files.canonical, request.omac_files), origin)
        if (key_file := ports.environment.get("OMAC_VAULT_KEY_FILE", "")) and "://" not in key_file:
            named[files.canonical(key_file)] = "export OMAC_VAULT_KEY_FILE=PATH  # where the program may not write"
        self.missing = {path: command for path, command in named.items() if not files.exists(path)}
        paths, note = [state, *named], f"{state}/{state_paths.KEY_NOTE}"
        key_file = files.content(note).decode(errors="surrogateescape") if files.exists(note) else ""
        if key_file and "\0" not in key_file and files.exists(key_file):
            paths.append(files.canonical(key_file))
        paths += [f"{journal}{ending}" for journal in self.journals for ending in OF_A_JOURNAL]
        self.paths = tuple(dict.fromkeys(paths))  # of one that is mounted twice, bubblewrap finds the second nowhere

    def hidden(self, entries: list[Entry]) -> tuple[str, ...]:
        """Return what the program must not see of `entries`: own paths, and the folders of journals that it could read,
        where nothing else in them is shown by name. A log of SQLite's comes and goes, and no mask can be on it."""
        shown = [entry.path for entry in entries if entry.access != DENY]
        folders = dict.fromkeys(map(folder_of, self.journals))
        readable = [folder for folder in folders if access_at(entries, folder) == READ]
        return (*self.paths, *(folder for folder in readable if not any(below(path, folder) for path in shown)))

    def refuse_writable(self, entries: list[Entry], trees: list[str]) -> None:
        """Raise Refusal (sandbox-inexpressible) where the program could make files that omac believes: beside a
        journal, where SQLite takes them for parts of it, and those that omac would make later."""
        elsewhere = "export OMAC_JOURNAL=PATH  # or --journal PATH: where the program may not write"
        for journal in self.journals:
            self._refuse(journal, f"the journal {journal}", "put files there that count", elsewhere, entries, trees)
        for path, elsewhere in self.missing.items():
            self._refuse(path, f"omac's file {path}, which does not exist yet,", "make it", elsewhere, entries, trees)

    def changeable(self, entries: list[Entry], known: Mapping[str, str]) -> list[str]:
        """Return the links of those of the `known` journals, by their links, that are not in use and lie where the
        program may write: what it puts there would count when they are used again."""
        links = []
        for link, path in known.items():
            journal = self._files.canonical(path)
            if journal not in self.paths and access_at(entries, folder_of(journal)) == WRITE:
                links.append(link)
        return links

    def _refuse(
        self, path: str, label: str, danger: str, elsewhere: str, entries: list[Entry], trees: list[str]
    ) -> None:
        folder = folder_of(path)
        if access_at(entries, folder) == WRITE:
            can_deny = folder not in trees and self._files.exists(folder)
            deny = [f"omac sandbox run --deny {quoted(folder)} -- COMMAND"] if can_deny else []
            message = f"{label} lies where the program may write: it could {danger}"
            raise Refusal("sandbox-inexpressible", message, fix=[*deny, elsewhere])
