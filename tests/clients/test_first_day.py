"""A first day with omac, typed as in README, in a terminal of 80 columns; docs/first-day.md has the person's view.

`pytest --write tests/clients/test_first_day.py::test_a_first_day` writes that page again.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from clients import seen
from clients.agents import CLAUDE_MODEL, Agent, claude, codex, opencode
from clients.installation import NotInstalled, installed
from clients.loopback import NoNamespace, loopback_only
from clients.person import Person, Seen, person, too_wide
from nested_worktree import GIT, PLAIN

pytestmark = pytest.mark.full

CHECKOUT = Path(__file__).parents[2]
README = (CHECKOUT / "README.md").read_text()
PAGE = CHECKOUT / "docs" / "first-day.md"
SECRET, PASSPHRASE = "open-sesame", "a long passphrase"
GREETING = f"hello, with a secret of {len(SECRET)} characters"
STEPS = [{"sh": 'curl -sS "$OMAC_HELLO_BASE/hello"'}, {"text": f"The hello skill answers: {GREETING}"}]
OPENS = ("value (not shown): ", PASSPHRASE)
HEAD = """\
# A first day

What a person types who follows [README.md](../README.md), and sees, in a terminal of 80 columns. A test types it and
fails when omac shows something else (`tests/clients/test_first_day.py`), with the real agents and a scripted model.
Times, hashes, tokens and the like are shown as `<time>`, `<hash>` and so on; `...` stands for what an agent prints
of its own, and for what depends on the machine.
"""


@pytest.fixture(autouse=True)
def bounded() -> None:
    """Bound each command instead of the whole test (COMMAND_WITHIN_S)."""


class Machine(NamedTuple):
    """A person's machine without anything of omac's yet. `record` has the requests to the model."""

    home: Path
    project: Path
    environment: dict[str, str]
    within: tuple[str, ...]
    record: Path
    missing: dict[str, str]  # clients that cannot be installed, and why

    def results(self) -> list[str]:
        """Return the results of tools in the conversation that was begun last."""
        requests = [json.loads(line) for line in self.record.read_text().splitlines()]
        return seen.results(requests)


class Page:
    """The transcript: explanations, and blocks of commands and their output."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.parts: list[str] = []

    def say(self, text: str) -> None:
        """Add an explanation between blocks."""
        self.parts.append(text)

    def show(self, made: Seen, lines: Sequence[str] | None = None) -> None:
        """Add a command and its output, or the part of it that is to be printed."""
        block = [f"$ {made.command}", *(made.lines if lines is None else lines)]
        self.parts.append("\n".join(f"    {self._masked(line)}".rstrip() for line in block))

    def text(self) -> str:
        """Return the whole page."""
        return "\n\n".join([HEAD.rstrip(), *self.parts]) + "\n"

    def _masked(self, line: str) -> str:
        for path, name in ((self._machine.home, "/home/me"), (CHECKOUT, "/home/me/omac")):
            line = line.replace(str(path), name)
        for pattern, name in MASKS:
            line = pattern.sub(name, line)
        return line


MASKS = [
    (re.compile(pattern), name)
    for pattern, name in (
        (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?", "<time>"),
        (r"sha256:[0-9a-f]{64}", "sha256:<hash>"),
        (r"hmac:[0-9a-f]{16}", "hmac:<fingerprint>"),
        (r"^(\[ok\] [a-z]+:) .*", r"\1 ..."),
        (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<session>"),
        (r"\bses_[0-9A-Za-z]+", "<session>"),
        (r"\bpid \d+", "pid <pid>"),
        (r"127\.0\.0\.1:\d+/[0-9a-f]{32}", "127.0.0.1:<port>/<token>"),
        (r"(?<=port[ =])\d+", "<port>"),
        # with the programs that run it, where it is a script
        (r"[^\s\"\[]+/(?:bin|shims)/python3[^\s\",]*(?:, /usr/bin/\w+)*", "<python3>"),
        (r"\[\d\d/\w{3}/\d{4} \d\d:\d\d:\d\d\]", "[<time>]"),
        (r"^ +\d+(?=  <time>)", "<position>"),
    )
]


@contextmanager
def machine() -> Iterator[Machine]:
    """Yield a machine of which nothing is left afterwards. Raises NoNamespace."""
    folder = Path(tempfile.mkdtemp(prefix="clients-", dir="/var/tmp"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        within = stack.enter_context(loopback_only())
        record, steps = folder / "model.jsonl", folder / "steps.json"
        steps.write_text(json.dumps(STEPS))
        line = [*within, sys.executable, "-m", "clients.model.server", str(record), str(steps)]
        model = stack.enter_context(subprocess.Popen(line, stdout=subprocess.PIPE, text=True, cwd=CHECKOUT / "tests"))
        stack.callback(model.kill)
        assert model.stdout is not None
        base = f"http://127.0.0.1:{model.stdout.readline().strip()}"
        yield _furnished(folder, [agent_of(base) for agent_of in (claude, codex, opencode)], within, record)


def _furnished(folder: Path, agents: Sequence[Agent], within: tuple[str, ...], record: Path) -> Machine:
    home, project = folder / "home", folder / "home" / "shop"
    project.mkdir(parents=True)
    paths, environment, missing = [str(home / ".local" / "bin")], dict[str, str](), dict[str, str]()
    for agent in agents:
        try:
            paths.append(str(installed(agent.client)))
        except NotInstalled as problem:
            missing[agent.client.name] = str(problem)
        environment |= agent.environment
        for name, text in agent.files.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(text)
    (home / ".gitconfig").write_text("[user]\n\tname = A\n\temail = a@example.org\n")
    subprocess.run([*GIT, "init", "-q", str(project)], env=PLAIN, check=True)
    cache = subprocess.run(["uv", "cache", "dir"], capture_output=True, text=True, check=True).stdout.strip()
    tests_bin = str(Path(sys.executable).parent)
    paths += [path for path in os.environ["PATH"].split(os.pathsep) if path != tests_bin]
    environment |= {"PATH": os.pathsep.join(paths), "LANG": "C.UTF-8", "TZ": "UTC", "HOME": str(home)}
    environment |= {"ANTHROPIC_MODEL": CLAUDE_MODEL}
    environment |= {"UV_CACHE_DIR": cache, "UV_PYTHON_DOWNLOADS": "never", "UV_PYTHON": sys.executable}
    return Machine(home, project, environment, within, record, missing)


class Day:
    """The day: each command is one of README's, each line of omac's output fits, and each exit status is right."""

    def __init__(self, machine: Machine, typing: Person, page: Page) -> None:
        self.machine = machine
        self.page = page
        self._person = typing

    def type(
        self, command: str, *answers: tuple[str, str], status: int = 0, shows: Sequence[str] = (),
        printed: Callable[[list[str]], list[str]] | None = None, wide: bool = False,
    ) -> Seen:  # fmt: skip
        """Type a command; `shows` has to be in its output, and `printed` makes the page's lines of it. `wide`: the
        lines may be wider than the terminal, since another program wrote them."""
        assert command in README, f"README does not say to type this: {command}"
        made = self._person.type(command, *answers)
        whole = "\n".join(made.lines)
        assert made.status == status, whole
        for text in shows:
            assert " ".join(text.split()) in " ".join(whole.split()), (text, whole)
        lines = made.lines if printed is None else printed(made.lines)
        assert wide or too_wide(lines) == [], whole
        self.page.show(made, lines)
        return made


def _facade(lines: list[str]) -> list[str]:
    """Shorten the facade's answer, which is one line of JSON."""
    return [re.sub(r'^({"error":"[a-z-]+","skill":"[a-z]+",).*', r"\1 ...", line) for line in lines]


def _only(*texts: str) -> Callable[[list[str]], list[str]]:
    """Return a function that prints the lines with one of the texts, and dots for the others."""

    def printed(lines: list[str]) -> list[str]:
        page_lines: list[str] = []
        for line in lines:
            is_kept = any(text in line for text in texts)
            if is_kept or page_lines[-1:] != ["..."]:
                page_lines.append(line if is_kept else "...")
        return page_lines

    return printed


def _to_the_network() -> dict[str, str]:
    """Return the variables by which this machine's programs reach the registry."""
    pattern = re.compile(r"UV_|PIP_|SSL_|.*_proxy$", re.IGNORECASE)
    return {name: value for name, value in os.environ.items() if pattern.match(name)}


def install(machine: Machine, page: Page) -> None:
    """Install omac from the checkout, where there is a network."""
    page.say("## Install\n\nIn a checkout of omac:")
    with person((), _to_the_network() | machine.environment, CHECKOUT) as typing:
        day = Day(machine, typing, page)
        day.type("uv tool install .", shows=["Installed 1 executable: omac"], printed=_only("Installed 1 exec"))
        day.type(
            "omac doctor", shows=["[ok] bubblewrap"], printed=_only("[ok] own files", "[ok] bubblewrap", "[ok] git")
        )
    program = machine.home / ".local" / "bin" / "omac"
    assert machine.home in program.resolve().parents


TRUSTED = ("Approve it?", "y")
AGENTS = (
    ("claude", "Claude Code", '-p "Say hello with the hello skill" --allowedTools Bash'),
    ("codex", "Codex", 'exec "Say hello with the hello skill"'),
    ("opencode", "OpenCode", 'run "Say hello with the hello skill"'),
)
CALL = "omac start -- sh -c 'curl -s $OMAC_HELLO_BASE/hello'"
UNLOCK = ("value (not shown)", PASSPHRASE)


def begin_a_skill(day: Day) -> None:
    """Write a skill, approve it, and give it its secret."""
    day.page.say("## A skill of one's own\n\nIn a project, which is a git repository:")
    day.type("omac", shows=["omac skill new hello"])
    day.type("omac skill new hello --secret HELLO_TOKEN", shows=["next: omac trust"])
    day.page.say("This machine has no keychain, so secrets go into a vault. What is typed is not shown.")
    day.type("omac vault init", UNLOCK, UNLOCK)
    made = day.type(
        "omac trust", TRUSTED, UNLOCK, ("value (not shown)", SECRET), shows=["1 approved", "next: omac start"]
    )
    assert SECRET not in "".join(made.lines)
    day.type("omac", shows=["hello approved", "next omac start "])


def call_it(day: Day) -> None:
    """Call the skill from each agent, and from a shell in an agent's place."""
    day.page.say("## Agents call it\n\nEach agent runs in a sandbox, and finds the skill by what omac tells it.")
    for name, called, words in AGENTS:
        if name in day.machine.missing:
            continue
        made = day.type(
            f"omac start {name} -- {words}",
            UNLOCK,
            shows=[GREETING],
            printed=_only(GREETING, "omac", "passphrase", "value (not", "Enter goes"),
        )
        assert GREETING in "".join(day.machine.results()), (called, made)
    day.type(CALL, UNLOCK, shows=[GREETING])


def look_at_it(day: Day) -> None:
    """Show the skill's log and its record."""
    day.page.say("## What happened")
    day.type("omac logs hello", shows=["/hello"], wide=True)
    made = day.type("omac audit --skill hello")
    for name, _, _ in AGENTS:
        assert name in day.machine.missing or f"for {name}" in " ".join(" ".join(made.lines).split())


def change_it(day: Day) -> None:
    """Change the skill: it stops, shows its difference, runs again once approved, and stops when revoked."""
    day.page.say("## The skill changes")
    day.type('echo "# a change" >> .agents/skills/hello/sidecar.py')
    day.type(CALL, UNLOCK, shows=["skill-broken"], printed=_facade)
    day.type("omac diff hello", status=1, shows=["+# a change"])
    day.type("omac trust", TRUSTED, shows=["+# a change", "1 approved"])
    day.type(CALL, UNLOCK, shows=[GREETING])
    day.page.say("## It is stopped")
    day.type("omac revoke hello")
    day.type(CALL, shows=["skill-broken"], printed=_facade)
    day.type("omac", shows=["next omac trust"])


def test_pipx_installs_the_same(tmp_path: Path) -> None:
    """pipx, as in README, installs a program that runs by itself, with manual page, schema and example."""
    assert "pipx install ." in README
    folders = {f"PIPX_{name}": str(tmp_path / name) for name in ("HOME", "BIN_DIR", "MAN_DIR")}
    environment = {**os.environ, **folders, "UV_PYTHON_DOWNLOADS": "never"}
    pipx = ["uv", "tool", "run", "--quiet", "pipx"]
    if subprocess.run([*pipx, "--version"], env=environment, capture_output=True).returncode:
        pytest.skip("pipx cannot be had")
    done = subprocess.run([*pipx, "install", "."], env=environment, cwd=CHECKOUT, capture_output=True, text=True)
    assert done.returncode == 0, done
    assert (tmp_path / "MAN_DIR" / "man1" / "omac.1").exists()
    plain = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": "/nowhere"}
    for words in (["version"], ["skill", "schema"], ["skill", "schema", "--example"]):
        ran = subprocess.run([tmp_path / "BIN_DIR" / "omac", *words], env=plain, capture_output=True, text=True)
        assert (ran.returncode, ran.stderr) == (0, ""), ran
        assert ran.stdout


def test_a_first_day(pytestconfig: pytest.Config) -> None:
    """Every step of README works, and docs/first-day.md is the transcript of the day."""
    try:
        with machine() as computer:
            page = Page(computer)
            install(computer, page)
            with person(computer.within, computer.environment, computer.project) as typing:
                day = Day(computer, typing, page)
                for part in (begin_a_skill, call_it, look_at_it, change_it):
                    part(day)
    except NoNamespace as problem:
        pytest.skip(str(problem))
    if computer.missing:
        pytest.skip("; ".join(computer.missing.values()))
    if pytestconfig.getoption("--write"):
        PAGE.write_text(page.text())
    assert page.text() == PAGE.read_text(), "docs/first-day.md shows another day: pytest --write writes this one"
