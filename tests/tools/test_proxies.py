"""Proxies in the environment of a person, and an agent's calls of its skills, which must not go there."""

import socket

import pytest
from real_omac import Omac
from tiers import some

OWN: tuple[dict[str, str], ...] = ({}, {"NO_PROXY": ".example"}, {"no_proxy": ".example", "NO_PROXY": "of-others"})
BARE = ("--no-sandbox",)
BOTH_WAYS = [((), OWN[0]), (BARE, OWN[0]), (BARE, OWN[1]), ((), OWN[1]), ((), OWN[2]), (BARE, OWN[2])]


@pytest.mark.parametrize(("options", "own"), some(BOTH_WAYS, of=2))
def test_a_call_of_a_skill_goes_to_no_proxy(omac: Omac, options: tuple[str, ...], own: dict[str, str]) -> None:
    """A proxy would get the token, and could not answer. What the person exempts from proxies stays exempt."""
    project = omac.approved("shop")
    call = 'curl -sS --max-time 5 "$OMAC_ECHO_BASE/health" && echo " $no_proxy $NO_PROXY"'
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        host, port = proxy.getsockname()
        omac.environment |= {"http_proxy": f"http://{host}:{port}", "all_proxy": f"http://{host}:{port}"} | own
        answer = omac.ok("start", *options, "--workdir", str(project), "--", "sh", "-c", call)
    *_, lower, upper = answer.split()
    assert ".example" in lower.split(",") or not own
    assert "127.0.0.1" in upper.split(",")
