"""A new skill folder in a project, which never replaces anything and follows no link that an agent may have placed."""

import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress

from omac.adapters.files.descriptor import FOLDER_FLAGS
from omac.adapters.skills.paths import open_folder

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def create_skill(workdir: str, base: str, name: str, files: Mapping[str, str]) -> str:
    """Make `.base/skills/name` with these files in the canonical `workdir`; return its path.

    Raises FileExistsError where anything has that name, OSError with the path otherwise.
    """
    path = workdir
    with ExitStack() as opened:
        here = opened.enter_context(open_folder(workdir))
        for part in (f".{base}", "skills"):
            path = os.path.join(path, part)
            with suppress(FileExistsError), _naming(path):
                os.mkdir(part, dir_fd=here)
            here = _entered(here, part, path, opened)
        path, above = os.path.join(path, name), here
        with _naming(path):
            os.mkdir(name, dir_fd=above)
        here = _entered(above, name, path, opened)
        try:
            for file_name, content in files.items():
                with (
                    _naming(os.path.join(path, file_name)),
                    open(os.open(file_name, _NEW, 0o666, dir_fd=here), "w") as file,
                ):
                    file.write(content)
        except OSError:
            _remove(above, name, here, files)
            raise
    return path


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Name the whole path in an OSError of the block, which may know a part of it or none."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None


def _remove(above: int, name: str, folder: int, files: Iterable[str]) -> None:
    """Remove what was made of a skill folder; anything else in it stays."""
    for file_name in files:
        with suppress(OSError):
            os.unlink(file_name, dir_fd=folder)
    with suppress(OSError):
        os.rmdir(name, dir_fd=above)


def _entered(above: int, name: str, shown: str, opened: ExitStack) -> int:
    """Return a descriptor of the folder of that name in `above`, closed with `opened`. Raises OSError."""
    try:
        folder = os.open(name, FOLDER_FLAGS, dir_fd=above)
    except OSError as error:
        reason = "is a link or no folder" if error.errno in (errno.ELOOP, errno.ENOTDIR) else error.strerror
        raise OSError(error.errno, reason, shown) from None
    opened.callback(os.close, folder)
    return folder
