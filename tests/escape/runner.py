"""Sandboxes that stay open and run one attack after the other, so that an attack costs a process and no launch.

Each is a real `omac sandbox run`. Its program reads sources from stdin, one JSON text a line, runs each in a child of
its own, and answers with a line of JSON: how that child ended and what it printed.
"""

import json
import select
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from real_sandbox import SYSTEM_PYTHON, Box, Done

ANSWER_WITHIN_S = 90
LAUNCH_WITHIN_S = 60
RUNNER = """\
import ctypes, errno, json, mmap, os, platform, signal, socket, stat, struct, subprocess, sys, time, traceback

def run(source):
    signal.alarm(60)
    try:
        exec(source, {'__name__': '__main__'})
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0

for line in sys.stdin:
    source, nothing = json.loads(line), os.open('/dev/null', os.O_RDONLY)
    files = [os.memfd_create(name) for name in ('stdout', 'stderr')]
    pid = os.fork()
    if not pid:
        for number, opened in enumerate((nothing, *files)):
            os.dup2(opened, number)
            os.close(opened)
        status = run(source)
        sys.stdout.flush()
        os._exit(status)
    answer = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])]
    for opened in files:
        answer.append(os.pread(opened, 1 << 20, 0).decode(errors='replace'))
    for opened in (nothing, *files):
        os.close(opened)
    print(json.dumps(answer), flush=True)
"""


class How(TypedDict):
    """The keywords of subprocess that start a launch."""

    cwd: Path
    env: dict[str, str]
    user: int | None
    group: int | None
    extra_groups: list[int] | None


class Runner:
    """The open sandboxes of one user's world, by their options; `token` is in the environment of omac itself."""

    def __init__(self, world: Box, token: str) -> None:
        self.world = world
        self.token = token
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the runner
        self._open: dict[tuple[str, ...], subprocess.Popen[bytes]] = {}

    def run(self, options: tuple[str, ...], source: str) -> Done:
        """Run a Python source in the sandbox with these options, which is launched on first use."""
        if options not in self._open:
            self._open[options] = self._launched(options)
        process = self._open[options]
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(source).encode() + b"\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], ANSWER_WITHIN_S)
        line = process.stdout.readline() if ready else b""
        if not line:
            self._end(self._open.pop(options))
            raise AssertionError(f"the sandbox ended ({process.returncode}), or does not answer: {self._said()}")
        return Done(*json.loads(line))

    def run_alone(self, options: tuple[str, ...], source: str, descriptors: Sequence[int]) -> Done:
        """Run a source in a sandbox of its own, with descriptors of the host's left open for it."""
        done = subprocess.run(
            self._line(options, source), stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=LAUNCH_WITHIN_S, pass_fds=descriptors, **self._how(),
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)

    def empty(self) -> None:
        """Remove the files that an earlier program left in the project."""
        for path in self.world.workdir.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    def close(self) -> None:
        """End every sandbox."""
        for process in self._open.values():
            self._end(process)
        self._stderr.close()

    def _launched(self, options: tuple[str, ...]) -> subprocess.Popen[bytes]:
        line = self._line(options, RUNNER)
        return subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, **self._how())

    def _line(self, options: tuple[str, ...], source: str) -> list[str]:
        program = (SYSTEM_PYTHON, "-I", "-c", source)
        return self.world.omac("sandbox", "run", "--workdir", str(self.world.workdir), *options, "--", *program)

    def _how(self) -> How:
        world = self.world
        return {
            "cwd": world.workdir, "env": world.environment | {"TOKEN_OF_HOST": self.token}, "user": world.uid or None,
            "group": world.uid or None, "extra_groups": world.extra_groups,
        }  # fmt: skip

    def _said(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace")

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(LAUNCH_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
