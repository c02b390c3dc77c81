"""Settings: a person changes one of omac's own; the request is on record before the file, the outcome after."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from omac.domain.kernel import ids
from omac.domain.kernel.event import PERSON
from omac.domain.settings import setting
from omac.domain.settings.settings import Setting
from omac.services.kernel.execution import Execution
from omac.services.kernel.file_change import change_file


class Change(Protocol):
    """A change of the settings file that is certain and not made yet; the file is locked."""

    origin: str  # names the file, as in Resolved
    present: str | None  # the word that it says now

    def write(self) -> None:
        """Replace the file by the changed text, whole or not at all. Raises Unflushed, OSError."""


Changing = Callable[[Setting, str | None], AbstractContextManager[Change | None]]


async def change_setting(execution: Execution, changing: Changing, named: Setting, value: str | None) -> bool:
    """Have the user's file say `value`, or nothing (None); False if it does already. `changing` locks the file and
    gives the change, None where there is none to make. Raises Refusal."""
    stream = ids.setting_stream(execution.host, named.name)
    with changing(named, value) as change:
        if change is None:
            await execution.execute(setting.AGGREGATE, stream, setting.SettleChange(value), PERSON)
            return False
        request = setting.RequestChange(named.name, value, change.origin, change.present)
        await change_file(
            execution, setting.AGGREGATE, stream, request, change.write, changed=named.name,
            done=setting.ReportChange(), failed=setting.ReportFailure,
        )  # fmt: skip
        return True
