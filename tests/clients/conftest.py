"""The bound of each test here."""

import signal
from collections.abc import Iterator
from types import FrameType

import pytest

pytest.register_assert_rewrite("clients.day")

TEST_WITHIN_S = 110


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """End a test that takes too long."""

    def give_up(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"the test took longer than {TEST_WITHIN_S} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(TEST_WITHIN_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
