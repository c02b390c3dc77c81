"""The library eventsourcing's own tests of a recorder, on omac's.

They differ from omac's contract in four things, which `LibraryRecorder` makes up for: they name no actor of an append,
they count versions from 0, they append from many threads at once, and a recorder of aggregates alone has no positions.
"""

import importlib
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock
from uuid import uuid4

from eventsourcing.persistence import StoredEvent

from omac.journal.judgement import Envelope, StoredEvents
from omac.journal.sql_recorder import SqlRecorder


class LibraryRecorder(SqlRecorder):
    """omac's recorder as the library's tests use one."""

    _turn = threading.Lock()
    has_positions = True

    def insert_events(self, stored_events: StoredEvents, **kwargs: Any) -> Any:
        """Append for one caller."""
        ours = [shifted(event, 1) for event in stored_events if isinstance(event, StoredEvent)]
        with self._turn:
            positions = list(super().insert_events(ours, groups=[(len(ours), Envelope(1, "run", "omac"))]))
        return positions if self.has_positions else None

    def select_events(
        self,
        originator_id: Any,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[StoredEvent]:
        """Return the events with the versions that the caller gave them."""
        above, up_to = (version if version is None else version + 1 for version in (gt, lte))
        events = super().select_events(originator_id, gt=above, lte=up_to, desc=desc, limit=limit)
        return [shifted(event, -1) for event in events]


def shifted(event: StoredEvent, by: int) -> StoredEvent:
    """Return the event with another version."""
    return StoredEvent(event.originator_id, event.originator_version + by, event.topic, event.state)


class OnOurs:
    """A mix-in that gives a library test case recorders on files of their own."""

    INITIAL_VERSION = 0
    test_performance = test_concurrent_throughput = None  # they print figures

    def setUp(self) -> None:
        """Create the folder of the recorders."""
        self._folder = tempfile.TemporaryDirectory()
        self._open: list[SqlRecorder] = []

    def tearDown(self) -> None:
        """Close the recorders and remove their folder."""
        for recorder in self._open:
            recorder.close()
        self._folder.cleanup()

    def create_recorder(self) -> Any:
        """Return a recorder on an empty store."""
        self._open.append(self.opened(str(Path(self._folder.name) / f"journal-{len(self._open)}.db")))
        return self._open[-1]

    def opened(self, path: str) -> LibraryRecorder:
        """Return a recorder on a store that is created at `path`."""
        raise NotImplementedError

    def new_originator_id(self) -> str:
        """Return a new stream's name, as omac's streams have names."""
        return f"stream/{uuid4()}"


def cases() -> Any:
    """Return the library's module of test cases, which also imports a cipher whose package omac does not install."""
    cipher = ModuleType("eventsourcing.cipher")
    vars(cipher).update(AESCipher=None)  # no case of a recorder makes one
    with mock.patch.dict(sys.modules, {cipher.__name__: cipher}):
        return importlib.import_module("eventsourcing.tests.persistence")


AggregateCase: Any = cases().AggregateRecorderTestCase
ApplicationCase: Any = cases().ApplicationRecorderTestCase
InterleavingCase: Any = cases().NonInterleavingNotificationIDsBaseCase
