"""The live routes: where a routing token and a mount lead at this position, and if nowhere, why.

A composition of read models, not one of its own: the token index, directories and sidecars stay the only truth.
"""

import shlex

import msgspec

from omac.domain import ids
from omac.domain.directory import Directory, Route
from omac.domain.ids import TokenDigest
from omac.domain.refusal import Refusal
from omac.domain.sidecar import Sidecar
from omac.projections.system import System


class Way(msgspec.Struct, frozen=True):
    """A way that is open: to the sidecar of `skill` in `dir`, listening on loopback `port`."""

    dir: str
    skill: str
    mount: str
    session: str | None
    port: int
    max_body_bytes: int
    digest: TokenDigest  # of the token that leads there


def find_way(system: System, host: ids.HostId, digest: TokenDigest, mount: str) -> Way:
    """Where a token and a mount lead at this position.

    Raises Refusal: unknown-mount, pending-credentials, skill-broken, sidecar-down; `find_skill` tells which skill.
    """
    directory, name, route = find_skill(system, digest, mount)
    if name is None or route is None:
        raise Refusal("unknown-mount", "omac: unknown skill mount", fix=("omac status",))
    if route.why is not None:
        raise Refusal(route.why, f"{name}: {route.detail}", fix=route.fix, skill=name, missing=route.missing)
    sidecar = system.sidecars[ids.sidecar_stream(host, ids.workdir_id(directory.path), name)].state
    if sidecar.status != "healthy" or sidecar.birth is None:
        raise Refusal(
            "sidecar-down", f"{name}: {down_detail(sidecar)}", fix=(reload_command(directory.path),), skill=name
        )
    return Way(directory.path, name, mount, directory.tokens[digest], sidecar.birth.port, route.max_body_bytes, digest)


def find_skill(system: System, digest: TokenDigest, mount: str) -> tuple[Directory, str | None, Route | None]:
    """The directory a token opens, and the skill and route behind a mount of it; None for what leads nowhere."""
    stream = system.tokens.streams.get(digest)
    if stream is None:
        return Directory(), None, None
    directory = system.directories[stream].state
    for name, route in directory.routes.items():
        if mount and route.mount == mount:  # an empty one says that another skill has it
            return directory, name, route
    return directory, None, None


def down_detail(sidecar: Sidecar) -> str:
    """Why a sidecar does not answer, for people."""
    if sidecar.status == "backoff":
        return f"its sidecar is started again in {sidecar.delay_ms} ms, after: {sidecar.detail}"
    if sidecar.status in ("requested", "started"):
        return f"its sidecar is starting{', after: ' + sidecar.detail if sidecar.detail else ''}"
    return f"its sidecar is {sidecar.status}"


def reload_command(path: str) -> str:
    """The command that looks at a directory's skills again."""
    return f"omac reload {shlex.quote(path)}"
