"""The events of a journal that have personal fields of one directory, counted: encrypted, or recorded in the clear."""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from omac.domain.access.export import ExportCreated
from omac.domain.kernel.ids import WorkdirId, workdir_id
from omac.domain.kernel.refusal import Refusal
from omac.journal.codec import Codec
from omac.journal.event_kinds import KIND_OF
from omac.journal.file import unreadable_segment
from omac.journal.personal_fields import PERSONAL
from omac.journal.reader import PAGE, Reader


class SubjectRows(NamedTuple):
    """The numbers of events of each kind that are encrypted by keys of the directory, even destroyed ones, and of those
    in the clear. `path` is the directory's, as the events have it; "" if no event names it. `unread` are segments that
    cannot be read: their events are not counted, and erased all the same. `exports` are all folders that the journal
    was exported to, for this or any other directory."""

    path: str
    encrypted: Counter[str]
    clear: Counter[str]
    unread: tuple[str, ...] = ()
    exports: tuple[str, ...] = ()


def rows_of(
    reader: Reader, subject: WorkdirId, tell: Callable[[int, int], None] = lambda _done, _whole: None
) -> SubjectRows:
    """Read the whole journal for the events of a directory. Raises Refusal."""
    codec, head, after = Codec(), reader.head(), 0
    names: dict[str, WorkdirId] = {}
    exports: dict[str, None] = {}  # in their order
    subject_rows = SubjectRows("", Counter(), Counter())
    while True:
        try:
            rows = reader.select(after, PAGE, kinds=[*PERSONAL, _EXPORT])
        except Refusal as refusal:
            if (segment := unreadable_segment(refusal)) is None:
                raise
            subject_rows, after = subject_rows._replace(unread=(*subject_rows.unread, segment.file)), segment.last
            continue
        if not rows:
            return subject_rows._replace(exports=tuple(exports))
        after = rows[-1].id
        tell(after, head)
        for row in rows:
            try:
                event = codec.decode(row.topic, row.state, row.sealed, row.originator_id)
            except Refusal:
                continue  # it is damaged: omac journal check names it
            if isinstance(event, ExportCreated):
                exports[event.folder] = None
                continue
            personal = PERSONAL[row.topic]
            if row.sealed is None and not any(getattr(event, name, None) for name in personal.names):
                continue
            named = getattr(event, personal.directory, ())
            for path in named if isinstance(named, tuple) else (named,):
                if path and names.setdefault(path, workdir_id(path)) == subject:
                    subject_rows = subject_rows._replace(path=path)
                    (subject_rows.clear if row.sealed is None else subject_rows.encrypted)[row.topic] += 1


_EXPORT = KIND_OF[ExportCreated]
