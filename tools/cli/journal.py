"""omac journal stats: what is in the journal."""

import os
from collections.abc import Mapping

from omac.domain.kernel.ids import HostId
from omac.tools.compose.journals import inbox_of, to_read
from omac.tools.compose.state import StateDir
from omac.tools.terminal.invocation import print_json
from omac.tools.terminal.render import show_stats
from omac.tools.terminal.timestamps import rfc3339


def stats(journal_path: str | None, as_json: bool, environment: Mapping[str, str]) -> int:
    """Show size, span and kinds. Raises Refusal."""
    with to_read(environment, journal_path) as journal:
        head = journal.store.head()
        inbox = inbox_of(StateDir.of(environment), HostId(""), journal.store.path)  # to look into
        segments = journal.store.segments()
        figures = {
            "path": journal.store.path,
            "id": journal.store.journal_id(),
            "bytes": sum(_size(journal.store.path + suffix) for suffix in ("", "-wal"))
            + sum(segment.bytes for segment in segments),
            "events": head,
            "first_at": next((rfc3339(recorded.at) for recorded in journal.records(0, 1)), None),
            "last_at": next((rfc3339(recorded.at) for recorded in journal.records(head - 1, head)), None),
            "segments": len(segments),
            "sealed_to": segments[-1].last if segments else 0,
            "spool": {"waiting": len(inbox.names()), "rejected": inbox.rejected()},
            "kinds": dict(journal.store.kinds()),
        }
    if as_json:
        print_json(figures)
    else:
        show_stats(figures)
    return 0


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0
