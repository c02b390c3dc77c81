"""adapters/sandbox/terminal.py: a wait for a child that loses no signal."""

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from omac.adapters.sandbox import terminal
from omac.adapters.sandbox.launch import wait_for
from omac.adapters.sandbox.terminal import Terminal, awake


@pytest.fixture
def seen() -> Iterator[list[int]]:
    """Yield the signals that a handler was called for."""
    numbers: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: numbers.append(number))
    yield numbers
    signal.signal(signal.SIGUSR1, before)


def test_a_signal_just_before_the_wait_ends_it(seen: list[int]) -> None:
    with awake() as signals:
        os.kill(os.getpid(), signal.SIGUSR1)
        signals.wait(None)
    assert seen == [signal.SIGUSR1]


def test_the_end_of_a_child_ends_it() -> None:
    with awake() as signals, subprocess.Popen(["true"]) as child:
        signals.wait(None)
        assert child.wait() == 0


@pytest.mark.parametrize(("script", "status"), [("exit 3", 3), ("kill -9 $$", 137), ("sleep 0.05; exit 4", 4)])
def test_the_status_of_a_child(script: str, status: int) -> None:
    child = os.posix_spawn("/bin/sh", ["sh", "-c", script], {"PATH": "/usr/bin:/bin"})
    assert wait_for(child, lambda _: None, Terminal(), lambda: None, Terminal().stop_with) == status


def test_the_handler_for_children_stays() -> None:
    """The handler of SIGCHLD stays: Python complains on stderr if it is gone when a signal is handled."""
    before = signal.getsignal(signal.SIGCHLD)
    try:
        with awake():
            handler = signal.getsignal(signal.SIGCHLD)
        assert callable(handler)
        assert signal.getsignal(signal.SIGCHLD) is handler
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_the_terminal_of_a_killed_omac_that_ends_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """The terminal is left to the shell also where the omac that was killed takes a second to end, as on a busy
    machine: a shell that found it with a group that ends would exit."""
    monkeypatch.setattr(terminal, "sleep", lambda _: None)
    left = Terminal()
    left.foreground = True
    monkeypatch.setattr(os, "getpgrp", os.getppid)
    ended = iter([*[os.getppid()] * 1_000, 1])
    monkeypatch.setattr(os, "getppid", lambda: next(ended))
    left.leave()
    assert not left.foreground
