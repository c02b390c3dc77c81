"""The programs of the host that omac itself runs, and the folders they may be found in.

Rules

1. bubblewrap and git are found in the system's folders and beside the interpreter that omac was installed for, never in
   a folder that PATH names: a project's `.venv/bin` or `node_modules/.bin` is an agent's to write.
2. A sidecar's programs are found on PATH, less the folders that an agent may write, that lead to such a folder, or that
   are not absolute.
"""

from __future__ import annotations

import os
import sys

from omac.adapters.linux.resolve_symlinks import resolve_symlinks
from omac.domain.kernel.paths import below

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SYSTEM_FOLDERS = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin", "/run/current-system/sw/bin")
SEARCHED = ":".join(dict.fromkeys((*SYSTEM_FOLDERS, f"{sys.base_prefix}/bin")))


def find(name: str) -> str:
    """Return the absolute path of a program that omac trusts (rule 1); empty where it is not installed."""
    return on_path(name, SEARCHED)


def on_path(name: str, path: str, writable: Sequence[str] = ()) -> str:
    """Return the first program of that name in the absolute folders of `path`; empty where there is none.

    One that leads to a file in the canonical folders `writable` does not count.
    """
    for folder in path.split(":"):
        program = f"{folder}/{name}"
        runs = folder.startswith("/") and os.access(program, os.X_OK) and os.path.isfile(program)
        if runs and not leads_through(program, writable):
            return program
    return ""


def trusted_path(path: str, writable: Iterable[str]) -> str:
    """Return `path` as rule 2 has it, where agents may write the canonical folders `writable`."""
    untrusted = set(untrusted_folders(path, writable))
    return ":".join(folder for folder in path.split(":") if folder.startswith("/") and folder not in untrusted)


def untrusted_folders(path: str, writable: Iterable[str]) -> list[str]:
    """Return the absolute folders of `path` that are, or lead through, one of the canonical folders `writable`."""
    writable_folders = tuple(writable)
    folders = [folder for folder in dict.fromkeys(path.split(":")) if folder.startswith("/")]
    return [folder for folder in folders if leads_through(folder, writable_folders)]


def leads_through(path: str, writable: Sequence[str]) -> bool:
    """Return whether an absolute path, or a link on its way, lies in one of the canonical folders `writable`."""
    try:
        links, real = resolve_symlinks(path)
    except OSError:  # links in circles: whoever made them can change them
        return True
    return any(below(step, folder) for step in (real, *(link for link, _ in links)) for folder in writable)
