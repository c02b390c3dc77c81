"""The time of the journal's last event, compared with the machine's clock."""

import os
from collections.abc import Mapping

from omac.domain.kernel.refusal import Refusal
from omac.tools.compose.journals import read_if_any
from omac.tools.compose.state import StateDir

SLIP_NS = 60 * 10**9  # that a clock is set back by now and then, and catches up with


def time_ahead(environment: Mapping[str, str], state: StateDir, now: int) -> int | None:
    """Return the time of the journal's last event where that is more than a minute after `now`, both in nanoseconds
    since 1970 UTC; None also where the journal cannot be read, which other findings report."""
    try:
        with read_if_any(state, state.journal_in_use(environment)) as journal:
            if journal is None or not os.path.exists(state.path):
                return None
            head = journal.store.head()
            last = max((recorded.at for recorded in journal.records(head - 1, head)), default=0) if head else 0
    except Refusal:
        return None
    return last if last > now + SLIP_NS else None
