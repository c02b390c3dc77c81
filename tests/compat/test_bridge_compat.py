"""Bridges that were written for the Go omac's control plane, unchanged, under --bridge-compat."""

import json
import os
from pathlib import Path

import pytest
from real_omac import Omac, curl

from omac.domain.access.control import ControlRefused
from omac.domain.kernel.run import RunStarted

pytestmark = pytest.mark.full

# A plugin as people have them: it knows nothing but OMAC_CONTROL_BASE, sends no token, and reads states with hyphens.
PLUGIN = """
import json, os, urllib.request
base = os.environ["OMAC_CONTROL_BASE"]
def post(action, **body):
    request = urllib.request.Request(f"{base}/__omac__/{action}", json.dumps(body).encode(), method="POST")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)
status, manifest = post("activate", dir=os.getcwd())
assert status == 200 and manifest["state"] == "active_partial", manifest
ready, waiting = sorted(manifest["skills"], key=lambda skill: skill["state"], reverse=True)
assert (ready["state"], waiting["state"]) == ("ready", "pending-credentials"), manifest
with urllib.request.urlopen(ready["base"] + "/status", timeout=30) as answer:
    assert answer.status == 200
assert post("session", session="s-1") == (200, {"ok": True})
for action in ("reload", "unlock", "status", "dirs"):
    assert post(action, dir=os.getcwd())[0] in (403, 405), action
assert post("deactivate", dir=os.getcwd())[0] == 200
print("plugin done")
"""
HOOK = """
set -e
curl -sS --fail -X POST -d '{"dir": "'"$PWD"'"}' "$OMAC_CONTROL_BASE/__omac__/activate" > manifest
curl -sS --fail -X POST -d '{"session": "s"}' "$OMAC_CONTROL_BASE/__omac__/session"
curl -sS --fail -X POST -d '{"dir": "'"$PWD"'"}' "$OMAC_CONTROL_BASE/__omac__/deactivate" > ended
"""
NEEDY = "name: needy\nsidecar:\n  command: [python3, sidecar.py]\n  secrets: [{name: NEEDED}]\n"


def project_of(omac: Omac) -> Path:
    """Return a project with a skill that is ready and one that waits for a secret."""
    project = omac.approved("p")
    omac.skill(project, "needy", NEEDY)
    assert omac.run("approve", "needy", "--workdir", str(project)).status == 0
    return project


@pytest.mark.parametrize("sandboxed", [True, False])
def test_a_plugin_of_the_go_omac_works_unchanged(omac: Omac, sandboxed: bool) -> None:
    """A plugin activates, names its session, uses a skill and deactivates; requests for a person alone are refused."""
    project = project_of(omac)
    options = [] if sandboxed else ["--no-sandbox"]
    where = ("--root", str(project), "--workdir", str(project), "--bridge-compat", *options)
    done = omac.run("serve", *where, "--", "python3", "-c", PLUGIN, cwd=project)
    assert done.out.endswith("plugin done\n"), done
    assert "WARNING: --bridge-compat" in done.err
    assert {row["path"] for row in omac.audit()} == {"/status"}
    refused = [record.event for record in omac.events(ControlRefused) if isinstance(record.event, ControlRefused)]
    assert {(event.reason, event.listener) for event in refused} == {("forbidden", "bridge")}


def test_a_hook_of_the_go_omac_works_unchanged(omac: Omac) -> None:
    """A hook activates and deactivates its directory, by curl, in a sandbox of `omac start`."""
    project = project_of(omac)
    done = omac.run("start", "--workdir", str(project), "--bridge-compat", "--", "bash", "-c", HOOK)
    assert (done.status, done.out) == (0, '{"ok":true}'), done
    manifest = json.loads((project / "manifest").read_text())
    assert {skill["state"] for skill in manifest["skills"]} == {"ready", "pending-credentials"}
    assert json.loads((project / "ended").read_text()) == {"dir": str(project), "status": "deactivated"}


def test_it_is_recorded_and_shown(omac: Omac) -> None:
    """`omac status` reports the option and the journal has it; without it the same bridge needs a token."""
    serving = omac.start("serve", "--no-inner", "--json", "--root", str(omac.folder), "--bridge-compat").await_ready()
    assert "without a token (--bridge-compat)" in omac.ok("status")
    (run,) = json.loads(omac.ok("status", "--json"))["runs"]
    assert run["bridge_compat"] is True
    (started,) = [record.event for record in omac.events(RunStarted)]
    assert isinstance(started, RunStarted)
    assert started.policy["bridge_compat"] is True
    assert serving.end() == 0
    again = omac.start("serve", "--no-inner", "--json", "--root", str(omac.folder)).await_ready()
    socket = os.path.join(os.path.dirname(again.ready["control_socket"]), "bridge.sock")
    answer = curl("--unix-socket", socket, "--json", '{"dir": "/"}', "http://localhost/__omac__/activate")
    assert (answer.status, answer.headers["x-omac-reason"]) == (401, "unauthorized")
