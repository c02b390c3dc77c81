"""omac checkpoint --received: the checkpoints of other journals that this one keeps as their witness."""

import re
from collections.abc import Mapping
from contextlib import closing

from omac.domain.access import receipt
from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.sizes import counted
from omac.journal.reader import ReadJournal
from omac.tools.compose.journals import mark_of
from omac.tools.compose.state import StateDir
from omac.tools.terminal.invocation import print_data
from omac.tools.terminal.render import report, report_folded

JOURNAL_ID = re.compile("[0-9a-f]{32}")


def run(of: str | None, journal_path: str | None, environment: Mapping[str, str]) -> int:
    """Print what was received, or what was of the journal with the id `of`, the oldest first; 10 where something is
    contested. Raises Refusal."""
    if of is not None and not JOURNAL_ID.fullmatch(of):
        message = f"--of takes the id of a journal, which is 32 hexadecimal digits, not {of!r}"
        raise Refusal("misuse", message, fix=["omac journal stats  # where that journal is, prints its id"])
    state = StateDir.of(environment)
    path = state.journal_in_use(environment, journal_path)
    status = 0
    with closing(ReadJournal(path, mark_of(state, path))) as journal:
        for record in journal.of_kinds(("checkpoint.received", "checkpoint.contested")):
            event = record.event
            if of is not None and event.journal != of:
                continue
            if isinstance(event, receipt.CheckpointContested):
                status = 10
                size = counted(event.size, "event")
                report_folded(f"position {record.position}: the next one, of {size}, contradicts the one of")
                report(f"  {counted(event.received, 'event')} that was received before")
            print_data(event.note)
    return status
