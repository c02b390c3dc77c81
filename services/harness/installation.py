"""Installations: a person has omac put its hooks into an agent's settings; on record before and after the file."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from omac.domain.harness import installation
from omac.domain.harness.installation import BridgeChangeRequested, InstallationState
from omac.domain.kernel import ids
from omac.services.kernel.execution import Execution
from omac.services.kernel.file_change import change_file


class PlannedChange(Protocol):
    """A change of a settings file that is certain and not made yet; the file is locked."""

    @property
    def request(self) -> BridgeChangeRequested:
        """The event that requests this change."""

    @property
    def present(self) -> str:
        """The digest that the file has now."""

    def write(self) -> None:
        """Replace the file by the changed text, whole or not at all. Raises Unflushed, OSError, Refusal."""


Planning = Callable[[InstallationState], AbstractContextManager[PlannedChange | None]]


async def change_installation(execution: Execution, file: str, planning: Planning) -> bool:
    """Change what the settings file at the path `file` has of omac; False if nothing is to be changed. `planning` locks
    the file and gives the change, None where there is none to make. Raises Refusal."""
    stream = ids.bridge_stream(execution.host, file)
    state = execution.entry(installation.AGGREGATE, stream).state
    with planning(state) as change:
        if change is None:
            return False
        request = installation.RequestInstallation(change.request, change.present)
        await change_file(
            execution, installation.AGGREGATE, stream, request, change.write, changed=file,
            done=installation.ReportInstalled(), failed=installation.ReportNotInstalled,
        )  # fmt: skip
        return True
