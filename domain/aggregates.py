"""The closed list of aggregates and logs: whatever can change in omac is a stream of one of these."""

from typing import Any

from omac.domain import (
    access,
    control,
    credential,
    directory,
    guard_record,
    inspection_record,
    registration,
    run,
    sandbox,
    set_aside,
    setting,
    sidecar,
)
from omac.domain.kernel.aggregate import Aggregate

AGGREGATES: tuple[Aggregate[Any, Any], ...] = (  # each with a state and commands of its own
    run.AGGREGATE,
    directory.AGGREGATE,
    registration.AGGREGATE,
    credential.AGGREGATE,
    sidecar.AGGREGATE,
    sandbox.AGGREGATE,
    setting.AGGREGATE,
    access.AGGREGATE,
    control.AGGREGATE,
    guard_record.AGGREGATE,
    inspection_record.AGGREGATE,
    set_aside.AGGREGATE,
)
