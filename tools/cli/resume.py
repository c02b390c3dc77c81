"""omac continue and omac resume: the agent that ran last in a project, with a session of its own that it had there."""

from collections.abc import Mapping
from contextlib import closing
from typing import Literal, NamedTuple

from omac.domain.harness.harness import Harness
from omac.domain.harness.names import EXAMPLE
from omac.domain.harness.table import harness_named
from omac.domain.kernel.refusal import Refusal
from omac.domain.sandbox.request import SandboxRequest
from omac.projections.evidence.last_agent import last_agent
from omac.tools.cli.next_command import start_command
from omac.tools.cli.start import StartRequest
from omac.tools.cli.start import run as start
from omac.tools.compose.agent_launch import directory, project_around
from omac.tools.compose.journals import read_if_any
from omac.tools.compose.state import StateDir

KINDS = ("run.started",)


class ResumeRequest(NamedTuple):
    """The command line, as typed; `words` stand after `--`, None where nothing does."""

    command: Literal["continue", "resume"]
    session: str | None
    words: list[str] | None
    workdir: str | None
    no_sandbox: bool
    sandbox: SandboxRequest
    unapproved: str | None
    accept_changes: bool
    bridge_compat: bool
    audit: str | None
    journal: str | None
    explain: bool = False
    json: bool = False


def run(request: ResumeRequest, environment: Mapping[str, str]) -> int:
    """Start the agent, and stay to its end; its exit status. Raises Refusal."""
    project = directory(request.workdir, "--workdir") if request.workdir else project_around(environment)
    harness = _last(project, request, environment)
    words = request.words or []
    behind = 1 if words and words[0] in harness.sessions.commands else 0
    words = [*words[:behind], *_words(harness, request), *words[behind:]]
    return start(
        StartRequest(
            harness.name, words, project, request.no_sandbox, request.sandbox, request.unapproved,
            request.accept_changes, request.bridge_compat, request.audit, request.journal, request.explain,
            request.json,
        ),
        environment,
    )  # fmt: skip


def _last(project: str, request: ResumeRequest, environment: Mapping[str, str]) -> Harness:
    """The agent that ran last there. Raises Refusal (nothing-to-continue)."""
    state = StateDir.of(environment)
    journal, name = read_if_any(state, state.journal_in_use(environment, request.journal)), ""
    if journal is not None:
        with closing(journal):
            name = last_agent(journal.of_kinds(KINDS), project)
    if not name:
        message = f"omac has started no agent in {project} yet, so there is no session to {request.command}"
        command, has_agent = start_command(environment)
        raise Refusal("misuse", message, fix=[command if has_agent else f"omac start {EXAMPLE}"])
    return harness_named(name)


def _words(harness: Harness, request: ResumeRequest) -> tuple[str, ...]:
    """The agent's own arguments for it. Raises Refusal (misuse)."""
    sessions = harness.sessions
    if request.session is not None:
        if not request.session or request.session.startswith("-"):
            raise Refusal("misuse", f"--session takes the id of a session, not {request.session!r}")
        words = (*sessions.named, request.session) if sessions.named else ()
    else:
        words = sessions.last if request.command == "continue" else sessions.chosen
    if words:
        return words
    fix = ["omac continue"] if sessions.last else [f"omac start {harness.name} -- --help"]
    ability = "chooses sessions from a list" if request.command == "resume" else "goes on with a session"
    raise Refusal("misuse", f"omac knows no arguments by which {harness.name} {ability}", fix=fix)
