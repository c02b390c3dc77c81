"""`omac hook session-start` and `session-end`: an agent's session begins, and gets its skills; it ends.

Reads the agent's payload from stdin: JSON with `session_id`, a form that all agents with hooks share. At the start the
session's directory is activated; the text for the model is printed as `additionalContext`, and variables that hold the
session's own token go into the file that the agent's shells read, if it has one. An agent goes on without its skills
when this fails: it is reported, with status 0, since an agent takes another status for its own error.

With `--installed` a person's own settings call it (`omac bridge install`). It then finds the running server by itself,
and is silent where none runs, and where the launch gave the agent hooks already.
"""

from __future__ import annotations

import json
import os
import sys

from omac.adapters.files.atomic import write_all
from omac.adapters.guard.write_target import top_level
from omac.adapters.harness.bridge import call
from omac.adapters.linux.home import home_of
from omac.domain.guard.guard import Unclear
from omac.domain.harness.names import BEGUN, CONTROL_VARIABLES, INSTALLED, LAUNCH, LAUNCHED, hooked
from omac.domain.kernel import state_paths
from omac.domain.kernel.refusal import Refusal, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

PAYLOAD_BYTES_MAX = 1 << 20
NAME_MAX = 64
USAGE = """usage: omac hook session-start < PAYLOAD
       omac hook session-end < PAYLOAD

Called by an agent when a session begins or ends; `omac start` arranges that,
and `omac bridge install` for agents that you launch yourself (--installed).
"""


def main(verb: str, argv: list[str]) -> int:
    """Carry out what the payload on stdin announces; the exit status is always 0."""
    if argv in (["-h"], ["--help"]):
        os.write(1, USAGE.encode())
        return 0
    try:
        environment = installed_environment(os.environ) if argv == [INSTALLED] else os.environ
        if environment is None:
            return 0
        payload = json.loads(sys.stdin.buffer.read(PAYLOAD_BYTES_MAX))
        session = payload.get("session_id") if isinstance(payload, dict) else None
        if not isinstance(session, str) or not session:
            raise ValueError("it names no session")
        if verb == "session-end":
            end(session, environment)
        else:
            write_all(1, json.dumps(begin(session, environment)).encode() + b"\n")
    except Refusal as refusal:
        _report(refusal.message)
    except (OSError, ValueError, RecursionError) as problem:
        _report(f"the hook cannot do its work: {problem}")
    return 0


def installed_environment(environment: Mapping[str, str]) -> Mapping[str, str] | None:
    """Return the environment by which a hook in a person's own settings reaches omac: that of the agent where it names
    omac, else one that names the running server and the project. None: there is nothing to do for it."""
    if environment.get(LAUNCHED) == LAUNCH:
        return None
    if environment.get("OMAC_CONTROL_TOKEN_FILE"):
        return environment
    folder = f"{state_paths.state(environment, home_of(environment))}/run/current"
    socket, token = f"{folder}/bridge.sock", f"{folder}/bridge.token"
    if environment.get("OMAC_SANDBOX") == "1" or not (os.path.exists(socket) and os.path.exists(token)):
        return None
    named = (hook.project_variable for _, hook in hooked() if hook.project_variable)
    started = next((environment[name] for name in named if environment.get(name)), os.getcwd())
    try:
        project = os.fsdecode(top_level(os.fsencode(started)))
    except (Unclear, OSError):
        project = started
    return {**environment, "OMAC_WORKDIR": project, "OMAC_CONTROL_SOCKET": socket, "OMAC_CONTROL_TOKEN_FILE": token}


def begin(session: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """Activate the session's directory; returns what the agent takes from a hook. Raises Refusal, OSError."""
    import shlex  # not `quoted`, whose $'...' not every sh reads

    manifest = call("activate", {"dir": _directory(environment), "session": session}, environment)
    variables = manifest.get("env") or {}
    texts = [environment.get("OMAC_SANDBOX_BRIEFING", ""), str(manifest.get("context") or "")]
    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    if path := _environment_file(environment):
        lines.append(f"unset {' '.join(CONTROL_VARIABLES)}")
        with open(path, "a", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    elif any(name not in environment for name in variables if _is_named_in_text(name)) and (  # not so under omac start
        folder := _own_folder(environment)
    ):
        path = _own_file(folder, session, "\n".join(lines) + "\n")
        texts.append(f"Your shell lacks these variables: begin each command that uses one with `. {quoted(path)}`.\n")
    context = "\n".join(text for text in texts if text)
    return {"hookSpecificOutput": {"hookEventName": BEGUN, "additionalContext": context}}


def end(session: str, environment: Mapping[str, str]) -> None:
    """End the session: its token is dead from then on. Raises Refusal."""
    call("deactivate", {"dir": _directory(environment), "session": session}, environment)


def _environment_file(environment: Mapping[str, str]) -> str | None:
    """The file for the session's variables, of the agent that has one: in a run any agent may be launched."""
    for harness, _ in hooked():
        if harness.bridge and (path := environment.get(harness.bridge.environment_file)):
            return path
    return None


def _is_named_in_text(variable: str) -> bool:
    """Return whether the text for the model may name a variable of the manifest: no name that holds a token."""
    return variable.endswith("_BASE") and not variable.startswith("OMAC_D_")


def _own_folder(environment: Mapping[str, str]) -> str:
    """Return a folder in which no project is, and that is gone with the sandbox or with the server's run; empty where
    neither is known."""
    if environment.get("OMAC_SANDBOX") == "1":
        return environment.get("TMPDIR", "")
    token_file = environment.get("OMAC_CONTROL_TOKEN_FILE", "")
    return os.path.dirname(os.path.realpath(token_file)) if token_file else ""


def _own_file(folder: str, session: str, content: str) -> str:
    """Write the variables of a session whose agent has no file for them; return the path."""
    name = "".join(letter for letter in session if letter.isalnum() or letter == "-")[:NAME_MAX]
    path = f"{folder}/session-{name}.env"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "w", encoding="utf-8") as file:
        file.write(content)
    return path


def _directory(environment: Mapping[str, str]) -> str:
    return environment.get("OMAC_WORKDIR") or os.getcwd()


def _report(problem: str) -> None:
    print(f"omac: {problem}; the session goes on without its skills", file=sys.stderr)
