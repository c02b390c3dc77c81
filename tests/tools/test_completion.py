"""Completions by the real shells, which write no file and start no program."""

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path

import pexpect
import pytest
from programs import omac_at, program_at
from real_omac import COMMAND, Omac

from omac.tools.main import complete

META = """\
name: slack
sidecar:
  command: [python3, sidecar.py]
  secrets: [{name: SLACK_TOKEN}, {name: SLACK_KEY}, {name: "$(touch pwned)"}]
  config: [{name: CHANNEL}]
"""
WITHIN_S = 20


@pytest.fixture(scope="module")
def project(house: Omac) -> Path:
    """Return a project with two skills, and folders whose names no shell should see."""
    project = house.root / "completed"
    house.skill(project, "slack", META, "pass")
    house.skill(project, "mail", "name: [", "")
    for name in ("$(touch pwned)", "`touch pwned`", "a b", "x;touch pwned", "new\nline"):
        (project / ".agents" / "skills" / name).mkdir()
        (project / ".agents" / "skills" / name / "SKILL.md").write_text("")
    return project


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a program that runs this omac."""
    folder = tmp_path_factory.mktemp("bin")
    omac_at(folder / "omac")
    return folder


def answers(house: Omac, project: Path, *words: str, shell: str = "bash") -> list[str]:
    """Return the completions that a shell gets for the words typed so far."""
    with contextlib.chdir(project):
        return list(complete(shell, list(words), house.environment))


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("tru",), ["trust"]),
        (("secrets", "s"), ["set"]),
        (("show", ""), ["mail", "slack"]),
        (("show", "sl"), ["slack"]),
        (("show", "slack", ""), []),
        (("deregister", "slack", ""), ["mail"]),
        (("secrets", "set", "slack", ""), ["SLACK_TOKEN", "SLACK_KEY"]),
        (("secrets", "unset", "slack", "SLACK_KEY", ""), ["SLACK_TOKEN"]),
        (("secrets", "set", "mail", ""), []),
        (("secrets", "set", "nosuch", ""), []),
        (("config", "set", "slack", ""), ["CHANNEL"]),
        (("start", "cl"), ["claude"]),
        (("start", "--harn"), []),
        (("start", "--workd"), ["--workdir"]),
        (("list", "--harness", "co"), ["codex", "copilot"]),
        (("sandbox", "run", "--netw"), ["--network"]),
        (("sandbox", "run", "--network", ""), ["host", "none"]),
        (("sandbox", "run", "--", "tr"), []),
        (("start", "--", "tr"), []),
        (("audit", "--skill", ""), ["mail", "slack"]),
        (("reload", "--restart", ""), ["mail", "slack"]),
        (("audit", "--actor", ""), ["person", "bridge", "agent", "omac"]),
        (("audit", "--client", "c"), ["claude", "codex", "copilot"]),
        (("audit", "--count-by", "s"), ["skill", "session", "status"]),
        (("audit", "--after", ""), ["start"]),
        (("export", "--format", "c"), ["csv", "cloudevents"]),
        (("key", "move", "--to", ""), ["vault", "keychain", "file"]),
        (("serve", "--audit", ""), ["strict", "buffered"]),
        (("help", "secrets", "se"), ["set"]),
        (("settings", "set", "serve.unapproved", ""), ["refuse", "allow"]),
        (("completion", ""), ["bash", "zsh", "fish"]),
        (("nosuch", ""), None),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_what_is_offered(house: Omac, project: Path, words: tuple[str, ...], offered: list[str] | None) -> None:
    """omac completes commands, options, and values of this project, and nothing behind --."""
    completions = answers(house, project, *words)
    assert completions == offered or (offered is None and "trust" in completions)


def test_a_run_that_ended_is_not_offered(house: Omac, project: Path) -> None:
    """omac completes a run whose folder is locked, and not one that has ended."""
    runs = Path(house.ok("journal", "path").strip()).parent / "run"
    for name in ("0123456789ab", "ba9876543210"):
        (runs / name).mkdir(parents=True)
        (runs / name / "lock").touch()
    with (runs / "ba9876543210" / "lock").open() as lock:
        flock(lock, LOCK_EX)
        assert answers(house, project, "stop", "") == ["ba9876543210"]
    assert answers(house, project, "stop", "") == []


def test_a_project_that_is_named(house: Omac, project: Path) -> None:
    """omac completes the skills of the project that --workdir names, or of the project around the current folder."""
    assert answers(house, house.root, "show", "--workdir", str(project), "sl") == ["slack"]
    assert answers(house, project / ".agents", "show", "sl") == ["slack"]


def test_what_values_are_is_said(house: Omac, project: Path) -> None:
    """Shells that show descriptions get one with each completion."""
    assert answers(house, project, "trus", shell="fish")[0].startswith("trust\tRead the skills of a project")
    assert answers(house, project, "trus", shell="zsh")[0].startswith("trust:Read the skills of a project")


def test_answering_writes_and_starts_nothing(house: Omac, project: Path, tmp_path: Path) -> None:
    """A completion opens no file for writing, runs no program, and makes no connection."""
    record = tmp_path / "calls"
    calls = "execve,connect,mkdir,mkdirat,rename,renameat2,unlink,unlinkat,openat,open,creat,truncate,link,symlink"
    line = ["strace", "-f", "-qq", "-o", str(record), "-e", f"trace={calls}"]
    fresh = {"HOME": str(tmp_path / "home"), "PYTHONDONTWRITEBYTECODE": "1"}
    fresh |= {"OMAC_STATE_DIR": str(tmp_path / "state"), "PATH": os.environ["PATH"]}
    for words in (
        ("secrets", "set", "slack", ""),
        ("sandbox", "run", "--", "touch", "x"),
        ("logs", ""),
        ("status", ""),
    ):
        done = subprocess.run(
            [*line, *COMMAND, "__complete", "bash", *words], env=fresh, cwd=project, capture_output=True, timeout=60
        )
        assert done.returncode == 0, done
        made = [text for text in record.read_text().splitlines() if "ENOENT" not in text]
        written = [text for text in made if re.search(r"O_WRONLY|O_RDWR|O_CREAT", text) and "/dev/null" not in text]
        syscalls = [text for text in made if not re.search(r"(openat|open)\(|\+\+\+|---", text)]
        assert written == []
        assert len(syscalls) == 1, syscalls  # its own execve
    assert sorted(os.listdir(tmp_path)) == ["calls"]


def shell_of(name: str) -> str:
    """Return the path of a shell, or skip the test by its name."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


@pytest.fixture
def surroundings(house: Omac, programs: Path) -> dict[str, str]:
    """Return the variables of a user at a shell."""
    path = os.pathsep.join((str(programs), house.environment["PATH"]))
    return house.environment | {"PATH": path, "TERM": "xterm", "PS1": "READY> "}


def test_an_unknown_shell(house: Omac) -> None:
    """`omac completion` of an unknown shell is a misuse, and the message suggests a shell that omac knows."""
    done = house.run("completion", "tcsh")
    assert (done.status, done.out) == (2, "")
    assert "try: omac completion bash" in done.err


INTERACTIVE = {
    "bash": ["--norc", "--noprofile", "-i"],
    "zsh": ["-f", "-i"],
}
LOAD = {
    "bash": 'source <(omac completion bash); echo LOADED""NOW',
    "zsh": 'autoload -U compinit; compinit -u -D; source <(omac completion zsh); echo LOADED""NOW',
}


@contextmanager
def shell_with(load: str, name: str, project: Path, surroundings: dict[str, str]) -> Iterator["pexpect.spawn[str]"]:
    """Open a terminal with a shell that has run `load`; it ends with the block."""
    shell = pexpect.spawn(
        shell_of(name), INTERACTIVE[name], env=surroundings, cwd=str(project), encoding="utf-8", timeout=WITHIN_S,
        dimensions=(40, 120),
    )  # fmt: skip
    try:
        shell.sendline(load)
        shell.expect_exact("LOADEDNOW")
        yield shell
    finally:
        shell.close(force=True)


@pytest.mark.full
@pytest.mark.parametrize("name", INTERACTIVE)
def test_a_person_presses_tab(project: Path, surroundings: dict[str, str], name: str) -> None:
    """A shell completes a name, lists several, and completes a file where omac offers nothing."""
    (project / "a-file-here").touch()
    with shell_with(LOAD[name], name, project, surroundings) as shell:
        shell.send("omac secrets set sl\t")
        shell.expect_exact("ack")
        shell.send("SLACK_T\t")
        shell.expect_exact("OKEN")
        shell.send("\x03")
        shell.send("omac show \t\t")
        shell.expect(r"mail\s+slack")
        shell.send("\x03")
        shell.send("omac activate a-fi\t")
        shell.expect("le-here")
    assert not list(project.rglob("pwned"))


@pytest.mark.full
def test_zsh_completes_at_the_first_tab(house: Omac, project: Path, surroundings: dict[str, str]) -> None:
    """Installed in a folder of $fpath, as the help says, the completions answer from the first Tab on."""
    (project / "_omac").write_text(house.run("completion", "zsh").out)
    load = 'fpath=($PWD $fpath); autoload -U compinit; compinit -u -D; echo LOADED""NOW'
    with shell_with(load, "zsh", project, surroundings) as shell:
        shell.send("omac secrets set sl\t")
        shell.expect_exact("ack")


@pytest.mark.full
@pytest.mark.parametrize("name", INTERACTIVE)
def test_no_program_of_the_project_is_run(project: Path, surroundings: dict[str, str], name: str) -> None:
    """A shell runs no program that an agent left in the project when a user completes a line with its path."""
    planted = program_at(project / "omac", "#!/bin/sh\ntouch pwned\n")
    with shell_with(LOAD[name], name, project, surroundings) as shell:
        shell.send("./omac show sl\t")
        shell.expect_exact("ack")
        planted.unlink()
    assert not list(project.rglob("pwned"))


def test_fish_runs_no_program_of_the_project(project: Path, surroundings: dict[str, str]) -> None:
    """fish runs no program of the project, although it completes a path by the name of its program."""
    planted = program_at(project / "omac", "#!/bin/sh\ntouch pwned\n")
    script = "omac completion fish | source; complete -C './omac show sl'"
    words = [shell_of("fish"), "--no-config", "-c", script]
    subprocess.run(words, env=surroundings, cwd=project, capture_output=True, timeout=WITHIN_S, check=True)
    planted.unlink()
    assert not list(project.rglob("pwned"))


@pytest.mark.full
def test_fish_asks_omac(project: Path, surroundings: dict[str, str]) -> None:
    """fish completes values with descriptions, and files where omac offers nothing."""
    fish = shell_of("fish")

    def completed(line: str) -> list[str]:
        script = f"omac completion fish | source; complete -C '{line}'"
        done = subprocess.run([fish, "--no-config", "-c", script], env=surroundings, cwd=project, capture_output=True,
                              text=True, timeout=WITHIN_S)  # fmt: skip
        assert done.returncode == 0, done
        return done.stdout.splitlines()

    assert completed("omac secrets set sl") == ["slack"]
    assert completed("omac show ") == ["mail", "slack"]
    assert completed("omac tru")[0].startswith("trust\tRead the skills")
    (project / "a-file-here").touch()
    assert "a-file-here" in completed("omac activate a-fi")[0]
    assert not list(project.rglob("pwned"))
