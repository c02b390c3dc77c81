"""The approved copies of a state directory, to be read and never changed."""

import os
from collections.abc import Mapping
from contextlib import closing

from omac.adapters.skills.contents import FileEntry as FileEntry
from omac.adapters.skills.contents import FrozenFiles as FrozenFiles
from omac.adapters.skills.contents import LiveFiles as LiveFiles
from omac.adapters.skills.contents import sha256_of as sha256_of
from omac.domain.kernel.refusal import Refusal
from omac.domain.skills.registration import Code
from omac.services.ports import CopyDamaged
from omac.tools.compose.journals import read_if_any
from omac.tools.compose.state import StateDir


def approved_copy(environment: Mapping[str, str], flag: str | None, approved: Code) -> FrozenFiles:
    """Return the copy that was frozen of this code. Raises Refusal (skill-changed) where it is missing or damaged."""
    state = StateDir.of(environment)
    path = state.journal_in_use(environment, flag)
    journal = read_if_any(state, path)
    if journal is None or not approved.digest:
        raise Refusal("skill-changed", f"no copy was kept of what was approved in {approved.source}")
    with closing(journal):
        folder = state.frozen(path, journal.store.journal_id())
    try:
        return FrozenFiles(os.path.join(os.path.realpath(folder), approved.digest.partition(":")[2]), approved.source)
    except (CopyDamaged, OSError) as error:
        message = f"the approved copy of {approved.source} cannot be read: {error}"
        raise Refusal("skill-changed", message) from None
