"""The settings files of agents on disk: found, read, and replaced whole, with nothing lost that others wrote there."""

import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NamedTuple

from omac.adapters.files import atomic, bounded
from omac.adapters.files.descriptor import FOLDER_FLAGS, Descriptor
from omac.adapters.files.lock import hold_opened
from omac.adapters.linux.home import home_of
from omac.domain.harness.harness import Harness
from omac.domain.kernel.paths import below
from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.kernel.state_paths import configuration
from omac.domain.kernel.unflushed import Unflushed
from omac.journal.folders import nearest_existing, write_command

BYTES_MAX = 4 * 1024 * 1024
CONFIGURATION = ".config"  # in the home; XDG_CONFIG_HOME names another place for it


class AgentFile(NamedTuple):
    """One settings file. A project's may be written by an agent: no link in it is followed."""

    folder: str
    name: str
    of_project: bool

    @property
    def path(self) -> str:
        return os.path.join(self.folder, self.name)

    def missing(self) -> tuple[str, ...]:
        """Return what of it is not there: the file, then folders, innermost first."""
        paths = [self.path]
        while not os.path.lexists(folder := os.path.dirname(paths[-1])):
            paths.append(folder)
        return () if os.path.lexists(self.path) else tuple(paths)


def of_user(harness: Harness, file: str, environment: Mapping[str, str]) -> AgentFile:
    """Return the user's own, which `file` names in the home; where it is a link, what that leads to within the home.
    Raises Refusal: settings-invalid, unsafe-link."""
    folder, name = os.path.split(file)
    home = home_of(environment)
    moved = environment.get(harness.home_variable) if harness.home_variable else None
    if moved and harness.folders:
        moved = os.path.join(moved, os.path.relpath(folder, harness.folders[0]))
    top, _, rest = folder.partition("/")
    if top == CONFIGURATION:
        moved = os.path.join(os.path.dirname(configuration(environment, home)), rest)
    named = os.path.abspath(os.path.join(moved or os.path.join(home, folder), name))
    path = os.path.realpath(named)
    if os.path.lexists(named) and not os.path.lexists(path):
        message = f"{named} is a link to {path}, which does not exist"
        raise Refusal("settings-invalid", message, fix=[f"ls -l {quoted(named)}"])
    if not any(below(path, os.path.realpath(root)) for root in (home, moved) if root):
        message = f"{named} leads to {path}, outside your home; omac follows links within the home only"
        raise Refusal("unsafe-link", message, fix=[f"ls -l {quoted(named)}"])
    return AgentFile(os.path.dirname(path), os.path.basename(path), of_project=False)


def of_project(file: str, project: str) -> AgentFile:
    """Return that of the project whose top folder is `project`."""
    folder, name = os.path.split(file)
    return AgentFile(os.path.join(os.path.realpath(project), folder), name, of_project=True)


class OpenedFile:
    """A settings file that was read, with no other omac changing what is in its folder. `content` None: there is no
    file. `folder` None: no folder either."""

    def __init__(self, file: AgentFile, folder: int | None) -> None:
        self.file = file
        self._folder = folder
        self.content, self._mode = _content(file, folder) if folder is not None else (None, _new_mode(file))

    @property
    def digest(self) -> str:
        """The SHA-256 of the content, "" where there is none."""
        return digest_of(self.content)

    def text(self) -> str | None:
        """Return the content as text. Raises Refusal (settings-invalid)."""
        try:
            return None if self.content is None else self.content.decode()
        except UnicodeDecodeError:
            raise invalid(self.file, "is not UTF-8 text") from None

    def replace(self, content: bytes) -> None:
        """Put a file with this content in the place of the one that was read, or of none; its mode stays. Raises
        Refusal, OSError."""
        if self._folder is not None:
            self._replace(self._folder, content)
            return
        if self.file.of_project:
            with suppress(FileExistsError):
                os.mkdir(self.file.folder, 0o755)
        else:
            os.makedirs(self.file.folder, mode=0o700, exist_ok=True)
        with _locked(self.file) as folder:
            if folder is None:
                raise FileNotFoundError(errno.ENOENT, "it was removed meanwhile", self.file.folder)
            self._replace(folder, content)

    def remove(self, folders: tuple[str, ...]) -> None:
        """Delete the file that was read, and these folders where they are empty then. Raises Refusal, OSError."""
        assert self._folder is not None
        self._confirm(self._folder)
        os.unlink(self.file.name, dir_fd=self._folder)
        atomic.flush(self._folder)
        with suppress(OSError):  # it is not empty, or gone
            for folder in folders:
                os.rmdir(folder)

    def _replace(self, folder: int, content: bytes) -> None:
        prefix = f".{self.file.name}."
        atomic.sweep(folder, prefix)
        confirm = lambda: self._confirm(folder)  # noqa: E731
        atomic.replace_in(folder, self.file.name, content, prefix=prefix, mode=self._mode, confirm=confirm)

    def _confirm(self, folder: int) -> None:
        if _content(self.file, folder)[0] != self.content:  # the agent itself does not know of our lock
            message = f"{self.file.path} was changed by another program just now; omac left it unchanged"
            raise Refusal("contention", message, fix=["try again"])


@contextmanager
def opened(file: AgentFile) -> Iterator[OpenedFile]:
    """Read a settings file, to change it. Raises Refusal: settings-invalid, state-unusable, contention."""
    try:
        with _locked(file) as folder:
            yield OpenedFile(file, folder)
    except Unflushed as problem:
        raise problem.refusal("state-unusable", file.path, file.folder) from None
    except OSError as error:
        message = f"{file.path} cannot be changed: {error.strerror or error}"
        raise Refusal("state-unusable", message, fix=[write_command(error, file.folder)]) from error


def digest_of(content: bytes | None) -> str:
    """Return the SHA-256 of a file's content, "" for no file."""
    return "" if content is None else hashlib.sha256(content).hexdigest()


def invalid(file: AgentFile, problem: str) -> Refusal:
    """Return the refusal of a file whose content cannot be used: its path, and the problem."""
    return Refusal("settings-invalid", f"{file.path} {problem}", fix=[f"${{EDITOR:-vi}} {quoted(file.path)}"])


def _unfit(file: AgentFile, problem: str) -> Refusal:
    """Return the refusal of what no editor mends: it is no file, or not one that omac may change."""
    there = dict.fromkeys(map(nearest_existing, (file.folder, file.path)))
    fix = [f"ls -ld {' '.join(map(quoted, there))}"]
    return Refusal("settings-invalid", f"{file.path} {problem}", fix=fix)


def _new_mode(file: AgentFile) -> int:
    return 0o644 if file.of_project else 0o600


def _content(file: AgentFile, folder: int) -> tuple[bytes | None, int]:
    """Return the content and the mode of the file; None, and the mode for a new file, if no file exists. Raises Refusal
    (settings-invalid) for a file that omac may not change."""
    try:
        content, status = bounded.read_with_status(file.name, BYTES_MAX, dir_fd=folder)
    except FileNotFoundError:
        return None, _new_mode(file)
    except bounded.NotRegular:
        raise _unfit(file, "is not a regular file") from None
    except bounded.TooLarge:
        raise _unfit(file, f"is larger than {BYTES_MAX >> 20} MiB") from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _unfit(file, "is a link, which could lead anywhere") from None
        raise
    if status.st_uid != os.geteuid():
        raise _unfit(file, f"belongs to user {status.st_uid}, not to you ({os.geteuid()})")
    return content, stat.S_IMODE(status.st_mode)


@contextmanager
def _locked(file: AgentFile) -> Iterator[int | None]:
    """The open folder, with no other omac changing what is in it; None where there is none."""
    try:
        folder = os.open(file.folder, FOLDER_FLAGS)
    except FileNotFoundError:
        yield None
        return
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise _unfit(file, "is in a folder that is a link, or none at all") from None
        raise
    with Descriptor(folder):
        if not hold_opened(folder):
            message = f"another program has {file.folder} locked; nothing was changed"
            raise Refusal("contention", message, fix=["try again"])
        yield folder
