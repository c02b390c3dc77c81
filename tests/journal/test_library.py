"""The recorder on SQLite keeps what eventsourcing's own tests ask of a recorder."""

import secrets

from contract import library

from omac.journal.store import open_for_writing


class OnSqlite(library.OnOurs):
    """The library's cases, with recorders on files."""

    def opened(self, path: str) -> library.LibraryRecorder:
        """Return a recorder on a new file."""
        return library.LibraryRecorder(path, open_for_writing(path, secrets.token_hex(8)))


class TestAggregates(OnSqlite, library.AggregateCase):
    """Streams: versions, conflicts, and selections."""

    def opened(self, path: str) -> library.LibraryRecorder:
        """Return a recorder that reports no positions."""
        recorder = super().opened(path)
        recorder.has_positions = False
        return recorder


class TestApplications(OnSqlite, library.ApplicationCase):
    """Positions, selections by position and topic, and many threads at once."""


class TestInterleaving(OnSqlite, library.InterleavingCase):
    """The positions of two callers' events do not mix."""
