"""A terminal that hangs up, as when its window is closed: the command ends, and reports no defect."""

import os
import pty
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest
from polling import eventually
from real_omac import COMMAND, Omac


def hung_up(omac: Omac, cwd: Path, words: tuple[str, ...], awaited: str, *, ignored: bool) -> tuple[int, str]:
    """Run a command on a terminal that hangs up once the command has shown this text; return its exit status, and its
    text on stderr, which is a file. `ignored`: as with nohup."""
    errors = omac.folder / "stderr"
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
        os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        os.chdir(cwd)
        os.execvpe(COMMAND[0], [*COMMAND, *words], omac.environment)
    shown, deadline = "", time.monotonic() + 20
    while awaited not in shown:
        assert time.monotonic() < deadline, shown
        if select.select([terminal], [], [], 0.1)[0]:
            shown += os.read(terminal, 65536).decode(errors="replace")
    os.close(terminal)
    try:
        _, status = eventually(lambda: _ended(pid), 20.0, "the end of the command")
    except AssertionError:
        os.kill(pid, signal.SIGKILL)
        raise
    return os.waitstatus_to_exitcode(status), errors.read_text()


def _ended(pid: int) -> tuple[int, int] | None:
    """Return the pid and the status of a child that has ended."""
    ended = os.waitpid(pid, os.WNOHANG)
    return ended if ended[0] else None


def test_at_a_question(omac: Omac) -> None:
    """A question that nobody can answer any more ends the command with the signal's status and not a word."""
    project = omac.project("shop")
    assert hung_up(omac, project, ("trust",), "Approve it?", ignored=False) == (128 + signal.SIGHUP, "")


@pytest.mark.full
@pytest.mark.parametrize(
    ("words", "awaited"),
    [(("top",), "no calls"), pytest.param(("status", "--watch"), "no directory", marks=pytest.mark.full)],
)
def test_while_it_prints(omac: Omac, words: tuple[str, ...], awaited: str) -> None:
    """A command that goes on printing to a terminal that hung up ends as if nobody read a pipe."""
    omac.approved("shop")
    assert hung_up(omac, omac.root, words, awaited, ignored=True) == (141, "")


@pytest.mark.full
def test_a_server_that_nohup_keeps(omac: Omac) -> None:
    """A server that was started with SIGHUP ignored, as by nohup(1), goes on when its terminal hangs up; any other ends
    in order."""
    kept = omac.serve(within=("nohup",))
    kept.process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        kept.process.wait(1.0)
    assert kept.call("dirs").status == 200
    assert kept.end() == 0
    assert omac.serve().end(signal.SIGHUP) == 0


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_server_whose_announcement_nobody_reads(omac: Omac, options: tuple[str, ...]) -> None:
    """A server whose output nobody reads by the time that it is ready ends as any command does, and leaves nothing."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as pipe:
        done = subprocess.run(
            [*COMMAND, "serve", "--no-inner", *options], cwd=omac.root, env=omac.environment, stdin=subprocess.DEVNULL,
            stdout=pipe, stderr=subprocess.PIPE, text=True, check=False, timeout=30,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (141, "")
    assert (omac.left(), list(omac.state.glob("run/*/*.sock"))) == ([], [])
