"""Waits for changes that no event announces: a condition is tried again and again, up to a deadline."""

import time
from collections.abc import Callable
from typing import Any

import trio

from omac.adapters.skills.stat_fingerprint import TICK_NS, file_system_now_ns

POLL_S = 0.01
POLLS_S_MAX = 0.1


def eventually(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """Return the first true value of `condition`; raise an AssertionError that names `what` after `seconds`."""
    deadline = (begun := time.monotonic()) + seconds
    while not (value := condition()):
        now = time.monotonic()
        assert now < deadline, f"not within {seconds} s: {what}"
        time.sleep(max(POLL_S, min(now - begun, POLLS_S_MAX)))  # so a costly condition leaves time for what is awaited
        begun = time.monotonic()
    return value


async def until(condition: Callable[[], object], seconds: float = 10.0) -> float:
    """Return the seconds until `condition` holds; raise trio.TooSlowError when that takes longer than `seconds`."""
    began = trio.current_time()
    with trio.fail_after(seconds):
        while not condition():
            await trio.sleep(POLL_S / 5)
    return trio.current_time() - began


def stays(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Return after `seconds`; raise an AssertionError that names `what` when `condition` is false before."""
    begun = time.monotonic()
    while (passed := time.monotonic() - begun) < seconds:
        assert condition(), f"ended after {passed:.1f} s: {what}"
        time.sleep(POLL_S * 10)


def file_times_pass() -> None:
    """Return when all later changes of files have a later time than all changes so far."""
    begun_ns = file_system_now_ns()
    eventually(lambda: file_system_now_ns() - begun_ns > TICK_NS, 20.0, "a tick of the file system's clock")
