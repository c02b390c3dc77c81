"""A real omac for the tests of the command line: one of a test's own, or one server that a module's tests share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from real_omac import Omac, Serving, omac_in


@pytest.fixture
def omac(tmp_path: Path) -> Iterator[Omac]:
    """An omac of this test's own; no server runs yet."""
    with omac_in(tmp_path) as mine:
        yield mine


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Omac]:
    """The omac that the tests of a module share."""
    with omac_in(tmp_path_factory.mktemp("house")) as shared:
        yield shared


@pytest.fixture(scope="module")
def server(house: Omac) -> Serving:
    """The server that the tests of a module share; each brings a project of its own."""
    return house.serve(extra={"ECHO_PASSTHROUGH": "from the host"})
