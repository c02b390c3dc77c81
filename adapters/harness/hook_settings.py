"""The settings files of agents on disk: found, read, and replaced whole, with nothing lost that others wrote there."""

import errno
import json
import os
import shlex
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NamedTuple

from omac.adapters.files import atomic, bounded
from omac.adapters.files.lock import hold_folder
from omac.adapters.linux.home import home_of
from omac.domain.harness.harness import Harness, Hook
from omac.domain.harness.names import EXAMPLE, HOOKED_NAMES, hooked, listed
from omac.domain.kernel.refusal import Refusal

BYTES_MAX = 4 * 1024 * 1024

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class HookFile(NamedTuple):
    """One settings file. A project's may be written by an agent: no link in it is followed."""

    folder: str
    name: str
    of_project: bool

    @property
    def path(self) -> str:
        return os.path.join(self.folder, self.name)


def harness_with_hook(name: str) -> tuple[Harness, Hook]:
    """Return the harness of that name and its hook. Raises Refusal (misuse)."""
    for harness, hook in hooked():
        if harness.name == name:
            return harness, hook
    message = f"omac has no hook for {name!r}; it has them for {listed(HOOKED_NAMES, 'and')}"
    raise Refusal("misuse", message, fix=[f"omac hook install {EXAMPLE}"])


def of_user(harness: Harness, hook: Hook, environment: Mapping[str, str]) -> HookFile:
    """Return the user's own; where it is a link, what that leads to. Raises Refusal (settings-invalid)."""
    folder, name = os.path.split(hook.file)
    moved = environment.get(harness.home_variable) if harness.home_variable else None
    named = os.path.join(moved or os.path.join(home_of(environment), folder), name)
    path = os.path.realpath(named)
    if os.path.lexists(named) and not os.path.lexists(path):
        message = f"{named} is a link to {path}, which does not exist"
        raise Refusal("settings-invalid", message, fix=[f"ls -l {shlex.quote(named)}"])
    return HookFile(os.path.dirname(path), os.path.basename(path), of_project=False)


def of_project(hook: Hook, project: str) -> HookFile:
    """Return that of the project whose top folder is `project`."""
    folder, name = os.path.split(hook.file)
    return HookFile(os.path.join(os.path.realpath(project), folder), name, of_project=True)


def change(file: HookFile, edit: Callable[[str], str], *, create: bool) -> bool:
    """Replace the text with what `edit` makes of it, a ValueError being about the text; False if that is the same.

    `create` gives `edit` an empty object where there is no file. Raises Refusal: settings-invalid, state-unusable,
    contention.
    """
    try:
        with _locked(file, create) as folder:
            if folder is None:
                return False
            before, mode = _content(file, folder)
            if before is None and not create:
                return False
            text = _decoded(file, before)
            after = _edited(file, text, edit)
            if after == text:
                return False
            _replace(file, folder, before, after.encode(), mode)
    except OSError as error:
        message = f"{file.path} cannot be changed: {error.strerror or error}"
        raise Refusal("state-unusable", message, fix=[f"ls -la {shlex.quote(file.folder)}"]) from error
    return True


def _decoded(file: HookFile, content: bytes | None) -> str:
    try:
        text = (content or b"").decode()
    except UnicodeDecodeError:
        raise _invalid(file, "is not UTF-8 text") from None
    return text if text.strip() else "{}\n"


def _edited(file: HookFile, text: str, edit: Callable[[str], str]) -> str:
    try:
        after = edit(text)
        json.loads(after)
    except json.JSONDecodeError as error:
        raise _invalid(file, f"is not valid JSON: {error.msg}, line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise _invalid(file, "is nested too deep") from None
    except ValueError as error:
        raise _invalid(file, f"cannot be used: {error}") from None
    return after


def _content(file: HookFile, folder: int) -> tuple[bytes | None, int]:
    """What is in the file and its mode; None, and the mode for a new one, where there is none."""
    try:
        content, status = bounded.read_with_status(file.name, BYTES_MAX, dir_fd=folder)
    except FileNotFoundError:
        return None, 0o644 if file.of_project else 0o600
    except bounded.NotRegular:
        raise _invalid(file, "is not a regular file") from None
    except bounded.TooLarge:
        raise _invalid(file, f"is larger than {BYTES_MAX >> 20} MiB") from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _invalid(file, "is a link, which could lead anywhere") from None
        raise
    if status.st_uid != os.geteuid():
        raise _invalid(file, f"belongs to user {status.st_uid}, not to you ({os.geteuid()})")
    return content, stat.S_IMODE(status.st_mode)


def _replace(file: HookFile, folder: int, before: bytes | None, after: bytes, mode: int) -> None:
    def confirm() -> None:
        if _content(file, folder)[0] != before:  # the agent itself does not know of our lock
            message = f"{file.path} was changed by another program just now; omac left it unchanged"
            raise Refusal("contention", message, fix=["try again"])

    atomic.replace_in(folder, file.name, after, prefix=f".{file.name}.", mode=mode, confirm=confirm)


@contextmanager
def _locked(file: HookFile, create: bool) -> Iterator[int | None]:
    """The open folder, with no other omac changing what is in it; None where there is none and none is to be made."""
    if create:
        if file.of_project:
            with suppress(FileExistsError):
                os.mkdir(file.folder, 0o755)
        else:
            os.makedirs(file.folder, mode=0o700, exist_ok=True)
    try:
        folder = os.open(file.folder, _FOLDER_FLAGS | os.O_NOFOLLOW)
    except FileNotFoundError:
        yield None
        return
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise _invalid(file, "is in a folder that is a link, or none at all") from None
        raise
    try:
        if not hold_folder(folder):
            message = f"another program has {file.folder} locked; nothing was changed"
            raise Refusal("contention", message, fix=["try again"])
        yield folder
    finally:
        os.close(folder)


def _invalid(file: HookFile, problem: str) -> Refusal:
    return Refusal("settings-invalid", f"{file.path} {problem}", fix=[f"${{EDITOR:-vi}} {shlex.quote(file.path)}"])
