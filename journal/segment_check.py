"""The check of sealed segments: each is what was sealed, or the first position that is not, and why."""

import contextlib
import sqlite3
from collections.abc import Iterator

from omac.domain.access.sealing import SegmentPruned, SegmentSealed
from omac.domain.kernel.refusal import Refusal, quoted
from omac.journal.codec import Codec
from omac.journal.leaves import HASHES, Contents
from omac.journal.log_connection import ALL, JournalConnection
from omac.journal.segment import Segment, SegmentError

PART = 1_024  # events that are compared with their leaves at once


def damaged_segments(connection: JournalConnection) -> list[tuple[int, SegmentError]]:
    """Return what is wrong with segments, each with the first position that is not what was sealed. Raises
    sqlite3.Error: the journal itself cannot be read."""
    findings: list[tuple[int, SegmentError]] = []
    for segment in connection.segments():
        try:
            connection.verify(segment)
        except SegmentError as error:
            findings.append((_first_altered(connection, segment, error), error))
    known = {finding.segment.first for _, finding in findings}
    restore = f"omac journal restore BACKUP --journal {quoted(connection.path())}  # no file mends the list"
    for unlisted in _listed_otherwise(connection):
        if unlisted.segment.first not in known:
            unlisted.fix = restore
            findings.append((unlisted.segment.first, unlisted))
    return sorted(findings, key=lambda finding: finding[0])


def _listed_otherwise(connection: JournalConnection) -> Iterator[SegmentError]:
    """Segments that the journal says were sealed, and does not list as that; one whose rows are all still in the
    journal's own file is of a seal that was interrupted."""
    listed = {segment.first: segment for segment in connection.segments()}
    sealed_to = connection.sealed_to()
    pruned = {first: segment for first, segment in listed.items() if segment.pruned}
    recorded = list(_sealed(connection))
    latest = {event.first: event for event in recorded if isinstance(event, SegmentSealed)}
    for event in recorded:
        if isinstance(event, SegmentSealed) and event is not latest[event.first]:
            continue  # its file was lost before it was listed, and its events were sealed again
        segment = Segment(event.first, event.last, event.file, event.bytes, event.sha256)
        if isinstance(event, SegmentPruned):
            if event.first in pruned and pruned.pop(event.first)._replace(pruned=0) != segment:
                yield SegmentError(listed[event.first], "segment-altered", "is not listed as what was left of it")
        elif event.last > sealed_to:
            (count,) = connection.execute(_COUNT, (event.first, event.last)).fetchone()
            if count != event.last - event.first + 1:
                yield SegmentError(segment, "segment-missing", "is not listed in the journal any more")
        elif event.first in listed and not listed[event.first].pruned and listed[event.first] != segment:
            yield SegmentError(listed[event.first], "segment-altered", "is not listed as the one that was sealed")
    for segment in pruned.values():
        yield SegmentError(segment, "segment-altered", "is listed as pruned, and no record says so")


def _sealed(connection: JournalConnection) -> Iterator[SegmentSealed | SegmentPruned]:
    """Yield the recorded events about segments, as far as they can be read."""
    codec = Codec()
    for (stream,) in connection.execute("SELECT id FROM name WHERE text > 'segment/' AND text < 'segment0'").fetchall():
        try:
            rows = connection.rows(_BODIES, *ALL, stream)
        except SegmentError:
            rows = connection.rows(_BODIES, connection.sealed_to(), ALL[1], stream)
        for kind, body in rows:
            with contextlib.suppress(Refusal, TypeError):
                event = codec.decode(kind, body)
                if isinstance(event, SegmentSealed | SegmentPruned):
                    yield event


def _first_altered(connection: JournalConnection, segment: Segment, error: SegmentError) -> int:
    """The first position of a segment whose event is not that of its leaf; its first where none is told by that."""
    if not error.is_readable or segment.pruned:
        return segment.first
    known = {position for (position,) in connection.execute("SELECT position FROM set_aside WHERE record > 0")}
    after = segment.first - 1
    try:
        while after < segment.last:
            until = min(after + PART, segment.last)
            leaves = [leaf for (leaf,) in connection.execute(HASHES, (after, until))]
            hashes = Contents(connection).hashes(after, until)
            if hashes != leaves:
                return next(
                    (
                        position
                        for position, (leaf, computed) in enumerate(zip(leaves, hashes or (), strict=False), after + 1)
                        if leaf != computed and position not in known
                    ),
                    after + 1,
                )
            after = until
    except sqlite3.DatabaseError:  # a page that is none: the verification passes over this segment
        error.is_readable = False
        return after + 1
    return segment.first


_COUNT = "SELECT count(*) FROM event WHERE position BETWEEN ? AND ?"
_BODIES = (
    "SELECT text, body FROM event JOIN name ON name.id = kind WHERE +position > ? AND +position <= ? "
    "AND version IS NOT NULL AND stream = ? AND text IN ('segment.sealed', 'segment.pruned') ORDER BY version"
)
