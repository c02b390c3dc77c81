"""omac's own settings, for `omac settings`."""

import secrets
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial

from omac.adapters.settings import files
from omac.domain.settings.settings import Resolved, Setting, SettingsFile, resolve


def project_settings(project: str) -> SettingsFile:
    """Return what a project's file says, with a warning for what cannot be used."""
    return files.read_project(project)


def resolved_settings(environment: Mapping[str, str], project: SettingsFile) -> Mapping[str, Resolved]:
    """Return each setting as it holds in a project. Raises Refusal (settings-invalid)."""
    return resolve({}, environment, project, files.read_user(environment))


def change_user_setting(
    environment: Mapping[str, str],
    journal_path: str | None,
    clock: Callable[[], int],
    setting: Setting,
    value: str | None,
) -> bool:
    """Have the user's file say `value`, or nothing (None), and record it; False if it did already. Raises Refusal."""
    import trio  # what only shows settings does without

    from omac.adapters.files.state import StateDir
    from omac.services.kernel.opened import OpenedJournal
    from omac.services.settings.changes import change_setting
    from omac.tools.compose.journals import to_write

    state = StateDir.of(environment)
    host = state.host_id(lambda: secrets.token_hex(8))
    with closing(to_write(state, host, environment, journal_path, clock)) as journal:
        changing = partial(files.changing_user, environment)
        return trio.run(change_setting, OpenedJournal(journal, host), changing, setting, value)
