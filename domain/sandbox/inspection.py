"""Inspections of what launches left, apart from those at their own ends: a log without versions.

Rules

1. A launch reports in `sandbox.exited` what was found when it ended. The remains of launches that were killed, or that
   ended while another one lived, are found later, and recorded here.
2. An inspection follows from nothing that is recorded, and nothing follows from it: the log may have any number of
   them.
"""

from omac.domain.kernel.aggregate import log
from omac.domain.kernel.event import Event


class Inspected(Event, frozen=True):
    """The remains of `launches` in the folders `projects` were inspected. `findings` are what was found and, where
    dangerous, set aside: a short text for each."""

    launches: tuple[str, ...]
    projects: tuple[str, ...]
    findings: tuple[str, ...] = ()


AGGREGATE = log("inspection", (Inspected,))
