"""Personal fields that nobody can read here, though no erasure of them is recorded: their key was taken away."""

from typing import NamedTuple

from omac.domain.access import erasure
from omac.domain.kernel.ids import workdir_id
from omac.journal.codec import Codec
from omac.journal.file import reading
from omac.journal.log_connection import ALL
from omac.journal.personal_fields import PERSONAL
from omac.journal.reader import Reader, recorded
from omac.journal.subject_ciphers import KEY_ID_BYTES


class ClosedFields(NamedTuple):
    """The number of events whose personal fields are closed without a recorded erasure, and the position of the
    first; 0 for none."""

    events: int = 0
    first: int = 0


def closed_fields(reader: Reader, codec: Codec) -> ClosedFields:
    """Return which events of a sound journal have personal fields that the keys of `codec` do not open, though the
    journal has no erasure of those keys. Raises Refusal."""
    erased: dict[str, set[str]] = {}  # the ids of keys, by the workdir id
    for stream in reader.streams(erasure.AGGREGATE.name):
        for row in reader.versions(stream):
            event = recorded(reader.path, Codec(), row).event
            if isinstance(event, erasure.ErasureRequested):
                erased.setdefault(event.workdir, set()).update(event.keys)
    with reading(reader.path, lenient=True) as connection:
        groups = connection.rows(_BY_KEY, *ALL)
    keys: dict[bytes, ClosedFields] = {}
    for key, first, events in groups:  # each segment, and the journal's file, has groups of its own
        known = keys.get(key, ClosedFields(0, first))
        keys[key] = ClosedFields(known.events + events, known.first)
    closed = [group for key, group in keys.items() if not _is_explained(reader, codec, key, group.first, erased)]
    return ClosedFields(sum(group.events for group in closed), min((group.first for group in closed), default=0))


def _is_explained(reader: Reader, codec: Codec, key: bytes, position: int, erased: dict[str, set[str]]) -> bool:
    """Return whether the key of an event is here, or was erased. The key of several directories is made of theirs: the
    erasure of one explains it."""
    (row,) = reader.select(position - 1, 1, until=position)
    if row.sealed is None or codec.personal(row.topic, row.state, row.sealed, row.originator_id):
        return True
    cls, fields = codec.fields(row.topic, row.state)
    named = fields[cls.__struct_fields__.index(PERSONAL[row.topic].directory)]
    if isinstance(named, str):
        return key.hex() in erased.get(workdir_id(named), ())
    return any(workdir_id(path) in erased for path in named)


_BY_KEY = f"""
    SELECT substr(sealed, 1, {KEY_ID_BYTES}), min(position), count(*) FROM event
    WHERE position > ? AND position <= ? AND sealed IS NOT NULL GROUP BY 1 ORDER BY 2
"""  # noqa: S608  # a number
