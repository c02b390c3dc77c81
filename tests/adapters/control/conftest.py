"""A real `omac serve` for the tests of its control plane."""

import pytest
from real_omac import Omac, Serving


@pytest.fixture(scope="module")
def server(house: Omac) -> Serving:
    """Return the server that the tests of a module share."""
    return house.serve()
