"""adapters/sandbox/spawn.py: descriptors, signals and confinement of a started program, and those that omac keeps."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from omac.adapters.linux import syscall
from omac.adapters.sandbox.spawn import SandboxParent
from omac.adapters.sandbox.terminal import PASSED_ON

NO_NEW_PRIVS = 38
TOLD = "import os; print(*(line.split()[1] for line in open('/proc/self/status') if 'SigBlk' in line), os.getpgrp())"
ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


@pytest.fixture
def parent() -> Iterator[SandboxParent]:
    made = SandboxParent()
    yield made
    made.close()


def said(
    parent: SandboxParent,
    script: str,
    *,
    in_group: bool = False,
    descriptors: tuple[int, ...] = (),
    program: str = "/bin/sh",
) -> str:
    """Return the output of a shell, or of another program, that the parent starts."""
    answer, writer = os.pipe()
    try:
        pid = parent.spawn(
            [program, "-c", script],
            ENVIRONMENT,
            confine=lambda: None,
            streams={1: writer},
            descriptors=descriptors,
            in_group=in_group,
        )
    finally:
        os.close(writer)
    with open(answer) as file:
        text = file.read()
    assert os.waitpid(pid, 0)[1] == 0
    return text


def test_only_the_program_gives_something_up(parent: SandboxParent) -> None:
    answer, writer = os.pipe()
    pid = parent.spawn(
        ["/bin/grep", "NoNewPrivs", "/proc/self/status"],
        ENVIRONMENT,
        confine=lambda: _give_up(),
        streams={1: writer},
        descriptors=(),
        in_group=False,
    )
    os.close(writer)
    with open(answer) as file:
        assert file.read().split() == ["NoNewPrivs:", "1"]
    os.waitpid(pid, 0)
    assert "NoNewPrivs:\t0" in Path("/proc/self/status").read_text()


def _give_up() -> None:
    syscall.prctl(NO_NEW_PRIVS, 1, 0, 0, 0)


def test_it_has_the_descriptors_that_are_named(parent: SandboxParent) -> None:
    passed, withheld = os.memfd_create("named"), os.memfd_create("other")
    try:
        listed = said(parent, "ls /proc/$$/fd", descriptors=(passed,)).split()
        assert str(passed) in listed
        assert str(withheld) not in listed
    finally:
        os.close(passed)
        os.close(withheld)


def test_what_omac_was_given_stays_with_it() -> None:
    script = (
        "import os; from omac.adapters.sandbox.spawn import *; withhold_descriptors();"
        "os.posix_spawn('/bin/ls', ['ls', '/proc/self/fd'], {}); os.wait()"
    )
    descriptor = os.memfd_create("given", 0)
    try:
        done = subprocess.run(
            [sys.executable, "-c", script], pass_fds=(descriptor,), capture_output=True, text=True, check=True
        )
    finally:
        os.close(descriptor)
    assert done.stdout.split() == ["0", "1", "2", "3"]  # the last one is of what lists them


def test_with_a_terminal_it_shares_the_group_and_keeps_the_keyboard_waiting(parent: SandboxParent) -> None:
    blocked, group = said(parent, TOLD, in_group=True, program=sys.executable).split()
    assert all(int(blocked, 16) >> number - 1 & 1 for number in PASSED_ON)
    assert int(group) == os.getpgrp()


def test_without_one_it_has_a_group_and_usual_signals(parent: SandboxParent) -> None:
    masks = said(parent, "sed -n 's/Sig[BI][lg][kn]:.//p' /proc/self/status; ps -o pgid=,pid= -p $$").split()
    assert int(masks[0], 16) == 0
    assert int(masks[1], 16) & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1 | 1 << signal.SIGTERM - 1) == 0
    assert masks[2] == masks[3]


@pytest.mark.parametrize("in_group", [True, False])
def test_signals_of_omac_are_as_before(parent: SandboxParent, in_group: bool) -> None:
    before = [signal.getsignal(number) for number in PASSED_ON]
    said(parent, "true", in_group=in_group)
    assert [signal.getsignal(number) for number in PASSED_ON] == before
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & set(PASSED_ON)


def test_what_is_not_there(parent: SandboxParent) -> None:
    with pytest.raises(FileNotFoundError):
        parent.spawn(["/nowhere/bwrap"], {}, confine=lambda: None, streams={}, descriptors=(), in_group=False)
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & set(PASSED_ON)


def test_what_cannot_be_given_up(parent: SandboxParent) -> None:
    def refused() -> None:
        raise PermissionError(1, "not today")

    with pytest.raises(PermissionError, match="not today"):
        parent.spawn(["/bin/true"], {}, confine=refused, streams={}, descriptors=(), in_group=False)


def test_it_ends_with_its_parent(parent: SandboxParent) -> None:
    """A program that asked for a signal at its parent's end gets it when the parent is closed, and not before."""
    answer, writer = os.pipe()
    pid = parent.spawn(
        ["/usr/bin/setpriv", "--pdeathsig", "KILL", "sh", "-c", "echo; exec sleep 60"],
        ENVIRONMENT,
        confine=lambda: None,
        streams={1: writer},
        descriptors=(),
        in_group=False,
    )
    os.close(writer)
    try:
        assert os.read(answer, 1) == b"\n"
        assert os.waitpid(pid, os.WNOHANG) == (0, 0)
        parent.close()
        assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    finally:
        os.close(answer)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
