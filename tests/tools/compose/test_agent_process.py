"""tools/compose/agent_process.py: the command that omac runs, and its signals."""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from polling import eventually, stays
from real_omac import COMMAND, Omac, curl
from started import LOOP, started, told
from tiers import some

from omac.domain.kernel.run import RunStopped
from omac.domain.sandbox.launch import LaunchExited


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_request_to_end_is_passed_on(omac: Omac, number: signal.Signals) -> None:
    """A request to end is passed on as its own signal. The command may take its time, and its status is omac's; a
    second request kills it."""
    name = number.name.removeprefix("SIG")
    run = started(omac, omac.root, f"trap 'echo told; exit 41' {name}; {LOOP}")
    assert run.line() == "up\n"
    assert run.end(number) == 41
    run = started(omac, omac.root, f"trap 'echo no' {name}; {LOOP}")
    assert run.line() == "up\n"
    run.process.send_signal(number)
    assert run.line() == "no\n"
    assert run.end(number) == 137
    eventually(lambda: not omac.left(), 20.0, "the end of the command's own children")
    assert [record.event.why for record in omac.events(RunStopped)] == [f"asked by {number.name}"] * 2


@pytest.mark.full
def test_what_a_killed_command_left_is_inspected(omac: Omac) -> None:
    """A sandboxed command that does not end when asked is killed by a second request; its end is recorded, with its
    status, and what its launch placed in the git folder is removed."""
    project = omac.project("shop")
    subprocess.run(["git", "init", "-q", str(project)], check=True, env=omac.environment)
    before = sorted((project / ".git").iterdir())
    run = omac.start("start", "--workdir", str(project), "--", "sh", "-c", f"trap 'echo no' TERM; {LOOP}")
    assert run.line() == "up\n"
    assert sorted((project / ".git").iterdir()) != before
    run.process.send_signal(signal.SIGTERM)
    assert run.line() == "no\n"
    assert run.end() == 137
    assert [record.event.status for record in omac.events(LaunchExited)] == [137]
    assert sorted((project / ".git").iterdir()) == before


def test_an_interrupt_is_the_commands(omac: Omac, shop: Path) -> None:
    """A SIGINT sent to omac alone reaches the command, which may go on; then omac and its skills go on, too."""
    run = started(omac, shop, f"trap 'echo interrupted' INT; env; echo ready; {LOOP}")
    base = told(run)["OMAC_ECHO_BASE"]
    assert run.line() == "up\n"
    for _ in range(3):
        run.process.send_signal(signal.SIGINT)
        assert run.line() == "interrupted\n"
    assert curl(f"{base}/echo").status == 200
    assert run.end() == 143


ENDED_EARLY = """\
import os, signal, trio
from omac.tools.compose.agent_launch import AgentLaunch
start = AgentLaunch.start
async def started(*words):
    inner = await start(*words)
    os.waitid(os.P_PID, inner._child.pid, os.WEXITED | os.WNOWAIT)
    os.kill(os.getpid(), signal.SIGTERM)
    await trio.sleep(0.1)
    return inner
AgentLaunch.start = started
from omac.tools.entry import main; main()
"""


def test_a_request_to_end_that_comes_after_the_end(omac: Omac) -> None:
    """A command that ends while it begins, just before a request to end, has ended with its own status."""
    line = (sys.executable, "-c", ENDED_EARLY, "start", "--no-sandbox", "--", "sh", "-c", "exit 9")
    done = subprocess.run(line, cwd=omac.root, env=omac.environment, capture_output=True, timeout=60)
    assert done.returncode == 9, done


@pytest.mark.parametrize("after_s", some([0.0, 0.2, 0.4, 0.6], of=2))
@pytest.mark.full
def test_an_interrupt_before_it_begins(after_s: float, omac: Omac) -> None:
    """An interrupt at any time after omac has made its folder stops the command, or keeps it from starting."""
    run = started(omac, omac.root, LOOP)
    eventually(lambda: list(omac.state.glob("run/*/control.token")), 20.0, "its token")
    time.sleep(after_s)
    assert run.end(signal.SIGINT) == 130


class Terminal:
    """A job-control shell on its own pseudo-terminal, as in a window: `type` sends keys, `see` awaits output."""

    def __init__(self, omac: Omac) -> None:
        self.screen, inner = os.openpty()
        os.set_blocking(self.screen, False)
        self.shown = ""
        self.shell = subprocess.Popen(
            [sys.executable, "-c", "import os; os.setsid(); os.close(os.open(os.ttyname(0), os.O_RDWR)); "
             "os.execlp('bash', 'bash', '--norc', '--noediting', '-i')"],
            stdin=inner, stdout=inner, stderr=inner, cwd=omac.root,
            env=omac.environment | {"PS1": "$ ", "TERM": "dumb"},
        )  # fmt: skip
        os.close(inner)
        self.start = f"{shlex.join(COMMAND)} start"

    def type(self, text: str) -> None:
        """Send keys, as a keyboard would."""
        os.write(self.screen, text.encode())

    def see(self, text: str, seconds: float = 20.0) -> str:
        """Wait until the terminal shows this text; return what comes before it, which is not searched again."""

        def found() -> bool:
            with contextlib.suppress(OSError):
                self.shown += os.read(self.screen, 65_536).decode(errors="replace")
            return text in self.shown

        try:
            eventually(found, seconds, text)
        except AssertionError as error:
            raise AssertionError(f"{error}; it shows {self.shown!r}") from None
        before, _, self.shown = self.shown.partition(text)
        return before

    def close(self) -> None:
        """Close the window."""
        os.close(self.screen)
        self.shell.kill()
        self.shell.wait()


@pytest.fixture
def terminal(omac: Omac) -> Iterator[Terminal]:
    """Yield a terminal in a user's home."""
    window = Terminal(omac)
    try:
        yield window
    finally:
        window.close()


def stat(pid: int) -> str:
    """Return the state of a process, as one letter."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.full
def test_keys_of_the_terminal(omac: Omac, shop: Path, terminal: Terminal) -> None:
    """Ctrl-C reaches the command once, and only its reaction counts. Ctrl-Z stops the command and omac as one job, `fg`
    continues both, and skills answer again. In the end the shell has its terminal back."""
    script = f"trap 'echo caught' INT; echo pid $$, $OMAC_ECHO_BASE.; {LOOP}"
    # bash, since a dash that is just starting a program (vfork) cannot be stopped before that has begun
    terminal.type(f"{terminal.start} --no-sandbox --workdir {shop} -- bash -c {shlex.quote(script)}; echo ended $?\n")
    terminal.see("\npid ")
    pid, base = terminal.see(".\r\n").split(", ")
    terminal.see("up")
    terminal.type("\x03")
    terminal.see("caught\r\n")
    stays(lambda: "caught" not in terminal.shown, 0.3, "one interrupt, told once")
    parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    terminal.type("\x1a")
    terminal.see("Stopped")
    eventually(lambda: (stat(int(pid)), stat(parent)) == ("T", "T"), 20.0, "both to stop")
    terminal.type("fg\n")
    eventually(lambda: "T" not in (stat(int(pid)), stat(parent)), 20.0, "both to go on")
    assert curl(f"{base}/echo").status == 200
    terminal.type("\x03")
    terminal.see("caught\r\n")
    os.kill(int(pid), signal.SIGKILL)
    terminal.type("echo still $((40 + 2))\n")
    terminal.see("still 42")
    eventually(
        lambda: not [left_pid for left_pid in omac.left() if left_pid != terminal.shell.pid],
        20.0,
        "nothing to be left",
    )


@pytest.mark.full
@pytest.mark.parametrize("how", ["--no-sandbox", "--backend bubblewrap", "--backend landlock"])
@pytest.mark.parametrize("is_to_end", [False, True])
def test_a_suspended_job_that_a_signal_continues(omac: Omac, terminal: Terminal, how: str, is_to_end: bool) -> None:
    """A SIGCONT to omac alone continues all that Ctrl-Z has stopped, also what the command waits for; or all of it
    ends, where it was asked to end, as by `omac stop`."""
    script = "trap 'echo ended; exit 3' TERM; echo rea''dy; sleep 3; echo went on"
    terminal.type(f"{terminal.start} {how} -- sh -c {shlex.quote(script)}; echo status $?\n")
    terminal.see("ready")
    eventually(lambda: any(_runs(pid, b"sleep\x003") for pid in omac.left()), 20.0, "the sleep")
    terminal.type("\x1a")
    terminal.see("Stopped")
    (start,) = Path(f"/proc/{terminal.shell.pid}/task/{terminal.shell.pid}/children").read_text().split()
    if is_to_end:
        os.kill(int(start), signal.SIGTERM)
    os.kill(int(start), signal.SIGCONT)
    terminal.see("ended" if is_to_end else "went on")
    eventually(lambda: not [pid for pid in omac.left() if pid != terminal.shell.pid], 10.0, "all of it to be gone")


def test_a_suspended_job_that_ends_leaving_a_stopped_process(omac: Omac, terminal: Terminal) -> None:
    """A process that the command had stopped itself does not pass for the command when that has ended: omac ends."""
    script = "setsid sleep 600 & sleep 0.2; kill -STOP $!; echo rea''dy; sleep 600"
    terminal.type(f"{terminal.start} --backend bubblewrap -- sh -c {shlex.quote(script)}; echo status $?\n")
    terminal.see("ready")
    terminal.type("\x1a")
    terminal.see("Stopped")
    (start,) = Path(f"/proc/{terminal.shell.pid}/task/{terminal.shell.pid}/children").read_text().split()
    for number in (signal.SIGTERM, signal.SIGCONT):
        os.kill(int(start), number)
    eventually(lambda: not [pid for pid in omac.left() if pid != terminal.shell.pid], 10.0, "all of it to be gone")


STOPPED = (
    pytest.param("--no-sandbox", "$$", marks=pytest.mark.full),
    pytest.param("--backend bubblewrap", "$$", marks=pytest.mark.full),
    ("--backend bubblewrap", "0"),
    ("--backend landlock", "$$"),
)


@pytest.mark.parametrize(("how", "whom"), STOPPED)
def test_a_command_that_stops_itself(omac: Omac, terminal: Terminal, how: str, whom: str) -> None:
    """A command may stop itself alone or, as editors do, its whole job: omac stops with it, so the shell gets its
    terminal back. All continue together."""
    script = f"kill -STOP {whom}; echo went on; exit 9"
    terminal.type(f"{terminal.start} {how} -- sh -c {shlex.quote(script)}\n")
    terminal.see("Stopped")
    terminal.type("fg; echo ended $?\n")
    terminal.see("went on")
    terminal.see("ended 9")


IGNORING = "trap '' TSTP; echo rea''dy; sleep 1; echo went on; exit 9"


@pytest.mark.full
@pytest.mark.parametrize("how", ["--no-sandbox", "--backend landlock"])
def test_a_command_that_ignores_the_key_that_suspends(how: str, omac: Omac, terminal: Terminal) -> None:
    """A ^Z that the command ignores stops omac no more than the command, which has the terminal."""
    terminal.type(f"{terminal.start} {how} -- sh -c {shlex.quote(IGNORING)}; echo ended $?\n")
    terminal.see("ready")
    terminal.type("\x1a")
    shown = terminal.see("ended 9")
    assert "went on" in shown
    assert "Stopped" not in shown


EARLY_KEY = """\
import os, signal
from omac.tools.compose.agent_launch import AgentLaunch
start = AgentLaunch.start
async def started(*words):
    inner = await start(*words)
    os.kill(os.getpid(), signal.SIGTSTP)
    return inner
AgentLaunch.start = started
from omac.tools.entry import main; main()
"""
LATE_KEY = """\
import os, signal
from omac.tools.compose.agent_process import Inner
def pressed(inner):
    os.waitid(os.P_PID, inner._child.pid, os.WEXITED | os.WNOWAIT)
    os.kill(os.getpid(), signal.SIGTSTP)
Inner._stop_if_it_has = pressed
from omac.tools.entry import main; main()
"""


@pytest.mark.parametrize(
    ("how", "when"), [("--no-sandbox", EARLY_KEY), ("--backend landlock", EARLY_KEY), ("--no-sandbox", LATE_KEY)]
)
def test_a_key_that_suspends_at_either_end(omac: Omac, terminal: Terminal, how: str, when: str) -> None:
    """A ^Z that reaches omac as soon as the command could ignore it, or as it ends, does not stop omac alone."""
    line = shlex.join((sys.executable, "-c", when, "start", *how.split(), "--", "sh", "-c", "exit 9"))
    terminal.type(f"{line}; echo ended $?\n")
    terminal.see("\nended 9")


@pytest.mark.full
def test_a_namespace_stops_whatever_ignores_the_key(omac: Omac, terminal: Terminal) -> None:
    """With bubblewrap, which ^Z stops, omac holds a command that ignores it until fg."""
    terminal.type(f"{terminal.start} --backend bubblewrap -- sh -c {shlex.quote(IGNORING)}\n")
    terminal.see("ready")
    terminal.type("\x1a")
    terminal.see("Stopped")
    terminal.see("\n$ ")
    terminal.type("sleep 1.5; echo still $((40 + 2))\n")
    assert "\nwent on" not in terminal.see("\nstill 42")
    terminal.type("fg; echo ended $?\n")
    terminal.see("went on")
    terminal.see("ended 9")


@pytest.mark.parametrize("how", ["--backend bubblewrap", "--backend landlock"])
def test_a_killed_omac_leaves_the_shell_its_terminal(omac: Omac, terminal: Terminal, how: str) -> None:
    """A kill -9 of `omac start -- bash` ends the inner shell, which ignores SIGTERM. The outer shell keeps its
    terminal, then and later."""
    terminal.type(f"{terminal.start} {how} -- bash --norc --noediting -i\n")
    terminal.type("echo inside $((20 + 3))\n")
    terminal.see("inside 23")
    (start,) = Path(f"/proc/{terminal.shell.pid}/task/{terminal.shell.pid}/children").read_text().split()
    os.kill(int(start), signal.SIGKILL)
    terminal.see("Killed")
    eventually(lambda: not [pid for pid in omac.left() if pid != terminal.shell.pid], 20.0, "all of it to be gone")
    for number in range(3):
        terminal.type(f"echo outer $(({number} + 1))\n")
        terminal.see(f"outer {number + 1}")


def test_a_killed_omac_leaves_the_terminal_to_a_late_shell(omac: Omac, terminal: Terminal) -> None:
    """After a kill -9 of `omac start -- bash`, no process takes the terminal before the outer shell does. Had one taken
    it just after, the shell would read an end of its input, and exit."""
    terminal.type(f"{terminal.start} -- bash --norc --noediting -i\n")
    terminal.type("echo inside $((20 + 3))\n")
    terminal.see("inside 23")
    (start,) = Path(f"/proc/{terminal.shell.pid}/task/{terminal.shell.pid}/children").read_text().split()
    terminal.shell.send_signal(signal.SIGSTOP)
    os.kill(int(start), signal.SIGKILL)
    gone = {terminal.shell.pid, int(start)}  # the shell has not waited for the latter yet
    eventually(lambda: not [pid for pid in omac.left() if pid not in gone], 10.0, "all of it to be gone")
    assert os.tcgetpgrp(terminal.screen) != int(start)
    terminal.shell.send_signal(signal.SIGCONT)
    terminal.type("echo outer $((1 + 1))\n")
    terminal.see("outer 2")


@pytest.mark.parametrize(
    "how", [pytest.param("--no-sandbox", marks=pytest.mark.full), "--backend bubblewrap", "--backend landlock"]
)
def test_a_shell_with_jobs_of_its_own(omac: Omac, terminal: Terminal, how: str) -> None:
    """Ctrl-C in `omac start -- bash` ends the job of the inner shell and not the shell. `exit` ends omac, and the outer
    shell reads on."""
    terminal.type(f"{terminal.start} {how} -- bash --norc --noediting -i\n")
    terminal.type("echo inside $((20 + 3))\n")
    terminal.see("inside 23")
    terminal.type("sleep 600\n")
    eventually(lambda: any(_runs(pid, b"sleep\x00600") for pid in omac.left()), 20.0, "the job to begin")
    terminal.type("\x03")
    terminal.type("echo status $?\n")
    terminal.see("status 130")
    terminal.type("exit 6\n")
    terminal.type("echo outside $?\n")
    terminal.see("outside 6")


@pytest.mark.full
@pytest.mark.parametrize("how", ["--no-sandbox", "--backend bubblewrap", "--backend landlock"])
def test_a_suspended_shell(omac: Omac, terminal: Terminal, how: str) -> None:
    """`suspend` in `omac start -- bash` gives the outer shell its terminal, and after `fg` the inner one reads on."""
    terminal.type(f"{terminal.start} {how} -- bash --norc --noediting -i\n")
    terminal.type("echo inside $((20 + 3))\n")
    terminal.see("inside 23")
    for number in range(2):
        terminal.type("suspend\n")
        terminal.see("Stopped")
        terminal.type(f"echo outside $((40 + {number}))\n")
        terminal.see(f"outside {40 + number}")
        terminal.type("fg\n")
        terminal.type(f"echo again $((50 + {number}))\n")
        terminal.see(f"again {50 + number}")
    terminal.type("exit 6\n")
    terminal.type("echo ended $?\n")
    terminal.see("ended 6")


@pytest.mark.parametrize("how", ["--no-sandbox", "--backend bubblewrap"])
def test_the_modes_of_the_terminal(omac: Omac, terminal: Terminal, how: str) -> None:
    """A command that is killed while the terminal echoes nothing leaves it as it was, as without omac."""
    terminal.type(f"{terminal.start} {how} -- sh -c 'stty -echo; kill -9 $$'\n")
    terminal.type("echo; echo ended $?; stty -a | grep -o ' -*echo '; echo done $((40 + 2))\n")
    assert " echo \r\n" in terminal.see("done 42")


def _runs(pid: int, words: bytes) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(words)
    except OSError:
        return False
