"""Users' worlds for attacks."""

import os
from collections.abc import Iterator

import pytest
from escape.left_behind import Ground, ground_of
from real_sandbox import FEWER_USERS, Box, box


@pytest.fixture(params=FEWER_USERS, ids=lambda uid: f"uid{uid}")
def world(request: pytest.FixtureRequest) -> Iterator[Box]:
    """Yield the home and project of an ordinary user, and of root."""
    with box(request.param) as made:
        yield made


@pytest.fixture
def own_ground() -> Iterator[Ground]:
    """Yield a ground of the user who runs the tests: others have no copy of what `omac status` and the like need."""
    with ground_of(os.geteuid()) as made:
        yield made
