"""A bridge plugin as people wrote them for the Go omac: it knows OMAC_CONTROL_BASE and nothing else of omac.

The plugin acts as that of an agent's server: it activates each directory that is opened, names the session, gives tool
shells their variables, and deactivates. Commands come as lines of JSON on stdin, answers go to stdout.
"""

import http.client
import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any

STATES = {"ready", "pending-credentials", "broken"}


def post(action: str, document: object) -> tuple[int, Any]:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    url = f"{os.environ['OMAC_CONTROL_BASE']}/__omac__/{action}"
    return asked(urllib.request.Request(url, body, {"Content-Type": "application/json"}, method="POST"))


def asked(request: urllib.request.Request) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


def opened(directory: str, session: str) -> dict[str, Any]:
    """Begin a session as a plugin does, and return the variables for its tool shells."""
    status, manifest = post("activate", {"dir": directory})
    assert status == 200, manifest
    assert manifest["dir"] == directory
    assert re.fullmatch("[0-9a-f]{32}", manifest["dir_token"])
    assert manifest["state"] in ("activating", "active", "active_partial")
    assert [skill["name"] for skill in manifest["skills"]] == sorted(skill["name"] for skill in manifest["skills"])
    variables: dict[str, str] = {}
    for skill in manifest["skills"]:
        assert skill["state"] in STATES, skill
        assert skill["scope"] in ("workdir", "global")
        assert bool(skill.get("missing")) == (skill["state"] == "pending-credentials")
        if skill["state"] == "ready":
            name = skill["mount"].upper().replace("-", "_")
            variables[f"OMAC_D_{manifest['dir_token'].upper()}_{name}_BASE"] = skill["base"]
            variables[f"OMAC_{name}_BASE"] = skill["base"]
            assert by_socket(skill["socket_base"] + "/status") == 200
    assert post("session", {"session": session}) == (200, {"ok": True})
    return {"token": manifest["dir_token"], "state": manifest["state"], "variables": variables}


def by_socket(url: str) -> int:
    """Return the status of a GET by a URL of the form http+unix://%2Fpath/rest."""
    socket_path, _, path = url.removeprefix("http+unix://").partition("/")
    command = ["curl", "-sS", "-o", os.devnull, "-w", "%{http_code}", "--unix-socket"]
    done = subprocess.run(
        [*command, urllib.parse.unquote(socket_path), f"http://skill/{path}"], capture_output=True, text=True
    )
    return int(done.stdout)


def shell(variables: dict[str, str], command: str) -> dict[str, Any]:
    """Run a tool shell of the agent, with the variables that the plugin injects."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OMAC_CONTROL")}
    done = subprocess.run(
        ["sh", "-c", command], env=environment | variables, capture_output=True, text=True, timeout=60
    )
    return {"status": done.returncode, "out": done.stdout, "err": done.stderr}


def got(action: str) -> tuple[int, Any]:
    return asked(urllib.request.Request(f"{os.environ['OMAC_CONTROL_BASE']}/__omac__/{action}"))


CALLS: dict[str, Callable[..., Any]] = {
    "open": opened,
    "shell": shell,
    "post": post,
    "get": got,
    "raw": lambda action, text: post(action, text.encode()),
}


def main() -> None:
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        try:
            answer = {"ok": CALLS[name](*arguments)}
        except (AssertionError, OSError, http.client.HTTPException) as problem:
            answer = {"problem": f"{type(problem).__name__}: {problem}"}
        print(json.dumps(answer), flush=True)


main()
