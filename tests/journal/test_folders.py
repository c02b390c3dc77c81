"""journal/folders.py: the next command where a file cannot be written."""

import errno
import os
from pathlib import Path

import pytest

from omac.journal.folders import write_command


@pytest.mark.parametrize(
    ("number", "command"),
    [
        (errno.EROFS, "findmnt --target {}"),
        (errno.ENOSPC, "df -h {}"),
        (errno.EDQUOT, "df -h {}"),
        (errno.EMFILE, "ulimit -n 4096"),
        (errno.EACCES, "ls -ld {}"),
    ],
)
def test_the_command_fits_what_the_system_said(tmp_path: Path, number: int, command: str) -> None:
    """A disk is looked at, a limit raised, a folder listed: the nearest that exists."""
    shown = write_command(OSError(number, os.strerror(number)), str(tmp_path / "missing"))
    assert shown.startswith(command.format(tmp_path)), shown
