"""Taking sealed events out of the journal's file: the segment is listed, then its rows are deleted.

Rules

1. Listing a segment and keeping the last version of each of its streams is one transaction; from then on its events are
   read from it. It is refused where the journal was repaired meanwhile.
2. Rows are deleted afterwards, a few in a transaction, and overwritten with zeros: whoever appends waits a moment at
   most. What is left of them when omac is killed counts for nothing, and the next seal deletes it.
"""

import time

import sqlalchemy as sa

from omac.domain.kernel.refusal import Refusal
from omac.journal.schema import EVENT, SEGMENT, STORE_ERRORS, pragma, refusal_of
from omac.journal.segment import Segment

ROWS = 5_000  # deleted in one transaction
BETWEEN_S = 0.002  # another process that waits to append comes in between


def list_segment(engine: sa.Engine, path: str, segment: Segment, repaired_at: int) -> None:
    """List a segment that is in its place; `repaired_at` is the position of the last repair when it was written. Raises
    Refusal."""
    try:
        with engine.begin() as connection:
            sealed_to = connection.execute(sa.select(sa.func.max(SEGMENT.c.last))).scalar() or 0
            repaired = connection.exec_driver_sql(
                "SELECT coalesce(max(record), 0) FROM set_aside WHERE record > 0"
            ).scalar_one()
            if sealed_to != segment.first - 1 or repaired != repaired_at:
                message = f"the journal {path} was changed while its events were sealed; nothing was taken out of it"
                raise Refusal("contention", message, fix=["omac journal seal"])
            connection.execute(sa.insert(SEGMENT).values(segment._asdict()))
            last = sa.select(EVENT.c.stream, sa.func.max(EVENT.c.version)).where(
                EVENT.c.version.is_not(None), EVENT.c.position <= segment.last
            )
            rows = connection.execute(last.group_by(EVENT.c.stream)).all()
            if rows:
                connection.exec_driver_sql(_KEEP, [tuple(row) for row in rows])
    except STORE_ERRORS as error:
        raise refusal_of(error, path) from error


def list_pruned(engine: sa.Engine, path: str, segment: Segment) -> None:
    """List what is left of a segment in its place. Raises Refusal."""
    try:
        with engine.begin() as connection:
            here = sa.and_(SEGMENT.c.first == segment.first, SEGMENT.c.last == segment.last)
            connection.execute(sa.update(SEGMENT).where(here).values(segment._asdict()))
    except STORE_ERRORS as error:
        raise refusal_of(error, path) from error


def delete_sealed(engine: sa.Engine, path: str) -> int:
    """Delete the rows of listed segments from the journal's file; return how many there were. Raises Refusal."""
    pragma(engine, path, "secure_delete=ON")
    deleted = 0
    try:
        while True:
            with engine.begin() as connection:
                last = connection.execute(sa.select(sa.func.max(SEGMENT.c.last))).scalar() or 0
                below = sa.and_(EVENT.c.position >= 1, EVENT.c.position <= last)
                first = connection.execute(sa.select(sa.func.min(EVENT.c.position)).where(below)).scalar()
                if first is None:
                    return deleted
                part = sa.and_(EVENT.c.position >= first, EVENT.c.position <= min(last, first + ROWS - 1))
                deleted += connection.execute(sa.delete(EVENT).where(part)).rowcount
            time.sleep(BETWEEN_S)
    except STORE_ERRORS as error:
        raise refusal_of(error, path) from error


_KEEP = "INSERT OR REPLACE INTO sealed_version (stream, version) VALUES (?, ?)"
