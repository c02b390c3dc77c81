"""A real `omac serve` for the tests of its control plane."""

from collections.abc import Iterator

import pytest
from real_omac import Omac, Serving, omac_in


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Omac]:
    """Yield the omac that these tests share."""
    with omac_in(tmp_path_factory.mktemp("control")) as shared:
        yield shared


@pytest.fixture(scope="module")
def server(house: Omac) -> Serving:
    """Return the server of that omac."""
    return house.serve()
