"""Canonical paths: absolute, without links, dots or a slash at the end."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import AnyStr


def below(path: AnyStr, folder: AnyStr) -> bool:
    """Return whether a canonical path is `folder` or lies in it; nothing lies in an empty folder's name.

    Whole names count: /a/bc is not below /a/b.
    """
    if not path.startswith(folder) or not folder:
        return False
    slash = "/" if isinstance(folder, str) else b"/"
    return len(path) == len(folder) or folder.endswith(slash) or path.startswith(slash, len(folder))


def below_any(path: AnyStr, folders: Iterable[AnyStr]) -> bool:
    """Return whether a canonical path is one of these folders or lies in one."""
    return any(below(path, folder) for folder in folders)


def folder_of(path: str) -> str:
    """Return the folder that a canonical path lies in; / for / itself."""
    return path.rpartition("/")[0] or "/"
