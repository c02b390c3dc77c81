"""The process that builds a sandbox starts with omac and waits: if omac ends before, nothing of the process stays."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from polling import eventually
from real_omac import Omac, Serving

from omac.adapters.sandbox.terminal import ORPHANED

SLOW = "name: slow\nsidecar:\n  command: [python3, sidecar.py]\n  start_timeout: 60\n"
NEVER_LISTENS = "import time\ntime.sleep(600)\n"


@pytest.fixture
def waiting(omac: Omac) -> Serving:
    """Return a start whose command waits for a skill that does not come online."""
    project = omac.root / "shop"
    omac.skill(project, "slow", SLOW, NEVER_LISTENS)
    omac.approve(project, "slow")
    begun = omac.start("start", "--workdir", str(project), "--", "sh", "-c", "touch begun; sleep 600")
    eventually(lambda: _sandboxes(omac), 20.0, "the sandbox's own process")
    eventually(lambda: any("sidecar.py" in _line(pid) for pid in omac.left()), 20.0, "the skill's process")
    return begun


def _line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def _sandboxes(omac: Omac) -> list[int]:
    return [pid for pid in omac.left() if "--request-descriptor" in _line(pid)]


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_omac_ends_before(number: signal.Signals, omac: Omac, waiting: Serving) -> None:
    """omac ends in order or is killed before the command begins: the command never begins, and no process is left."""
    waiting.end(number)
    eventually(lambda: not _sandboxes(omac), 20.0, "the end of the sandbox's own process")
    assert not (omac.root / "shop" / "begun").exists()
    assert "Traceback" not in waiting.said()


@pytest.mark.parametrize(
    "words", [("--workdir", "missing"), ("--journal", "/proc/self/journal.db"), ("nosuch",), ("--ssh-agent",)]
)
def test_a_start_is_refused(words: tuple[str, ...], omac: Omac) -> None:
    """A refused start leaves no waiting process, though that began before the check; its command never begins."""
    project = omac.root / "shop"
    project.mkdir()
    refused = omac.process("start", *words, "--", "touch", str(project / "begun"), cwd=project)
    assert refused.status not in (0, 1), refused
    assert not _sandboxes(omac)
    assert not (project / "begun").exists()


def test_it_is_killed(omac: Omac, waiting: Serving) -> None:
    """The command does not begin if the waiting process is killed: omac ends with its status, once the skill is ready
    or given up."""
    for pid in _sandboxes(omac):
        os.kill(pid, signal.SIGKILL)
    for pid in (pid for pid in omac.left() if "sidecar.py" in _line(pid)):
        os.kill(pid, signal.SIGKILL)
    assert waiting.process.wait(40) == 137, waiting.said()
    assert not (omac.root / "shop" / "begun").exists()


def test_ctrl_c_while_it_begins(omac: Omac, tmp_path: Path) -> None:
    """The waiting process prints nothing at a Ctrl-C, which the terminal sends to omac too, and ends."""
    stderr_file = tmp_path / "said"
    begin = (
        "import os, signal, sys\n"
        f"sys.path[:0] = {sys.path!r}\n"
        "from omac.tools.compose.waiting_sandbox import WaitingSandbox\n"
        f"os.dup2(os.open({str(stderr_file)!r}, os.O_WRONLY | os.O_CREAT), 2)\n"
        "waiting = WaitingSandbox(os.environ)\n"
        "os.kill(waiting._child.pid, signal.SIGINT)\n"
        "os.close(waiting._writer)\n"
        "print(waiting._child.wait())\n"
    )
    argv = [sys.executable, "-I", "-c", begin]
    done = subprocess.run(argv, env=omac.environment, capture_output=True, text=True, timeout=20)
    assert (done.stdout, done.stderr, stderr_file.read_text()) == ("1\n", "", "")


def test_omac_ends_as_it_asks(omac: Omac) -> None:
    """The command never begins if omac ends while it sends the request, whichever process adopts the waiting one."""
    begin = (
        "import ctypes, os, sys\n"
        f"sys.path[:0] = {sys.path!r}\n"
        "ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)\n"
        "if not os.fork():\n"
        "    import trio\n"
        "    from omac.domain.sandbox.request import request_of\n"
        "    from omac.tools.compose.waiting_sandbox import WaitingSandbox\n"
        "    from omac.tools.terminal.invocation import Invocation, working_for\n"
        "    asked = {'command': ['sh', '-c', 'touch begun'], 'run': 'r-1', 'workdir': os.getcwd()}\n"
        "    with working_for(Invocation(os.environ, sys.stdin, sys.stdout, sys.stderr)):\n"
        "        trio.run(WaitingSandbox(os.environ).begin, request_of(asked), os.environ, lambda: None)\n"
        "    os._exit(0)\n"
        "print(os.waitstatus_to_exitcode(os.wait()[1]), os.waitstatus_to_exitcode(os.wait()[1]))\n"
    )
    project = omac.root / "project"
    project.mkdir()
    argv = [sys.executable, "-I", "-c", begin]
    done = subprocess.run(argv, cwd=project, env=omac.environment, capture_output=True, text=True, timeout=20)
    assert (done.stdout, done.stderr) == (f"0 {-ORPHANED}\n", "")
    assert not (project / "begun").exists()


SUSPENDED = """\
import os, signal
from omac.tools.compose.waiting_sandbox import WaitingSandbox
begin = WaitingSandbox.__init__
def begun(waiting, environment):
    begin(waiting, environment)
    os.kill(waiting._child.pid, signal.SIGSTOP)
WaitingSandbox.__init__ = begun
from omac.tools.entry import main; main()
"""


@pytest.mark.full
def test_omac_is_suspended_while_it_hands_a_request_in(omac: Omac) -> None:
    """A request that the pipe cannot hold is handed in whole, though a ^Z comes before its end is read."""
    line = (sys.executable, "-c", SUSPENDED, "start", "--env", "LONG", "--", "sh", "-c", "echo ${#LONG}")
    environment = omac.environment | {"LONG": "x" * 100_000}
    with subprocess.Popen(line, stdout=subprocess.PIPE, cwd=omac.root, env=environment) as process:
        eventually(lambda: _writes_to_pipe(process.pid), 20.0, "a pipe that is full")
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        process.send_signal(signal.SIGCONT)
        for pid in _sandboxes(omac):
            os.kill(pid, signal.SIGCONT)
        assert process.communicate(timeout=20)[0] == b"100000\n"


def _writes_to_pipe(pid: int) -> bool:
    return any("pipe_write" in path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/wchan"))
