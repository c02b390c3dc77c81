"""A real omac for the tests of the command line: one of a test's own, or one server that a module's tests share.

A test that calls a command's own function works for an invocation with the streams of this process.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TextIO, cast

import pytest
from real_keyring import PrivateKeyring, private_keyring
from real_omac import Omac, Serving

from omac.tools.terminal.invocation import Invocation, working_for


@pytest.fixture
def shop(omac: Omac) -> Path:
    """Return a project with an approved skill."""
    return omac.approved("shop")


@pytest.fixture
def keyring(omac: Omac) -> Iterator[PrivateKeyring]:
    """Yield a real gnome-keyring, which this omac finds."""
    with private_keyring(omac.folder) as keyring:
        omac.environment |= {name: keyring[name] for name in ("DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR")}
        yield keyring


@pytest.fixture(scope="module")
def server(house: Omac) -> Serving:
    """Return the server that the tests of a module share; each brings a project of its own."""
    return house.serve(extra={"ECHO_PASSTHROUGH": "from the host"})


class ThisProcess:
    """An invocation with the streams that this process has at the moment: pytest exchanges them."""

    has_terminal = True
    words: tuple[str, ...] = ()

    @property
    def environment(self) -> Mapping[str, str]:
        """Return the environment of this process."""
        return os.environ

    @property
    def stdin(self) -> TextIO:
        """Return the standard input of this process."""
        return sys.stdin

    @property
    def stdout(self) -> TextIO:
        """Return the standard output of this process."""
        return sys.stdout

    @property
    def stderr(self) -> TextIO:
        """Return the standard error of this process."""
        return sys.stderr


@pytest.fixture(autouse=True)
def _invocation() -> Iterator[None]:
    with working_for(cast(Invocation, ThisProcess())):  # it has the same attributes
        yield
