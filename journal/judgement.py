"""The judgement of an append, inside its transaction: whether each caller's events may follow what is recorded.

Rules

1. A caller's first version of a stream is the next one there. No other append comes between: the transaction has the
   write lock.
2. The file of a spool is recorded once. Its name is remembered for as long as the file lies in the spool.
3. Recorded time never runs back, whatever a clock says.
"""

import itertools
from collections.abc import Container, Sequence

import msgspec
from eventsourcing.persistence import IntegrityError, StoredEvent

from omac.domain.kernel.event import Spooled
from omac.journal.codec import EncodedEvent
from omac.journal.log_connection import JournalConnection


class Envelope(msgspec.Struct):
    """The context that is recorded beside the events of one caller: actor, run, cause and time.

    `at` and `happened` are in nanoseconds since 1970 UTC. The recorder raises `at` if the last record is later:
    recorded time never runs back. `spooled` names the file of a spool that the events come from; the name is stored
    with them.
    """

    at: int
    run: str
    actor: str
    correlation: str | None = None
    causation: int | None = None
    happened: int | None = None
    spooled: Spooled | None = None


StoredEvents = Sequence[StoredEvent | EncodedEvent]
Groups = Sequence[tuple[int, Envelope]]  # of each caller: how many events, and what is recorded beside them


class Conflict(Exception):
    """The reason why events may not be appended. `known`: they are in the journal already, from this very file of a
    spool."""

    def __init__(self, why: str, *, known: bool = False) -> None:
        super().__init__(why)
        self.known = known


class Conflicts(IntegrityError):
    """The callers `of_groups`, by number, were in conflict with recorded events, so nothing was appended."""

    def __init__(self, of_groups: dict[int, Conflict]) -> None:
        super().__init__("; ".join(map(str, of_groups.values())))
        self.of_groups = of_groups


def conflicts_of(
    connection: JournalConnection,
    stored_events: StoredEvents,
    groups: Groups,
    ids: dict[str, int],
    unheard: Container[str],
) -> dict[int, Conflict]:
    """Return the conflicts that keep callers from appending, by their number; `unheard` are names that no event has
    yet."""
    conflicts: dict[int, Conflict] = {}
    heads: dict[str, int] = {}
    files: set[tuple[str, str]] = set()
    events = iter(stored_events)
    for number, (size, meta) in enumerate(groups):
        own = [next(events)] if size == 1 else list(itertools.islice(events, size))
        file = (meta.spooled.host, meta.spooled.name) if meta.spooled else None
        if meta.spooled is not None and (file in files or _is_remembered(connection, meta.spooled)):
            conflicts[number] = Conflict(f"{meta.spooled.name} is recorded already", known=True)
            continue
        after: dict[str, int] = {}
        for event in own:
            version = event.originator_version
            if version is None:
                continue
            stream = str(event.originator_id)
            if stream not in after and stream not in heads:
                heads[stream] = 0 if stream in unheard else _last_version(connection, ids[stream])
            last = after[stream] if stream in after else heads[stream]
            if version != last + 1:
                conflicts[number] = Conflict(f"version {version} of {stream} comes after version {last}")
                break
            after[stream] = version
        else:
            heads |= after
            if file is not None:
                files.add(file)
    return conflicts


def _last_version(connection: JournalConnection, stream: int) -> int:
    for query in (_LAST_VERSION, _SEALED_VERSION):
        row = connection.execute(query, (stream,)).fetchone()
        if row is not None and row[0]:
            return int(row[0])
    return 0


def raise_times(connection: JournalConnection, top: int, groups: Groups) -> None:
    """Recorded time never runs back, whatever a clock says."""
    row = connection.execute("SELECT at FROM event WHERE position = ?", (top,)).fetchone()
    latest = int(row[0]) if row else 0
    for _, meta in groups:
        meta.at = latest = max(latest, meta.at)


def remember(connection: JournalConnection, files: Sequence[Spooled]) -> None:
    """Note that these files of one host are in the journal, and forget those that are gone from its spool."""
    host, present = files[0].host, files[0].present
    known = connection.execute("SELECT id FROM spooled WHERE host = ?", (host,)).fetchall()
    gone = [(host, id_) for (id_,) in known if id_ not in present]
    connection.executemany("DELETE FROM spooled WHERE host = ? AND id = ?", gone)
    connection.executemany("INSERT INTO spooled (host, id) VALUES (?, ?)", [(file.host, file.name) for file in files])


def _is_remembered(connection: JournalConnection, spooled: Spooled) -> bool:
    query = "SELECT 1 FROM spooled WHERE host = ? AND id = ?"
    return connection.execute(query, (spooled.host, spooled.name)).fetchone() is not None


_LAST_VERSION = "SELECT max(version) FROM event WHERE stream = ? AND version IS NOT NULL"
_SEALED_VERSION = "SELECT version FROM sealed_version WHERE stream = ?"
