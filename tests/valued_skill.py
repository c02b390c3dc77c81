"""A skill that wants secrets and settings, and people who give them: at a terminal, by a pipe, by a file.

Its sidecar answers GET / with the values it was given, so that a test sees the values that arrive.
"""

import json
import os
import pty
import select
import signal
import time
from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any

from polling import eventually
from real_omac import COMMAND, Done, Omac, Serving, curl

NAMES = ("TOKEN", "PEM", "SPARE", "REGION", "LIMIT", "MODE", "HOST_SIDE", "NOTE")
META = """\
name: slack
description: Wants values
sidecar:
  command: [python3, -I, -S, sidecar.py]
  mount: chat
  health: {path: /status}
  secrets:
    - {name: TOKEN, description: opens the door, pattern: '^[a-z]{4}-.+$'}
    - {name: PEM, required: false, multiline: true}
    - {name: SPARE, required: false}
  config:
    - {name: REGION, description: where it is, default: eu}
    - {name: LIMIT, type: int, required: false}
    - {name: MODE, type: enum, choices: [fast, slow], required: false}
    - {name: HOST_SIDE, required: false, default_from_env: SLACK_HOST_SIDE}
    - {name: NOTE, required: false}
"""
PROGRAM = f"""\
import json, os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Teller(BaseHTTPRequestHandler):
    wbufsize = -1  # an answer in one piece: no stop leaves half of one

    def do_GET(self):
        body = json.dumps({{name: os.environ.get(name) for name in {NAMES!r}}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass

ThreadingHTTPServer(("127.0.0.1", int(os.environ["SIDECAR_PORT"])), Teller).serve_forever()
"""
CHILD_S = 60.0
QUESTION_ENDS = (b": ", b"[y/N] ", b"? ", b":\x1b[K")  # the last one is the pager's


def valued(omac: Omac, name: str = "shop", meta: str = META) -> Path:
    """Make a project with the skill."""
    project = omac.root / name
    omac.skill(project, "slack", meta, PROGRAM)
    return project


def with_vault(omac: Omac) -> Path:
    """Have this omac keep secrets in a vault under a key file; return the vault's path."""
    key = omac.folder / "vault.key"
    done = omac.run("vault", "init", "--key-file", str(key))
    assert done.status == 0, done
    omac.environment |= {"OMAC_SECRETS_STORE": "vault", "OMAC_VAULT_KEY_FILE": str(key)}
    return omac.state / "vault"


def piped(omac: Omac, stdin: bytes, *arguments: str, cwd: Path | None = None) -> Done:
    """Run a command that reads stdin, where there is no terminal."""
    return omac.run(*arguments, stdin=stdin, cwd=cwd)


def alone(omac: Omac, *arguments: str, stdin: bytes = b"", extra: Mapping[str, str] | None = None) -> Done:
    """Run a command without a terminal, with `extra` in its environment."""
    configured = copy(omac)
    configured.environment = omac.environment | dict(extra or {})
    return piped(configured, stdin, *arguments)


def typed(omac: Omac, answers: Sequence[tuple[str, bytes]], *arguments: str) -> Done:
    """Run a command at a terminal; type each of `answers` when its question comes. `out` is all output.

    A question may come in pieces, and text typed before its end is thrown away: it is answered once it is whole.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(omac.root)
        os.execvpe(COMMAND[0], [*COMMAND, *arguments], omac.environment)
    output, answered_at, pending, deadline = b"", 0, list(answers), time.monotonic() + CHILD_S
    try:
        while time.monotonic() < deadline:
            if select.select([terminal], [], [], 0.02)[0]:
                try:
                    output += os.read(terminal, 65536)
                except OSError:  # it hung up: the command has ended
                    break
            elif pending and pending[0][0].encode() in output[answered_at:] and output.endswith(QUESTION_ENDS):
                answered_at = len(output)
                os.write(terminal, pending.pop(0)[1])
    finally:
        os.close(terminal)
        if time.monotonic() >= deadline:
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    assert not pending, (pending, output)
    return Done(os.waitstatus_to_exitcode(status), output.decode(errors="replace"), "")


def told(skill: Mapping[str, Any]) -> dict[str, str | None] | None:
    """Return the values that the sidecar has; None while it does not answer."""
    answer = curl(f"{skill['base']}/")
    values: dict[str, str | None] | None = answer.json() if answer.status == 200 else None
    return values


def pid_of(omac: Omac) -> int | None:
    """Return the sidecar's process, as the status has it."""
    pids = [
        sidecar["pid"] for sidecar in json.loads(omac.ok("status", "--json"))["sidecars"] if sidecar["skill"] == "slack"
    ]
    return pids[0] if pids else None


def everywhere(omac: Omac, *done: Done) -> bytes:
    """Return all output of the commands and all files of omac: a value that must not be seen must not be in it."""
    files = [path for folder in (omac.state, omac.folder / "home") for path in folder.rglob("*") if path.is_file()]
    printed = [f"{command.out}{command.err}".encode() for command in done]
    return b"\0".join([*printed, *(path.read_bytes() for path in [*files, *omac.folder.glob("stderr-*")])])


def waiting(serving: Serving, project: Path) -> dict[str, Any]:
    """Return the skill, which has to be waiting for values."""

    def found() -> dict[str, Any] | None:
        skill = serving.skill(project, "slack")
        return skill if skill["state"] == "pending_credentials" else None

    skill: dict[str, Any] = eventually(found, 20.0, "the server to notice what a command recorded")
    return skill
