"""The room that is left on the disks of omac's own files."""

import os
from collections.abc import Mapping
from contextlib import suppress
from itertools import chain

from omac.adapters.files.state import StateDir
from omac.adapters.files.upkeep import free_bytes_at
from omac.domain.sandbox.doctor import Diagnosis
from omac.domain.sandbox.own_files import disk_short
from omac.journal.folders import room_command


def short_disks(environment: Mapping[str, str]) -> tuple[Diagnosis, ...]:
    """Return the findings about the disks of the state directory and of the journal that have little room, or none."""
    state = StateDir.of(environment)
    found: dict[tuple[Diagnosis, ...], None] = {}
    for folder in dict.fromkeys((state.path, os.path.dirname(state.journal_in_use(environment)) or state.path)):
        with suppress(OSError):
            found[disk_short(folder, free_bytes_at(folder), room_command(folder))] = None
    return tuple(chain.from_iterable(found))
