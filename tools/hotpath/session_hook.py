"""`omac hook session-start` and `session-end`: an agent's session begins, and gets its skills; it ends.

Reads the agent's payload from stdin: JSON with `session_id`, a form that all agents with hooks share. At the start the
session's directory is activated; the text for the model is printed as `additionalContext`, and variables that hold the
session's own token go into the file that the agent's shells read, if it has one. An agent goes on without its skills
when this fails: it is reported, with status 0, since an agent takes another status for its own error.
"""

from __future__ import annotations

import json
import os
import sys

from omac.adapters.harness.bridge import CONTROL_VARIABLES, call
from omac.domain.harness.names import NAMES, load
from omac.domain.kernel.refusal import Refusal, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

PAYLOAD_BYTES_MAX = 1 << 20
USAGE = """usage: omac hook session-start < PAYLOAD
       omac hook session-end < PAYLOAD

Called by an agent when a session begins or ends; `omac start` arranges that.
"""


def main(verb: str, argv: list[str]) -> int:
    """Carry out what the payload on stdin announces; the exit status is always 0."""
    if argv in (["-h"], ["--help"]):
        os.write(1, USAGE.encode())
        return 0
    try:
        payload = json.loads(sys.stdin.buffer.read(PAYLOAD_BYTES_MAX))
        session = payload.get("session_id") if isinstance(payload, dict) else None
        if not isinstance(session, str) or not session:
            raise ValueError("it names no session")
        if verb == "session-end":
            end(session, os.environ)
        else:
            print(json.dumps(begin(session, os.environ)))
    except Refusal as refusal:
        _report(refusal.message)
    except (OSError, ValueError, RecursionError) as problem:
        _report(f"the hook's input cannot be used: {problem}")
    return 0


def begin(session: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """Activate the session's directory; returns what the agent takes from a hook. Raises Refusal, OSError."""
    manifest = call("activate", {"dir": _directory(environment), "session": session}, environment)
    variables = manifest.get("env") or {}
    if path := environment.get(_environment_file(environment.get("OMAC_HARNESS", ""))):
        lines = [f"export {name}={quoted(value)}" for name, value in variables.items()]
        lines.append(f"unset {' '.join(CONTROL_VARIABLES)}")
        with open(path, "a", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    texts = (environment.get("OMAC_SANDBOX_BRIEFING", ""), str(manifest.get("context") or ""))
    context = "\n".join(text for text in texts if text)
    return {"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": context}}


def end(session: str, environment: Mapping[str, str]) -> None:
    """End the session: its token is dead from then on. Raises Refusal."""
    call("deactivate", {"dir": _directory(environment), "session": session}, environment)


def _environment_file(harness: str) -> str:
    bridge = load(harness).bridge if harness in NAMES else None
    return bridge.environment_file if bridge else ""


def _directory(environment: Mapping[str, str]) -> str:
    return environment.get("OMAC_WORKDIR") or os.getcwd()


def _report(problem: str) -> None:
    print(f"omac: {problem}; the session goes on without its skills", file=sys.stderr)
