"""The keys of a journal's personal fields: a file for each project directory, in a folder of its own.

Rules

1. A file is named by its directory's workdir id. It holds a key in each line, as 64 hex digits: the last encrypts, the
   others, which a backup brought back, only decrypt.
2. A key is on the disk, with its name, before anything is encrypted with it. Of two that are made at once one counts.
3. To erase is to remove the file, after whatever a killed process left of it, and to flush the folder. Whatever used
   the key asks for it again soon (`journal/subject_ciphers.py`).
"""

import os
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, suppress
from typing import NamedTuple

from omac.adapters.files import atomic, bounded
from omac.adapters.files.signing_keys import turn_at
from omac.domain.kernel.ids import WorkdirId
from omac.domain.kernel.refusal import Refusal, quoted
from omac.journal.folders import make_private

KEY_BYTES = 32
REMEMBERED_MAX = 10_000  # directories
ID_DIGITS = 64
KEYS_MAX = 1_000  # of one directory
LINE_BYTES = 65
BACKUP_BYTES_MAX = 64 << 20
DRAFT = ".draft."


class _Held(NamedTuple):
    """The keys as they were read; `stamp` identifies the file that they come from, None without a file."""

    keys: tuple[bytes, ...]
    stamp: tuple[int, int, int] | None


class SubjectKeyFiles:
    """The keys in `folder`. `usable` gives what the system refuses in omac's words; `shared` are keys that decrypt,
    too, for a copy of another journal. Every method raises Refusal."""

    def __init__(
        self,
        folder: str,
        usable: Callable[[], AbstractContextManager[None]],
        shared: "SubjectKeyFiles | None" = None,
    ) -> None:
        self.folder = folder
        self._usable = usable
        self._shared = shared
        self._held: dict[WorkdirId, _Held] = {}

    def current(self, subject: WorkdirId) -> tuple[bytes, ...]:
        """Return all keys of a directory, the newest of its own last; none where it has none."""
        own = self.own(subject)
        return (*self._shared.own(subject), *own) if self._shared else own

    def own(self, subject: WorkdirId) -> tuple[bytes, ...]:
        """Return the keys of a directory that are in the folder, the newest last."""
        held, path = self._held.get(subject), self._path(subject)
        stamp = _stamp(path)
        if held is None or stamp != held.stamp:
            if len(self._held) >= REMEMBERED_MAX:
                self._held.clear()
            held = self._held[subject] = _Held(self._read(path) if stamp else (), stamp)
        return held.keys

    def minted(self, subject: WorkdirId) -> tuple[bytes, ...]:
        """Return the keys of a directory; it is given one where it has none."""
        if keys := self.own(subject):
            return keys
        with self._usable():
            make_private(self.folder)
            with suppress(FileExistsError):  # another process was first
                atomic.publish(self._path(subject), _text((os.urandom(KEY_BYTES),)), prefix=DRAFT)
            atomic.sync_folder(os.path.dirname(self.folder))
        self._held.pop(subject, None)
        if keys := self.own(subject):
            return keys
        message = f"the key {self._path(subject)} was removed as soon as it was made; nothing was recorded"
        raise Refusal("contention", message, fix=["try again"])

    def destroy(self, subject: WorkdirId) -> None:
        """Remove the keys of a directory. A process that used them may do so for a moment longer
        (`journal/subject_ciphers.py`)."""
        keys = self.own(subject)
        with self._usable():
            for draft in self._drafts():
                if set(keys) & set(self._read_any(draft)):
                    with suppress(FileNotFoundError):  # it was being written, and now is a key
                        os.unlink(draft)
            with suppress(FileNotFoundError):
                os.unlink(self._path(subject))
            if os.path.isdir(self.folder):
                atomic.sync_folder(self.folder)
        self._held.pop(subject, None)

    def turn(self) -> AbstractContextManager[None]:
        """Keep others from erasing meanwhile. Raises Refusal (contention)."""
        return turn_at(self.folder, self._usable)

    def all(self) -> dict[WorkdirId, tuple[bytes, ...]]:
        """Return the keys of every directory."""
        with self._usable():
            names = os.listdir(self.folder) if os.path.isdir(self.folder) else []
        by_subject = {
            WorkdirId(name): self._read(os.path.join(self.folder, name)) for name in names if is_subject(name)
        }
        return {subject: keys for subject, keys in sorted(by_subject.items()) if keys}

    def add(self, keys: Mapping[WorkdirId, Collection[bytes]]) -> None:
        """Keep keys that a backup had, beside those that are there; new ones decrypt only, where there are others."""
        changed = dict[WorkdirId, tuple[bytes, ...]]()
        for subject, older in keys.items():
            present = self.own(subject)
            if missing := [key for key in older if key not in present]:
                changed[subject] = (*missing, *present)
            if len(missing) + len(present) > KEYS_MAX:
                message = f"the backup has {len(missing)} other keys of {subject}; a directory has at most {KEYS_MAX}"
                raise Refusal("state-unusable", message, fix=[f"less {quoted(self._path(subject))}"])
        for subject, merged in changed.items():
            with self._usable():
                make_private(self.folder)
                atomic.replace(self._path(subject), _text(merged), prefix=DRAFT)
            self._held.pop(subject, None)

    def _drafts(self) -> list[str]:
        """The files that a process which was killed left, or that one is writing."""
        names = os.listdir(self.folder) if os.path.isdir(self.folder) else []
        return [os.path.join(self.folder, name) for name in sorted(names) if name.startswith(DRAFT)]

    def _read_any(self, draft: str) -> tuple[bytes, ...]:
        """The keys of a draft; none of one that is cut off."""
        try:
            return self._read(draft)
        except Refusal:
            return ()

    def _path(self, subject: WorkdirId) -> str:
        assert is_subject(subject), subject
        return os.path.join(self.folder, subject)

    def _read(self, path: str) -> tuple[bytes, ...]:
        with self._usable():
            try:
                text = bounded.read(path, LINE_BYTES * KEYS_MAX)
            except FileNotFoundError:
                return ()
            except (bounded.NotRegular, bounded.TooLarge):
                text = b""
        return keys_in(text, path)


def is_subject(name: str) -> bool:
    """Return whether a name is a workdir id."""
    return len(name) == ID_DIGITS and all(digit in "0123456789abcdef" for digit in name)


def keys_in(text: bytes, path: str) -> tuple[bytes, ...]:
    """Return the keys that a file holds. Raises Refusal (state-unusable)."""
    try:
        keys = tuple(bytes.fromhex(line) for line in text.decode("ascii").split())
    except ValueError:
        keys = ()
    if not keys or any(len(key) != KEY_BYTES for key in keys):
        message = f"{path} does not hold keys; it was changed by hand or cut off"
        fix = [f"rm {quoted(path)}  # unless you can restore it: what it encrypted is erased then"]
        raise Refusal("state-unusable", message, fix=fix)
    return keys


def write_all(path: str, keys: Mapping[WorkdirId, Collection[bytes]]) -> None:
    """Write keys of many directories to a new file. Raises FileExistsError, OSError."""
    text = "".join(f"{subject} {key.hex()}\n" for subject, of in keys.items() for key in of)
    atomic.publish(path, text.encode("ascii"), prefix=DRAFT)


def read_all(path: str) -> dict[WorkdirId, list[bytes]]:
    """Return the keys of many directories that a file has. Raises Refusal (state-unusable), OSError."""
    by_subject = dict[WorkdirId, list[bytes]]()
    for line in bounded.read(path, BACKUP_BYTES_MAX, follow=True).splitlines():
        name, _, digits = line.decode("ascii", "replace").partition(" ")
        keys = keys_in(digits.encode("ascii", "replace"), path)
        if not is_subject(name):
            raise Refusal("state-unusable", f"{path} does not hold keys; it was changed by hand or cut off")
        by_subject.setdefault(WorkdirId(name), []).extend(keys)
    return by_subject


def _text(keys: Collection[bytes]) -> bytes:
    return "".join(f"{key.hex()}\n" for key in keys).encode("ascii")


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
