"""The exit status of a client under `omac start`."""

import pytest
from clients.agents import CLIENTS
from clients.world import world_or_skip

pytestmark = pytest.mark.full


@pytest.mark.parametrize("client", ["claude", "codex", "opencode"])
def test_the_clients_exit_status_is_passed_through(client: str) -> None:
    """The exit status and the output are the client's own for a command line that it refuses."""
    with world_or_skip(CLIENTS[client][0]) as world:
        line = ["--no-such-option-of-this-client"]
        alone, under = world.alone(line), world.start(line, world.one)
        assert under.status == alone.status != 0
        assert under.out == alone.out
