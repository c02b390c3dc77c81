"""`omac start --explain`: a launch does what the explanation says, and the explanation leaves nothing behind."""

import json
import re
import shlex
from pathlib import Path

import pytest
from real_omac import Omac
from tiers import some

OF_THE_SHELL = {"_", "SHLVL", "OLDPWD", "PWD"}


@pytest.fixture
def shop(omac: Omac) -> Path:
    """Return a project with an approved skill, and put programs named like agents on PATH, which print their
    arguments."""
    for name in ("claude", "codex", "opencode", "pi"):
        omac.program(name, "#!/bin/sh\nprintf '%s\\n' \"$@\" > arguments\nenv > variables\n")
    return omac.approved("shop")


def names(text: str) -> set[str]:
    """Return the names of the variables that env printed."""
    return {*re.findall(r"(?m)^(\w+)=", text)} - OF_THE_SHELL  # a value may have lines


@pytest.mark.full
def test_a_command_gets_what_was_said(omac: Omac, shop: Path) -> None:
    """The explanation names each variable that the command gets and each that is dropped, without values."""
    omac.environment |= {"FOO_KEY": "not-for-anybody", "BAR": "for-the-command"}
    words = ("start", "--workdir", str(shop), "--env", "BAR")
    explanation = json.loads(omac.ok(*words, "--explain", "--json", "--", "env"))
    assert explanation["command"] == ["/usr/bin/env"]
    assert explanation["agent"] == ""
    assert explanation["skills"] == {"echo": "approved"}
    launched = names(omac.ok(*words, "--", "env"))
    assert set(explanation["gets"]) - OF_THE_SHELL == launched
    assert "BAR" in launched
    assert "FOO_KEY" in explanation["drops"]
    assert not launched & set(explanation["drops"])
    text = omac.ok(*words, "--explain", "--", "env")
    assert "drops    " in text
    assert "not-for-anybody" not in text
    assert "for-the-command" not in text
    for path in (entry for entry in explanation["sandbox"]["paths"] if entry["access"] == "write"):
        assert f"write    {path['path']}" in text


@pytest.mark.parametrize("words", [("start", "--explain"), ("sandbox", "run", "--explain")])
def test_a_secret_that_was_typed_is_not_repeated(omac: Omac, shop: Path, words: tuple[str, ...]) -> None:
    """A secret in the arguments is hidden, as in the journal: the output may be pasted into reports."""
    done = omac.run(*words, "--", "echo", "--api-key=s3cret-in-words", cwd=shop)
    assert done.status == 0, done
    text = done.out
    assert "s3cret-in-words" not in text
    assert "<hidden>" in text


@pytest.mark.full
@pytest.mark.parametrize("agent", some(["codex", "claude", "opencode", "pi"], of=4))
def test_an_agent_is_called_as_was_said(omac: Omac, shop: Path, agent: str) -> None:
    """An agent is called with the explained arguments, which include omac's own, such as those that turn off codex's
    sandbox."""
    words = ("start", agent, "--workdir", str(shop))
    explanation = json.loads(omac.ok(*words, "--explain", "--json", "--", "-p", "hi"))
    assert omac.run(*words, "--", "-p", "hi").status == 0
    called = (shop / "arguments").read_text().splitlines()
    assert explanation["agent"] == agent
    expected = [
        word if word != "<settings>" else called[number] for number, word in enumerate(explanation["command"][1:])
    ]
    assert expected == called
    assert set(explanation["gets"]) - OF_THE_SHELL == names((shop / "variables").read_text())
    text = omac.ok(*words, "--explain", "--", "-p", "hi")
    assert ("off      its own sandbox and approvals: -c" in text) == (agent == "codex")
    unfolded = " ".join(text.split())
    assert f"runs {shlex.quote(explanation['command'][0])} " in unfolded


@pytest.mark.full
def test_nothing_comes_of_it(omac: Omac) -> None:
    """An explanation leaves no record, no folder of a run and no cache, and refuses the same as a launch."""
    project = omac.project("shop")
    before = sorted(path for path in omac.folder.rglob("*") if "bin" not in path.parts)
    assert "not approved" in omac.ok("start", "--workdir", str(project), "--explain", "--", "true")
    assert "sandbox  none" in omac.ok("start", "--workdir", str(project), "--no-sandbox", "--explain", "--", "true")
    assert sorted(path for path in omac.folder.rglob("*") if "bin" not in path.parts) == before
    assert omac.run("start", "--workdir", str(project), "--explain", "--", "no-such-program").status == 127
    done = omac.run("start", "--workdir", str(project), "--json", "--", "true")
    assert (done.status, "--explain" in done.err) == (2, True)
