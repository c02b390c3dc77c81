"""`omac continue` and `omac resume`: the agent that ran last in a project, with the agent's own arguments."""

import json
from pathlib import Path

import pytest
from real_omac import Omac
from started import BARE
from tiers import some

from omac.domain.kernel.run import RunStarted

CALLS = {
    "claude": ("--continue", "--resume 0b3c", "--resume"),
    "codex": ("resume --last", "resume 0b3c", "resume"),
    "opencode": ("--continue", "--session 0b3c", None),
    "pi": ("--continue", "--session 0b3c", "--resume"),
}

COMMANDS = {"codex": ("exec", "e"), "opencode": ("run",)}


@pytest.fixture
def shop(omac: Omac) -> Path:
    """Return a project, and put programs named like agents on PATH, which print their arguments."""
    for name in (*CALLS, "copilot"):
        omac.program(name, '#!/bin/sh\necho "${0##*/} $@"\n')
    return omac.project("shop")


@pytest.mark.parametrize("name", some(CALLS, of=4))
@pytest.mark.full
def test_each_goes_on_in_its_own_words(omac: Omac, shop: Path, name: str) -> None:
    """Each agent gets its own arguments for the last session, a session by its id, or a list to choose from. Further
    words follow them."""
    last, by_id, chosen = CALLS[name]
    assert omac.run(*BARE, name, cwd=shop).status == 0
    assert omac.run(*BARE, "--", "true", cwd=shop).status == 0  # no agent: it counts for nothing

    def tail(*words: str) -> str:
        return omac.process(*words, "--no-sandbox", cwd=shop).out.strip()

    assert tail("continue").startswith(f"{name} ")
    assert tail("continue").endswith(f" {last}")
    assert tail("continue", "-s", "0b3c").endswith(f" {by_id}")
    more = omac.process("continue", "--no-sandbox", "--", "-x", "y", cwd=shop)
    assert more.out.strip().endswith(f" {last} -x y")
    for command in COMMANDS.get(name, ()):
        headless = omac.process("continue", "--no-sandbox", "--", command, "-x", "y", cwd=shop)
        assert headless.out.strip().endswith(f" {command} {last} -x y")
    if chosen:
        assert tail("resume").endswith(f" {chosen}")
    else:
        done = omac.process("resume", cwd=shop)
        assert (done.status, done.out) == (2, "")
        assert f"omac knows no arguments by which {name} chooses sessions from a list" in done.err
        assert "  try: omac continue\n" in done.err


@pytest.mark.parametrize(
    ("name", "unattended", "last", "by_id"),
    [("opencode", "run", "--continue", "--session 0b3c"), ("codex", "exec", "resume --last", "resume 0b3c")],
)
@pytest.mark.full
def test_one_prompt_without_a_terminal(
    omac: Omac, shop: Path, name: str, unattended: str, last: str, by_id: str
) -> None:
    """The arguments for a session come behind the agent's own command for one prompt, not ahead of it."""
    assert omac.run(*BARE, name, cwd=shop).status == 0
    for options, session in ((), last), (("-s", "0b3c"), by_id):
        done = omac.process("continue", *options, "--no-sandbox", "--", unattended, "go on", cwd=shop)
        assert done.out.strip().endswith(f" {unattended} {session} go on"), done


@pytest.mark.full
def test_the_options_of_a_start(omac: Omac, shop: Path) -> None:
    """Continue and resume take each option that omac start takes."""
    assert omac.run(*BARE, "claude", cwd=shop).status == 0
    for command, last in (("continue", "--continue"), ("resume", "--resume")):
        done = omac.process(command, "--no-sandbox", "--audit", "buffered", "--bridge-compat", cwd=shop)
        assert (done.status, done.out.strip().endswith(last)) == (0, True), done
        assert "WARNING: --bridge-compat" in done.err
    explained = json.loads(omac.ok("continue", "--explain", "--json", cwd=shop))
    assert explained["command"][-1] == "--continue"
    started = [recorded.event for recorded in omac.events(RunStarted)]
    audits = [event.policy.get("audit", "strict") for event in started if isinstance(event, RunStarted)]
    assert audits == ["strict", "buffered", "buffered"]


@pytest.mark.full
def test_the_project_decides_which_agent(omac: Omac, shop: Path) -> None:
    """The agent that ran last in the project is continued, also from --workdir and from a folder below the project;
    agents elsewhere do not count."""
    elsewhere = omac.project("other")
    for project, name in ((shop, "codex"), (shop, "claude"), (elsewhere, "codex")):
        assert omac.run(*BARE, "--workdir", str(project), name).status == 0
    assert omac.process("continue", "--no-sandbox", cwd=shop).out.startswith("claude ")
    assert omac.process("continue", "--no-sandbox", "--workdir", str(elsewhere)).out.startswith("codex ")
    below = elsewhere / "src" / "deep"
    below.mkdir(parents=True)
    assert omac.process("continue", "--no-sandbox", cwd=below).out.startswith("codex ")


@pytest.mark.full
def test_without_an_agent_it_says_so(omac: Omac, shop: Path) -> None:
    """`omac continue` and `omac resume` are refused before any agent ran, after mere commands, and for an agent that
    omac cannot continue."""
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
