"""Opening a journal: the one place that puts store, recorder and application together."""

import secrets
import sqlite3
from collections.abc import Callable

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from omac.journal.application import Journal
from omac.journal.format import IsLiving, Present, arrive, assume_living
from omac.journal.leaves import Progress, give_leaves
from omac.journal.mark import Mark
from omac.journal.schema import open_for_writing, refusal_of
from omac.journal.sql_recorder import SqlRecorder


def open_journal(
    path: str,
    run: str,
    clock: Callable[[], int],
    *,
    is_living: IsLiving = assume_living,
    present: Present | None = None,
    mark: Mark | None = None,
    progress: Progress = lambda done, whole: None,
) -> Journal:
    """The journal at `path`, to append to and to read; created where there is none. Raises Refusal.

    `present` is the run that keeps it open, listed until it closes it; `is_living` judges the other runs that are
    listed. `mark` is what is known of the journal: one that is not what it was is refused (journal-lost). `progress` is
    told how far a journal of before there were proofs is taken over.
    """

    def list_present(connection: Connection) -> None:
        if present is not None:
            arrive(connection, present, is_living)

    writer = open_for_writing(path, secrets.token_hex(16), list_present, mark=mark)
    try:
        give_leaves(writer, path, progress)
    except BaseException as problem:
        writer.dispose()
        if isinstance(problem, (sqlite3.Error, DBAPIError)):
            raise refusal_of(problem, path) from problem
        raise
    recorder = SqlRecorder(path, writer, is_living, present, mark)
    return Journal(recorder, run, clock)
