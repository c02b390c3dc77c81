"""A new skill folder in a project, which never replaces anything and follows no link that an agent may have placed."""

import errno
import os
from collections.abc import Mapping
from contextlib import ExitStack, suppress

from omac.adapters.skills.paths import FOLDER_FLAGS, open_folder


def create_skill(workdir: str, base: str, name: str, files: Mapping[str, str]) -> str:
    """Make `.base/skills/name` with these files in the canonical `workdir`; return its path.

    Raises FileExistsError where anything has that name, OSError with the path otherwise.
    """
    path = workdir
    with ExitStack() as opened:
        here = opened.enter_context(open_folder(workdir))
        for part in (f".{base}", "skills"):
            path = os.path.join(path, part)
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=here)
            here = _entered(here, part, path, opened)
        path = os.path.join(path, name)
        os.mkdir(name, dir_fd=here)
        here = _entered(here, name, path, opened)
        for file_name, content in files.items():
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(file_name, flags, 0o666, dir_fd=here), "w") as file:
                file.write(content)
    return path


def _entered(above: int, name: str, shown: str, opened: ExitStack) -> int:
    """Return a descriptor of the folder of that name in `above`, closed with `opened`. Raises OSError."""
    try:
        folder = os.open(name, FOLDER_FLAGS, dir_fd=above)
    except OSError as error:
        reason = "is a link or no folder" if error.errno in (errno.ELOOP, errno.ENOTDIR) else error.strerror
        raise OSError(error.errno, reason, shown) from None
    opened.callback(os.close, folder)
    return folder
