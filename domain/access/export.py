"""Exports: who took evidence out of the journal, of what, and where to. A log without versions.

An export is recorded before its first file is written: what cannot be recorded is not exported.
"""

from omac.domain.kernel.aggregate import log
from omac.domain.kernel.event import Event


class ExportCreated(Event, frozen=True):
    """Evidence was exported to the canonical path `folder`. `filters` are the options that chose it, `redacted` the
    kinds of events that were left out of it but for their proofs; `events` is how many it has."""

    format: str
    folder: str
    filters: dict[str, str]
    redacted: tuple[str, ...]
    events: int


AGGREGATE = log("export", (ExportCreated,))
