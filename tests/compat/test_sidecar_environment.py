"""The environment of a sidecar: the base variables of the contract, and no others that were not declared."""

import json

import pytest
from real_omac import Omac, curl
from valued_skill import PROGRAM

pytestmark = pytest.mark.full

BASE = ("HOME", "USER", "TMPDIR", "LANG", "LC_ALL", "LC_CTYPE")
PRIVATE = "SSH_AUTH_SOCK"
META = """\
name: teller
sidecar: {command: [python3, -I, -S, sidecar.py]}
"""


@pytest.mark.parametrize("approved", [True, False])
def test_the_base_variables_are_those_of_the_host(omac: Omac, approved: bool) -> None:
    """The base variables, which an unapproved skill could find out by itself, also reach such a skill."""
    host = {"USER": "ada", "TMPDIR": str(omac.folder), "LC_ALL": "C", "LC_CTYPE": "C.UTF-8", PRIVATE: "/run/agent"}
    project = omac.root / "shop"
    program = PROGRAM.replace("for name in ", "for name in (*os.environ,) or ")
    omac.skill(project, "teller", META, program)
    if approved:
        omac.approve(project, "teller")
    serving = omac.serve("--unapproved", "allow", extra=host)
    variables = json.loads(curl(f"{serving.skill(project, 'teller')['base']}/").body)
    expected = omac.environment | host
    assert {name: variables.get(name) for name in BASE} == {name: expected[name] for name in BASE}
    assert PRIVATE not in variables
    assert not {name for name in variables if name.startswith("XDG_")}
