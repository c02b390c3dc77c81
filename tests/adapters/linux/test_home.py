"""The user's home folder, by the environment and the real user database."""

import os
import pwd
import subprocess
import sys

import pytest

from omac.adapters.linux.home import home_of

REGISTERED = pwd.getpwuid(os.geteuid()).pw_dir


@pytest.mark.parametrize(
    ("environment", "home"),
    [
        ({"HOME": "/h"}, "/h"),
        ({"HOME": "/h//"}, "/h"),
        ({"HOME": "/"}, "/"),
        ({"HOME": "relative"}, REGISTERED),
        ({"HOME": ""}, REGISTERED),
        ({}, REGISTERED),
    ],
)
def test_where_it_is(environment: dict[str, str], home: str) -> None:
    """An absolute HOME counts, else the folder in the user database, but never one below the current folder."""
    assert home_of(environment) == home


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody whom no database knows")
def test_a_user_whom_nobody_knows() -> None:
    """A container may run as a number without a name: its home is the root, as at a login."""
    program = "import os; from omac.adapters.linux.home import home_of; os.setuid(54321); print(home_of({}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "/\n"
