"""A directory: a project whose skills are brought online together, reached through routing tokens.

What is shared by all projects is brought online in the same way, as the directory with the empty path; it has no tokens
of its own.

Rules

1. Nothing leads to a directory that is not active: tokens are minted with an activation and dead from the moment
   its end is requested.
2. One activation at a time: whoever asks while one is under way shares its outcome. A reload keeps the tokens.
3. A skill is either mounted (a sidecar stands behind it) or stubbed (a reason does, and the way to mend it); one that
   cannot come online never keeps the others from it.
4. What shall run is recorded before anything of it is asked for. An activation ends `activated` when every skill is
   ready, else `activated-partially`. It always ends.
5. Deactivated is recorded when every sidecar of the directory has been recorded as stopped.
6. At most SESSIONS_MAX sessions have tokens. Admitting one more ends the session admitted longest ago, as a request to
   end it does: its token is dead, and it gets another when it asks again. That of a person stays: an agent makes as
   many as it likes. The fold keeps to the bound also in a journal from before this rule.
"""

from collections.abc import Mapping
from typing import Literal, TypeVar

import msgspec
from msgspec.structs import replace

from omac.domain.access.control import PERSON
from omac.domain.directories.events import (
    MAX_BODY_BYTES,
    Activated,
    ActivatedPartially,
    ActivationFailed,
    ActivationRequested,
    CallLimits,
    Deactivated,
    DeactivationRequested,
    ReloadRequested,
    Route,
    RouteMounted,
    RouteStubbed,
    RouteUnmounted,
    SessionAdmitted,
    SessionEnded,
    Skill,
    SkillAppeared,
    SkillPlan,
    SkillPlanned,
    SkillVanished,
)
from omac.domain.kernel.aggregate import Aggregate
from omac.domain.kernel.event import Event
from omac.domain.kernel.ids import TokenDigest
from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.sidecars.sidecar import Sidecar, SidecarSpec

Kept = TypeVar("Kept")
Status = Literal["offline", "activating", "active", "active_partial", "deactivating"]
NOTICED = ("omac unlock", "omac secrets set")  # commands that make what runs try again, without a reload
SESSIONS_MAX = 512  # with tokens at one time; what an admission costs grows with it


class Directory(msgspec.Struct, frozen=True):
    """`tokens` maps digests to sessions (None: the launch token); `skills`, `plans` and `routes` are by skill name.

    `generation` counts activations and reloads, `planned` is the one that `plans` were made for; `failure` is why the
    last activation failed. `restarts` are the skills whose sidecars the last reload replaces.
    """

    path: str = ""
    harness: str = ""
    status: Status = "offline"
    generation: int = 0
    tokens: dict[TokenDigest, str | None] = {}
    skills: dict[str, Skill] = {}
    plans: dict[str, SkillPlan] = {}
    planned: int = 0
    routes: dict[str, Route] = {}
    failure: str = ""
    restarts: tuple[str, ...] = ()

    @property
    def reachable(self) -> bool:
        """Return whether the directory's tokens resolve."""
        return self.status in ("activating", "active", "active_partial")

    @property
    def has_plan(self) -> bool:
        """Return whether the directory can be reached and has the plan of its last activation or reload."""
        return self.reachable and (self.status != "activating" or self.planned == self.generation)

    @property
    def specs(self) -> dict[str, SidecarSpec]:
        """The sidecars that shall run, by skill."""
        return {name: plan.spec for name, plan in self.plans.items() if plan.spec is not None}

    def replaces(self, sidecar: Sidecar, spec: SidecarSpec) -> bool:
        """Return whether another sidecar, with `spec`, shall run in the place of this one."""
        return sidecar.spec != spec or (spec.skill in self.restarts and sidecar.generation != self.generation)


_UP: tuple[Status, ...] = ("activating", "active", "active_partial")

TABLE: dict[tuple[Status, type[Event]], Status] = {
    ("offline", ActivationRequested): "activating",
    **{(status, SessionAdmitted): status for status in _UP},
    **{(status, SessionEnded): status for status in _UP},
    ("activating", SkillAppeared): "activating",
    ("activating", SkillPlanned): "activating",
    ("activating", SkillVanished): "activating",
    **{(status, RouteMounted): status for status in _UP},
    **{(status, RouteStubbed): status for status in _UP},
    ("activating", RouteUnmounted): "activating",
    ("activating", Activated): "active",
    ("activating", ActivatedPartially): "active_partial",
    ("activating", ActivationFailed): "deactivating",
    ("active", ActivatedPartially): "active_partial",
    ("active_partial", Activated): "active",
    ("active", ReloadRequested): "activating",
    ("active_partial", ReloadRequested): "activating",
    **{(status, DeactivationRequested): "deactivating" for status in _UP},
    ("deactivating", RouteUnmounted): "deactivating",
    ("deactivating", Deactivated): "offline",
}


class ActivationPlan(msgspec.Struct, frozen=True):
    """The result of discovery and planning: skills as found, sidecars to run with their limits, and stubs."""

    skills: dict[str, Skill] = {}
    specs: dict[str, SidecarSpec] = {}
    max_body_bytes: dict[str, int] = {}
    stubs: dict[str, RouteStubbed] = {}
    limits: dict[str, CallLimits] = {}


class RequestActivation(msgspec.Struct, frozen=True):
    """Command: bring it online, with a fresh token's digest should that be needed."""

    path: str
    harness: str
    digest: TokenDigest


class AdmitSession(msgspec.Struct, frozen=True):
    """Command: give this session a token of its own."""

    session: str
    digest: TokenDigest


class EndSession(msgspec.Struct, frozen=True):
    """Command: the token of this session, if it has one, is dead; those of others live."""

    session: str


class RequestReload(msgspec.Struct, frozen=True):
    """Command: look at its skills again, and replace the sidecars of `restarts`. `path` is for the refusal of one that
    never was online."""

    path: str = ""
    restarts: tuple[str, ...] = ()


class AdoptPlan(msgspec.Struct, frozen=True):
    """Command: this is what was found."""

    plan: ActivationPlan


class Settle(msgspec.Struct, frozen=True):
    """Command: compare what shall run with how the sidecars fare. It changes nothing while a reload has yet to plan."""

    sidecars: Mapping[str, Sidecar]


class FailActivation(msgspec.Struct, frozen=True):
    """Command: it cannot be brought online."""

    detail: str


class RequestDeactivation(msgspec.Struct, frozen=True):
    """Command: take it offline."""

    why: str


class FinishDeactivation(msgspec.Struct, frozen=True):
    """Command: nothing of it runs any more."""


Command = (
    RequestActivation | AdmitSession | EndSession | RequestReload | AdoptPlan | Settle | FailActivation
    | RequestDeactivation | FinishDeactivation
)  # fmt: skip


def decide(command: Command, state: Directory) -> list[Event]:
    """The events that `command` means in `state`; none when there is nothing to change. Raises Refusal:
    directory-offline (it is not active but would have to be), not-found (no sidecar of that name is planned)."""
    match command:
        case RequestActivation(path, harness, digest):
            return [ActivationRequested(path, harness, digest)] if state.status == "offline" else []
        case AdmitSession(session, digest):
            _require_reachable(state)
            return _admit(session, digest, state)
        case EndSession(session):
            return [SessionEnded(session, token) for token, holder in state.tokens.items() if holder == session]
        case RequestReload(path, restarts):
            _require_reachable(state, path)
            return [] if state.status == "activating" else [_reload(restarts, state)]
        case AdoptPlan(plan):
            return _adopt(plan, state) if state.status == "activating" else []
        case Settle(sidecars):
            return settle(sidecars, state) if state.has_plan else []
        case FailActivation(detail):
            return [ActivationFailed(detail)] if state.status == "activating" else []
        case RequestDeactivation(why):
            return [DeactivationRequested(why)] if state.reachable else []
        case FinishDeactivation():
            if state.status != "deactivating":
                return []
            return [*(RouteUnmounted(skill) for skill in state.routes), Deactivated()]


def _require_reachable(state: Directory, path: str = "") -> None:
    if not state.reachable:
        path = state.path or path
        fix = [f"omac activate {quoted(path)}"]
        raise Refusal("directory-offline", f"{path} is not active; activate it first", fix=fix)


def _reload(restarts: tuple[str, ...], state: Directory) -> ReloadRequested:
    if unknown := [skill for skill in restarts if skill not in state.specs]:
        message = f"{state.path or 'what all projects share'} has no sidecar of {', '.join(unknown)}"
        raise Refusal("not-found", message, fix=["omac status", reload_command(state.path)])
    return ReloadRequested(restarts)


def _admit(session: str, digest: TokenDigest, state: Directory) -> list[Event]:
    holders = [(holder, token) for token, holder in state.tokens.items() if holder is not None]  # by admission
    if digest in state.tokens or any(holder == session for holder, _ in holders):
        return []  # no token is taken from who has it
    agents = [(holder, token) for holder, token in holders if holder != PERSON]
    ended = agents[: max(0, len(holders) + 1 - SESSIONS_MAX)]
    return [*(SessionEnded(holder, token) for holder, token in ended), SessionAdmitted(session, digest)]


def _adopt(plan: ActivationPlan, state: Directory) -> list[Event]:
    events: list[Event] = []
    for name in sorted(state.skills.keys() - plan.skills.keys()):
        events += [RouteUnmounted(name)] if name in state.routes else []
        events.append(SkillVanished(name))
    for name, skill in plan.skills.items():
        if state.skills.get(name) != skill:
            events.append(SkillAppeared(skill.name, skill.base, skill.source, skill.bundle_hash, skill.mount))
        stub = plan.stubs.get(name)
        max_body_bytes = plan.max_body_bytes.get(name, MAX_BODY_BYTES)
        limits = plan.limits.get(name, CallLimits())
        events.append(SkillPlanned(name, plan.specs.get(name), max_body_bytes, stub.detail if stub else "", limits))
        if stub and state.routes.get(name) != _stub_route(stub):
            events.append(stub)
        elif stub is None and name in state.routes and state.routes[name].why is not None:
            events.append(RouteUnmounted(name))  # what its stub says no longer holds: its sidecar starts
    return events if plan.skills else [*events, Activated()]


def settle(sidecars: Mapping[str, Sidecar], state: Directory) -> list[Event]:
    """Routes that follow from how the sidecars fare and, once all are settled, the end of the activation."""
    events: list[Event] = []
    routes = dict(state.routes)
    is_activating, waiting = state.status == "activating", False
    for name, spec in state.specs.items():
        sidecar, plan = sidecars[name], state.plans[name]
        route = Route(state.skills[name].mount, plan.max_body_bytes, limits=plan.limits)
        if sidecar.status == "gave_up" and (not is_activating or sidecar.generation == state.generation):
            stub = _gave_up(name, state, sidecar)
            if routes.get(name) != _stub_route(stub):
                events.append(stub)
                routes[name] = _stub_route(stub)
        elif not is_activating:
            continue
        elif not settled(spec, sidecar, state):
            waiting = True
        elif routes.get(name) != route:
            events.append(RouteMounted(name, route.mount, route.max_body_bytes, route.limits))
            routes[name] = route
    if waiting:
        return events  # the activation is not over
    whole = all(route.why is None and sidecars[name].status == "healthy" for name, route in routes.items())
    if is_activating:
        events.append(Activated() if whole else ActivatedPartially())
    elif whole and state.status == "active_partial":
        events.append(Activated())
    elif state.status == "active" and any(route.why is not None for route in routes.values()):
        events.append(ActivatedPartially())
    return events


def settled(spec: SidecarSpec, sidecar: Sidecar, state: Directory) -> bool:
    """Return whether an activation need not wait for this sidecar: it runs as wanted, or has failed at least once."""
    if state.replaces(sidecar, spec):
        return False
    if sidecar.status == "gave_up":
        return sidecar.generation == state.generation
    return sidecar.status == "healthy" or sidecar.failures > 0


def _gave_up(name: str, state: Directory, sidecar: Sidecar) -> RouteStubbed:
    mount, fix = state.skills[name].mount, sidecar.fix
    if not any(word in command for command in fix for word in NOTICED):
        fix = (*fix, *commands_for(sidecar, name, state.path))
    why: Literal["pending-credentials", "skill-broken"] = "pending-credentials" if sidecar.missing else "skill-broken"
    return RouteStubbed(name, mount, why, sidecar.detail, sidecar.missing, fix)


def reload_command(path: str) -> str:
    """The command that looks at a directory's skills again; the empty path means those shared by all."""
    return f"omac reload {quoted(path)}" if path else "omac reload --global"


def restart_command(skill: str, path: str) -> str:
    """The command that replaces the sidecar of a skill; the empty path means a skill that all share."""
    return f"{reload_command(path)} --restart {skill}"


def logs_command(skill: str, path: str) -> str:
    """The command that prints what a skill's sidecar printed; the empty path means a skill that all share."""
    return f"omac logs {skill} --workdir {quoted(path)}" if path else f"omac logs {skill} --global"


def commands_for(sidecar: Sidecar, skill: str, path: str) -> tuple[str, ...]:
    """The commands for a sidecar that does not run: the one that prints why it ended, if it did, and another start, at
    once where it waits for one; of one that starts, the one that prints what it does: a reload would leave it so."""
    if sidecar.status in ("idle", "requested", "started", "healthy"):
        return (logs_command(skill, path),)
    again = restart_command(skill, path) if sidecar.status in ("exited", "backoff") else reload_command(path)
    fell = sidecar.detail and sidecar.has_run and not sidecar.fix and not sidecar.missing
    return (logs_command(skill, path), again) if fell else (again,)


def _stub_route(stub: RouteStubbed) -> Route:
    return Route(stub.mount, MAX_BODY_BYTES, stub.why, stub.detail, stub.missing, stub.fix)


def evolve(state: Directory, event: Event) -> Directory:
    """The state after `event`. Raises KeyError for an event that cannot follow: the journal is damaged."""
    status = TABLE[state.status, type(event)]
    match event:
        case ActivationRequested(path, harness, digest):
            return Directory(path, harness, status, state.generation + 1, {digest: None} if digest else {})
        case SessionAdmitted(session, digest):
            return replace(state, tokens=_bounded({**state.tokens, digest: session}))
        case SessionEnded(_, digest):
            return replace(state, tokens={token: holder for token, holder in state.tokens.items() if token != digest})
        case ReloadRequested(restarts):
            return replace(state, status=status, generation=state.generation + 1, restarts=restarts)
        case SkillAppeared(name, base, source, bundle_hash, mount):
            return replace(state, skills={**state.skills, name: Skill(name, base, source, bundle_hash, mount)})
        case SkillPlanned(name, spec, max_body_bytes, _, limits):
            plans = {**state.plans, name: SkillPlan(spec, max_body_bytes, limits)}
            return replace(state, plans=plans, planned=state.generation)
        case SkillVanished(name):
            return replace(state, skills=_without(state.skills, name), plans=_without(state.plans, name))
        case RouteMounted() | RouteStubbed() | RouteUnmounted():
            return replace(state, routes=_routes(state.routes, event))
        case ActivationFailed(detail):
            return replace(state, status=status, tokens={}, failure=detail)
        case DeactivationRequested():
            return replace(state, status=status, tokens={})
        case Deactivated():
            return Directory(state.path, state.harness, status, state.generation, failure=state.failure)
        case _:
            return replace(state, status=status)


def _routes(routes: dict[str, Route], event: RouteMounted | RouteStubbed | RouteUnmounted) -> dict[str, Route]:
    match event:
        case RouteMounted(skill, mount, max_body_bytes, limits):
            return {**routes, skill: Route(mount, max_body_bytes, limits=limits)}
        case RouteStubbed(skill):
            return {**routes, skill: _stub_route(event)}
        case RouteUnmounted(skill):
            return _without(routes, skill)


def _without(mapping: dict[str, Kept], name: str) -> dict[str, Kept]:
    return {other: kept for other, kept in mapping.items() if other != name}


def _bounded(tokens: dict[TokenDigest, str | None]) -> dict[TokenDigest, str | None]:
    """Return the launch token and those of the sessions admitted last."""
    if len(tokens) > SESSIONS_MAX + 1:
        del tokens[next(digest for digest, session in tokens.items() if session is not None)]
    return tokens


EVENTS: tuple[type[Event], ...] = tuple(dict.fromkeys(event for _, event in TABLE))
AGGREGATE = Aggregate("directory", Directory(), decide, evolve, EVENTS)
