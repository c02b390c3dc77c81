"""Standard streams that are closed when omac starts are opened on /dev/null, also for the program that omac starts."""

import subprocess
import sys
from pathlib import Path

import pytest
from real_omac import Omac
from tiers import spread

INSTALLED = Path(sys.executable).with_name("omac")
OPEN = 'for number in 0 1 2; do readlink /proc/self/fd/$number || echo closed; done >"$PWD/streams"'


@pytest.mark.parametrize(
    ("command", "closed"),
    spread(
        [("start",), ("sandbox", "run")],
        ["<&-", ">&-", "2>&-", "<&- >&-", "<&- 2>&-", ">&- 2>&-", "<&- >&- 2>&-"],
    ),
)
def test_closed_ones_lead_nowhere(command: tuple[str, ...], closed: str, omac: Omac) -> None:
    """A closed stream is neither closed for the program nor one of omac's files, whichever stream it is."""
    project = omac.root / "project"
    project.mkdir()
    line = ["sh", "-c", f'exec "$@" {closed}', "sh", str(INSTALLED), *command, "--", "sh", "-c", OPEN]
    with (project / "output").open("wb") as output:
        subprocess.run(line, cwd=project, env=omac.environment, stdout=output, stderr=output, check=True)
    targets = (project / "streams").read_text().splitlines()
    for number, sign in ((0, "<&-"), (2, "2>&-")):  # 1 is the shell's own
        is_open = sign not in closed.split()
        assert targets[number] == "/dev/null" or (is_open and targets[number] != "closed"), targets
