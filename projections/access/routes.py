"""The live routes: where a routing token and a mount lead at this position, and if nowhere, why.

A composition of read models, not one of its own: the token index, directories and sidecars stay the only truth.
"""

import msgspec

from omac.domain.directories.directory import Directory, commands_for, logs_command, restart_command
from omac.domain.directories.events import MAX_BODY_BYTES, CallLimits, Route
from omac.domain.kernel import ids
from omac.domain.kernel.ids import StreamId, TokenDigest
from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.settings.owner_limits import OF_A_SKILL, SkillBounds, how_to_change, stricter
from omac.domain.sidecars.sidecar import Sidecar
from omac.projections.system import System

STARTING = "its sidecar is starting"  # the whole detail where it did not run before
_DEFAULT_BODY = ("max_body_bytes", MAX_BODY_BYTES)
SHARED = f"{ids.SHARED}/"  # before the mount of a skill that all directories share


class ResolvedRoute(msgspec.Struct, frozen=True):
    """A way that is open: from `dir`, whose token was shown, to the sidecar of `skill` on loopback `port`; `streams`
    are the directories that can end it, and `approval` is the registration that can, where its skill runs by an
    approval. `generation` is that of the sidecar: in a later one it is another sidecar. `limits` and `max_body_bytes`
    are those that hold, except that `limits.idle_s` is the skill's own; `bounds` are the owner's."""

    dir: str
    skill: str
    mount: str
    session: str | None
    port: int
    max_body_bytes: int
    digest: TokenDigest  # of the token that leads there
    streams: tuple[StreamId, ...] = ()
    limits: CallLimits = CallLimits()
    bounds: SkillBounds = SkillBounds()
    approval: StreamId | None = None
    generation: int = 0

    def within(self, bounds: SkillBounds) -> "ResolvedRoute":
        """Return the same within what the owner of the host allows."""
        limits = msgspec.structs.replace(
            self.limits,
            total_s=stricter(self.limits.total_s, bounds.total_s),
            concurrent=stricter(self.limits.concurrent, bounds.concurrent),
            per_second=stricter(self.limits.per_second, bounds.per_second),
        )
        max_body_bytes = min(self.max_body_bytes, bounds.max_body_bytes or self.max_body_bytes)
        return msgspec.structs.replace(self, max_body_bytes=max_body_bytes, limits=limits, bounds=bounds)

    def limit(self, field: str, value: float) -> tuple[str, str]:
        """Return whose a limit is, in words, and the command that changes it: `value` is that of `field`, one of
        OF_A_SKILL."""
        if getattr(self.bounds, field) == value:
            return "the limit of your settings", how_to_change(OF_A_SKILL[field])
        is_default = self.limits.idle_s is None if field == "idle_s" else (field, value) == _DEFAULT_BODY
        whose = "the default limit" if is_default else "the limit of its omac.yaml"
        return whose, f"omac show {self.skill} {self._where}  # sidecar.{OF_A_SKILL[field]} of its omac.yaml"

    @property
    def logs_command(self) -> str:
        """The command that shows what the sidecar printed."""
        return logs_command(self.skill, "" if self.mount.startswith(SHARED) else self.dir)

    @property
    def commands_if_hung(self) -> tuple[str, str]:
        """The commands for a sidecar that may hang: what it printed, and another in its place."""
        return self.logs_command, restart_command(self.skill, "" if self.mount.startswith(SHARED) else self.dir)

    @property
    def _where(self) -> str:
        return "--global" if self.mount.startswith(SHARED) else f"--workdir {quoted(self.dir)}"


def resolve_route(system: System, namespace: ids.HostId, digest: TokenDigest, mount: str) -> ResolvedRoute:
    """Return the route of a token and a mount at this position, in one run namespace; the tokens of others do not
    resolve there. Raises Refusal: unknown-mount, pending-credentials, skill-broken, sidecar-down; `find_skill` returns
    the skill."""
    directory, owner, name, route = _find(system, namespace, digest, mount)
    if name is None:
        raise unknown_mount()
    if route is not None and route.why is not None:
        raise Refusal(route.why, f"{name}: {route.detail}", fix=route.fix, skill=name, missing=route.missing)
    sidecar = system.sidecars[ids.sidecar_stream(namespace, ids.scope_of(owner.path), name)].state
    if route is None or sidecar.status != "healthy" or sidecar.birth is None:
        fix = commands_for(sidecar, name, owner.path)
        raise Refusal("sidecar-down", f"{name}: {down_detail(sidecar)}", fix=fix, skill=name)
    own, shared = (ids.directory_stream(namespace, scope) for scope in (ids.scope_of(directory.path), ids.GLOBAL))
    streams = (own, shared) if mount.startswith(SHARED) else (own,)
    session = directory.tokens[digest]
    return ResolvedRoute(
        directory.path, name, mount, session, sidecar.birth.port, route.max_body_bytes, digest, streams,
        route.limits, approval=_approval(namespace, owner, name, sidecar), generation=sidecar.generation,
    )  # fmt: skip


def has_lost_approval(system: System, route: ResolvedRoute) -> bool:
    """Return whether the approval that a route's skill runs by is revoked. An approval of other code in its place is no
    loss: that code's sidecar takes the route over."""
    return route.approval is not None and system.registrations[route.approval].state.approved is None


def _approval(namespace: ids.HostId, owner: Directory, name: str, sidecar: Sidecar) -> StreamId | None:
    """Return the registration with the approval by which a sidecar runs; None for one that runs without."""
    if sidecar.spec is None or not sidecar.spec.approved or name not in owner.skills:
        return None
    scope = sidecar.spec.repository or ids.scope_of(owner.path)
    return ids.registration_stream(ids.host_of(namespace), scope, owner.skills[name].base, name)


def unknown_mount() -> Refusal:
    """Return the refusal of a token and a mount that lead nowhere."""
    return Refusal("unknown-mount", "omac: unknown skill mount", fix=("omac status",))


def find_skill(
    system: System, namespace: ids.HostId, digest: TokenDigest, mount: str
) -> tuple[Directory, str | None, Route | None]:
    """The directory a token opens, and the skill and route behind a mount of it; None for what leads nowhere. A skill
    whose first sidecar is starting has no route yet.

    A mount that begins with SHARED is one of the skills that all directories share.
    """
    directory, _, name, route = _find(system, namespace, digest, mount)
    return directory, name, route


def _find(
    system: System, namespace: ids.HostId, digest: TokenDigest, mount: str
) -> tuple[Directory, Directory, str | None, Route | None]:
    """Return what `find_skill` does, and behind the directory the one that the skill belongs to: for a shared skill
    that with the empty path."""
    stream = system.tokens.streams.get(digest)
    if stream is None or not stream.startswith(f"directory/{namespace}/"):
        return Directory(), Directory(), None, None
    directory = owner = system.directories[stream].state
    if digest not in directory.tokens:
        return Directory(), Directory(), None, None
    if mount.startswith(SHARED):
        owner, mount = system.directories[ids.directory_stream(namespace, ids.GLOBAL)].state, mount.removeprefix(SHARED)
        if not owner.reachable:
            return directory, owner, None, None
    for name, route in owner.routes.items():
        if mount and route.mount == mount:  # an empty one says that another skill has it
            return directory, owner, name, route
    for name in owner.specs.keys() - owner.routes.keys():
        if mount and owner.skills[name].mount == mount:
            return directory, owner, name, None
    return directory, owner, None, None


def down_detail(sidecar: Sidecar) -> str:
    """Return why a sidecar does not answer, for people."""
    if sidecar.status == "backoff":
        return f"its sidecar is started again in {sidecar.delay_ms} ms, after: {sidecar.detail}"
    if sidecar.status in ("idle", "requested", "started", "healthy"):  # healthy: its route is mounted next
        failed = sidecar.detail and sidecar.status != "idle"  # how one ended that omac stopped is no failure
        return f"{STARTING}, after: {sidecar.detail}" if failed else STARTING
    return "its sidecar gave up" if sidecar.status == "gave_up" else f"its sidecar is {sidecar.status}"
