"""A terminal that a program in a sandbox has, too: nothing secret is typed there, and it is left as it was."""

import fcntl
import os
import re
import termios

import pexpect
import pytest
from real_omac import COMMAND, Omac

WITHIN_S = 30
LISTENING = "import os, time; os.fork() or os.setsid(); print('UP', flush=True); time.sleep(600)"


@pytest.mark.parametrize("words", [("sandbox", "run"), ("start",)])
def test_a_suspended_sandbox_hears_no_secret(omac: Omac, words: tuple[str, ...]) -> None:
    """Until it has ended; what left its session would read along, whatever job control does."""
    program = omac.folder / "omac"
    program.write_text(f'#!/bin/sh\nexec {COMMAND[0]} -c "{COMMAND[2]}" "$@"\n')
    program.chmod(0o755)
    project = omac.project("shop")
    listening = project / "listening.py"
    listening.write_text(LISTENING)
    environment = {**omac.environment, "PS1": "> ", "PATH": f"{omac.folder}:{os.environ['PATH']}"}
    shell = pexpect.spawn(
        "/bin/bash", ["--norc", "--noprofile", "-i"], env=environment, cwd=str(project), encoding="utf-8",
        timeout=WITHIN_S, dimensions=(40, 200),
    )  # fmt: skip
    try:
        shell.sendline(f"omac {' '.join(words)} -- /usr/bin/python3 listening.py")
        shell.expect_exact("UP")
        shell.sendcontrol("z")
        shell.expect("Stopped")
        shell.sendline("omac vault init")
        shell.expect(re.escape("has this terminal, and what is in it could read what you type"))
        shell.expect_exact("try: fg")
        shell.sendline("kill -TERM %1; fg; echo EN''DED")
        shell.expect_exact("ENDED")
        shell.sendline("omac vault init")
        shell.expect(r"value \(not shown\)")
    finally:
        shell.close(force=True)


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
    """By a program that is killed: it echoes, edits lines and shows what is written, and others can open it."""
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


def test_a_pager_behind_a_pipe_keeps_its_modes(omac: Omac) -> None:
    """It set them while the program before it ran."""
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
