"""Reading the old files: the registries, the approvals and the settings, in a project and in the user's folder.

An agent may write those of a project while omac reads them. Nothing there follows a link, waits or costs much. What
cannot be used becomes a note that begins with the file, and the rest is read all the same.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from omac.adapters.files import bounded
from omac.adapters.files.descriptor import FOLDER_FLAGS, Descriptor
from omac.adapters.linux.home import home_of
from omac.domain.kernel.terminal_escaping import printable
from omac.domain.legacy.go_import import Old, OldApproval, OldEntry, OldValues
from omac.domain.legacy.go_profile import is_go_profile
from omac.domain.skills.meta import SKILL_NAME, VARIABLE
from omac.domain.skills.values import has_64_bits, shown

PROJECT_FOLDER = ".opencode"
REGISTRY, APPROVALS, SETTINGS = "sidecar.json", "approvals.json", "skill-config.yaml"
PROFILES, LEARNED, PROFILES_MAX = "sandbox-profiles", ".pages.json", 100
VERSION = 1
BYTES_MAX = 2 * 1024 * 1024
YAML_BYTES_MAX = 256 * 1024
ENTRIES_MAX = 5_000
NAMES_MAX = 256  # secrets that an entry declares
NOTES_PER_FILE_MAX = 10
HASH = re.compile(r"sha256:[0-9a-f]{64}")

ParseYaml = Callable[[bytes, str], object]  # raises ValueError; its text goes on after the file's name


class _Unreadable(Exception):
    """The text goes on after the file's name."""


class _GoFile(NamedTuple):
    """The content of a file (None if it was not read), and the list that notes about the file are added to."""

    path: str
    content: bytes | None
    notes: list[str]

    def note(self, problem: str) -> None:
        mine = sum(1 for note in self.notes if note.startswith(f"{self.path}: "))
        if mine < NOTES_PER_FILE_MAX:
            self.notes.append(f"{self.path}: {problem}")
        elif mine == NOTES_PER_FILE_MAX:
            self.notes.append(f"{self.path}: more of its entries cannot be used")


def read_old(workdir: str, environment: Mapping[str, str], parse_yaml: ParseYaml) -> Old:
    """Return all there is for the canonical `workdir` and this user. Raises nothing: `notes` tell what could not be
    used."""
    notes: list[str] = []
    entries = [*_entries(_of_project(workdir, REGISTRY, notes), workdir)]
    entries += _entries(_of_user(workdir, REGISTRY, environment, notes), "")
    approvals = tuple(_approvals(_of_user(workdir, APPROVALS, environment, notes)))
    project = _values(_of_project(workdir, SETTINGS, notes), parse_yaml)
    user = _values(_of_user(workdir, SETTINGS, environment, notes), parse_yaml)
    return Old(tuple(entries), approvals, project, user, tuple(notes))


def read_profiles(workdir: str, environment: Mapping[str, str]) -> tuple[dict[str, tuple[str, Any]], list[str]]:
    """The sandbox profiles of this user in the old form: by name the file and what it holds; and notes, as in `Old`."""
    notes: list[str] = []
    names: set[str] = set()
    for folder in _user_folders(environment):
        try:
            names.update(os.listdir(os.path.join(folder, PROFILES)))
        except OSError:
            continue  # there are none
    profiles: dict[str, tuple[str, Any]] = {}
    for name in sorted(entry for entry in names if entry.endswith(".json") and entry.isprintable())[:PROFILES_MAX]:
        file = _of_user(workdir, f"{PROFILES}/{name}", environment, notes)
        if name.endswith(LEARNED):
            file.note("holds decisions about hosts, which have no counterpart: omac filters no hosts")
            continue
        document = _decoded(file)
        if is_go_profile(document):
            profiles[name.removesuffix(".json")] = file.path, document
    return profiles, notes


def _decoded(file: _GoFile) -> Any:  # Any: whatever JSON says
    """Return the value in a JSON file; UNSET if the file was not read, or, with a note, if it is not valid."""
    try:
        return msgspec.UNSET if file.content is None else msgspec.json.decode(file.content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        file.note(f"is not valid JSON ({shown(str(error).partition(chr(10))[0])[1:-1]})")
        return msgspec.UNSET


def copy_path(name: str, bundle_hash: str, environment: Mapping[str, str]) -> str:
    """Return the real path at which the old omac kept its copy of an approved skill, whether a copy exists or not."""
    assert SKILL_NAME.fullmatch(name)
    assert HASH.fullmatch(bundle_hash)
    return os.path.realpath(os.path.join(_user_folders(environment)[0], "skills", name, bundle_hash[7:]))


def _user_folders(environment: Mapping[str, str]) -> list[str]:
    """The user's folder of omac, and where some versions kept settings regardless of XDG_CONFIG_HOME."""
    usual = os.path.join(home_of(environment), ".config", "omac")
    config = environment.get("XDG_CONFIG_HOME", "")
    return [os.path.join(config, "omac"), usual] if config.startswith("/") else [usual]


def _of_project(workdir: str, name: str, notes: list[str]) -> _GoFile:
    path = printable(os.path.join(workdir, PROJECT_FOLDER, name))
    file = _GoFile(path, None, notes)
    try:
        with Descriptor(os.open(workdir, FOLDER_FLAGS)) as top:
            folder = os.open(PROJECT_FOLDER, FOLDER_FLAGS, dir_fd=top)
        with Descriptor(folder):
            if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                raise _Unreadable("is a link, and omac follows none in a project; put the file itself there")
            return file._replace(content=_content(name, folder)[0])
    except FileNotFoundError:
        pass
    except NotADirectoryError:
        file.note(f"cannot be read: {PROJECT_FOLDER} is a link or no folder, and omac follows no links in a project")
    except (OSError, _Unreadable) as error:
        file.note(_problem(error))
    return file


def _of_user(workdir: str, name: str, environment: Mapping[str, str], notes: list[str]) -> _GoFile:
    folders = _user_folders(environment)
    anywhere = name == SETTINGS or name.startswith(PROFILES)
    paths = [os.path.join(folder, name) for folder in (folders if anywhere else folders[:1])]
    path = next((path for path in paths if os.path.lexists(path)), paths[0])
    file = _GoFile(printable(path), None, notes)
    try:
        real = os.path.realpath(path)
        if real.startswith(workdir.rstrip("/") + "/"):
            if os.path.lexists(path):
                file.note(
                    "lies in the project, where an agent can write, so omac takes no approval from it; it was not read"
                )
            return file
        content, status = _content(real)
        _require_own(status)
        _require_own(os.stat(os.path.dirname(real)), "its folder ")
        return file._replace(content=content)
    except FileNotFoundError:
        pass
    except (OSError, ValueError, _Unreadable) as error:
        file.note(_problem(error))
    return file


def _require_own(status: os.stat_result, whose: str = "") -> None:
    if status.st_uid not in (0, os.geteuid()):
        raise _Unreadable(f"{whose}belongs to user {status.st_uid}, and not to you ({os.geteuid()})")
    if status.st_mode & 0o022:
        raise _Unreadable(f"{whose}is writable by other users, so omac ignores it; run: chmod go-w")


def _content(path: str, folder: int | None = None) -> tuple[bytes, os.stat_result]:
    try:
        return bounded.read_with_status(path, BYTES_MAX, dir_fd=folder)
    except bounded.NotRegular:
        raise _Unreadable("is not a regular file") from None
    except bounded.TooLarge:
        raise _Unreadable(f"is larger than {BYTES_MAX // 1024**2} MiB") from None


def _entries(file: _GoFile, workdir: str) -> Iterator[OldEntry]:
    for where, section in _listed(file, "registered"):
        try:
            name, bundle_hash = _name(section), _text(section, "bundle_hash")
            names = section.get("declared_secret_names")
            names = [] if names is None else names
            if not isinstance(names, list) or len(names) > NAMES_MAX:
                raise _Unreadable(f"declared_secret_names must be a list of at most {NAMES_MAX} names")
            for item in names:
                if not (isinstance(item, str) and VARIABLE.fullmatch(item)):
                    raise _Unreadable(f"declared_secret_names has {_shown(item)}, which is not the name of a variable")
            source = _folder(section, workdir)
        except _Unreadable as problem:
            file.note(f"{where} {problem}")
        else:
            yield OldEntry(name, source, bundle_hash, tuple(names), file.path, not workdir)


def _approvals(file: _GoFile) -> Iterator[OldApproval]:
    for where, section in _listed(file, "approved"):
        try:
            bundle_hash = _text(section, "bundle_hash")
            if not HASH.fullmatch(bundle_hash):
                raise _Unreadable(f"bundle_hash {shown(bundle_hash)} must be sha256: and 64 hexadecimal digits")
            if not section.get("skill_dir"):
                raise _Unreadable("has no skill_dir, so the approved folder is unknown")
            source, path = _folder(section, ""), os.path.normpath(section["skill_dir"])
            yield OldApproval(_name(section), path, _project_resolved(path), source, bundle_hash, file.path)
        except _Unreadable as problem:
            file.note(f"{where} {problem}")


def _listed(file: _GoFile, key: str) -> Iterator[tuple[str, dict[Any, Any]]]:
    """The mappings in the list `key` of a JSON file, each with how a note calls it."""
    document = _decoded(file)
    if document is msgspec.UNSET:
        return
    try:
        entries = _of_version(document).get(key)
        if entries is None:
            return
        if not isinstance(entries, list):
            raise _Unreadable(f"{key} must be a list")
        if len(entries) > ENTRIES_MAX:
            raise _Unreadable(
                f"{key} has {len(entries)} entries; at most {ENTRIES_MAX} are read, and none of these was"
            )
    except _Unreadable as unusable:
        file.note(str(unusable))
        return
    for index, entry in enumerate(entries):
        where = f"{key}[{index}]"
        if isinstance(entry, dict):
            named = entry.get("name")
            yield (f"{where} ({shown(named)})" if isinstance(named, str) else where), entry
        else:
            file.note(f"{where} must be a mapping")


def _values(file: _GoFile, parse_yaml: ParseYaml) -> OldValues:
    if file.content is None:
        return OldValues(file.path)
    try:
        if len(file.content) > YAML_BYTES_MAX:
            raise _Unreadable(f"is larger than {YAML_BYTES_MAX // 1024} KiB")
        document = _of_version(parse_yaml(file.content, file.path))
    except (_Unreadable, ValueError) as problem:
        file.note(_problem(problem))
        return OldValues(file.path)
    return OldValues(file.path, _by_skill(file, document, "skills"), _by_skill(file, document, "defaults"))


def _by_skill(file: _GoFile, document: dict[Any, Any], key: str) -> dict[str, dict[str, str]]:
    sections = document.get(key)
    if sections is None:
        return {}
    if not isinstance(sections, dict):
        file.note(f"{key} must be a mapping")
        return {}
    by_skill: dict[str, dict[str, str]] = {}
    for skill, fields in sections.items():
        if not (isinstance(skill, str) and SKILL_NAME.fullmatch(skill)):
            file.note(f"{key} has {_shown(skill)}, which is not the name of a skill")
        elif not isinstance(fields, dict | None):
            file.note(f"{key}.{skill} must be a mapping")
        else:
            for name, value in (fields or {}).items():
                try:
                    _add(by_skill.setdefault(skill, {}), name, value)
                except _Unreadable as problem:
                    file.note(f"{key}.{skill} {problem}")
    return by_skill


def _add(fields: dict[str, str], name: object, value: object) -> None:
    if not (isinstance(name, str) and VARIABLE.fullmatch(name)):
        raise _Unreadable(f"has {_shown(name)}, which is not the name of a variable")
    match value:
        case bool():
            fields[name] = "true" if value else "false"
        case int() if has_64_bits(value):
            fields[name] = str(value)
        case str():
            fields[name] = value
        case _:
            raise _Unreadable(f"has a value of {name} that is not text: put it in quotes")


def _of_version(document: object) -> dict[Any, Any]:
    if not isinstance(document, dict):
        raise _Unreadable("must hold a mapping")
    version = document.get("version")
    if isinstance(version, bool) or not isinstance(version, int):
        raise _Unreadable(f"must say version: {VERSION}")
    if version > VERSION:
        raise _Unreadable("was written by a newer omac (its version is beyond 1)")
    if version != VERSION:
        raise _Unreadable(f"must say version: {VERSION}")
    return document


def _name(section: dict[Any, Any]) -> str:
    name = _text(section, "name")
    if not SKILL_NAME.fullmatch(name):
        raise _Unreadable("has a name that no skill can have: 1 to 64 of A-Z a-z 0-9 . _ -, a letter or digit first")
    return name


def _folder(section: dict[Any, Any], workdir: str) -> str:
    """Return the real path that `skill_dir` leads to now. Raises _Unreadable."""
    path = _text(section, "skill_dir")
    if not path.isprintable() or ".." in path.split("/"):
        raise _Unreadable(f"skill_dir {shown(path)} must be a plain path, without .. and control characters")
    if not (workdir or path.startswith("/")):
        raise _Unreadable(f"skill_dir {shown(path)} must be an absolute path")
    try:
        return os.path.realpath(os.path.join(workdir, path))
    except (OSError, ValueError):
        raise _Unreadable(f"skill_dir {shown(path)} leads nowhere") from None


def _project_resolved(path: str) -> str:
    """`path` with the links followed that lead to its project: not those in its last three parts, .base/skills/name."""
    project, *inner = path.rsplit("/", 3)
    return os.path.join(os.path.realpath(project or "/"), *inner)


def _text(section: dict[Any, Any], key: str) -> str:
    value = section.get(key)
    if not isinstance(value, str) or not value:
        raise _Unreadable(f"must have text as {key}")
    return value


def _shown(value: object) -> str:
    return shown(value) if isinstance(value, str) else f"a {type(value).__name__}"


def _problem(error: Exception) -> str:
    return f"cannot be read ({error.strerror or type(error).__name__})" if isinstance(error, OSError) else str(error)
