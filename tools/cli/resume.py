"""omac continue and omac resume: the agent that ran last in a project, with a session of its own that it had there."""

from collections.abc import Mapping
from typing import Literal

from omac.domain.harness.harness import Harness
from omac.domain.harness.names import EXAMPLE
from omac.domain.harness.table import harness_named
from omac.domain.kernel.refusal import Refusal
from omac.projections.evidence.last_agent import last_agent
from omac.tools.cli.next_command import start_command
from omac.tools.cli.start import StartRequest
from omac.tools.cli.start import run as start
from omac.tools.compose.agent_launch import directory, project_around
from omac.tools.compose.journals import read_if_any
from omac.tools.compose.state import StateDir

KINDS = ("run.started",)

Command = Literal["continue", "resume"]


def run(command: Command, request: StartRequest, session: str | None, environment: Mapping[str, str]) -> int:
    """Start the agent as requested, with the session of this id, its last one or one that is chosen, and stay to its
    end; its exit status. Raises Refusal."""
    project = directory(request.workdir, "--workdir") if request.workdir else project_around(environment)
    harness = _last(project, command, request.journal, environment)
    words = request.words or []
    behind = 1 if words and words[0] in harness.sessions.commands else 0
    words = [*words[:behind], *_words(harness, command, session), *words[behind:]]
    return start(request._replace(harness=harness.name, words=words, workdir=project), environment)


def _last(project: str, command: Command, journal_path: str | None, environment: Mapping[str, str]) -> Harness:
    """The agent that ran last there. Raises Refusal (misuse)."""
    state = StateDir.of(environment)
    with read_if_any(state, state.journal_in_use(environment, journal_path)) as journal:
        name = last_agent(journal.of_kinds(KINDS), project) if journal is not None else ""
    if not name:
        message = f"omac has started no agent in {project} yet, so there is no session to {command}"
        instead, has_agent = start_command(environment)
        raise Refusal("misuse", message, fix=[instead if has_agent else f"omac start {EXAMPLE}"])
    return harness_named(name)


def _words(harness: Harness, command: Command, session: str | None) -> tuple[str, ...]:
    """The agent's own arguments for it. Raises Refusal (misuse)."""
    sessions = harness.sessions
    if session is not None:
        if not session or session.startswith("-"):
            raise Refusal("misuse", f"--session takes the id of a session, not {session!r}")
        words = (*sessions.named, session) if sessions.named else ()
    else:
        words = sessions.last if command == "continue" else sessions.chosen
    if words:
        return words
    fix = ["omac continue"] if sessions.last else [f"omac start {harness.name} -- --help"]
    ability = "chooses sessions from a list" if command == "resume" else "goes on with a session"
    raise Refusal("misuse", f"omac knows no arguments by which {harness.name} {ability}", fix=fix)
