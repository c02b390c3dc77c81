"""The spool: records of programs too short-lived to open the journal, one file each, until some omac ingests them.

Rules

1. A record is durable, with its folder, when `append` returns, or `flush` where that was put off; a reader sees it
   whole or not at all.
2. The folder is its owner's alone, and out of every sandbox's reach.
3. A file is a JSON object: form, id, kind, stream and version as in the journal but without the host, at, run, actor,
   and the event's fields by name. Its name begins with the time, so that names sort as things happened.
4. What is not Unicode is written as \\xNN, and long texts are cut: a record never fails for what it tells about.
"""

from __future__ import annotations

import os

from omac.domain.kernel.refusal import Refusal, list_command, quoted
from omac.journal.folders import write_command

TYPE_CHECKING = False  # importing typing would take longer than all the rest
if TYPE_CHECKING:
    from collections.abc import Mapping

FORM = 1  # of the files: a later form is not guessed at
RECORD_MAX = 65_536  # bytes of one file
ID_MAX = 64
TEXT_MAX = 4_096  # characters of one text: the longest path there can be
HEX_DIGITS = "0123456789abcdefABCDEF%"  # also percent-encoded
TOKEN_CHARS_MAX = 288  # that one takes, percent-encoded twice
DRAFT = "."  # a name that begins so is not there yet
REJECTED = "rejected"  # the folder of what could not be taken


def waiting_in(folder: str) -> frozenset[str]:
    """Return the names of the records in a spool; none when the folder does not exist."""
    try:
        return frozenset(name for name in os.listdir(folder) if name != REJECTED and name[0] != DRAFT)
    except OSError:
        return frozenset()


class Spool:
    """The spool in `folder`, which is created (0700) where it is missing. Raises Refusal (state-unusable)."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._descriptor = open_folder(folder, create=True)

    def append(
        self,
        kind: str,
        fields: Mapping[str, object],
        *,
        stream: str,
        version: int | None,
        at: int,
        run: str,
        actor: str,
        id: str,  # noqa: A002  # what it is called in the record
        durable: bool = True,
    ) -> str:
        """Record an event: `at` in nanoseconds since 1970 UTC; `id`, of letters and digits, and `version` (None in a
        log) are unique together: a second record of both is the first one again. Returns the path of the file. Raises
        Refusal (journal-unavailable) when it cannot be kept."""
        assert is_id(id), id
        record = {
            "form": FORM, "id": id, "kind": kind, "stream": stream, "version": version, "at": at, "run": run,
            "actor": actor, "fields": dict(fields),
        }  # fmt: skip
        content = encoded(bounded(record)).encode()
        name = file_name(at, id, version)
        if len(content) > RECORD_MAX:
            raise Refusal("journal-unavailable", f"the record of {kind} is longer than {RECORD_MAX} bytes")
        try:
            self._write(name, content, durable)
        except OSError as error:
            raise self._not_recorded(kind, error) from error
        return os.path.join(self.folder, name)

    def flush(self, path: str) -> None:
        """Make a record durable that was appended otherwise; nothing where it has been ingested since. Raises Refusal
        (journal-unavailable)."""
        try:
            try:
                descriptor = os.open(os.path.basename(path), os.O_RDONLY | os.O_NOFOLLOW, dir_fd=self._descriptor)
            except FileNotFoundError:
                return
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.fsync(self._descriptor)
        except OSError as error:
            raise self._not_recorded("a record", error) from error

    def close(self) -> None:
        os.close(self._descriptor)

    def _write(self, name: str, content: bytes, durable: bool) -> None:
        """Under a name that readers pass over, then, complete, under its own: never half."""
        folder = self._descriptor
        draft = DRAFT + name
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(draft, flags, 0o600, dir_fd=folder)
        try:
            try:
                rest = content
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
                if durable:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            os.unlink(draft, dir_fd=folder)
            raise
        if durable:
            os.fsync(folder)

    def _not_recorded(self, kind: str, error: OSError) -> Refusal:
        fix = [write_command(error, self.folder)]
        message = f"{kind} cannot be recorded in {self.folder}: {error.strerror}"
        return Refusal("journal-unavailable", message, fix=fix)


def is_id(text: str) -> bool:
    """Return whether a text may be the id of a record, which becomes part of a file's name."""
    return text.isalnum() and text.isascii() and len(text) <= ID_MAX


def file_name(at: int, id: str, version: int | None) -> str:  # noqa: A002
    """The name of a record's file: the time in 20 digits, its id, and its version (0 in a log)."""
    return f"{at:020d}-{id}.{version or 0}.json"


def id_in(name: str) -> str:
    """Return the id in the name of a record's file."""
    return name.partition("-")[2].partition(".")[0]


def open_folder(folder: str, *, create: bool = False) -> int:
    """A descriptor of a spool's folder, proven to be this user's alone, as is the folder around it. Raises Refusal
    (state-unusable), and FileNotFoundError where there is none and `create` is not asked for."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        try:
            descriptor = os.open(folder, flags)
        except FileNotFoundError:
            if not create:
                raise
            _create(folder)
            descriptor = os.open(folder, flags)
    except FileNotFoundError:
        if not create:
            raise
        raise _unusable(folder, "it was removed while it was being made") from None
    except NotADirectoryError:
        raise _unusable(folder, "it is a symbolic link or no folder") from None
    except OSError as error:
        raise _unusable(folder, str(error.strerror), write_command(error, folder)) from error
    try:
        _require_private(folder, os.fstat(descriptor))
        _require_private(os.path.dirname(folder), os.stat("..", dir_fd=descriptor))  # whoever may change that
    except Refusal:
        os.close(descriptor)
        raise
    return descriptor


def _require_private(folder: str, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        raise _unusable(folder, f"it belongs to user {status.st_uid}, not to you ({os.geteuid()})")
    if status.st_mode & 0o022:
        raise _unusable(folder, "it is writable by other users", chmod=True)


def bounded(value: object) -> object:
    """Return the value with long texts cut; a cut text ends in "..." to show it."""
    if isinstance(value, str):
        return value if len(value) <= TEXT_MAX else _cut(value)
    if isinstance(value, list | tuple):
        return [bounded(item) for item in value]
    if isinstance(value, dict):
        return {name: bounded(item) for name, item in value.items()}
    return value


def _cut(text: str) -> str:
    """The beginning of a text, without a token's first digits at its end: half a token could not be recognised."""
    kept = text[: TEXT_MAX - 3]
    return kept[:-TOKEN_CHARS_MAX] + kept[-TOKEN_CHARS_MAX:].rstrip(HEX_DIGITS) + "..."


def encoded(value: object) -> str:
    """JSON (RFC 8259) of text, int, bool, None, and lists and dicts of them; what is not Unicode as of rule 4. Raises
    TypeError for anything else."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        if value.isascii() and value.isprintable() and '"' not in value and "\\" not in value:
            return f'"{value}"'  # most are so
        return f'"{_shown(value).translate(_ESCAPES)}"'
    if isinstance(value, list | tuple):
        return f"[{','.join([encoded(item) for item in value])}]"
    if isinstance(value, dict):
        return f"{{{','.join([f'{_name(name)}:{encoded(item)}' for name, item in value.items()])}}}"
    raise TypeError(f"a record holds no {type(value).__name__}")


_ESCAPES = {number: f"\\u{number:04x}" for number in (*range(32), 34, 92)}  # controls, the quote and the backslash


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"a record names its fields by texts, not by {type(name).__name__}")
    return encoded(name)


def _shown(text: str) -> str:
    if text.isascii():
        return text
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # a surrogate that stands for no byte
        return text.encode("utf-8", "surrogatepass").decode("utf-8", "backslashreplace")


def _create(folder: str) -> None:
    """Make the folder and those above it, 0700, and have them on the disk: a record is no safer than its path."""
    above = os.path.dirname(os.path.abspath(folder))
    if not os.path.isdir(above):
        _create(above)
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        return
    descriptor = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unusable(folder: str, why: str, look: str = "", *, chmod: bool = False) -> Refusal:
    own = "export OMAC_STATE_DIR=PATH  # one of your own"
    fix = [f"chmod 700 {quoted(folder)}"] if chmod else [look or list_command(folder), own]
    return Refusal("state-unusable", f"records cannot be kept in {folder}: {why}", fix=fix)
