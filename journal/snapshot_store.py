"""Snapshots of what was folded, one for a position, in files of the state directory that can be deleted at any time.

Rules

1. The journal is the truth. A snapshot counts while its journal has the same id, the same record at that position and
   the same last repair, and while it was written in the form that is asked for; else it is as if it were not there.
2. Enough are kept to reach any position soon: those that lie APART positions from each other, and the newest.
3. A snapshot is written in one step, 0600. One that cannot be written is left: the next to fold as far tries again. The
   draft of a process that was killed goes with the next one that is written.

The library has snapshots of single aggregates only; these are of all read models together.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from hashlib import sha256

import msgspec

from omac.journal.folders import draft_of, make_private, sweep_drafts
from omac.journal.reader import Reader

ERASURES = "subject"  # the aggregate of their streams
APART = 50_000
BYTES_MAX = 1 << 28
_DIGEST_BYTES = sha256().digest_size
_NAME_DIGITS = 20


class SnapshotStore:
    """The snapshots of the journal that `reader` reads, in `folder`. `form` says by which folds they were made."""

    def __init__(self, reader: Reader, folder: str, form: str) -> None:
        self._reader = reader
        self._folder = folder
        self._form = form

    def positions(self) -> list[int]:
        """Return where there is a snapshot, whether it counts or not, in order."""
        try:
            names = os.listdir(self._folder)
        except OSError:
            return []
        return sorted(int(name) for name in names if len(name) == _NAME_DIGITS and name.isascii() and name.isdigit())

    def read(self, position: int) -> bytes | None:
        """Return the snapshot of a position; None where none counts. Raises Refusal."""
        with contextlib.suppress(OSError):
            descriptor = os.open(self.path(position), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(descriptor, "rb") as file:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode) or status.st_size > BYTES_MAX:
                    return None
                binding, digest, snapshot = file.read(_DIGEST_BYTES), file.read(_DIGEST_BYTES), file.read()
            if digest == sha256(snapshot).digest() and binding == self._binding(position):
                return snapshot
        return None

    def path(self, position: int) -> str:
        """Return where the snapshot of a position is kept."""
        return os.path.join(self._folder, f"{position:0{_NAME_DIGITS}}")

    def newest(self, position: int) -> Iterator[tuple[int, bytes]]:
        """Yield positions at or before `position` with their snapshots, the newest first. Raises Refusal."""
        for at in reversed(self.positions()):
            if at <= position and (snapshot := self.read(at)) is not None:
                yield at, snapshot

    def sealed_to(self) -> int:
        """Return the last position of the journal that is in a segment; 0 for none. Raises Refusal."""
        return self._reader.sealed_to()

    def write(self, position: int, snapshot: bytes, known: int = 0) -> None:
        """Keep a snapshot, and give up the one before it where it is not needed any more. None is kept where an erasure
        came behind it, and behind position `known`, up to which the events were there when they were read: it may have
        what that erased. Raises Refusal.
        """
        before = [at for at in self.positions() if at < position]
        head = b"".join((self._binding(position), sha256(snapshot).digest()))
        draft = draft_of(self.path(position))
        with contextlib.suppress(OSError):
            make_private(self._folder)
            sweep_drafts(self._folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                with open(os.open(draft, flags, 0o600), "wb") as file:
                    file.write(head + snapshot)
                os.replace(draft, self.path(position))
            except OSError:
                os.unlink(draft)
                return
            if self._is_erased_behind(max(position, known)):  # what is kept before is removed by it
                self.remove(position)
                return
            if before and before[-1] - (before[-2] if len(before) > 1 else 0) < APART:
                self.remove(before[-1])

    def _is_erased_behind(self, position: int) -> bool:
        streams = self._reader.streams(ERASURES)
        return any(row.id > position for stream in streams for row in self._reader.versions(stream))

    def remove(self, position: int) -> None:
        """Give a snapshot up."""
        with contextlib.suppress(OSError):
            os.unlink(self.path(position))

    def _binding(self, position: int) -> bytes:
        """Return a digest of all that must be unchanged for a snapshot to count."""
        rows = self._reader.select(position - 1, 1, position)
        bound = (self._form, self._reader.journal_id(), self._reader.repaired_at(), rows)
        return sha256(msgspec.msgpack.encode(bound)).digest()
