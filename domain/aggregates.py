"""The closed list of aggregates and logs: whatever can change in omac is a stream of one of these."""

from typing import Any

from omac.domain.access import access, control, erasure, export, receipt, sealing, signing, witness
from omac.domain.credentials import credential
from omac.domain.directories import directory
from omac.domain.guard import denial
from omac.domain.harness import installation
from omac.domain.kernel import run, set_aside
from omac.domain.kernel.aggregate import Aggregate
from omac.domain.sandbox import inspection, launch
from omac.domain.settings import setting
from omac.domain.sidecars import sidecar
from omac.domain.skills import registration

AGGREGATES: tuple[Aggregate[Any, Any], ...] = (  # each with a state and commands of its own
    run.AGGREGATE,
    directory.AGGREGATE,
    registration.AGGREGATE,
    credential.AGGREGATE,
    sidecar.AGGREGATE,
    launch.AGGREGATE,
    setting.AGGREGATE,
    installation.AGGREGATE,
    signing.AGGREGATE,
    witness.AGGREGATE,
    receipt.AGGREGATE,
    sealing.AGGREGATE,
    erasure.AGGREGATE,
    access.AGGREGATE,
    control.AGGREGATE,
    denial.AGGREGATE,
    inspection.AGGREGATE,
    set_aside.AGGREGATE,
    export.AGGREGATE,
)
