"""`omac continue` and `omac resume`: the agent that ran last in a project, with the agent's own words."""

from pathlib import Path

import pytest
from real_omac import Omac
from started import BARE
from tiers import some

CALLS = {
    "claude": ("--continue", "--resume 0b3c", "--resume"),
    "codex": ("resume --last", "resume 0b3c", "resume"),
    "opencode": ("--continue", "--session 0b3c", None),
    "pi": ("--continue", "--session 0b3c", "--resume"),
}


@pytest.fixture
def shop(omac: Omac) -> Path:
    """A project, and programs on PATH with the names of agents, which show how they were called."""
    folder = omac.folder / "bin"
    folder.mkdir()
    omac.environment["PATH"] = f"{folder}:{omac.environment['PATH']}"
    for name in (*CALLS, "copilot"):
        program = folder / name
        program.write_text('#!/bin/sh\necho "${0##*/} $@"\n')
        program.chmod(0o755)
    return omac.project("shop")


@pytest.mark.parametrize("name", some(CALLS, of=4))
@pytest.mark.full
def test_each_goes_on_in_its_own_words(omac: Omac, shop: Path, name: str) -> None:
    """The last session, a session by its id, or a list to choose from; further words follow."""
    last, named, chosen = CALLS[name]
    assert omac.run(*BARE, name, cwd=shop).status == 0
    assert omac.run(*BARE, "--", "true", cwd=shop).status == 0  # no agent: it counts for nothing

    def tail(*words: str) -> str:
        return omac.process(*words, "--no-sandbox", cwd=shop).out.strip()

    assert tail("continue").startswith(f"{name} ")
    assert tail("continue").endswith(f" {last}")
    assert tail("continue", "-s", "0b3c").endswith(f" {named}")
    more = omac.process("continue", "--no-sandbox", "--", "-x", "y", cwd=shop)
    assert more.out.strip().endswith(f" {last} -x y")
    if chosen:
        assert tail("resume").endswith(f" {chosen}")
    else:
        done = omac.process("resume", cwd=shop)
        assert (done.status, done.out) == (2, "")
        assert f"omac knows no arguments by which {name} chooses sessions from a list" in done.err
        assert "  try: omac continue\n" in done.err


@pytest.mark.full
def test_the_project_decides_which_agent(omac: Omac, shop: Path) -> None:
    """The last one there, from a folder below too; what ran elsewhere is no matter."""
    other = omac.project("other")
    for project, name in ((shop, "codex"), (shop, "claude"), (other, "codex")):
        assert omac.run(*BARE, "--workdir", str(project), name).status == 0
    assert omac.process("continue", "--no-sandbox", cwd=shop).out.startswith("claude ")
    assert omac.process("continue", "--no-sandbox", "--workdir", str(other)).out.startswith("codex ")


@pytest.mark.full
def test_without_an_agent_it_says_so(omac: Omac, shop: Path) -> None:
    """Before anything was recorded, and where only commands ran; nor for an agent that omac cannot continue."""
    for command in ("continue", "resume"):
        done = omac.process(command, cwd=shop)
        assert (done.status, done.out) == (2, "")
        assert f"omac has started no agent in {shop} yet, so there is no session to {command}" in done.err
        assert "  try: omac start opencode\n" in done.err
    assert not (omac.state / "journal.db").exists()
    assert omac.run(*BARE, "--", "true", cwd=shop).status == 0
    assert omac.process("continue", cwd=shop).status == 2
    assert omac.run(*BARE, "copilot", cwd=shop).status == 0
    done = omac.process("continue", cwd=shop)
    assert "omac knows no arguments by which copilot goes on with a session" in done.err
    done = omac.process("continue", "-s", "--yolo", cwd=shop)
    assert done.status == 2
