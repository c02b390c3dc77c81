"""Commands that need the host's state refuse inside a sandbox, and leave no state behind."""

import sys
from pathlib import Path

import pytest
from command_walk import ALL, required
from real_omac import Omac
from real_sandbox import box

from omac.tools.cli.host_only import WORKS_INSIDE

INSIDE = {"OMAC_SANDBOX": "1"}
LAUNCHES = (("start",), ("serve",))
NEED_THE_HOST = [
    words for words in ALL if not any(words[: len(prefix)] == prefix for prefix in (*WORKS_INSIDE, *LAUNCHES))
]


@pytest.mark.parametrize("words", NEED_THE_HOST, ids=" ".join)
def test_a_command_that_needs_the_host_refuses(house: Omac, words: tuple[str, ...]) -> None:
    """A command that needs the host prints one line about that, exits with 7, and makes no file."""
    before = set(house.state.iterdir())
    done = house.run(*words, *required(ALL[words]), extra=INSIDE)
    assert (done.status, done.out) == (7, ""), done
    assert done.err.startswith(f"omac: omac {' '.join(words)} does not work inside a sandbox. Run it on the host, ")
    assert done.err.endswith(".\n")
    assert done.err.count("\n") == 1
    assert set(house.state.iterdir()) == before


@pytest.mark.parametrize("words", [("start", "--", "true"), ("serve", "--no-inner"), ("start", "nosuch")], ids=" ".join)
def test_nothing_is_launched_inside(house: Omac, words: tuple[str, ...]) -> None:
    """omac starts neither an agent nor a server inside a sandbox."""
    done = house.run(*words, extra=INSIDE)
    assert (done.status, done.out) == (7, "")
    assert "does not work inside a sandbox" in done.err


@pytest.mark.parametrize(
    "words", [("--help",), ("secrets", "set", "--help"), ("version",), ("hook", "role")], ids=" ".join
)
def test_what_needs_no_state_works_inside(house: Omac, words: tuple[str, ...]) -> None:
    """Help, the version and the guard's text for roles are printed inside a sandbox too."""
    done = house.run(*words, extra=INSIDE)
    assert (done.status, done.err) == (0, "")


def test_values_are_not_repeated(house: Omac) -> None:
    """A refusal does not repeat values of the command line, which may be secrets."""
    done = house.run("config", "set", "slack", "REGION", "hunter2", extra=INSIDE)
    assert done.status == 7
    assert "hunter2" not in done.err


def test_a_sandbox_in_a_sandbox_names_what_runs(house: Omac, tmp_path: Path) -> None:
    """A sandbox that cannot be had inside another proposes the program as it is, and nothing that mends the host."""
    (tmp_path / "file").write_text("")
    inside = {**INSIDE, "XDG_CACHE_HOME": str(tmp_path / "file")}
    line = ("sandbox", "run", "--workdir", str(house.project("plain")), "--", "echo", "a b")
    done = house.run(*line, extra=inside)
    *_, tried = [line for line in done.err.splitlines() if line.startswith("  try: ")]
    assert (done.status, tried) == (7, "  try: echo 'a b'  # as it is: the sandbox around it confines it already"), done
    assert "try: ls" not in done.err


def test_in_a_real_sandbox() -> None:
    """A real sandbox sets the variable, so an approval inside is refused and the host's journal has none."""
    with box() as world:
        skill = world.workdir / ".agents" / "skills" / "s"
        world.give(skill / "omac.yaml", "name: s\nsidecar: {command: [python3, s.py], mount: s}\n")
        package = str(Path(__file__).parents[2] / "src")
        begin = f"import sys; sys.path[:0] = {sys.path!r}; from omac.tools.entry import main; main()"
        readable = tuple(word for path in {package, sys.prefix} for word in ("--read", path))
        done = world.run(sys.executable, "-c", begin, "approve", "s", options=readable)
        assert done.status == 7, done
        assert "omac approve does not work inside a sandbox" in done.err
        listed = world.host(*world.omac("approvals"))
        assert (listed.status, listed.out) == (0, "")
