"""omac's own settings, for `omac settings`."""

from collections.abc import Mapping
from functools import partial

from omac.adapters.settings.files import changing_user
from omac.adapters.settings.files import read_project as read_project
from omac.adapters.settings.files import read_user as read_user
from omac.domain.settings.settings import Setting


def change_user_setting(
    environment: Mapping[str, str],
    journal_path: str | None,
    setting: Setting,
    value: str | None,
) -> bool:
    """Have the user's file say `value`, or nothing (None), and record it; False if it did already. Raises Refusal."""
    import trio  # what only shows settings does without

    from omac.services.settings.changes import change_setting
    from omac.tools.compose.journals import carrying

    with carrying(environment, journal_path) as execution:
        return trio.run(change_setting, execution, partial(changing_user, environment), setting, value)
