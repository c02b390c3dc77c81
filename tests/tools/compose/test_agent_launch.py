"""tools/compose/agent_launch.py: what an agent is launched with."""

import io
import json
import multiprocessing
import os
from pathlib import Path

from programs import program_at

from omac.domain.harness.claude import HARNESS
from omac.domain.sandbox.request import SandboxRequest
from omac.tools.compose.agent_launch import launch_of
from omac.tools.terminal.invocation import Invocation, working_for

LAUNCHES = 500
SECRET = "a-key-of-the-person"


def swap(folder: str, link: str) -> None:
    """Put a link in the place of a folder and back, until killed."""
    while True:
        for moved in ((folder, f"{folder}-away"), (link, folder), (folder, link), (f"{folder}-away", folder)):
            os.rename(*moved)


def test_a_link_put_in_the_way_of_settings_leads_nowhere(tmp_path: Path) -> None:
    """A program that swaps a folder of the project for a link meanwhile gets no file from elsewhere as settings."""
    project, elsewhere = tmp_path.resolve() / "shop", tmp_path.resolve() / "elsewhere"
    for folder, key in ((project / "conf", "own"), (elsewhere, SECRET)):
        folder.mkdir(parents=True)
        (folder / "settings.json").write_text(json.dumps({"env": {"KEY": key}}))
    (project / "link").symlink_to(elsewhere)
    program_at(project / "claude", "#!/bin/sh\n")
    environment = {"PATH": str(project), "HOME": str(tmp_path)}
    words = ["--settings", "conf/settings.json"]

    def stated() -> str | None:
        launch = launch_of(
            ("claude",), words, HARNESS, environment, workdir=str(project), sandbox=SandboxRequest(), sandboxed=False
        )
        found: str | None = json.loads(launch.settings or "{}").get("env", {}).get("KEY")
        return found

    swapping = multiprocessing.Process(target=swap, args=(str(project / "conf"), str(project / "link")), daemon=True)
    with working_for(Invocation(environment, None, io.StringIO(), io.StringIO())):
        assert stated() == "own"
        swapping.start()
        try:
            seen = {stated() for _ in range(LAUNCHES)}
            assert swapping.is_alive()
        finally:
            swapping.kill()
            swapping.join()
    assert seen <= {"own", None}
