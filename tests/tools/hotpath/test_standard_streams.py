"""Standard streams that whoever starts omac has closed lead nowhere, also for the program that omac starts."""

import pytest
from real_omac import Omac

OPEN = 'for number in 0 1 2; do readlink /proc/self/fd/$number || echo closed; done >"$PWD/streams"'


@pytest.mark.parametrize("command", [("start",), ("sandbox", "run")])
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&-", "<&- 2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_ones_lead_nowhere(command: tuple[str, ...], closed: str, omac: Omac) -> None:
    """Whichever of them: none is closed for the program, nor is it a file of omac's."""
    project = omac.root / "project"
    project.mkdir()
    program = ("sh", "-c", OPEN)
    done = omac.process(*command, "--", *program, cwd=project, within=("sh", "-c", f'exec "$@" {closed}', "sh"))
    assert done.status == 0, done
    seen = (project / "streams").read_text().splitlines()
    for number, sign in ((0, "<&-"), (2, "2>&-")):  # 1 is the shell's own
        is_open = sign not in closed.split()
        assert seen[number] == "/dev/null" or (is_open and seen[number].startswith("pipe:")), seen
