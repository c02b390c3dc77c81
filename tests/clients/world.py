"""A person's machine with one client on it: a home, a repository with linked worktrees, a model, no network.

The machine is not below /tmp, where Codex refuses to have its home.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from clients.agents import Agent
from clients.installation import NotInstalled, installed
from clients.loopback import NoNamespace, loopback_only
from nested_worktree import git
from polling import eventually
from real_omac import COMMAND, ECHO_SKILL, Done, Omac, Serving, omac_in

TESTS = Path(__file__).parents[1]
RUN_WITHIN_S = 60.0
UNTIL_AT_WORK_S = 60.0
WORKTREES = ("one", "two")


class World:
    """A machine: `repo`, a repository whose commit has the echo skill, and its linked worktrees `one` and `two`.

    `agent` is the setup of the client; `within` is the command that runs another command without a network.
    """

    def __init__(self, omac: Omac, agent: Agent, within: tuple[str, ...], model: subprocess.Popen[str]) -> None:
        self.omac = omac
        self.agent = agent
        self.within = within
        self.model = model
        self.home = Path(omac.environment["HOME"])
        self.repo = omac.root / "repo"
        self.one, self.two = (omac.root / name for name in WORKTREES)
        self.record = omac.folder / "model.jsonl"
        omac.environment = {
            "PATH": os.pathsep.join((str(installed(agent.client)), os.environ["PATH"])),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "HOME": str(self.home),
            "OMAC_STATE_DIR": str(omac.state),
            **agent.environment,
        }

    def set_up(self) -> None:
        """Make the repository and the home."""
        for name, text in self.agent.files.items():
            (self.home / name).parent.mkdir(parents=True, exist_ok=True)
            (self.home / name).write_text(text)
        (self.home / ".gitconfig").write_text("[user]\n\tname = A\n\temail = a@example.org\n")
        shutil.copytree(ECHO_SKILL, self.repo / ".agents" / "skills" / "echo")
        self.git("init", "-q", cwd=self.repo)
        self.git("add", ".", cwd=self.repo)
        self.git("commit", "-q", "-m", "Begin", cwd=self.repo)
        for worktree in (self.one, self.two):
            self.git("worktree", "add", "-q", "-b", worktree.name, str(worktree), cwd=self.repo)
            self.omac.approve(worktree)

    git = staticmethod(git)  # outside any sandbox

    def start(self, words: Sequence[str], workdir: Path, *options: str) -> Done:
        """Run `omac start CLIENT -- WORDS` in a directory to its end."""
        return self.omac.process(
            *self._start(words, workdir, options), cwd=workdir, within=self.within, seconds=RUN_WITHIN_S
        )

    def alone(self, words: Sequence[str]) -> Done:
        """Run the client without omac, in a directory of its own."""
        folder = self.omac.folder / "alone"
        folder.mkdir()
        line = [*self.within, self.agent.client.name, *words]
        done = subprocess.run(
            line, env=self.omac.environment, cwd=folder, capture_output=True, text=True, timeout=RUN_WITHIN_S,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)

    def begin(self, words: Sequence[str], workdir: Path, *options: str) -> Serving:
        """Start the client as `start` does, and return while it runs."""
        return self.omac.start(*self._start(words, workdir, options), within=self.within)

    def line(self, words: Sequence[str], workdir: Path) -> list[str]:
        """Return the whole command line of `start`."""
        return [*self.within, *COMMAND, *self._start(words, workdir, ())]

    def _start(self, words: Sequence[str], workdir: Path, options: Sequence[str]) -> list[str]:
        name = self.agent.client.name
        return ["start", name, "--workdir", str(workdir), *self.agent.handed_on, *options, "--", *words]

    def await_in(self, run: Serving, condition: Callable[[], object], what: str) -> None:
        """Wait for a condition while the client runs; a failure reports how far the client came."""

        def holds() -> bool:
            if run.process.poll() is not None:
                pytest.fail(f"ended with {run.process.returncode} before {what}: {run.said()}")
            return bool(condition())

        try:
            eventually(holds, UNTIL_AT_WORK_S, what)
        except AssertionError as problem:
            requests = [(entry["path"], entry["status"]) for entry in self.requests()]
            programs = {pid: _program_of(pid) for pid in self.omac.left()}
            pytest.fail(f"{problem}; stderr: {run.said()!r}; model: {requests}; processes: {programs}")

    def requests(self) -> list[dict[str, Any]]:
        """Return all requests to the model's server so far."""
        if not self.record.exists():
            return []
        return [json.loads(line) for line in self.record.read_text().splitlines()]

    def refusals(self) -> list[dict[str, Any]]:
        """Return the requests that the model's server refused, other than for paths that it does not have."""
        return [entry for entry in self.requests() if entry["status"] not in (200, 404)]

    def of_client(self) -> list[int]:
        """Return the processes that run the client's own program, or node with a title of the client's name."""
        folder, name = str(installed(self.agent.client).parents[1]), self.agent.client.name
        return [pid for pid in self.omac.left() if folder in _program_of(pid) or _title_of(pid) == name]

    def check_journal(self) -> None:
        """Assert that the journal is whole."""
        done = self.omac.run("journal", "check")
        assert done.status == 0, done

    def check_nothing_is_left(self, seconds: float = 10.0) -> None:
        """Assert that all processes of this world end."""
        mark = str(self.omac.folder)
        expected = {self.model.pid}
        eventually(
            lambda: set(self.omac.left()) <= expected, seconds,
            f"the end of all that has {mark} in its command line or environment",
        )  # fmt: skip

    def kill(self, pid: int) -> None:
        """Kill a process of this world, if it still runs."""
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def end_model(self) -> None:
        """Kill the model's server."""
        self.model.send_signal(signal.SIGKILL)
        self.model.wait()


def _program_of(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""  # it ended


def _title_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


@contextmanager
def world(agent_of: Callable[[str], Agent]) -> Iterator[World]:
    """Yield a machine with this client; nothing of it is left afterwards. Raises NotInstalled, NoNamespace."""
    # Its name is without omac's, which tests look for in what a model saw.
    folder = Path(tempfile.mkdtemp(prefix="clients-", dir="/var/tmp"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        installed(agent_of("").client)
        within = stack.enter_context(loopback_only())
        omac = stack.enter_context(omac_in(folder))
        model = stack.enter_context(_model(within, omac.folder / "model.jsonl"))
        assert model.stdout is not None
        made = World(omac, agent_of(f"http://127.0.0.1:{model.stdout.readline().strip()}"), within, model)
        made.set_up()
        yield made


@contextmanager
def world_or_skip(agent_of: Callable[[str], Agent]) -> Iterator[World]:
    """Yield a machine with this client, or skip with the name of the missing thing, and the reason."""
    try:
        with world(agent_of) as made:
            yield made
    except (NotInstalled, NoNamespace) as problem:
        pytest.skip(str(problem))


@contextmanager
def _model(within: Sequence[str], record: Path) -> Iterator[subprocess.Popen[str]]:
    line = [*within, sys.executable, "-m", "clients.model.server", str(record)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, cwd=TESTS) as process:
        try:
            yield process
        finally:
            process.kill()
