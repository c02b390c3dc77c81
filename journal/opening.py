"""Opening a journal: the one place that puts store, recorder and application together."""

import secrets
from collections.abc import Callable

from omac.journal.application import Journal
from omac.journal.recorder import SqlRecorder
from omac.journal.schema import open_for_reading, open_for_writing


def open_journal(path: str, run: str, clock: Callable[[], int]) -> Journal:
    """The journal at `path`, to append to and to read; created where there is none. Raises Refusal."""
    writer = open_for_writing(path, secrets.token_hex(16))
    return Journal(SqlRecorder(path, open_for_reading(path), writer), run, clock)
