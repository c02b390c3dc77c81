"""The watch over a journal's files while they are open: a file that was removed, replaced or cut is noticed.

SQLite goes on writing to a file that has lost its name, and a write-ahead log that was cut loses what it held. So the
identity (device and inode) and the least size of both files are compared before each append: neither file ever
shrinks while omac has it open, for omac checkpoints without truncating the log.
"""

import os
from collections.abc import Callable
from typing import NamedTuple

from omac.domain.kernel.refusal import Refusal, quoted

LOG = "-wal"


class _FileIdentity(NamedTuple):
    device: int
    inode: int
    size: int


class JournalWatch:
    """Watches the journal at `path`, and its log, from now on."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen = {name: _file(name) for name in (path, path + LOG)}

    def require_same(self, rescue: Callable[[], bool]) -> None:
        """Raise Refusal (journal-unavailable) when a file is not the one that was opened.

        `rescue` moves what the log held to the journal while the log is only without its name; it says whether all of
        it was moved.
        """
        for name, seen in self._seen.items():
            now = _file(name)
            if seen is None or (now is not None and now[:2] == seen[:2] and now.size >= seen.size):
                self._seen[name] = now  # None before: SQLite had not made it yet
            elif now is None and name != self._path and rescue():
                raise self._lost(name, "removed", "; its records are in the journal, nothing is lost")
            else:
                raise self._lost(name, _what(seen, now), "")

    def _lost(self, name: str, change: str, outcome: str) -> Refusal:
        kind = "the journal" if name == self._path else "the write-ahead log"
        message = f"{kind} {name} was {change} while omac had it open{outcome}; put it back, or stop this run"
        fix = [
            f"ls -l {quoted(self._path)}*",
            f"omac journal check --journal {quoted(self._path)}  # once this run has been stopped",
        ]
        return Refusal("journal-unavailable", message, fix=fix)


def _what(seen: _FileIdentity, now: _FileIdentity | None) -> str:
    if now is None:
        return "removed"
    return "cut" if now[:2] == seen[:2] else "replaced"


def _file(path: str) -> _FileIdentity | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return _FileIdentity(status.st_dev, status.st_ino, status.st_size)
