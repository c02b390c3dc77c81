"""Opening a journal: the one place that puts store, recorder and application together."""

import secrets
from collections.abc import Callable
from contextlib import ExitStack

from omac.journal.application import Journal
from omac.journal.commitments import Commitments
from omac.journal.format import IsLiving, Present, arrive, assume_living
from omac.journal.leaves import take_over
from omac.journal.log_connection import JournalConnection
from omac.journal.mark import Mark
from omac.journal.sql_recorder import SqlRecorder
from omac.journal.store import open_for_writing
from omac.journal.subject_ciphers import KeysOf


def open_journal(
    path: str,
    run: str,
    clock: Callable[[], int],
    *,
    is_living: IsLiving = assume_living,
    present: Present | None = None,
    mark: Mark | None = None,
    keys: KeysOf | None = None,
    progress: Callable[[int, int], None] = lambda done, whole: None,
) -> Journal:
    """The journal at `path`, to append to and to read; created where there is none. Raises Refusal.

    `present` is the run that keeps it open, listed until it closes it; `is_living` judges the other runs that are
    listed. `mark` is what is known of the journal: one that is not what it was is refused (journal-lost). Events of an
    earlier omac get their leaves here, which takes seconds for a million: `progress` gets how many, of all.
    `keys` gives those of its personal fields, by its id; without them these are recorded in the clear.
    """

    def list_present(connection: JournalConnection) -> None:
        if present is not None:
            arrive(connection, present, is_living)

    with ExitStack() as connections:  # which a refusal closes
        writer = open_for_writing(path, secrets.token_hex(16), list_present, mark=mark)
        connections.callback(writer.close)
        take_over(writer, path, progress)
        recorder = SqlRecorder(path, writer, is_living, present, mark)
        connections.callback(recorder.reader.close)
        journal = Journal(recorder, run, clock)
        connections.pop_all()
        connections.callback(journal.close)
        if keys is not None:
            journal.codec.commitments = Commitments(keys(recorder.journal_id()))
        connections.pop_all()
    return journal
