"""projections/evidence/last_agent.py: the agent that ran last in a project."""

from typing import Any

from omac.domain.kernel import ids
from omac.domain.kernel.ids import HostId, RunId
from omac.domain.kernel.run import RunStarted
from omac.projections.evidence.last_agent import last_agent


def test_the_last_one_there(history: Any) -> None:
    """The last agent is that of a start in the folder, or of a server around it. A run without an agent, or elsewhere,
    does not count."""
    for number, (agent, root, command) in enumerate(
        [
            ("codex", "/w/shop", "start"),
            ("", "/w/shop", "start"),
            ("pi", "/w", "start"),
            ("claude", "/v", "serve"),
            ("opencode", "/v", "start"),
        ]
    ):
        policy: dict[str, str | bool] = {"agent": agent} if agent else {}
        started = RunStarted("opencode", "1", 1, 2, "boot", (root,), policy, command)
        history.append(ids.run_stream(HostId("h"), RunId(f"r{number}")), started)
    assert last_agent(history.records, "/w/shop") == "codex"
    assert last_agent(history.records, "/v/x") == "claude"
    assert last_agent(history.records, "/v") == "opencode"
    assert last_agent(history.records, "/w/shop/src") == ""
