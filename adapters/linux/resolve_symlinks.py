"""The way to a path: the symbolic links it leads through, and where it ends."""

from __future__ import annotations

import errno
import os

from omac.domain.kernel.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LINKS_MAX = 40  # as the kernel
PARTS_MAX = 500  # of a path, with those of its links: 40 links can have 80,000, which take a third of a second


class WayTooLong(OSError):
    """A path has more than PARTS_MAX parts; where it leads is not known."""


def resolve_symlinks(path: str) -> tuple[list[tuple[str, str]], str]:
    """The links on the way of an absolute path, as `(canonical path, target)` in order, and the canonical path.

    What does not exist counts as it is written. Raises OSError (ELOOP) for links in circles, WayTooLong.
    """
    return _walk(path, _target)


def resolve_inside(path: str, roots: Sequence[str]) -> str:
    """The canonical path that one below one of `roots`, which are canonical, leads to; empty when a link on the way
    leads out of them all, or in circles. Nothing outside is touched: a file system there may hang. Raises WayTooLong.
    """

    def target_inside(here: str) -> str | None:
        if any(f"{root}/".startswith(f"{here}/") for root in roots):
            return None  # no link: it is a part of a canonical path
        if not _is_below(here, roots):
            raise _Outside
        return _target(here)

    try:
        _, walked = _walk(path, target_inside)
    except WayTooLong:
        raise
    except (_Outside, OSError):
        return ""
    return walked if _is_below(walked, roots) else ""


def leads_into(path: str, folder: str) -> bool:
    """Return whether an absolute path leads into a canonical folder on its way, or to it, or may do so: its way is too
    long. Nothing in there counts: what /proc has differs between processes."""

    def target_outside(here: str) -> str | None:
        if here == folder:
            raise _Inside
        return _target(here)

    try:
        _walk(path, target_outside)
    except (_Inside, WayTooLong):
        return True
    except OSError:
        pass  # in circles
    return False


class _Inside(Exception):
    """A path leads into a folder."""


class _Outside(Exception):
    """A path leads out of all roots."""


def _walk(path: str, target_of: Callable[[str], str | None]) -> tuple[list[tuple[str, str]], str]:
    """Walk a path, and return the links on the way, each with its target, and where it ends. `target_of` returns the
    target of a link; None for something else."""
    links: list[tuple[str, str]] = []
    parts = path.split("/")[::-1]  # what is still to be walked, the next one last
    walked, seen = "", 0
    while parts:
        part, seen = parts.pop(), seen + 1
        if seen > PARTS_MAX:
            raise WayTooLong(errno.ELOOP, "Too many parts of a path, with those of its links", path)
        if part in ("", "."):
            continue
        if part == "..":
            walked = walked.rpartition("/")[0]
            continue
        here = f"{walked}/{part}"
        target = target_of(here)
        if target is None:
            walked = here
            continue
        if len(links) == LINKS_MAX:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        links.append((here, target))
        if target.startswith("/"):
            walked = ""
        parts.extend(target.split("/")[::-1])
    return links, walked or "/"


def _target(path: str) -> str | None:
    """Return the target of a link; None for something else, or nothing."""
    try:
        return os.readlink(path)
    except OSError:
        return None


def _is_below(path: str, roots: Sequence[str]) -> bool:
    return any(f"{path}/".startswith(f"{root}/") for root in roots)


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
