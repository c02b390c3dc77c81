"""`omac start --explain`: what it says is what a launch then shows, and nothing is left of it."""

import json
import shlex
from pathlib import Path

import pytest
from real_omac import Omac
from tiers import some

OF_THE_SHELL = {"_", "SHLVL", "OLDPWD", "PWD"}


@pytest.fixture
def shop(omac: Omac) -> Path:
    """A project with an approved skill, and programs with the names of agents, which show their arguments."""
    folder = omac.folder / "bin"
    folder.mkdir()
    omac.environment["PATH"] = f"{folder}:{omac.environment['PATH']}"
    for name in ("claude", "codex", "opencode", "pi"):
        program = folder / name
        program.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\" > arguments\nenv > variables\n")
        program.chmod(0o755)
    project = omac.project("shop")
    omac.approve(project)
    return project


def names(text: str) -> set[str]:
    """The names of the variables that env printed."""
    return {line.partition("=")[0] for line in text.splitlines() if "=" in line} - OF_THE_SHELL


@pytest.mark.full
def test_a_command_gets_what_was_said(omac: Omac, shop: Path) -> None:
    """Each variable by its name, none that was said to be dropped, and a value nowhere."""
    omac.environment |= {"FOO_KEY": "not-for-anybody", "BAR": "for-the-command"}
    words = ("start", "--workdir", str(shop), "--env", "BAR")
    said = json.loads(omac.ok(*words, "--explain", "--json", "--", "env"))
    assert said["command"] == ["/usr/bin/env"]
    assert said["skills"] == {"echo": "approved"}
    launched = names(omac.ok(*words, "--", "env"))
    assert set(said["gets"]) - OF_THE_SHELL == launched
    assert "BAR" in launched
    assert "FOO_KEY" in said["drops"]
    assert not launched & set(said["drops"])
    text = omac.ok(*words, "--explain", "--", "env")
    assert "drops    " in text
    assert "not-for-anybody" not in text
    assert "for-the-command" not in text
    for path in (one for one in said["sandbox"]["paths"] if one["access"] == "write"):
        assert f"write    {path['path']}" in text


@pytest.mark.parametrize("words", [("start", "--explain"), ("sandbox", "run", "--explain")])
def test_a_secret_that_was_typed_is_not_repeated(omac: Omac, shop: Path, words: tuple[str, ...]) -> None:
    """What is shown is pasted into reports: it is as the journal would have it."""
    done = omac.run(*words, "--", "echo", "--api-key=s3cret-in-words", cwd=shop)
    assert done.status == 0, done
    text = done.out
    assert "s3cret-in-words" not in text
    assert "<hidden>" in text


@pytest.mark.parametrize("agent", some(["codex", "claude", "opencode", "pi"], of=4))
def test_an_agent_is_called_as_was_said(omac: Omac, shop: Path, agent: str) -> None:
    """With the arguments that omac adds, and what it turns off since the sandbox is omac's."""
    words = ("start", agent, "--workdir", str(shop))
    said = json.loads(omac.ok(*words, "--explain", "--json", "--", "-p", "hi"))
    assert omac.run(*words, "--", "-p", "hi").status == 0
    called = (shop / "arguments").read_text().splitlines()
    assert said["agent"] == agent
    expected = [one if one != "<settings>" else called[number] for number, one in enumerate(said["command"][1:])]
    assert expected == called
    assert set(said["gets"]) - OF_THE_SHELL == names((shop / "variables").read_text())
    text = omac.ok(*words, "--explain", "--", "-p", "hi")
    assert ("off      its own sandbox and approvals: -c" in text) == (agent == "codex")
    unfolded = " ".join(text.split())
    assert f"runs {shlex.quote(said['command'][0])} " in unfolded


@pytest.mark.full
def test_nothing_comes_of_it(omac: Omac) -> None:
    """No record, no folder of a run, no cache; what would be refused is refused."""
    project = omac.project("shop")
    before = sorted(path for path in omac.folder.rglob("*") if "bin" not in path.parts)
    assert "not approved" in omac.ok("start", "--workdir", str(project), "--explain", "--", "true")
    assert "sandbox  none" in omac.ok("start", "--workdir", str(project), "--no-sandbox", "--explain", "--", "true")
    assert sorted(path for path in omac.folder.rglob("*") if "bin" not in path.parts) == before
    assert omac.run("start", "--workdir", str(project), "--explain", "--", "no-such-program").status == 4
    done = omac.run("start", "--workdir", str(project), "--json", "--", "true")
    assert (done.status, "--explain" in done.err) == (2, True)
