"""The addresses of a run that is ready, and the variables that state them for its inner command.

Rules

1. An agent that serves many directories gets addresses, never a routing token: its bridge asks for those, per session.
2. A command that has one directory gets the flat names of that directory's skills, which hold its token.
3. Variables that are for this process alone are not handed on: those that an outer omac gave it, which would lead to
   directories of another run, and the socket of its service manager.
4. A call of a skill goes to no proxy, which would get the token and could not answer: this machine is among the hosts
   that are called directly.
"""

import re
from collections.abc import Mapping

import msgspec

from omac.adapters.linux import readiness
from omac.domain.harness.harness import Harness
from omac.domain.skills.meta import in_variables
from omac.projections.access.routes import SHARED
from omac.services.directories.manifest import Manifest, Reach
from omac.tools.terminal.version import VERSION

INSIDE = "/run/omac"  # where a sandbox has what omac hands on
FOREIGN = re.compile(r"OMAC_(.+_BASE|SKILLS|WORKDIR|RUN|CONTROL_SOCKET|BRIDGE)|" + readiness.VARIABLE)
DIRECT = ("127.0.0.1", "localhost", "::1")


class Ready(msgspec.Struct, frozen=True):
    """The addresses of a run that is ready."""

    control_base: str
    control_socket: str
    control_token_file: str
    facade_base: str
    facade_socket: str
    journal: str
    run: str

    def for_bridge(self, base: str, socket: str, token_file: str) -> "Ready":
        """Return the addresses for an agent: the listener of its bridge replaces the control plane's."""
        return msgspec.structs.replace(self, control_base=base, control_socket=socket, control_token_file=token_file)

    def inside(self, *, shown: bool = True) -> "Ready":
        """Return the addresses as seen from a sandbox. `shown`: whether the sandbox can show files at other places;
        where it cannot, only ports are left."""
        names = ("bridge.sock", "bridge.token", "facade.sock")
        control_socket, token_file, facade_socket = (f"{INSIDE}/{name}" if shown else "" for name in names)
        return msgspec.structs.replace(
            self, control_socket=control_socket, control_token_file=token_file, facade_socket=facade_socket
        )


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """omac's own environment without what is for omac alone (rule 3), and with this machine exempt from proxies (rule
    4)."""
    kept = {name: value for name, value in environment.items() if not FOREIGN.fullmatch(name)}
    return kept | {"no_proxy": _direct(kept, "no_proxy", "NO_PROXY"), "NO_PROXY": _direct(kept, "NO_PROXY", "no_proxy")}


def _direct(environment: Mapping[str, str], name: str, otherwise: str) -> str:
    """The value of a variable that exempts hosts from proxies, with DIRECT; where it is not set, that of `otherwise`
    counts: programs read one of the two."""
    value = environment.get(name, environment.get(otherwise, "")).strip()
    hosts = [host for host in value.split(",") if host]
    return value if value == "*" else ",".join([*hosts, *(host for host in DIRECT if host not in hosts)])


def variables(harness: Harness, ready: Ready) -> dict[str, str]:
    """Return the variables that every inner command gets: addresses, never a token (rule 1). The skills folder is
    relative to a project."""
    host, _, port = ready.facade_base.rpartition(":")
    variables_set = {
        "OMAC_VERSION": VERSION,
        "OMAC_HARNESS": harness.name,
        "OMAC_HARNESS_SKILLS_DIR": f".{harness.base}/skills",
        "OMAC_RUN": ready.run,
        "OMAC_HOST": host.removeprefix("http://").strip("[]"),
        "OMAC_PORT": port,
        "OMAC_BASE": ready.facade_base + "/",
        "OMAC_SOCKET": ready.facade_socket,
        "OMAC_CONTROL_BASE": ready.control_base,
        "OMAC_CONTROL_SOCKET": ready.control_socket,
        "OMAC_CONTROL_TOKEN_FILE": ready.control_token_file,
    }
    return {name: value for name, value in variables_set.items() if value}


def flat_variables(manifest: Manifest, ready: Ready) -> dict[str, str]:
    """Return the variables for the skills of a command's one directory, by their mounts (rule 2).

    A skill that is not ready has its variables too: they hold from the moment it is ready.
    """
    reach = Reach(ready.facade_base, ready.facade_socket)
    paths = {}
    for skill in reversed(manifest.skills):  # the directory's own come last, and stay
        if skill["mount"]:
            shared = "" if skill["scope"] == "workdir" else SHARED
            paths[in_variables(skill["mount"])] = f"{manifest.dir_token}/{shared}{skill['mount']}"
    return {
        **{f"OMAC_{name}_SOCKET_BASE": reach.socket_base(path) for name, path in paths.items() if reach.socket},
        **{f"OMAC_{name}_BASE": f"{reach.base}/{path}" for name, path in paths.items()},
        "OMAC_WORKDIR": manifest.dir,
        "OMAC_SKILLS": manifest.env["OMAC_SKILLS"],
    }
