"""A state directory of another user, closed to this one: each command reports that, and none calls it a defect."""

import json
import os

import pytest
from real_omac import Omac

STRANGER = 12_345
UNPRIVILEGED = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")  # root that may not open all files
COMMANDS = (
    "", "activate .", "approvals", "audit", "checkpoint", "deactivate .", "export --out evidence", "journal check",
    "journal path", "key show", "list", "logs echo", "ps", "reload", "revoke echo", "sandbox run -- true",
    "serve --no-inner", "start -- true", "status", "stop x", "top",
)  # fmt: skip

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")


@pytest.fixture
def closed(omac: Omac) -> Omac:
    """Return an omac whose state directory is a stranger's."""
    omac.project("shop", "echo")
    omac.state.mkdir(mode=0o700, exist_ok=True)
    os.chown(omac.state, STRANGER, STRANGER)
    return omac


@pytest.mark.full
@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_names_its_owner(closed: Omac, command: str) -> None:
    """A command that needs the state directory ends with its status, its owner and the way to another."""
    done = closed.process(*command.split(), cwd=closed.root / "shop", within=UNPRIVILEGED)
    assert done.status == 5, done
    first, *fixes = done.err.splitlines()
    assert first == f"omac: the state directory {closed.state} belongs to user {STRANGER}, not to you (0)"
    assert fixes == [f"  try: ls -ld {closed.state}", "  try: export OMAC_STATE_DIR=PATH  # one of your own"]


def test_the_doctor_reports_it_beside_the_machine(closed: Omac) -> None:
    """`omac doctor` reports the owner as a finding, and judges the machine nevertheless."""
    done = closed.process("doctor", "--json", within=UNPRIVILEGED)
    assert done.status == 5, done
    first, *others = json.loads(done.out)["findings"]
    assert (first["name"], first["level"]) == ("own files", "fail")
    assert f"belongs to user {STRANGER}" in first["says"]
    assert others
