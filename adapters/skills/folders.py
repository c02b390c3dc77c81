"""Project directories and the skill folders in them, read without leaving the project.

An agent in a sandbox may write all of it while omac reads, outside that sandbox. So a path is resolved once, checked,
and then opened part by part without following links: a link that appears in between is an error, never a way out.
"""

import errno
import hashlib
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache

import msgspec
import trio

from omac.adapters.skills.yaml_file import YamlFileError, parse_yaml, read_yaml_bytes
from omac.domain.bundle import PRUNED_FOLDERS, code_hash, considered, unhashed
from omac.domain.refusal import Refusal
from omac.domain.skill import SKILL_NAME, FoundSkill, MetaError
from omac.domain.skill_contract import parse_meta

META_FILE = "omac.yaml"
LINK = "\0link"  # no file name ends like this
SKILLS_PER_BASE_MAX = 256
ENTRIES_PER_BASE_MAX = 10_000
BUNDLE_ENTRIES_MAX = 100_000
BUNDLE_BYTES_MAX = 2**30
THREADS_MAX = 16
BUNDLE_DEPTH_MAX = 64
CHUNK_BYTES = 1024 * 1024

# Folders on the way need no right to be listed. macOS has no O_PATH.
_PASS_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class DiskSkillFolders:
    """The SkillFolders port on a local disk: each call is one hop to a worker thread.

    A cancelled call leaves its thread to finish alone; it only reads.
    """

    async def canonical(self, path: str, roots: Sequence[str]) -> str:
        """As in the port. A directory that may not be read, or whose name is not UTF-8, is a bad-request."""
        return await trio.to_thread.run_sync(_canonical, path, tuple(roots), abandon_on_cancel=True, limiter=_threads())

    async def discover(self, workdir: str, bases: Sequence[str]) -> list[FoundSkill]:
        """As in the port; `workdir` must be canonical. What keeps a skill from being read becomes its `problem`."""
        return await trio.to_thread.run_sync(
            _discover, workdir, tuple(bases), abandon_on_cancel=True, limiter=_threads()
        )

    async def bundle_hash(self, source: str) -> str:
        """As in the port; `source` must be canonical: a link on the way raises OSError too."""
        return await trio.to_thread.run_sync(_bundle_hash_of, source, abandon_on_cancel=True, limiter=_threads())


@cache
def _threads() -> trio.CapacityLimiter:
    """A slow disk holds up looks at folders, and nothing else."""
    return trio.CapacityLimiter(THREADS_MAX)


def _canonical(path: str, roots: tuple[str, ...]) -> str:
    if not isinstance(path, str) or "\0" in path or not _is_utf8(path):
        raise Refusal("bad-request", "a directory must be an absolute path: UTF-8 text without NUL")
    if not path.startswith("/"):
        raise Refusal("bad-request", f"{_readable(path)!r} is a relative path; give an absolute path")
    shown = _readable(path)
    try:
        found = os.path.realpath(path, strict=True)
        os.close(os.open(found, _FOLDER_FLAGS))
    except FileNotFoundError:
        raise Refusal(
            "directory-missing", f"{shown} does not exist; create it or give another path", fix=[_list_parent(path)]
        ) from None
    except NotADirectoryError:
        raise Refusal(
            "not-a-directory", f"not a directory: {shown}; give the directory that holds it", fix=[_list_parent(path)]
        ) from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise Refusal("bad-request", f"{shown} cannot be read ({reason}); give a directory omac may read") from None
    if not _is_utf8(found):
        raise Refusal("bad-request", f"{_readable(found)} is not a UTF-8 path; rename the directory")
    if not any(_is_within(found, root) for root in roots):
        allowed = ", ".join(_readable(root) for root in roots) or "none"
        command = ["omac", "serve", "--no-inner", *(part for root in (*roots, found) for part in ("--root", root))]
        text = f"{_readable(found)} is not under any allowed --root (allowed: {allowed})"
        raise Refusal("outside-roots", text, fix=[f"{shlex.join(command)}  # in place of the server that runs"])
    return found


def _list_parent(path: str) -> str:
    """The command that shows what there is instead."""
    return f"ls -la {shlex.quote(_readable(os.path.dirname(path.rstrip('/')) or '/'))}"


def _discover(workdir: str, bases: tuple[str, ...]) -> list[FoundSkill]:
    found: dict[str, FoundSkill] = {}
    for base in bases:
        for skill in _Base(workdir, base).skills(found):
            found.setdefault(skill.name, skill)
    return list(found.values())


class _Base:
    """One `<workdir>/.<base>/skills`."""

    def __init__(self, workdir: str, base: str) -> None:
        self._workdir = workdir
        self._base = base
        self._label = f".{base}/skills"
        self._path = os.path.join(workdir, f".{base}", "skills")

    def skills(self, taken: Mapping[str, FoundSkill]) -> Iterator[FoundSkill]:
        """What is found, by folder name; a skill whose name is `taken` is not read to the end."""
        try:
            path = os.path.realpath(self._path, strict=True)
        except (FileNotFoundError, NotADirectoryError):
            if os.path.lexists(self._path):
                yield self._broken(self._label, self._path, "is a link that leads nowhere; remove it")
            return
        except OSError as error:
            yield self._broken(self._label, self._path, f"cannot be read ({error.strerror}); check links and rights")
            return
        if not _is_within(path, self._workdir):
            yield self._broken(self._label, self._path, "leads out of the project; put the folder itself there")
            return
        try:
            names = _entry_names(path)
        except OSError as error:
            yield self._broken(
                self._label, self._path, f"cannot be read ({error.strerror}); make it a folder of skills"
            )
            return
        seen = 0
        for name in sorted(names):
            skill = self._skill(path, name, taken)
            seen += skill is not None
            if seen > SKILLS_PER_BASE_MAX:
                problem = f"holds more than {SKILLS_PER_BASE_MAX} skills, so the rest was not read; remove some"
                yield self._broken(self._label, self._path, problem)
                return
            if skill is not None:
                yield skill

    def _skill(self, skills_path: str, name: str, taken: Mapping[str, FoundSkill]) -> FoundSkill | None:
        """The skill in the folder `name`; None if there is none, or no sidecar in it."""
        path = os.path.join(skills_path, name)
        try:
            source = os.path.realpath(path, strict=True) if os.path.islink(path) else path
            if not _is_within(source, self._workdir):
                return self._broken(name, path, "leads out of the project; put the folder itself there")
            with _open_folder(source) as folder:
                os.stat(META_FILE, dir_fd=folder, follow_symlinks=False)
                if not name.isprintable() or not _is_utf8(source):
                    return self._broken(name, path, "has control characters or no UTF-8 in its path; rename the folder")
                return self._read(folder, name, source, taken)
        except (FileNotFoundError, NotADirectoryError):
            if os.path.islink(path) and not os.path.exists(path):
                return self._broken(name, path, "is a link that leads nowhere; remove it")
            return None  # guidance only, or no folder at all
        except OSError as error:
            return self._broken(name, path, f"cannot be read ({error.strerror}); check links and rights")

    def _read(self, folder: int, name: str, source: str, taken: Mapping[str, FoundSkill]) -> FoundSkill | None:
        shown = _readable(os.path.join(source, META_FILE))
        try:
            content = read_yaml_bytes(META_FILE, folder, shown)
            document = parse_yaml(content, shown)
        except YamlFileError as error:
            return self._invalid(name, source, str(error))
        name = _declared_name(document) or name
        try:
            meta = parse_meta(document)
        except MetaError as error:
            return self._invalid(name, source, f"{shown}: {error}")
        if meta.sidecar is None:
            return None
        skill = FoundSkill(meta.name, self._base, self._path, source, meta=meta)
        if meta.name in taken:
            return skill  # another comes first: nobody will ask for the hash of this one
        try:
            # The hash covers the very bytes that `meta` was read from, whatever the file holds by now: otherwise
            # a folder that changes in between would pair one command with the hash of another.
            digest = _code_hash(source, {META_FILE: hashlib.sha256(content).digest()})
        except OSError as error:
            culprit = _readable(str(error.filename))
            return self._invalid(
                name, source, f"{culprit} cannot be hashed ({error.strerror}); make it smaller or mend it"
            )
        return msgspec.structs.replace(skill, bundle_hash=digest)

    def _broken(self, name: str, source: str, complaint: str) -> FoundSkill:
        return self._invalid(name, source, f"{_readable(source)} {complaint}")

    def _invalid(self, name: str, source: str, problem: str) -> FoundSkill:
        source = source if _is_utf8(source) else _readable(source)  # it goes into JSON
        return FoundSkill(_readable(name), self._base, self._path, source, problem=problem)


def _declared_name(document: object) -> str | None:
    name = document.get("name") if isinstance(document, dict) else None
    return name if isinstance(name, str) and SKILL_NAME.fullmatch(name) else None


def _entry_names(path: str) -> list[str]:
    """Names in the folder that can be skill folders. Raises OSError, also beyond ENTRIES_PER_BASE_MAX entries."""
    names: list[str] = []
    with _open_folder(path) as folder, os.scandir(folder) as entries:
        for count, entry in enumerate(entries):
            if count == ENTRIES_PER_BASE_MAX:
                raise OSError(errno.EFBIG, f"more than {ENTRIES_PER_BASE_MAX} entries", path)
            is_folder = entry.is_symlink() or entry.is_dir(follow_symlinks=False)
            if is_folder and not entry.name.startswith("."):  # as `skills/*/` in a shell
                names.append(entry.name)
    return names


def _bundle_hash_of(source: str) -> str:
    return _code_hash(source, {})


def _code_hash(source: str, known: Mapping[str, bytes]) -> str:
    """The hash of a skill's code; `known` files are not read again. Raises OSError."""
    files: list[tuple[str, bytes]] = []
    others: list[tuple[str, bytes]] = []
    for relpath, digest in _digests(source, known):
        (files if considered(relpath) and not relpath.endswith(LINK) else others).append((relpath, digest))
    return code_hash(files, others)


def _digests(source: str, known: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
    """`(relpath, SHA-256)` of each file below `source` that counts, `(relpath + LINK, ...)` of each link's target."""
    entries_left, bytes_left = BUNDLE_ENTRIES_MAX, BUNDLE_BYTES_MAX
    waiting = [""]
    while waiting:
        below = waiting.pop()
        if below.count("/") > BUNDLE_DEPTH_MAX:
            raise OSError(errno.EFBIG, f"more than {BUNDLE_DEPTH_MAX} folders deep", source)
        with _open_folder(os.path.join(source, below)) as folder, os.scandir(folder) as entries:
            for entry in entries:
                entries_left -= 1
                if entries_left < 0:
                    raise OSError(errno.EFBIG, f"more than {BUNDLE_ENTRIES_MAX} files and folders", source)
                relpath = below + entry.name
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in PRUNED_FOLDERS:
                        waiting.append(relpath + "/")
                elif entry.is_symlink():
                    target = os.readlink(entry.name, dir_fd=folder)
                    yield relpath + LINK, hashlib.sha256(os.fsencode(target)).digest()
                elif entry.is_file(follow_symlinks=False) and (considered(relpath) or unhashed(relpath)):
                    digest = known.get(relpath)
                    if digest is None:
                        digest, size = _file_digest(entry.name, folder, os.path.join(source, relpath), bytes_left)
                        bytes_left -= size
                    yield relpath, digest


def _file_digest(name: str, folder: int, shown: str, bytes_max: int) -> tuple[bytes, int]:
    """SHA-256 of a regular file, and how many bytes it has. Raises OSError, also beyond `bytes_max`."""
    try:
        fd = os.open(name, _FILE_FLAGS, dir_fd=folder)
    except OSError as error:
        raise OSError(error.errno, error.strerror, shown) from None
    with open(fd, "rb", buffering=0) as file:
        digest, size = hashlib.sha256(), 0
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
            if size > bytes_max:
                raise OSError(errno.EFBIG, f"more than {BUNDLE_BYTES_MAX // 2**30} GiB in all", shown)
        return digest.digest(), size


@contextmanager
def _open_folder(path: str) -> Iterator[int]:
    """A descriptor of the folder at this canonical path; no part of the path may be a link. Raises OSError."""
    parts = [part for part in path.split("/") if part]
    folder = os.open("/", _PASS_FLAGS if parts else _FOLDER_FLAGS)
    try:
        for index, part in enumerate(parts):
            flags = _FOLDER_FLAGS if index == len(parts) - 1 else _PASS_FLAGS
            try:
                inner = os.open(part, flags, dir_fd=folder)
            except OSError as error:
                raise OSError(error.errno, error.strerror, "/" + "/".join(parts[: index + 1])) from None
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


def _is_within(path: str, root: str) -> bool:
    """Whether the canonical `path` is `root` or below it; whole names count: /a/bc is not below /a/b."""
    if not root.startswith("/"):
        return False  # an empty root must not become "/"
    root = root.rstrip("/")
    return path == root or path.startswith(root + "/")


def _is_utf8(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _readable(path: str) -> str:
    """`path` with what a terminal or a JSON text cannot show escaped."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in path)
