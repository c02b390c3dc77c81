"""omac's settings files: the user's, read strictly and written with care for what else is in it, and a project's.

An agent may write a project's file while omac reads it. Nothing in there follows a link, waits, costs much or fails:
what cannot be read says nothing, and a warning tells so.
"""

import errno
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from omac.adapters.files import atomic, bounded
from omac.adapters.files.descriptor import FOLDER_FLAGS, Descriptor
from omac.adapters.files.lock import hold_opened
from omac.adapters.linux.home import home_of
from omac.domain.kernel import state_paths
from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.kernel.terminal_escaping import printable
from omac.domain.kernel.unflushed import Unflushed
from omac.domain.settings.settings import Setting, SettingsFile, project_settings, stated_word, user_settings
from omac.journal.folders import MORE_FILES, make_private, own_home, write_command

FILE = "settings.toml"
PROJECT_FOLDER = ".omac"
BYTES_MAX = 64 * 1024
PROJECT_LINE_BYTES_MAX = 200  # the parser takes time quadratic in the parts of a dotted key, which is in one line

_DRAFT = f".{FILE}."
_STATED = re.compile(r"\s*(?:\[+(?P<table>[^\[\]]+)\]|(?P<key>[^=#\[\]]+)=)")


class _UnusableSettings(Exception):
    """The file cannot be used; the text goes on after its path."""


def user_path(environment: Mapping[str, str]) -> str:
    """$XDG_CONFIG_HOME/omac/settings.toml, else that in ~/.config."""
    return f"{state_paths.configuration(environment, home_of(environment))}/{FILE}"


def read_user(environment: Mapping[str, str]) -> SettingsFile:
    """Return the settings in the user's file; empty ones if no file exists. Raises Refusal (settings-invalid)."""
    path = user_path(environment)
    content, document = _user_document(path)
    return user_settings(printable(path), document, partial(_place, content))


def read_project(workdir: str) -> SettingsFile:
    """Return the settings in the project's file; empty ones if no file exists. Raises nothing: `warnings` report the
    faults."""
    path = printable(os.path.join(workdir, PROJECT_FOLDER, FILE))
    try:
        content = _project_content(workdir)
        document = _decoded(content)
    except FileNotFoundError:
        return SettingsFile(path)
    except (OSError, ValueError) as error:  # a ValueError is about a path with NUL
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        return SettingsFile(path, warnings=(f"{path} cannot be read ({reason}); ignored",))
    except _UnusableSettings as unusable:
        return SettingsFile(path, warnings=(f"{path} {unusable}; ignored",))
    return project_settings(path, document, partial(_place, content.decode()))


class UserChange:
    """A change of the user's file that is certain and not made yet. See omac.services.settings.changes.Change."""

    def __init__(self, path: str, present: str | None, write: Callable[[], None]) -> None:
        self.origin = f"user {printable(path)}"
        self.present = present
        self.write = write


@contextmanager
def changing_user(environment: Mapping[str, str], setting: Setting, value: str | None) -> Iterator[UserChange | None]:
    """The change that sets one setting in the user's file, or unsets it (None); None if the file says so already.

    The file is locked meanwhile; comments and order stay. Raises Refusal: settings-invalid, state-unusable, contention.
    """
    path = user_path(environment)
    try:
        target = os.path.realpath(path)  # people keep it as a link to where they keep such files
        make_private(os.path.dirname(target))
        with _locked(os.path.dirname(target)) as folder:
            atomic.sweep(folder, _DRAFT)
            content, before = _user_document(path)
            after = _changed(setting, value, content, before, path)
            if after is None:
                yield None
            else:
                present = _stated(setting, before)
                write = partial(atomic.replace_in, folder, os.path.basename(target), after.encode(), prefix=_DRAFT)
                yield UserChange(path, present, write)
    except Unflushed as problem:
        raise problem.refusal("state-unusable", printable(path), os.path.dirname(os.path.realpath(path))) from None
    except OSError as error:
        message = f"the settings file {printable(path)} cannot be written: {error.strerror or error}"
        raise Refusal("state-unusable", message, fix=[write_command(error, os.path.dirname(path))]) from error


def _stated(setting: Setting, document: Mapping[str, Any]) -> str | None:
    table, key = setting.table_and_key
    settings = document.get(table, {})
    word = stated_word(settings.get(key), setting) if isinstance(settings, dict) else None
    return word if isinstance(word, str) else None


def _user_document(path: str) -> tuple[str, dict[str, Any]]:
    """The text and the decoded document. Raises Refusal (settings-invalid)."""
    shown = printable(path)
    try:
        content, status = _content(path)
        document = _decoded(content)
    except FileNotFoundError:
        return "", {}
    except OSError as error:
        fix = [f"ls -la {quoted(os.path.dirname(path))}", *(own_home(path) if error.errno == errno.EACCES else [])]
        fix = [MORE_FILES] if error.errno == errno.EMFILE else fix
        raise Refusal("settings-invalid", f"{shown} cannot be read: {error.strerror}", fix=fix) from error
    except _UnusableSettings as unusable:
        raise Refusal("settings-invalid", f"{shown} {unusable}", fix=[f"${{EDITOR:-vi}} {quoted(path)}"]) from None
    if status.st_uid not in (0, os.geteuid()):
        message = f"{shown} belongs to user {status.st_uid}, not to you ({os.geteuid()})"
        raise Refusal("settings-invalid", message, fix=[f"ls -l {quoted(path)}"])
    if status.st_mode & 0o022:
        message = f"{shown} is writable by other users, who could decide what omac does"
        raise Refusal("settings-invalid", message, fix=[f"chmod 600 {quoted(path)}"])
    return content.decode(), document


def _project_content(workdir: str) -> bytes:
    """Return the content of a project's settings file. Raises OSError, ValueError, _UnusableSettings."""
    with Descriptor(atomic.open_folder(workdir)) as top:
        try:
            folder = os.open(PROJECT_FOLDER, FOLDER_FLAGS, dir_fd=top)
        except NotADirectoryError:
            raise _UnusableSettings("is in a folder that is a link, or none at all") from None
    with Descriptor(folder):
        if stat.S_ISLNK(os.stat(FILE, dir_fd=folder, follow_symlinks=False).st_mode):
            raise _UnusableSettings("is a link")
        content, _ = _content(FILE, folder)
    for line in content.split(b"\n"):
        if len(line) > PROJECT_LINE_BYTES_MAX and not line.lstrip().startswith(b"#"):
            raise _UnusableSettings(f"has a line of more than {PROJECT_LINE_BYTES_MAX} bytes")
    return content


def _content(path: str, folder: int | None = None) -> tuple[bytes, os.stat_result]:
    """Return the content and status; in a project's `folder` no link is followed. Raises OSError, _UnusableSettings."""
    try:
        return bounded.read_with_status(path, BYTES_MAX, dir_fd=folder, follow=folder is None)
    except bounded.NotRegular:
        raise _UnusableSettings("is not a regular file") from None
    except bounded.TooLarge:
        raise _UnusableSettings(f"is larger than {BYTES_MAX // 1024} KiB") from None


def _decoded(content: bytes) -> dict[str, Any]:
    """Return the settings in the content of a file. Raises _UnusableSettings."""
    try:
        return tomllib.loads(content.decode())
    except UnicodeDecodeError:
        raise _UnusableSettings("is not UTF-8 text") from None
    except RecursionError:
        raise _UnusableSettings("is nested too deep") from None
    except ValueError as error:  # TOMLDecodeError is one; numbers too long for Python are another
        raise _UnusableSettings(f"is not valid TOML ({printable(str(error))[:200]})") from None


def _place(content: str, name: str) -> str:
    """Return where a table or a setting is stated, as ", line 3"; "" where that is written in an unusual way."""
    table = ""
    for number, line in enumerate(content.split("\n"), 1):
        stated = _STATED.match(line)
        if stated is None:
            continue
        table, key = (_plain(stated["table"]), "") if stated["table"] else (table, _plain(stated["key"]))
        whole = ".".join(part for part in (table, key) if part)
        is_inline = bool(key) and name.startswith(f"{whole}.")
        if is_inline or whole == name or whole.startswith(f"{name}."):
            return f", line {number}"
    return ""


def _plain(key: str) -> str:
    """A key of TOML without quotes and blanks around its parts."""
    return ".".join(part.strip(" \t\"'") for part in key.split("."))


def _changed(setting: Setting, value: str | None, text: str, before: Mapping[str, Any], path: str) -> str | None:
    """`text` with that one setting changed; None if there is nothing to change. Raises Refusal (settings-invalid)."""
    table, key = setting.table_and_key
    stated = value == "true" if setting.words == ("false", "true") and value is not None else value
    settings = before.get(table, {})
    if isinstance(settings, dict):
        if stated_word(settings.get(key), setting) == value:
            return None
        wanted = {name: word for name, word in {**settings, key: stated}.items() if word is not None}
        after = _edited(text, table, key, stated)
        if after is not None and {table: {}, **tomllib.loads(after)} == {**before, table: wanted}:
            return after
    message = f"{printable(path)} is written in a way that omac cannot change without harm to it"
    fix = [f"${{EDITOR:-vi}} {quoted(path)}  # {'remove' if value is None else 'set'} {setting.name}"]
    raise Refusal("settings-invalid", message, fix=fix)


def _edited(text: str, table: str, key: str, value: str | bool | None) -> str | None:
    """`text` with one key set, or removed (None), by a library that keeps the rest; None where it does not know how."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        document: Any = tomlkit.parse(text)
        if value is None:
            del document[table][key]
        else:
            if table not in document:
                document[table] = tomlkit.table()
            document[table][key] = value
        after = tomlkit.dumps(document)
        tomllib.loads(after)
    except (TOMLKitError, ValueError, LookupError, TypeError):
        return None
    return after


@contextmanager
def _locked(path: str) -> Iterator[int]:
    """The open folder, with nobody else changing settings in it. Raises OSError, Refusal (contention)."""
    with Descriptor(atomic.open_folder(path)) as folder:
        if not hold_opened(folder):
            message = f"another omac is changing the settings in {printable(path)}; nothing was changed"
            raise Refusal("contention", message, fix=["try again"])
        yield folder
