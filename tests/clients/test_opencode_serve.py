"""OpenCode's server under `omac serve`: one server, two directories, a session in each."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from clients import day
from clients.agents import opencode
from clients.client_server import Server
from clients.model.steps import Step, prompt
from clients.world import World, world_or_skip
from polling import eventually
from real_omac import Serving

pytestmark = pytest.mark.full
PORT = "4096"
UNTIL_UP_S = 60.0


class Session(NamedTuple):
    """A session of OpenCode's in a directory."""

    server: Server
    dir: Path
    id: str

    def path(self, rest: str = "") -> str:
        """Return the path of this session on OpenCode's server."""
        return f"/session/{self.id}{rest}?directory={self.dir}"

    def ask(self, *steps: Step) -> list[str]:
        """Have the agent take these steps; return the results of its tools, or their errors."""
        before = len(self._tools())
        parts = [{"type": "text", "text": prompt(*steps, {"text": "Done."})}]
        self.server.call("POST", self.path("/message"), {"parts": parts})
        return [state.get("output") or state.get("error") or "" for state in self._tools()[before:]]

    def _tools(self) -> list[dict[str, Any]]:
        messages = self.server.call("GET", self.path("/message"))
        return [part["state"] for message in messages for part in message["parts"] if part["type"] == "tool"]


class Served(NamedTuple):
    """A server with a session in each of two linked worktrees."""

    world: World
    run: Serving
    one: Session
    two: Session


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """Yield a server with two sessions; it ends on a signal, leaves no process, and the journal is whole."""
    with world_or_skip(opencode) as world:
        options = ("--root", str(world.omac.root), *world.agent.handed_on)
        run = world.omac.start("serve", "opencode", *options, "--", "--port", PORT, within=world.within)
        server = Server(f"http://127.0.0.1:{PORT}", world.within)
        try:
            eventually(lambda: server.answers("/global/health"), UNTIL_UP_S, "OpenCode's server")
        except AssertionError as problem:
            pytest.fail(f"{problem}; stderr was: {run.said()}")  # no failure that a mark expects
        sessions = [
            Session(server, path, server.call("POST", f"/session?directory={path}", {"title": path.name})["id"])
            for path in (world.one, world.two)
        ]
        yield Served(world, run, *sessions)
        assert run.end(seconds=30.0) in (0, 143)
        world.check_nothing_is_left()
        world.check_journal()


def base_of(session: Session) -> str:
    """Return the address of the skill that the session's shell has."""
    (output,) = session.ask({"sh": 'echo "$OMAC_ECHO_BASE"'})
    return output.strip()


def test_each_session_calls_the_skill_by_an_address_of_its_own(served: Served) -> None:
    """The audit names directory and session of each call."""
    bases = [base_of(session) for session in (served.one, served.two)]
    assert len(set(bases)) == 2
    for session in (served.one, served.two):
        (answer,) = session.ask({"sh": f'curl -sS -d from-{session.dir.name} "$OMAC_ECHO_BASE/echo"'})
        assert f"from-{session.dir.name}" in answer
    calls = [row for row in served.world.omac.audit("--outcome", "completed") if row["path"] == "/echo"]
    expected = {(str(session.dir), session.id, "echo") for session in (served.one, served.two)}
    assert {(call["dir"], call["session"], call["skill"]) for call in calls} == expected


def test_a_command_of_the_person_has_the_same_variables(served: Served) -> None:
    """A command by OpenCode's own endpoint has the variables of the session."""
    document = {"agent": "build", "command": 'echo "$OMAC_ECHO_BASE"'}
    answer = served.one.server.call("POST", served.one.path("/shell"), document)
    assert base_of(served.one) in json.dumps(answer)


def test_the_skill_is_known_to_each_model(served: Served) -> None:
    served.one.ask({"sh": "true"})
    context = day.context(served.world.requests())
    assert "OMAC_ECHO_BASE" in context
    assert served.world.refusals() == []


def test_another_token_leads_nowhere(served: Served) -> None:
    """A call without a token, or with one that was made up, gets a 404."""
    step = {
        "sh": 'for token in "" /00000000000000000000000000000000; do '
        'curl -sS -o /dev/null -w "%{http_code} " "${OMAC_ECHO_BASE%/*/echo}$token/echo/echo"; done'
    }
    (output,) = served.two.ask(step)
    assert output.split() == ["404", "404"]


def test_commits_of_a_linked_worktree(served: Served) -> None:
    world = served.world
    served.one.ask({"sh": 'echo note > note.txt; git add note.txt; git commit -q -m "Add a note"'})
    assert world.git("log", "-1", "--format=%s", "one", cwd=world.repo) == "Add a note"


def test_a_tool_that_writes_into_the_other_checkout_is_refused(served: Served) -> None:
    """The refusal names the worktree where the session's files belong."""
    stray = served.world.two / day.TOOLED
    (output,) = served.one.ask({"tool": "write", "args": {"filePath": str(stray), "content": "stray"}})
    assert f"The worktree is {served.world.one}" in output
    assert not stray.exists()


def test_the_control_plane_is_out_of_reach_of_a_shell(served: Served) -> None:
    (output,) = served.one.ask({"sh": "env | grep ^OMAC_CONTROL_; ls /run/omac; true"})
    assert not re.search(r"OMAC_CONTROL_\w+=.", output)


def test_omac_writes_nothing_to_stdout(served: Served) -> None:
    """No line of stdout is omac's, up to the line with the address where OpenCode listens."""
    lines = [served.run.line()]
    while "opencode server listening" not in lines[-1]:
        lines.append(served.run.line())
    assert not [line for line in lines if line.startswith("omac")]


def test_a_deleted_session_has_no_skill_any_more(served: Served) -> None:
    """The address of a deleted session is dead, also when another session calls it; that session's own still works."""
    server, world = served.one.server, served.world
    made = server.call("POST", f"/session?directory={world.one}", {"title": "short"})
    short = Session(server, world.one, made["id"])
    base = base_of(short)
    server.call("DELETE", short.path())
    try_it = {"sh": f'curl -sS -o /dev/null -w "%{{http_code}}" {base}/status'}
    assert served.two.ask(try_it) == ["404"]
    own = {"sh": 'curl -sS -o /dev/null -w "%{http_code}" $OMAC_ECHO_BASE/status'}
    assert served.two.ask(own) == ["200"]
