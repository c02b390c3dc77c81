"""A restore that is killed between two of the names that it changes."""

import os
from collections.abc import Callable
from unittest import mock

import pytest
from real_omac import Omac


class Killed(BaseException):
    """An exception that no handler of omac's catches."""


def kill_restore(omac: Omac, backup: str, is_moment: Callable[[str], bool]) -> None:
    """Restore a backup; kill the restore, with no cleanup, before the first rename for which `is_moment` holds."""
    rename = os.rename

    def renaming(source: str, target: str) -> None:
        if is_moment(source):
            raise Killed
        rename(source, target)

    with mock.patch("omac.journal.backup.os.rename", renaming), pytest.raises(Killed):
        omac.run("journal", "restore", backup, "--yes")
