"""The format of a journal: which omac may append what to it, settled inside each append's transaction.

Rules

1. The row `journal.schema` is a format that understands every event of the journal. Every append reads it: a row above
   one's own format refuses the append (journal-newer).
2. Every kind of event knows the format it came with (`SINCE`), and encrypted fields came with one. The first append of
   a newer kind, or of such fields, raises the row in its own transaction.
3. A run that stays lists itself in `opened`, with its format, in the transaction that opens the journal. While a
   living run of an older format is listed, the row is not raised: the append is refused and names that run.
   Calls are not refused for it: they are recorded in batches only where the row has the format of these already, to
   which the writer of a run that stays raises it when it can (`raise_to_batches`).
4. The head is the last position. A journal in which it is not refuses every append (journal-damaged).
"""

from collections.abc import Callable, Iterable

import msgspec
from msgspec.structs import astuple

from omac.domain.kernel.refusal import Refusal, quoted
from omac.journal.event_kinds import ENCRYPTED, FIRST_SCHEMA, SCHEMA, SINCE
from omac.journal.file import damaged, reading, require_known
from omac.journal.log_connection import JournalConnection

BATCHES = "access.batch-requested"  # the ends of several calls came with the same format


class Present(msgspec.Struct, frozen=True):
    """A run that has the journal open: its process, and its omac's version and format."""

    run: str
    pid: int
    start_ticks: int
    boot_id: str
    version: str
    schema: int = SCHEMA


IsLiving = Callable[[Present], bool]


def assume_living(_present: Present) -> bool:
    """Return True: for a caller that cannot know, every run that is listed lives."""
    return True


def next_top(
    connection: JournalConnection, kinds: Iterable[str], path: str, is_living: IsLiving, *, encrypted: bool
) -> int:
    """Return the last position, after which events of `kinds` may now be appended in this transaction, with `encrypted`
    fields or without. Raises Refusal: journal-newer, journal-damaged, journal-in-use (by a run that would misread one
    of them)."""
    standing = connection.execute(_STANDING).fetchone()
    if standing is None:
        raise damaged(path, "it has no head or no name")
    schema, head, last = standing
    require_known(path, schema)
    if head != (last or 0):
        raise damaged(path, f"its head is {head}, its last event is at position {last or 0}")
    needed, kind = max(_needed(kinds), (ENCRYPTED, "encrypted") if encrypted else (FIRST_SCHEMA, ""))
    if needed > schema:
        _require_no_older_run(connection, needed, kind, path, is_living)
        connection.execute("UPDATE journal SET schema = ?", (needed,))
    return int(head)


def raise_to_batches(connection: JournalConnection, path: str, is_living: IsLiving) -> bool:
    """Raise the journal's format to that of call batches, where it is lower; False while a run lives that would misread
    one. Raises Refusal: journal-newer."""
    (schema,) = connection.execute("SELECT schema FROM journal").fetchone()
    require_known(path, schema)
    if schema < SINCE[BATCHES]:
        with connection.transaction():
            if _older_run(connection, SINCE[BATCHES], is_living) is not None:
                return False
            raise_schema(connection, [BATCHES])
    return True


def raise_schema(connection: JournalConnection, kinds: Iterable[str]) -> None:
    """Raise the journal's format to that of `kinds`, where it is lower; no older run has the journal open."""
    needed, _ = _needed(kinds)
    connection.execute("UPDATE journal SET schema = ? WHERE schema < ?", (needed, needed))


def _needed(kinds: Iterable[str]) -> tuple[int, str]:
    return max(((SINCE[kind], kind) for kind in kinds if kind in SINCE), default=(FIRST_SCHEMA, ""))


def living(connection: JournalConnection, is_living: IsLiving) -> list[Present]:
    """Return the runs that are listed and live."""
    presents = [Present(*row) for row in connection.execute(f"{_OPENED} ORDER BY run")]
    return list(filter(is_living, presents))


def arrive(connection: JournalConnection, present: Present, is_living: IsLiving) -> None:
    """List a run, and drop those that have died."""
    kept = [astuple(other) for other in living(connection, is_living) if other.run != present.run]
    connection.execute("DELETE FROM opened")
    connection.executemany(_LIST, [*kept, astuple(present)])


def leave(connection: JournalConnection, run: str) -> None:
    """Drop a run that closes the journal."""
    connection.execute("DELETE FROM opened WHERE run = ?", (run,))


def require_unused(path: str, is_living: IsLiving) -> None:
    """Raise Refusal (journal-in-use) while a living run has the journal at `path` open; a damaged one can be read."""
    try:
        with reading(path, lenient=True) as connection:
            rows = connection.execute(_OPENED).fetchall()
    except Refusal:
        return  # the processes that have it open cannot use it either
    for present in (Present(*row) for row in rows):
        if is_living(present):
            raise in_use(path, present)


def in_use(path: str, present: Present) -> Refusal:
    """Return the refusal of what cannot be done while a run has the journal open, which nobody may be able to read:
    omac stop would need it."""
    message = f"run {present.run} (pid {present.pid}) has the journal {path} open; nothing was changed"
    return Refusal("journal-in-use", message, fix=[f"kill {present.pid}  # stops that run in order; then try again"])


def _require_no_older_run(
    connection: JournalConnection, needed: int, kind: str, path: str, is_living: IsLiving
) -> None:
    present = _older_run(connection, needed, is_living)
    if present is not None:
        message = (
            f"run {present.run} (omac {present.version}, pid {present.pid}) has the journal {path} open and is too "
            f"old to read {kind} events; nothing was recorded"
        )
        fix = [f"omac stop {present.pid} --journal {quoted(path)}  # then try again"]
        raise Refusal("journal-in-use", message, fix=fix)


def _older_run(connection: JournalConnection, needed: int, is_living: IsLiving) -> Present | None:
    return next((present for present in living(connection, is_living) if present.schema < needed), None)


_COLUMNS = ", ".join(Present.__struct_fields__)
_OPENED = f"SELECT {_COLUMNS} FROM opened"  # noqa: S608  # our columns
_LIST = f"INSERT INTO opened ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)"  # noqa: S608  # our columns
_STANDING = "SELECT schema, head.position, (SELECT max(position) FROM event) FROM journal, head"
