"""The last step inside a sandbox: the state in which a program begins, and the error if it cannot."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import omac
from omac.adapters.sandbox import landlock, stage
from omac.adapters.sandbox.terminal import PASSED_ON

SOURCE = str(Path(omac.__file__).parent.parent)


def staged(
    *argv: str, fence: tuple[str, ...] = (), environment: dict[str, str] | None = None, fds: tuple[int, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run the stage outside of any sandbox, as bubblewrap would start it."""
    return subprocess.run(
        stage.command(argv, fence),
        env=environment if environment is not None else {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
        capture_output=True,
        text=True,
        errors="surrogateescape",
        pass_fds=fds,
        timeout=30,
    )


def test_the_program_gets_its_arguments_and_environment() -> None:
    """Arguments, even empty or option-like ones, and environment arrive byte for byte; the exit status is passed on."""
    words = ["a b", "", "--", "-c", "ü", "\udcff", "x\ny"]
    done = staged("/bin/sh", "-c", 'printf "%s|" "$@"; echo "$A"; exit 9', "sh", *words, environment={"A": "b=\udcfe"})
    assert done.returncode == 9
    assert done.stdout == "".join(f"{word}|" for word in words) + "b=\udcfe\n"
    assert done.stderr == ""


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"LANG": "C"},
        {"LC_ALL": "C"},
        {"LC_CTYPE": "C.UTF-8"},
        {"LC_CTYPE": "C.UTF-8", "LANG": "C"},
        {"LANG": "C.UTF-8"},
    ],
)
def test_no_variable_is_added_or_lost(environment: dict[str, str]) -> None:
    """Python sets LC_CTYPE for itself where the locale is C; the program does not see it, but keeps one of its own."""
    done = staged("/usr/bin/env", environment=environment)
    assert dict(line.split("=", 1) for line in done.stdout.splitlines()) == environment


def test_signals_are_usual_again() -> None:
    """Signals that omac blocks or Python changes act again in the program; those that a caller ignores stay ignored."""
    line = stage.command(("/bin/grep", "-e", "SigBlk", "-e", "SigIgn", "/proc/self/status"), ())
    block = f"signal.pthread_sigmask(signal.SIG_BLOCK, {list(map(int, PASSED_ON))})"
    change = f"{block}; signal.signal(signal.SIGALRM, signal.SIG_IGN)"
    bare = f"import os, signal; {change}; os.execv({line[0]!r}, {line!r})"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", bare], capture_output=True, text=True, timeout=30)
    assert [int(mask, 16) for mask in done.stdout.split()[1::2]] == [0, 1 << signal.SIGALRM - 1]


def test_a_signal_that_came_before_acts_on_the_program() -> None:
    """A signal that omac blocked acts as soon as it is let in."""
    line = stage.command(("/bin/echo", "up"), ())
    sent = "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]); os.kill(os.getpid(), signal.SIGTERM)"
    bare = f"import os, signal; {sent}; os.execv({line[0]!r}, {line!r})"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", bare], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "")


def test_a_signal_that_the_caller_blocks_stays_blocked() -> None:
    """A signal that omac itself was started to block is blocked in the program, too."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    try:
        line = stage.command(("/bin/grep", "SigBlk", "/proc/self/status"), ())
        done = subprocess.run(line, capture_output=True, text=True, timeout=30)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert int(done.stdout.split()[1], 16) == 1 << signal.SIGUSR1 - 1


def test_what_was_ignored_before_stays_ignored() -> None:
    """A signal that omac itself was started to ignore, as under nohup(1), stays ignored in the program."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        line = stage.command(("/bin/sh", "-c", "grep SigIgn /proc/self/status"), ())
        done = subprocess.run(line, capture_output=True, text=True, timeout=30)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert int(done.stdout.split()[1], 16) == 1 << signal.SIGHUP - 1


def test_descriptors_end_here() -> None:
    """Descriptors that bubblewrap inherited are not open in the program, however high their numbers are."""
    reader, writer = os.pipe()
    high = os.dup2(writer, 900)
    try:
        listing = ("/bin/sh", "-c", "echo /proc/$$/fd/*")
        done = staged(*listing, fds=(reader, writer, high))
        open_ = {int(name.rsplit("/", 1)[1]) for name in done.stdout.split()}
        assert len(open_) <= 4  # the standard three, and the folder that the shell lists
        assert not open_ & {writer, high}
        plain = subprocess.run(listing, capture_output=True, text=True, pass_fds=(reader, writer, high), timeout=30)
        assert f"/{high}" in plain.stdout
    finally:
        for descriptor in (reader, writer, high):
            os.close(descriptor)


@pytest.mark.parametrize(
    ("content", "mode", "status", "words"),
    [
        (None, 0, stage.NOT_FOUND, "is not in the sandbox"),
        ("#!/nowhere/sh\n", 0o755, stage.CANNOT_RUN, "the interpreter or loader that it names is not in the sandbox"),
        ("echo hello\n", 0o755, stage.CANNOT_RUN, "it has no #! line and is no program for this machine"),
        ("#!/bin/sh\n", 0o644, stage.CANNOT_RUN, "Permission denied"),
    ],
)
def test_what_cannot_run_is_told_like_a_shell(
    content: str | None, mode: int, status: int, words: str, tmp_path: Path
) -> None:
    """A missing program ends with 127, one that cannot run with 126, and one line names it and the reason."""
    path = tmp_path / "tool"
    if content is not None:
        path.write_text(content)
        path.chmod(mode)
    done = staged(str(path))
    assert done.returncode == status
    assert done.stderr.startswith(f"omac: {path} ")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    if status == stage.CANNOT_RUN and "interpreter" in words:
        path.write_text("#!/bin/sh\nexit 3\n")
        assert staged(str(path)).returncode == 3


@pytest.mark.skipif(landlock.abi() < 2, reason="needs Landlock ABI 2 (Linux 5.19)")
def test_the_fence_stands_before_the_program_begins(tmp_path: Path) -> None:
    """The fence refuses a link behind it; beside it, or without it, a link is made."""
    (tmp_path / "git").mkdir()
    (tmp_path / "work").mkdir()
    fence = (str(tmp_path / "git"),)
    done = staged("/bin/ln", "-s", "x", str(tmp_path / "git" / "l"), fence=fence)
    assert done.returncode == 1
    assert "Permission denied" in done.stderr
    assert staged("/bin/ln", "-s", "x", str(tmp_path / "work" / "l"), fence=fence).returncode == 0
    assert staged("/bin/ln", "-s", "x", str(tmp_path / "git" / "l")).returncode == 0


def test_without_its_fence_no_program_runs(tmp_path: Path) -> None:
    """A program does not begin if the kernel cannot build its fence."""
    line = stage.command(("/bin/true",), (str(tmp_path),))
    forbid = "from omac.adapters.sandbox import landlock; landlock.abi = lambda: 1; "
    at = line.index("-c") + 1
    line[at] = line[at].replace("; from", f"; {forbid}from", 1)
    done = subprocess.run(line, capture_output=True, text=True, timeout=30)
    assert done.returncode == stage.CANNOT_RUN
    assert done.stderr.startswith("omac: the fence around git's folders could not be set up")
    assert "Linux 5.19 is needed" in done.stderr


@pytest.mark.parametrize("name", ["stage", "landlock", "seccomp", "landlock_only"])
def test_next_to_nothing_is_imported(name: str) -> None:
    """The start of a sandbox takes a few milliseconds, so its modules import next to nothing."""
    source = (
        f"import sys; sys.path.append({SOURCE!r}); import os; before = set(sys.modules);"
        f"from omac.adapters.sandbox import {name}; print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", source], capture_output=True, text=True, timeout=30)
    modules = {module for module in done.stdout.split() if module.partition(".")[0] != "omac"}
    assert modules <= {"__future__", "_ctypes", "_signal", "_struct", "struct", "errno", "stat"}
    assert (name == "stage") == ("_ctypes" not in modules)
