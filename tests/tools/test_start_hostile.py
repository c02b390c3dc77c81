"""`omac start` with hostile files of an agent in the project, and hostile requests to the bridge in its sandbox."""

import os
import subprocess
from pathlib import Path

import pytest
from real_omac import Omac
from started import LOOP, started
from tiers import some

from omac.domain.access.control import ControlRefused
from omac.domain.guard.denial import GuardDenied

AGENT = """
import http.client, json, os, socket

class Bridge(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(os.environ["OMAC_CONTROL_SOCKET"])

bridge = Bridge("localhost")
bearer = "Bearer " + open(os.environ["OMAC_CONTROL_TOKEN_FILE"]).read()

def ask(action, **document):
    bridge.request("POST", "/__omac__/" + action, json.dumps(document), {"Authorization": bearer})
    answer = bridge.getresponse()
    answer.read()
    return answer.status

here = os.getcwd()
print(ask("activate", dir=here, session="s1"), ask("activate", dir=here, session="cli"))
print(ask("deactivate", dir=here, session="cli"), ask("activate", dir=here + "/below"))
assert {ask("denied", harness="h", tool="t", root="r", path=str(n)) for n in range(300)} == {200}
print(ask("status"))
"""


@pytest.mark.full
def test_a_bridge_is_for_its_one_directory(omac: Omac) -> None:
    """An agent in a sandbox can use neither the user's session nor a project below with its own secrets. Its endless
    claims of denials hide no later refusal."""
    project, below = omac.project("p"), omac.project("p/below")
    omac.approve(project)
    omac.approve(below)
    done = omac.run("start", "--workdir", str(project), "--", "python3", "-c", AGENT)
    assert done.out.split() == ["200", "403", "403", "400", "403"], done
    refused = [record.event for record in omac.events(ControlRefused) if isinstance(record.event, ControlRefused)]
    assert [(event.action, event.reason) for event in refused] == [
        ("activate", "forbidden"),
        ("deactivate", "forbidden"),
        ("activate", "outside-roots"),
        ("status", "forbidden"),
    ]
    denied = [record.event for record in omac.events(GuardDenied) if isinstance(record.event, GuardDenied)]
    assert sum(event.count for event in denied) == 300
    assert len(denied) < 80


HOOKED = """#!/usr/bin/python3
import json, os, subprocess
for path in ("/elsewhere/" + "x/" * 1000 + "end", "/elsewhere/" + chr(0xDC80) * 200):
    given = {"file_path": path, "content": ""}
    payload = {"hook_event_name": "PreToolUse", "session_id": "s" * 400, "cwd": os.getcwd(), "tool_name": "Write",
               "tool_input": given}
    command = os.environ["OMAC_HOOK"] + " pre-tool-use"
    done = subprocess.run(command, shell=True, input=json.dumps(payload).encode(), capture_output=True)
    print(done.returncode, b"could not be recorded" in done.stderr)
"""


@pytest.mark.full
def test_a_denial_of_a_long_path_is_recorded(omac: Omac) -> None:
    """A denied write is recorded even if the agent names a very long path or one that is not text."""
    project = omac.project("p")
    omac.program("opencode", HOOKED)
    done = omac.run("start", "opencode", "--workdir", str(project))
    assert done.out == "2 False\n2 False\n", done
    denied = [record.event for record in omac.events(GuardDenied) if isinstance(record.event, GuardDenied)]
    assert [event.path[:14] for event in denied] == ["/elsewhere/x/x", ""], "the latter is no text"


@pytest.mark.parametrize("kind", some(["fifo", "zero", "long", "loop"], of=2))
def test_a_git_pointer_that_is_none_is_no_defect_of_omacs(omac: Omac, kind: str) -> None:
    """A malformed .git file is reported by the sandbox, and is no defect of `omac start codex`, which reads it too."""
    project = omac.root / "p"
    project.mkdir()
    pointer = project / ".git"
    match kind:
        case "fifo":
            os.mkfifo(pointer)
        case "zero":
            pointer.symlink_to("/dev/zero")
        case "loop":
            pointer.symlink_to(".git")
        case _:
            with pointer.open("wb") as file:
                file.truncate(1 << 33)
    omac.program("codex", "#!/bin/sh\n")
    done = omac.run("start", "codex", "--workdir", str(project))
    assert done.status == 7, done
    assert str(pointer) in done.err


@pytest.mark.full
def test_a_journal_in_the_project(omac: Omac) -> None:
    """A program that could change the journal of a run that lives, or put files beside it, is not launched."""
    project = omac.project("p")
    journal = project / "data" / "journal.db"
    journal.parent.mkdir()
    line = ("start", "--workdir", str(project), "--journal", str(journal))
    script = f"head -c 6 {journal}; echo x > {journal}-journal; echo x > {project}/journal.db"
    refused = omac.run(*line, "--", "sh", "-c", script)
    assert (refused.out, f"{journal} lies where the program may write" in refused.err) == ("", True), refused
    done = omac.run(*line, "--deny", str(journal.parent), "--", "sh", "-c", f"{script}; echo done")
    assert done.out == "done\n", done
    living = started(omac, project, LOOP, "--journal", str(journal))
    assert living.line() == "up\n"
    beside = omac.run("sandbox", "run", "--workdir", str(project), "--", "true")
    assert (beside.status, f"{journal} lies where the program may write" in beside.err) == (7, True), beside
    living.end()
    reading = ("audit", "--journal", str(journal))
    omac.ok(*reading)
    omac.ok("sandbox", "run", "--workdir", str(project), "--deny", str(journal.parent), "--", "true")
    omac.ok("sandbox", "run", "--workdir", str(project), "--explain", "--", "true")
    omac.ok(*reading)
    after = omac.run("sandbox", "run", "--workdir", str(project), "--", "true")
    assert after.status == 0, after
    for words in (reading, (*line, "--deny", str(journal.parent), "--", "true")):
        refused = omac.run(*words)
        assert (refused.status, "changed by a program in a sandbox since omac last used it" in refused.err) == (
            10,
            True,
        )
    (forget,) = [text for text in refused.err.splitlines() if text.startswith("  try: rm ")]
    subprocess.run(["sh", "-c", forget.removeprefix("  try: ")], check=True)
    omac.ok(*reading)


@pytest.mark.parametrize(
    "words", [["start", "--", "true"], ["start", "--no-sandbox", "--", "true"], ["serve", "--no-inner"]]
)
def test_a_directory_that_is_not_text(omac: Omac, tmp_path: Path, words: list[str]) -> None:
    """A path that cannot be recorded is refused by its name, and is no defect to be reported."""
    folder = Path(os.fsdecode(bytes(tmp_path) + b"/caf\xe9"))
    folder.mkdir()
    done = omac.run(*words, cwd=folder)
    assert (done.status, done.err) == (2, f"omac: {tmp_path}/caf\\udce9 is not a UTF-8 path; rename the directory\n")
