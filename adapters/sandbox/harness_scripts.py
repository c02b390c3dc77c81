"""Scripts in an agent's own writable folders that its settings name: they run at the next session, also outside."""

from __future__ import annotations

import os
import stat

from omac.adapters.files import bounded
from omac.adapters.linux.resolve_symlinks import resolve_symlinks
from omac.domain.harness.commands import command_words, expanded, is_script
from omac.domain.kernel.paths import below
from omac.domain.sandbox.confinement import WRITE, Entry, governing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from omac.domain.harness.commands import Word

SETTINGS_BYTES_MAX = 8 << 20
SCRIPTS_MAX = 200
MARKERS = (  # of a folder that holds a program of several files
    "Cargo.toml", "__init__.py", "__main__.py", "go.mod", "node_modules", "package.json", "pyproject.toml",
    "requirements.txt", "setup.py",
)  # fmt: skip


def named_scripts(
    settings: Iterable[str], variables: Mapping[str, str], entries: Sequence[Entry]
) -> tuple[list[str], list[str]]:
    """Return the paths to be pinned, and warnings: of scripts that settings files name where `entries` let it write.

    A folder's ends in "/": it has in it what a script, or the command itself, needs. `variables` are those of commands.
    """
    scripts: dict[str, None] = {}
    warnings: list[str] = []
    writable = [entry.path for entry in entries if entry.access == WRITE]
    for file in settings:
        words, warning = _words(file)
        warnings += warning
        for word in words:
            path = os.path.normpath(expanded(word.text, variables) or "/")
            if len(scripts) < SCRIPTS_MAX and _is_within_reach(path, entries):
                scripts |= dict.fromkeys(_pinned(path, word, writable))
    return list(scripts), warnings


def _pinned(path: str, word: Word, writable: Sequence[str]) -> list[str]:
    """Return the paths to be pinned so that a path that a command names stays unchanged; none for data, such as a
    log."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return [path] if word.is_program or is_script(path) else []
    if stat.S_ISDIR(mode):
        top = any(below(folder, path) for folder in writable)
        return [f"{path}/"] if not top and _is_program_folder(path) else []
    if not (is_script(path) or mode & 0o111 or (word.is_program and "." not in os.path.basename(path))):
        return []  # a log, or a store
    around = os.path.dirname(path)
    while not any(below(folder, around) for folder in writable) and around != "/":
        if _is_program_folder(around):
            return [f"{around}/", path]
        around = os.path.dirname(around)
    return [path]


def _is_program_folder(folder: str) -> bool:
    return any(os.path.lexists(f"{folder}/{name}") for name in MARKERS)


def _is_within_reach(path: str, entries: Sequence[Entry]) -> bool:
    """Return whether the file, or a link that leads to it, lies where `entries` allow changes."""
    links, real = resolve_symlinks(path)
    for candidate in (real, *(link for link, _ in links)):
        around = governing(entries, candidate)
        if around is not None and around.access == WRITE and around.path != candidate:
            return True
    return False


def _words(file: str) -> tuple[list[Word], list[str]]:
    """The words of the commands in a settings file, which an agent may have written; and a warning."""
    try:
        content = bounded.read(file, SETTINGS_BYTES_MAX, follow=True)
    except bounded.TooLarge:
        return [], [f"{file} is larger than {SETTINGS_BYTES_MAX >> 20} MiB: scripts that it names are not pinned"]
    except OSError:
        return [], []
    try:
        return list(command_words(_decoded(file, content))), []
    except (ValueError, RecursionError):
        return [], [f"{file} cannot be read as settings: scripts that it names are not pinned"] if content else []


def _decoded(file: str, content: bytes) -> object:
    text = content.decode()
    if file.endswith(".toml"):
        import tomllib

        return tomllib.loads(text)
    import json

    try:
        return json.loads(text)
    except ValueError:
        return json.loads(_without_comments(text))


def _without_comments(text: str) -> str:
    """JSON from JSON with comments and commas at the end of a list."""
    import re

    kept = re.sub(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', lambda match: match[1] or " ", text, flags=re.DOTALL)
    return re.sub(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])', lambda match: match[1] or "", kept, flags=re.DOTALL)
