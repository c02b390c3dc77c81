"""Writing a segment: its file, compared with the journal event by event before it counts for anything."""

from contextlib import closing

from omac.journal.checkpoint import Checkpoint
from omac.journal.file import damaged, disk_refusal, reading, segment_refusal, unproven
from omac.journal.folders import make_private
from omac.journal.segment import (
    PrunedContent,
    Segment,
    open_segment,
    publish,
    same_events,
    write_pruned,
    write_segment,
)  # fmt: skip
from omac.journal.segment_check import damaged_segments
from omac.journal.verification import KeptRoot, verify


def require_verified(path: str, first: int, checkpoint: Checkpoint) -> None:
    """Raise Refusal (journal-damaged) where the events from position `first` up to a checkpoint are not what was
    recorded and signed."""
    verified = verify(path, [KeptRoot(checkpoint.size, checkpoint.root, checkpoint.late)], first, checkpoint.size)
    if verified.findings:
        if any(finding.kind.startswith("segment-") for finding in verified.findings):
            _require_segments(path)
        problem = verified.findings[0]
        raise unproven(path, f"position {problem.position}: {problem.problem}; nothing was changed")


def _require_segments(path: str) -> None:
    """Raise Refusal for the first segment that is missing, or is not the one that was sealed."""
    with reading(path, lenient=True) as connection:
        for _, error in damaged_segments(connection):
            raise segment_refusal(error, path)


def written_segment(path: str, first: int, checkpoint: Checkpoint, note: str) -> Segment:
    """Write the segment from position `first` up to a checkpoint, compare it with the journal, and give it its name.
    Raises Refusal."""
    try:
        with reading(path) as connection:
            connection.execute("BEGIN")
            segment = write_segment(connection, path, checkpoint.journal, first, checkpoint.size, checkpoint.root, note)
            if not same_events(connection, path, segment):
                raise damaged(path, f"the segment {segment.file} is not what was written: does the disk fail?")
        publish(path, segment)
    except OSError as error:
        raise disk_refusal(error, path) from error
    return segment


def written_pruned(path: str, segment: Segment, left: PrunedContent) -> Segment:
    """Write what is left of a segment, compare that with the segment, and give it its name. Raises Refusal."""
    try:
        with reading(path) as connection, closing(open_segment(path, connection.id(), segment)) as source:
            pruned = write_pruned(source, path, segment, left)
            if not same_events(source, path, pruned, left.kept):
                raise damaged(path, f"{pruned.file} is not what was written: does the disk fail?")
        publish(path, pruned)
    except OSError as error:
        raise disk_refusal(error, path) from error
    return pruned


def make_folder(folder: str) -> None:
    """Make the folder of segments, 0700. Raises Refusal."""
    try:
        make_private(folder)
    except OSError as error:
        raise disk_refusal(error, folder) from error
