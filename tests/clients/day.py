"""A scripted agent's day in a linked worktree, the same for each client, and the checks after it.

Each step is a shell command whose output begins with a word of its own, by which its result is found. One more step is
a write by the client's own tool into the checkout beside it.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest
from clients import seen
from clients.model.steps import EMBEDDED, Step, prompt
from clients.world import World
from real_omac import Done

STRAY, TOOLED = "stray.txt", "tooled.txt"


def shell_steps(world: World) -> dict[str, str]:
    """Return the commands that the agent in `world.one` types, by the word that their output begins with."""
    hidden = [world.omac.state / "journal.db", world.repo / ".git" / "config.worktree", world.home / ".ssh" / "id"]
    return {
        "called": 'curl -sS --retry 10 --retry-delay 1 -d from-the-agent "$OMAC_ECHO_BASE/echo"',
        "committed": 'echo note > note.txt; git add note.txt && git commit -q -m "Add a note"; git log -1',
        "strayed": f"echo stray > {world.two / STRAY} && echo written",
        "hidden": f"cat {shlex.join(map(str, hidden))}; ls {world.two}",
        "untokened": 'curl -sS -i "http://$OMAC_HOST:$OMAC_PORT/echo/echo"',
        "control": "env | grep ^OMAC_CONTROL_; curl -sS -i -d {} ${OMAC_CONTROL_BASE:-$OMAC_BASE}/__omac__/reload",
    }


class Day(NamedTuple):
    """A world in which an agent had its day, how the day ended, and the requests to the model."""

    world: World
    done: Done
    requests: Sequence[Mapping[str, Any]]
    steps: Sequence[Step]

    def result(self, word: str) -> str:
        """Return the model's result of the step whose output begins with this word."""
        (output,) = [text for text in seen.results(self.requests) if f"[{word}]" in text]
        return output.partition(f"[{word}]")[2]

    def call(self) -> Mapping[str, Any]:
        """Return the one call of the skill, as `omac audit` has it."""
        rows = self.world.omac.audit()
        calls = [row for row in rows if (row["path"], row["outcome"]) == ("/echo", "completed")]
        if len(calls) != 1:
            pytest.fail(f"not one call: {rows}; the agent saw {seen.results(self.requests)}; omac said {self.done.err}")
        return calls[0]

    def context(self) -> str:
        """Return all text that the model saw, but for results of tools and the steps themselves."""
        return context(self.requests)


def context(requests: Sequence[Mapping[str, Any]]) -> str:
    """Return all text that a model saw, but for results of tools and steps."""
    return EMBEDDED.sub("", seen.context(requests))


def steps_of(world: World, write: Step) -> list[Step]:
    """Return the steps of the day; `write` is how the client's own tool writes `world.two / TOOLED`."""
    # A shell lives on for a moment: Codex, on a busy machine, loses what is printed right before the end of one.
    typed = [  # in one stream: a client that reads two may put what was said last before the word
        {"sh": f'exec 2>&1; echo "[{word}]"; {command}; sleep 0.3'} for word, command in shell_steps(world).items()
    ]
    return [*typed, write, {"text": "All is done."}]


def prompt_of(steps: Sequence[Step]) -> str:
    """Return the prompt for the day."""
    return prompt(*steps, words="Please do as the script says.")


class Holds:
    """The tests that every client's day has to pass; `ended` is a fixture of the module that has a subclass."""

    def test_the_script_was_carried_out(self, ended: Day) -> None:
        """The client ended well, made requests that a real model's server takes, and took each step."""
        assert ended.done.status == 0, ended.done
        assert ended.world.refusals() == []
        assert len(seen.results(ended.requests)) == len(ended.steps) - 1

    def test_the_skill_is_known_to_the_model(self, ended: Day) -> None:
        """The model sees the variable that holds the skill's address, and the file that describes the skill."""
        context = ended.context()
        assert "OMAC_ECHO_BASE" in context
        assert ".agents/skills/echo/SKILL.md" in context

    def test_the_skill_answers_at_its_variable(self, ended: Day) -> None:
        assert "from-the-agent" in ended.result("called")

    def test_the_commit_is_on_the_branch_of_the_worktree(self, ended: Day) -> None:
        """The commit is whole and seen from the repository, and the worktree is clean."""
        world = ended.world
        assert "Add a note" in ended.result("committed")
        assert world.git("log", "-1", "--format=%s", "one", cwd=world.repo) == "Add a note"
        assert world.git("status", "--porcelain", cwd=world.one) == ""
        world.git("fsck", "--strict", cwd=world.repo)

    def test_a_shell_cannot_write_into_the_sibling_checkout(self, ended: Day) -> None:
        """The write fails, and the agent sees that it does."""
        assert "written" not in ended.result("strayed")
        assert not (ended.world.two / STRAY).exists()

    def test_a_tool_that_writes_there_is_refused_with_the_right_path(self, ended: Day) -> None:
        """The refusal names the worktree to which the agent's files belong."""
        refusal = seen.results(ended.requests)[-1]
        assert not (ended.world.two / TOOLED).exists()
        assert f"{ended.world.two / TOOLED} is outside the worktree" in refusal
        assert f"The worktree is {ended.world.one}" in refusal
        assert ended.world.git("status", "--porcelain", cwd=ended.world.two) == ""

    def test_the_rest_of_the_machine_is_hidden(self, ended: Day) -> None:
        """omac's records, other parts of the repository's git folder, the home and the other checkout are hidden."""
        assert ended.result("hidden").count("No such file") == 4

    def test_the_skill_needs_its_token(self, ended: Day) -> None:
        assert re.search(r"HTTP/1.1 (401|403|404)", ended.result("untokened")), ended.result("untokened")

    def test_the_control_plane_is_out_of_reach_of_a_shell(self, ended: Day) -> None:
        """A tool's shell has no variable that leads to the control plane, and all that it can reach refuses."""
        assert not re.search(r"OMAC_CONTROL_\w+=.", ended.result("control"))
        assert " 200 " not in ended.result("control")

    def test_the_audit_names_skill_directory_and_time(self, ended: Day) -> None:
        call = ended.call()
        assert (call["skill"], call["dir"]) == ("echo", str(ended.world.one))
        assert call["at"]

    def test_the_audit_names_the_session(self, ended: Day) -> None:
        """The audit has the id that the client itself gives the session."""
        assert ended.call()["session"]
        assert ended.call()["session"] in ended.done.out

    def test_the_audit_names_the_client(self, ended: Day) -> None:
        """The call in the audit has the client's name in a field other than those that may have it in a path."""
        fields = {name: value for name, value in ended.call().items() if name not in ("dir", "path", "session")}
        assert ended.world.agent.client.name in fields.values()

    def test_the_sandbox_is_explained_to_the_model(self, ended: Day) -> None:
        """A line of omac's text explains the sandbox."""
        lines = ended.context().lower().splitlines()
        assert [line for line in lines if "omac" in line and "sandbox" in line]

    def test_the_denial_is_in_the_audit(self, ended: Day) -> None:
        """The denial has the path that was to be written."""
        (row,) = [row for row in ended.world.omac.attempts() if row["kind"] == "guard.denied"]
        assert str(ended.world.two / TOOLED) in row["detail"]
        assert ended.world.agent.client.name in row["detail"]
        assert (row["dir"], row["session"] in ended.done.out) == (str(ended.world.one), True)

    def test_stdout_is_the_clients_own(self, ended: Day) -> None:
        """Each line of stdout is an object of the client's."""
        assert seen.lines_of_json(ended.done.out)

    def test_nothing_is_left_but_the_journal(self, ended: Day) -> None:
        """No process and no file in the project is left, and the journal is whole."""
        ended.world.check_nothing_is_left()
        assert ended.world.git("status", "--porcelain", "--ignored", cwd=ended.world.one) == ""
        ended.world.check_journal()
