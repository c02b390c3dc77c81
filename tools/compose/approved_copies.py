"""The approved copies of a state directory: they are read, never changed, and removed when nobody approves them."""

import logging
import os
from collections.abc import Mapping

import trio

from omac.adapters.skills.contents import FileEntry as FileEntry
from omac.adapters.skills.contents import FrozenFiles as FrozenFiles
from omac.adapters.skills.contents import LiveFiles as LiveFiles
from omac.adapters.skills.contents import sha256_of as sha256_of
from omac.adapters.skills.frozen import DiskFrozenSkills
from omac.domain.kernel.refusal import Refusal
from omac.domain.skills.registration import Code
from omac.services.kernel.engine import Engine
from omac.services.ports import CopyDamaged
from omac.tools.compose.journals import read_if_any
from omac.tools.compose.state import StateDir

PRUNE_S = 3_600.0  # as old as a copy is when it may be removed

_log = logging.getLogger("omac.serve")


def approved_copy(environment: Mapping[str, str], flag: str | None, approved: Code) -> FrozenFiles:
    """Return the copy that was frozen of this code. Raises Refusal (skill-changed) where it is missing or damaged."""
    state = StateDir.of(environment)
    path = state.journal_in_use(environment, flag)
    with read_if_any(state, path) as journal:
        if journal is None or not approved.digest:
            raise Refusal("skill-changed", f"no copy of the approved files is kept for {approved.source}")
        folder = state.frozen(path, journal.store.journal_id())
    try:
        return FrozenFiles(os.path.join(os.path.realpath(folder), approved.digest.partition(":")[2]), approved.source)
    except (CopyDamaged, OSError) as error:
        message = f"the approved copy of {approved.source} cannot be read: {error}"
        raise Refusal("skill-changed", message) from None


async def prune_copies(engine: Engine, frozen: DiskFrozenSkills) -> None:
    """Remove copies that nobody approves any more. One that a sidecar of another run still uses is not needed for it to
    go on: its files are open, or its next start is refused."""
    registrations = engine.system.registrations.entries.values()
    kept = {code.digest for entry in registrations for code in (entry.state.approved, entry.state.accepted) if code}
    try:
        await frozen.prune(kept)
    except OSError as problem:
        _log.warning("copies of skills that are no longer approved cannot be removed: %s", problem)


async def keep_pruned(engine: Engine, frozen: DiskFrozenSkills) -> None:
    """Remove such copies now and then, until cancelled. A server runs for weeks, and each approval of changed code
    leaves one."""
    while True:
        await trio.sleep(PRUNE_S)
        await prune_copies(engine, frozen)
