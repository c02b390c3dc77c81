"""The variables of an agent that omac launches, and the output of `omac serve --no-inner` for other launchers."""

import json

import pytest
from real_omac import Omac, curl

pytestmark = pytest.mark.full

SHOW = "import json, os; print(json.dumps(dict(os.environ)))"


@pytest.mark.parametrize(
    ("words", "skills", "sandboxed"),
    [
        (("start", "--open-port", "3000"), ".opencode/skills", True),
        (("start", "--network", "none"), ".opencode/skills", True),
        (("start", "--no-sandbox"), ".opencode/skills", False),
        (("serve", "--root", "."), ".opencode/skills", True),
    ],
)
def test_skills_folder_and_briefing(omac: Omac, words: tuple[str, ...], skills: str, sandboxed: bool) -> None:
    """The folder is relative to the project; only a sandbox has the briefing, which describes that sandbox."""
    project = omac.project("shop")
    done = omac.run(*words, "--workdir", str(project), "--", "python3", "-c", SHOW, cwd=project)
    variables = json.loads(done.out.splitlines()[-1])
    assert variables["OMAC_HARNESS_SKILLS_DIR"] == skills
    assert ("OMAC_SANDBOX_BRIEFING" in variables) == sandboxed
    if sandboxed:
        briefing = variables["OMAC_SANDBOX_BRIEFING"]
        assert briefing.startswith("You are running inside the **omac sandbox**.\n")
        assert str(project) in briefing
        assert variables["OMAC_CACHE_DIR"] in briefing
        assert ("there is none" in briefing) == ("none" in words)
        assert ("TCP ports 3000 and those" in briefing) == ("3000" in words)


def test_an_agent_is_told_its_own_folder(omac: Omac) -> None:
    """An agent, here a stand-in found on PATH by its name, gets its own folder."""
    project = omac.project("shop")
    omac.program("claude", f"#!/usr/bin/env python3\n{SHOW}\n")
    done = omac.process("start", "claude", "--no-sandbox", "--workdir", str(project), cwd=project)
    variables = json.loads(done.out.splitlines()[-1])
    assert (variables["OMAC_HARNESS"], variables["OMAC_HARNESS_SKILLS_DIR"]) == ("claude", ".claude/skills")


@pytest.mark.parametrize("compat", [True, False])
def test_the_second_line_of_a_server_without_an_agent(omac: Omac, compat: bool) -> None:
    """A shell can take the second line into its environment; a Go omac's bridge activates there, where allowed."""
    project = omac.project("shop")
    options = ("--bridge-compat",) if compat else ()
    serving = omac.start("serve", "--no-inner", "--root", str(omac.root), *options)
    first, (name, _, base) = serving.line(), serving.line().strip().partition("=")
    assert first.startswith("omac serve: control plane on http://127.0.0.1:")
    assert name == "OMAC_CONTROL_BASE"
    assert (base in first) != compat
    answer = curl("-d", json.dumps({"dir": str(project)}), f"{base}/__omac__/activate")
    assert answer.status == (200 if compat else 401)


def test_one_line_of_json_stays_one_line(omac: Omac) -> None:
    """Programs read the one line of JSON, so no second line follows."""
    serving = omac.start("serve", "--no-inner", "--json", "--root", str(omac.root)).await_ready()
    assert serving.end() == 0
    assert serving.process.stdout is not None
    assert serving.process.stdout.read() == b""
