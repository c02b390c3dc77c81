"""What a command records of the journal's proofs: checkpoints that a person asks for."""

from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial

import trio

from omac.domain.kernel.event import Cause
from omac.services.kernel.checkpointing import record_checkpoint
from omac.services.kernel.opened import OpenedJournal
from omac.tools.compose.journals import to_write
from omac.tools.compose.signing import signed
from omac.tools.compose.state import StateDir, host_id


def recorded_checkpoint(
    state: StateDir, environment: Mapping[str, str], flag: str | None, clock: Callable[[], int]
) -> str:
    """Return the text of a checkpoint that was signed and recorded now. Raises Refusal."""
    host = host_id(state)
    with closing(to_write(state, host, environment, flag, clock)) as journal:
        sign = partial(signed, state, journal.store.path, clock)
        return trio.run(record_checkpoint, OpenedJournal(journal, host), sign, Cause("person")).text
