"""omac's own settings, for `omac settings`."""

from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial

from omac.adapters.settings.files import changing_user
from omac.adapters.settings.files import read_project as read_project
from omac.adapters.settings.files import read_user as read_user
from omac.domain.settings.settings import Setting


def change_user_setting(
    environment: Mapping[str, str],
    journal_path: str | None,
    clock: Callable[[], int],
    setting: Setting,
    value: str | None,
) -> bool:
    """Have the user's file say `value`, or nothing (None), and record it; False if it did already. Raises Refusal."""
    import trio  # what only shows settings does without

    from omac.services.kernel.opened import OpenedJournal
    from omac.services.settings.changes import change_setting
    from omac.tools.compose.journals import snapshots_of, to_write
    from omac.tools.compose.state import StateDir, host_id

    state = StateDir.of(environment)
    host = host_id(state)
    with closing(to_write(state, host, environment, journal_path, clock)) as journal:
        changing = partial(changing_user, environment)
        execution = OpenedJournal(journal, host, snapshots_of(state, journal.store.reader))
        return trio.run(change_setting, execution, changing, setting, value)
