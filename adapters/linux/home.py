"""The user's home folder: what the environment says, else the user database."""

from __future__ import annotations

import os

from omac.domain.kernel.state_paths import stated_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def home_of(environment: Mapping[str, str]) -> str:
    """$HOME if that is absolute, else the folder that the user database has; "/" where it has none, as at a login."""
    if stated := stated_home(environment):
        return stated
    import pwd  # rarely needed

    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return "/"
