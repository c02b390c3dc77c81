"""The mark of a journal: its id and the last position known of it, kept in the state directory, apart from its file.

So a journal that was removed, emptied or put back from an old copy is not taken for a first start, or for the whole
truth. A mark is written when a journal is closed or idle, not at each commit: it never claims too much. One that
cannot be read counts for nothing.

Beside the mark a link leads to a journal elsewhere. A launch that could write in the journal's folder, and knew nothing
of its use, renames the link (`adapters/files/journal_in_use.py: distrust`): the journal is believed no more.
"""

import contextlib
import hashlib
import os
from typing import NamedTuple

from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.kernel.state_paths import EXPOSED, LINK, MARKS
from omac.journal.folders import draft_of, make_private, sweep_drafts

BYTES_MAX = 256
RESTORING = ".restoring"  # behind a journal's path: the copy that a restore makes to replace it


class Mark(NamedTuple):
    """The mark in `file` of the journal at `path`."""

    path: str
    file: str

    @classmethod
    def of(cls, state: str, path: str) -> "Mark":
        """Return the mark that the state directory `state` keeps of the journal at `path`."""
        name = hashlib.sha256(os.fsencode(os.path.abspath(path))).hexdigest()[:16]
        return cls(path, os.path.join(state, MARKS, name))

    def read(self) -> tuple[str, int] | None:
        """Return the journal's id and position; None where nothing is known of it."""
        with contextlib.suppress(OSError, ValueError):
            descriptor = os.open(self.file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                journal_id, position = os.read(descriptor, BYTES_MAX).decode("ascii").split()
            finally:
                os.close(descriptor)
            return journal_id, int(position)
        return None

    def write(self, journal_id: str, position: int) -> None:
        """Write it in one step. A mark that cannot be written is left as it is: an older one is only less strict."""
        draft, folder = draft_of(self.file), os.path.dirname(self.file)
        with contextlib.suppress(OSError):
            make_private(folder)
            sweep_drafts(folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(draft, flags, 0o600)
            try:
                os.write(descriptor, f"{journal_id} {position}\n".encode())
            finally:
                os.close(descriptor)
            os.replace(draft, self.file)
            is_elsewhere = os.path.dirname(folder) != os.path.dirname(self.path)
            if is_elsewhere and not os.path.lexists(self.file + LINK):
                os.symlink(self.path, self.file + LINK)
            return
        with contextlib.suppress(OSError):  # a disk that is full would keep one of every process
            os.unlink(draft)

    def require(self, known: tuple[str, int] | None, journal_id: str, position: int) -> None:
        """Raise Refusal (journal-lost) for a journal that is not, or no longer, the one that was `known`.

        `known` is what `read` returned before the journal was read: both may grow meanwhile.
        """
        if os.path.lexists(exposed := self.file + EXPOSED):
            raise self.lost("could have been changed by a program in a sandbox since omac last used it", forget=exposed)
        if known is None:
            return
        if journal_id != known[0]:
            raise self.lost(f"is another journal (id {journal_id}) than the one omac last used there (id {known[0]})")
        if position < known[1]:
            raise self.lost(f"ends at position {position}; omac last saw it at {known[1]}, so it is an older copy")

    def find(self) -> bool:
        """Find the journal's file, and return whether it is there. Raises Refusal (journal-lost): it was there before.

        The mark is read first: another process may make both meanwhile.
        """
        known = self.read()
        if os.path.lexists(self.path):
            return True
        self.require_unmarked(known)
        return False

    def require_unmarked(self, known: tuple[str, int] | None) -> None:
        """Raise Refusal (journal-lost) where a journal was and now there is none; `known` as of `require`."""
        if known is not None and known[1]:
            missing = f"is missing or empty; omac last saw it at position {known[1]}"
            raise self.lost(missing, "begins a new journal; approvals and records are lost")

    def trust(self) -> None:
        """Believe a journal again that was put in the place of one that a sandbox exposed. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.file + EXPOSED)

    def lost(
        self, problem: str, otherwise: str = "continues with this journal; later records are lost", forget: str = ""
    ) -> Refusal:
        """Return the refusal, with the ways back; `otherwise` says what forgetting the mark, or the file `forget`
        beside it, does."""
        if refusal := being_restored(self.path):
            return refusal
        otherwise = "believes it as it is" if forget else otherwise
        fix = [
            f"omac journal restore BACKUP --journal {quoted(self.path)}  # a copy made by omac journal backup",
            f"rm {quoted(forget or self.file)}  # {otherwise}",
        ]
        return Refusal("journal-lost", f"the journal {self.path} {problem}", fix=fix)


def being_restored(path: str) -> Refusal | None:
    """Return the refusal of a journal that a restore is replacing; None where none is."""
    if not os.path.lexists(path + RESTORING):
        return None
    message = f"the journal {path} is being restored, or a restore of it was interrupted"
    fix = ["omac status  # once it has ended", f"omac journal restore BACKUP --journal {quoted(path)}"]
    return Refusal("contention", message, fix=fix)
