"""A terminal shared with a sandboxed program: no secret is typed there, and the terminal is left as it was."""

import fcntl
import os
import re
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pexpect
import pytest
from programs import omac_at
from real_omac import COMMAND, Omac

WITHIN_S = 30
LISTENING = "import os, time; os.fork() or os.setsid(); print('UP', flush=True); time.sleep(600)"


@contextmanager
def at_shell(omac: Omac) -> Iterator[tuple["pexpect.spawn[str]", Path]]:
    """Yield an interactive shell with omac in its PATH, and its project."""
    omac_at(omac.folder / "omac")
    project = omac.project("shop")
    environment = {**omac.environment, "PS1": "> ", "PATH": f"{omac.folder}:{os.environ['PATH']}"}
    shell = pexpect.spawn(
        "/bin/bash", ["--norc", "--noprofile", "-i"], env=environment, cwd=str(project), encoding="utf-8",
        timeout=WITHIN_S, dimensions=(40, 200),
    )  # fmt: skip
    try:
        yield shell, project
    finally:
        shell.close(force=True)


@pytest.mark.parametrize("words", [("sandbox", "run"), ("start",)])
@pytest.mark.full
def test_a_suspended_sandbox_hears_no_secret(omac: Omac, words: tuple[str, ...]) -> None:
    """omac asks for no secret while a suspended sandbox has the terminal: a program that left its session could read
    it."""
    with at_shell(omac) as (shell, project):
        (project / "listening.py").write_text(LISTENING)
        shell.sendline(f"omac {' '.join(words)} -- /usr/bin/python3 listening.py")
        shell.expect_exact("UP")
        shell.sendcontrol("z")
        shell.expect("Stopped")
        shell.sendline("omac vault init")
        shell.expect(re.escape("has this terminal: programs in it could read what you type"))
        shell.expect_exact("try: fg")
        shell.sendline("kill -TERM %1; fg; echo EN''DED")
        shell.expect_exact("ENDED")
        shell.sendline("omac vault init")
        shell.expect(r"value \(not shown\)")


IN_BACKGROUND = """
import os, sys, time
from contextlib import suppress
terminals = [number for number in (0, 1, 2) if os.isatty(number)]
with suppress(OSError):
    terminals.append(os.open("/dev/tty", os.O_RDWR))
print("HAS", terminals, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("words", ["sandbox run", "start", "sandbox run --backend landlock --weaker-git"])
def test_a_sandbox_in_the_background_has_no_terminal(omac: Omac, words: str) -> None:
    """A sandbox in the background has no terminal, so the user can type secrets there; its output appears."""
    with at_shell(omac) as (shell, project):
        (project / "job.py").write_text(IN_BACKGROUND)
        shell.sendline(f"omac {words} -- /usr/bin/python3 job.py &")
        shell.expect_exact("HAS []")
        shell.sendline("omac vault init")
        shell.expect(r"value \(not shown\)")
        shell.sendcontrol("c")
        shell.sendline("fg")
        shell.expect_exact("job.py")
        shell.sendcontrol("c")
        shell.sendline("echo EN''DED")
        shell.expect_exact("ENDED")


SPOILING = """
import fcntl, os, termios
modes = termios.tcgetattr(0)
modes[3] &= ~(termios.ECHO | termios.ICANON | termios.ISIG)
termios.tcsetattr(0, termios.TCSANOW, modes)
fcntl.ioctl(0, termios.TIOCEXCL)
os.write(1, b"UP")
termios.tcflow(0, termios.TCOOFF)
os.kill(os.getpid(), 9)
"""
TIOCGEXCL = 0x80045440


@pytest.mark.parametrize("words", [("sandbox", "run"), ("start",)])
def test_a_terminal_is_left_as_it_was(omac: Omac, words: tuple[str, ...]) -> None:
    """omac restores the terminal after a killed program: it echoes, edits lines and prints, and others can open it."""
    project = omac.project("shop")
    (project / "spoiling.py").write_text(SPOILING)
    argv = [*COMMAND[1:], *words, "--", "/usr/bin/python3", "spoiling.py"]
    shell = pexpect.spawn(
        "/bin/sh", ["-c", '"$@"; echo ENDED; sleep 600', "sh", COMMAND[0], *argv],
        env=omac.environment, cwd=str(project), encoding="utf-8", timeout=WITHIN_S,
    )  # fmt: skip
    terminal = os.open(os.readlink(f"/proc/{shell.pid}/fd/0"), os.O_RDWR | os.O_NOCTTY)
    before = termios.tcgetattr(terminal)
    try:
        shell.expect_exact("UP")
        shell.expect_exact("ENDED")
        assert termios.tcgetattr(terminal) == before
        assert fcntl.ioctl(terminal, TIOCGEXCL, bytes(4)) == bytes(4)
    finally:
        os.close(terminal)
        shell.close(force=True)


@pytest.mark.full
def test_a_pager_behind_a_pipe_keeps_its_modes(omac: Omac) -> None:
    """omac keeps the modes that a pager behind a pipe set while the sandbox ran."""
    project = omac.project("shop")
    omac_line = f'{COMMAND[0]} -c "{COMMAND[2]}" sandbox run -- sh -c "sleep 1"'
    script = f"{omac_line} | (stty raw -echo </dev/tty; cat; stty -a </dev/tty >/dev/tty; echo ENDED >/dev/tty)"
    shell = pexpect.spawn(
        "/bin/bash", ["-c", script], env=omac.environment, cwd=str(project), encoding="utf-8", timeout=WITHIN_S
    )
    try:
        shell.expect_exact("ENDED")
        assert "-icanon" in str(shell.before)
    finally:
        shell.close(force=True)
