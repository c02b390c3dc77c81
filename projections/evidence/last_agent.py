"""The agent that ran last in a project: a fold over the runs that a journal has."""

from collections.abc import Iterable

from omac.domain.kernel.event import Recorded
from omac.domain.kernel.paths import below_any
from omac.domain.kernel.run import RunStarted


def last_agent(records: Iterable[Recorded], project: str) -> str:
    """Return the name of the agent that was launched last in the canonical folder `project`, or below whose root it is
    where a server launched it; empty where none was."""
    agent = ""
    for recorded in records:
        event = recorded.event
        if isinstance(event, RunStarted) and isinstance(name := event.policy.get("agent"), str):
            is_start = event.command == "start"
            if project in event.roots if is_start else below_any(project, event.roots):
                agent = name
    return agent
