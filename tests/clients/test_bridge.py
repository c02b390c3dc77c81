"""Clients that a person launches, with omac's hooks in the person's own settings, offline, with a scripted model."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
from clients import day, seen
from clients.agents import Agent, claude, claude_words, codex, codex_words, opencode, opencode_words, pi, pi_words
from clients.model.steps import Step, prompt
from clients.world import RUN_WITHIN_S, World, world_or_skip
from programs import python_at
from real_omac import Done

pytestmark = pytest.mark.full

CALL = {"sh": 'curl -sS -d by-the-bridge "$OMAC_ECHO_BASE/echo"; sleep 0.3'}
TRUSTED = "--dangerously-bypass-hook-trust"  # in the place of a person who trusts the hooks in /hooks


def codex_line(text: str) -> list[str]:
    """Return arguments for one prompt; the person trusts its hooks, and its own sandbox without a network is off."""
    return codex_words(text, TRUSTED, "-c", 'sandbox_mode="danger-full-access"', "-c", 'approval_policy="never"')


CLIENTS = [
    pytest.param(claude, claude_words, id="claude"),
    pytest.param(codex, codex_line, id="codex"),
    pytest.param(opencode, opencode_words, id="opencode"),
    pytest.param(pi, pi_words, id="pi"),
]


@contextmanager
def bridged(agent: Callable[[str], Agent], monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Yield a machine on which the person installed omac's bridge into the client's settings."""
    with world_or_skip(agent) as world:
        program = world.home / "bin" / "omac"
        program.parent.mkdir()
        paths = f"import sys; sys.path[:0] = {sys.path!r}"
        python_at(program, f"{paths}\nfrom omac.tools.entry import main\nmain()\n")
        monkeypatch.setattr(sys, "argv", [str(program)])
        world.omac.ok("bridge", "install", world.agent.client.name)
        yield world


def alone(world: World, words: Sequence[str]) -> Done:
    """Run the client as its person does, in the worktree."""
    done = subprocess.run(
        [*world.within, world.agent.client.name, *words], env=world.omac.environment, cwd=world.one,
        capture_output=True, text=True, timeout=RUN_WITHIN_S, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(("agent", "words"), CLIENTS)
def test_with_a_server(
    agent: Callable[[str], Agent], words: Callable[[str], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model learns of its skill, and the audit names the session of the call where the client can hand it on."""
    with bridged(agent, monkeypatch) as world:
        world.omac.serve(within=world.within)
        done = alone(world, words(prompt(CALL, {"text": "Done."})))
        assert done.status == 0, done
        assert world.refusals() == []
        assert "OMAC_ECHO_BASE" in day.context(world.requests()), done
        if world.agent.client.name != "codex":  # it has no variables for a session
            assert "by-the-bridge" in "".join(seen.results(world.requests())), done
            (call,) = world.omac.audit("--outcome", "completed", "--skill", "echo")
            assert call["session"], call


@pytest.mark.parametrize(("agent", "words"), CLIENTS)
def test_without_omac_running(
    agent: Callable[[str], Agent], words: Callable[[str], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client works as ever: neither its stderr nor the model's context has anything of omac."""
    with bridged(agent, monkeypatch) as world:
        done = alone(world, words(prompt({"sh": "echo plain; sleep 0.3"}, {"text": "Done."})))
        assert done.status == 0, done
        assert world.refusals() == []
        assert "plain" in "".join(seen.results(world.requests()))
        assert "OMAC" not in day.context(world.requests())
        assert "omac" not in done.err.replace(str(world.omac.folder), "")


@pytest.mark.parametrize(("agent", "words"), CLIENTS)
def test_beside_a_launch_by_omac(
    agent: Callable[[str], Agent], words: Callable[[str], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launch's own hooks work once under `omac start`: one denial is recorded for one call."""
    with bridged(agent, monkeypatch) as world:
        name = world.agent.client.name
        path = str(world.two / "stray")
        write: dict[str, Step] = {
            "claude": {"tool": "Write", "args": {"file_path": path, "content": "x"}},
            "codex": {"sh": f"apply_patch <<'END'\n*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch\nEND"},
            "pi": {"tool": "write", "args": {"path": path, "content": "x"}},
            "opencode": {"tool": "write", "args": {"filePath": path, "content": "x"}},
        }
        done = world.start(words(prompt(write[name], CALL, {"text": "Done."})), world.one)
        assert done.status == 0, done
        assert "by-the-bridge" in "".join(seen.results(world.requests())), done
        context = day.context(world.requests()[-1:])
        assert context.count("guide: .agents/skills/echo/SKILL.md") == 1, context
        denials = [row for row in world.omac.attempts() if row["kind"] == "guard.denied"]
        assert len(denials) == 1, denials
        assert not os.path.exists(path)
