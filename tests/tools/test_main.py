"""tools/main.py as a function: a call sees its own arguments, and nothing of the process or of another call."""

import ast
import errno
import io
import json
import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
import trio

import omac.tools
from omac.domain.kernel.refusal import Refusal
from omac.tools.entry import NO_MEMORY
from omac.tools.main import main

TOOLS = Path(omac.tools.__path__[0])
# The invocation itself, and what runs before anything is loaded or becomes another program.
OF_THE_PROCESS = {
    "entry.py",
    "invocation.py",
    "guard_hook.py",
    "session_hook.py",
    "sandbox_run.py",
    "standard_streams.py",
}


class Unusable(io.TextIOBase):
    """A stream of the process that fails each test that writes to it."""

    def write(self, text: str) -> int:
        raise AssertionError(f"written to the process's own stream: {text!r}")


def called(environment: Mapping[str, str], *words: str, stdin: str = "") -> tuple[int, str, str]:
    """Return exit code, stdout and stderr of one call."""
    out, err = io.StringIO(), io.StringIO()
    status = main(words, environment, io.TextIOWrapper(io.BytesIO(stdin.encode())), out, err)
    return status, out.getvalue(), err.getvalue()


def house(folder: Path) -> dict[str, str]:
    """Return the environment of a user whose home is the new `folder`."""
    folder.mkdir(mode=0o700)
    return {"HOME": str(folder), "PATH": os.environ["PATH"]}


@pytest.fixture
def _unusable_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Point the process's own environment elsewhere, and replace its streams by unusable ones."""
    for name in ("HOME", "OMAC_STATE_DIR", "OMAC_JOURNAL", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "nobody"))
    for stream in ("stdout", "stderr", "stdin"):
        monkeypatch.setattr(sys, stream, Unusable())


@pytest.mark.usefixtures("_unusable_process")
def test_a_call_uses_what_it_is_given(tmp_path: Path) -> None:
    """A call uses the environment, home folder and streams of its caller, not those of the process."""
    person = house(tmp_path / "one")
    assert called(person, "journal", "path") == (0, f"{tmp_path}/one/.local/state/omac/journal.db\n", "")
    status, _, err = called(person, "settings", "set", "secrets.store", "vault")
    assert (status, err) == (0, "a running server keeps the settings it started with\n")
    status, out, _ = called(person, "settings", "show", "--json")
    (store,) = [row for row in map(json.loads, out.splitlines()) if row["name"] == "secrets.store"]
    assert (status, store["value"]) == (0, "vault")
    assert not (tmp_path / "nobody").exists()


@pytest.mark.usefixtures("_unusable_process")
def test_every_way_to_end_is_a_code(tmp_path: Path) -> None:
    """Help, a wrong word, a refusal and a usage error are printed to the caller's streams and returned as codes."""
    person = house(tmp_path / "one")
    status, out, err = called(person, "status", "--help")
    assert (status, err) == (0, "")
    assert out.startswith("Usage: omac status")
    for words, expected, begins in (
        (("nosuch",), 2, "Usage: omac"),
        (("status", "--nosuch"), 2, "Usage: omac status"),
        (("approve",), 2, "Usage: omac approve"),
        (("audit",), 5, "omac: no journal exists at "),
        (("audit", "--outcome", "odd"), 2, "omac: --outcome takes "),
    ):
        status, out, err = called(person, *words)
        assert (status, out) == (expected, ""), words
        assert err.startswith(begins), words


@pytest.mark.usefixtures("_unusable_process")
def test_a_standard_input_is_the_callers(tmp_path: Path) -> None:
    """A value is read from the caller's stream; omac asks no terminal of the process."""
    person = house(tmp_path / "one")
    skill = tmp_path / "project" / ".agents" / "skills" / "s"
    skill.mkdir(parents=True)
    (skill / "omac.yaml").write_text(
        "name: s\nsidecar:\n  command: [python3, s.py]\n  mount: s\n  config:\n    - {name: REGION, required: true}\n"
    )
    where = ("--workdir", str(tmp_path / "project"))
    assert called(person, "config", "set", "s", "REGION", "-", *where, stdin="eu\n")[0] == 0
    assert called(person, "config", "get", "s", "REGION", *where)[:2] == (0, "eu\n")
    status, _, err = called(person, "config", "set", "s", "REGION", *where)
    assert status != 0, err


@pytest.mark.usefixtures("_unusable_process")
def test_two_calls_at_once_do_not_see_each_other(tmp_path: Path) -> None:
    """Calls in two threads, each with a user's own environment, answer for that user."""
    people = [house(tmp_path / name) for name in ("one", "two")]
    answers: list[list[tuple[int, str, str]]] = [[], []]

    def person(number: int) -> None:
        for _ in range(20):
            answers[number].append(called(people[number], "journal", "path"))

    threads = [threading.Thread(target=person, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, name in enumerate(("one", "two")):
        assert set(answers[number]) == {(0, f"{tmp_path}/{name}/.local/state/omac/journal.db\n", "")}


def test_no_command_reaches_for_the_process() -> None:
    """No module of a command names the process's environment or streams, ends it, or prints past its caller."""
    offenders = [
        f"{path.relative_to(TOOLS)}:{node.lineno}"
        for path in sorted(TOOLS.rglob("*.py"))
        if path.name not in OF_THE_PROCESS
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.expr) and _reaches_for_the_process(node)
    ]
    assert offenders == []


def _reaches_for_the_process(node: ast.expr) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id="os"), attr="environ" | "environb" | "getenv"):
            return True
        case ast.Attribute(value=ast.Name(id="sys"), attr="stdin" | "stdout" | "stderr" | "exit"):
            return True
        case ast.Attribute(value=ast.Attribute(value=ast.Name(id="os"), attr="path"), attr="expanduser"):
            return True
        case ast.Call(func=ast.Name(id="print"), keywords=keywords):
            return not any(keyword.arg == "file" for keyword in keywords)
        case _:
            return False


def test_an_interrupt_within_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in one of several tasks, such as those of an ingestion, ends a command as it does elsewhere."""

    async def interrupted() -> None:
        signal.raise_signal(signal.SIGINT)

    async def tasks() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(interrupted)

    monkeypatch.setattr("omac.tools.main._run", lambda _: trio.run(tasks))
    assert called(house(tmp_path / "a"), "status") == (130, "", "")


def test_a_limit_is_no_defect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of the system that omac reaches is reported as what it is."""

    def fail(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), "/proc/1/stat")

    monkeypatch.setattr("omac.tools.cli.settings.show", fail)
    status, out, err = called(house(tmp_path / "a"), "settings", "show")
    assert (status, out) == (5, "")
    assert err == (
        "omac: the system refused what omac needs: /proc/1/stat: Too many open files\n"
        "  try: ulimit -n 4096  # how many files a process may have open, in this shell; then the same command again\n"
    )


def test_the_cause_is_reported_and_not_what_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several failures at once, a refusal that says that omac is stopping is not the one that stopped it."""

    def fail(*_: object) -> int:
        raise ExceptionGroup("", [Refusal("stopping", "omac is stopping"), ExceptionGroup("", [MemoryError()])])

    monkeypatch.setattr("omac.tools.cli.settings.show", fail)
    status, _, err = called(house(tmp_path / "a"), "settings", "show")
    assert (status, err) == (5, f"omac: {NO_MEMORY}\n")


def test_a_defect_is_told_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected error is reported in a sentence; its trace is in a private file. Several refusals at once are
    reported as one."""

    def fail(*_: object) -> int:
        raise ZeroDivisionError("hunter2")

    monkeypatch.setattr("omac.tools.cli.settings.show", fail)
    status, out, err = called(house(tmp_path / "a"), "settings", "show")
    assert (status, out) == (1, "")
    assert err.startswith("omac: failed unexpectedly (ZeroDivisionError): this is a defect of omac\n  try: less /")
    assert "hunter2" not in err
    trace = Path(err.split("less ")[1].split()[0])
    assert "ZeroDivisionError: hunter2" in trace.read_text()
    assert trace.stat().st_mode & 0o077 == 0
    trace.unlink()
    monkeypatch.setattr("omac.tools.terminal.carrying_out._OWN", (1, 2, 3))
    status, _, err = called(house(tmp_path / "c"), "settings", "show")
    assert (status, "it was installed again while this command ran" in err, "defect" in err) == (4, True, False)
    monkeypatch.undo()

    def refuse(*_: object) -> int:
        raise ExceptionGroup("", [ExceptionGroup("", [Refusal("misuse", "one")]), Refusal("misuse", "two")])

    monkeypatch.setattr("omac.tools.cli.settings.show", refuse)
    assert called(house(tmp_path / "b"), "settings", "show") == (2, "", "omac: one\n")
