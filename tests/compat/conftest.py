"""A real omac for the tests of the contract that skills, plugins and hooks were written for."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from real_omac import Omac, omac_in


@pytest.fixture
def omac(tmp_path: Path) -> Iterator[Omac]:
    """Yield an omac of this test's own, without a running server."""
    with omac_in(tmp_path) as instance:
        yield instance
