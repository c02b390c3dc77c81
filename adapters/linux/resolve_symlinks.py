"""The way to a path: the symbolic links it leads through, and where it ends."""

from __future__ import annotations

import errno
import os

from omac.domain.kernel.refusal import Refusal

LINKS_MAX = 40  # as the kernel


def resolve_symlinks(path: str) -> tuple[list[tuple[str, str]], str]:
    """The links on the way of an absolute path, as `(canonical path, target)` in order, and the canonical path.

    What does not exist counts as it is written. Raises OSError (ELOOP) for links in circles.
    """
    links: list[tuple[str, str]] = []
    parts = path.split("/")[::-1]  # what is still to be walked, the next one last
    walked = ""
    while parts:
        part = parts.pop()
        if part in ("", "."):
            continue
        if part == "..":
            walked = walked.rpartition("/")[0]
            continue
        here = f"{walked}/{part}"
        try:
            target = os.readlink(here)
        except OSError:  # not a link, or not there
            walked = here
            continue
        if len(links) == LINKS_MAX:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        links.append((here, target))
        if target.startswith("/"):
            walked = ""
        parts.extend(target.split("/")[::-1])
    return links, walked or "/"


def unresolved(path: str, home: str) -> str:
    """A path as typed, made absolute, but with its links and `..` as they are. Raises Refusal (directory-missing)."""
    if path == "~" or path.startswith("~/"):
        path = home + path[1:]
    if path.startswith("/"):
        return path
    try:
        return os.path.join(os.getcwd(), path)
    except FileNotFoundError:
        raise Refusal("directory-missing", "the current directory was removed", fix=["cd"]) from None
