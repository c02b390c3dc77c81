"""A terminal that a program in a sandbox has, too: nothing secret is typed there."""

import os
import re

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
