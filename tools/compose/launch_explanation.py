"""The explanation of a launch, composed as the launch composes it; nothing is started, made or recorded."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from omac.domain.harness.harness import Harness
from omac.domain.sandbox.briefing import VARIABLE
from omac.domain.sandbox.request import request_of
from omac.domain.skills.meta import in_variables
from omac.services.sandbox.policy import SandboxPlan, plan
from omac.tools.compose.agent_launch import SETTINGS_WORD, AgentLaunch
from omac.tools.compose.endpoints import Ready, inherited, variables
from omac.tools.compose.sandbox_ports import SandboxAdapters
from omac.tools.terminal.render import report

UNKNOWN = "-"  # stands for what only a run has: sockets, its name
PLACES = Ready(UNKNOWN, UNKNOWN, UNKNOWN, "http://-:-", UNKNOWN, UNKNOWN, UNKNOWN)
SETTINGS = "<settings>"  # a person's can hold keys


class LaunchExplanation(NamedTuple):
    """The command, the names of variables that it would get and of those of the host that it would not, and the plan of
    its sandbox; None: it runs without one, and gets every variable."""

    argv: tuple[str, ...]
    gets: tuple[str, ...]
    drops: tuple[str, ...]
    sandbox: SandboxPlan | None


def explanation(
    launch: AgentLaunch, harness: Harness, mounts: Sequence[str], environment: Mapping[str, str]
) -> LaunchExplanation:
    """Return what a launch would be; `mounts` are those of the skills of its directory. Raises Refusal, as the launch
    would."""
    argv = tuple(SETTINGS if word == SETTINGS_WORD else word for word in launch.argv)
    seen = launch.sees(PLACES)
    flat = [f"OMAC_{in_variables(mount)}_{kind}" for mount in mounts for kind in ("BASE", "SOCKET_BASE")]
    extra = dict.fromkeys((*flat, "OMAC_SKILLS", "OMAC_WORKDIR"), UNKNOWN) | variables(harness, seen) | launch.variables
    host = inherited(environment)
    if launch.request is None:
        return LaunchExplanation(argv, tuple(sorted({*host, *extra})), (), None)
    request = launch.request.over(request_of({"explain": True, "env": list(extra), "command": list(argv)}))
    planned = plan(request, SandboxAdapters(host | extra, lambda line: report(f"omac: {line}")))
    gets = {*planned.policy.environment, VARIABLE}
    return LaunchExplanation(argv, tuple(sorted(gets)), tuple(sorted({*host} - gets)), planned)
