"""projections/access/routes.py: the route of a token and a mount, or the reason why they have none."""

from typing import Any

import pytest

from omac.domain.directories import directory
from omac.domain.directories.directory import reload_command
from omac.domain.directories.events import MAX_BODY_BYTES, CallLimits, SessionAdmitted, Skill
from omac.domain.kernel import ids
from omac.domain.kernel.ids import HostId, TokenDigest
from omac.domain.kernel.refusal import Refusal
from omac.domain.settings.owner_limits import OF_A_SKILL, SkillBounds
from omac.domain.sidecars import sidecar
from omac.domain.sidecars.sidecar import Birth, Exit, RestartPolicy, Sidecar, SidecarSpec
from omac.projections.access.routes import ResolvedRoute, down_detail, find_skill, resolve_route
from omac.projections.system import System

LAUNCH, S1, DEAD = (TokenDigest(text) for text in ("t-launch", "t-s1", "t-dead"))


def system_of(history: Any) -> System:
    return System().replay(history.records)


def test_an_open_way(shop: Any, host: HostId) -> None:
    """A route leads to the port of the sidecar, with its limit and the session of the token."""
    system = system_of(shop)
    own = (ids.directory_stream(host, ids.scope_of("/w/shop")),)
    approval = ids.registration_stream(host, ids.scope_of("/w/shop"), "agents", "ready")
    for digest, session in ((LAUNCH, None), (S1, "s1")):
        way = ResolvedRoute(
            "/w/shop", "ready", "ready", session, 40_001, 7, digest, own, approval=approval, generation=1
        )
        assert resolve_route(system, host, digest, "ready") == way


@pytest.mark.parametrize(
    ("digest", "mount", "reason", "message", "fix", "skill"),
    [
        (DEAD, "ready", "unknown-mount", "omac: unknown skill mount", ("omac status",), None),
        (LAUNCH, "nope", "unknown-mount", "omac: unknown skill mount", ("omac status",), None),
        (LAUNCH, "", "unknown-mount", "omac: unknown skill mount", ("omac status",), None),
        (LAUNCH, "pending", "pending-credentials", "pending: KEY is missing", ("export KEY=...",), "pending"),
        (LAUNCH, "broken", "skill-broken", "broken: it fell", ("omac reload /w/shop",), "broken"),
        (
            LAUNCH, "fell", "sidecar-down", "fell: its sidecar is started again in 250 ms, after: it fell over",
            ("omac logs fell --workdir /w/shop", "omac reload /w/shop --restart fell"), "fell",
        ),
    ],
)  # fmt: skip
def test_ways_that_are_closed(
    shop: Any, host: HostId, digest: TokenDigest, mount: str, reason: str, message: str, fix: Any, skill: str | None
) -> None:
    """A refusal has its reason and the facts that a caller may know: an unknown token and an unknown mount look the
    same."""
    with pytest.raises(Refusal) as caught:
        resolve_route(system_of(shop), host, digest, mount)
    refusal = caught.value
    assert (refusal.reason, refusal.message, refusal.fix, refusal.skill) == (reason, message, fix, skill)


@pytest.mark.parametrize("status", ["idle", "started", "healthy"])
def test_a_skill_whose_first_sidecar_starts_is_known_and_down(history: Any, host: HostId, status: str) -> None:
    """A skill whose first sidecar is slow to start is reported as down, so that an agent retries, and not as
    unknown."""
    skills = {name: Skill(name, "agents", f"/s/{name}", "sha256:1", name) for name in ("slow", "words")}
    spec = SidecarSpec("slow", "slow", "/w/shop", "/s/slow", "/s", "sha256:1", True, ("run",))
    history.directory(
        directory.RequestActivation("/w/shop", "opencode", LAUNCH),
        directory.AdoptPlan(directory.ActivationPlan(skills, {"slow": spec}, {"slow": 7}, {})),
    )
    birth = Birth(100, 7, "boot", 40_000, True, "/log/slow")
    steps = (sidecar.RequestSpawn(spec, 1), sidecar.ReportStarted(birth), sidecar.ReportHealthy())
    history.sidecar("slow", *steps[: {"idle": 0, "started": 2, "healthy": 3}[status]])
    system = system_of(history)
    with pytest.raises(Refusal) as caught:
        resolve_route(system, host, LAUNCH, "slow")
    refusal = caught.value
    assert (refusal.reason, refusal.message, refusal.skill, refusal.fix) == (
        "sidecar-down", "slow: its sidecar is starting", "slow", ("omac logs slow --workdir /w/shop",),
    )  # fmt: skip
    assert find_skill(system, host, LAUNCH, "slow")[1:] == ("slow", None)
    for mount in ("words", ""):
        with pytest.raises(Refusal, match="unknown skill mount"):
            resolve_route(system, host, LAUNCH, mount)


def test_no_way_leads_to_a_directory_that_goes_offline(shop: Any, host: HostId) -> None:
    """A directory has no route from the request of its end, though its sidecar still runs."""
    shop.directory(directory.RequestDeactivation("x"))
    with pytest.raises(Refusal, match="unknown skill mount"):
        resolve_route(system_of(shop), host, LAUNCH, "ready")


def test_a_route_is_closed_as_soon_as_its_sidecar_is_to_stop(shop: Any, host: HostId) -> None:
    """A sidecar that is about to stop gets no new call."""
    shop.sidecar("ready", sidecar.RequestStop("replaced"))
    with pytest.raises(Refusal, match="ready: its sidecar is stopping"):
        resolve_route(system_of(shop), host, LAUNCH, "ready")


def test_find_skill_returns_as_much_as_the_token_opens(shop: Any, host: HostId) -> None:
    """A dead token finds nothing, an unknown mount only the directory, and a known mount the skill and its route."""
    system = system_of(shop)
    assert find_skill(system, host, DEAD, "ready") == (directory.Directory(), None, None)
    state, name, route = find_skill(system, host, S1, "nope")
    assert (state.path, name, route) == ("/w/shop", None, None)
    state, name, route = find_skill(system, host, S1, "broken")
    assert (name, route and route.why) == ("broken", "skill-broken")


def test_a_token_that_its_directory_dropped_leads_nowhere(shop: Any, host: HostId) -> None:
    """A journal from before sessions ended admits more of them than a directory keeps; tokens of the dropped ones are
    dead."""
    stream = ids.directory_stream(host, ids.scope_of("/w/shop"))
    admitted = [ids.TokenDigest(f"d{number}") for number in range(directory.SESSIONS_MAX + 1)]
    shop.append(stream, *(SessionAdmitted(f"s-{digest}", digest) for digest in admitted))
    system = system_of(shop)
    with pytest.raises(Refusal, match="unknown skill mount"):
        resolve_route(system, host, admitted[0], "ready")
    assert resolve_route(system, host, admitted[1], "ready").session == f"s-{admitted[1]}"


@pytest.mark.parametrize(
    ("current", "detail"),
    [
        (Sidecar("requested"), "its sidecar is starting"),
        (Sidecar("idle", detail="killed by signal 15"), "its sidecar is starting"),  # omac stopped it, and starts anew
        (Sidecar("started", detail="it fell"), "its sidecar is starting, after: it fell"),
        (Sidecar("backoff", delay_ms=5, detail="it fell"), "its sidecar is started again in 5 ms, after: it fell"),
        (Sidecar("stopping"), "its sidecar is stopping"),
        (Sidecar("gave_up"), "its sidecar gave up"),
    ],
)
def test_why_a_sidecar_does_not_answer(current: Sidecar, detail: str) -> None:
    """The detail describes the state of a sidecar in words for people."""
    assert down_detail(current) == detail


def test_the_reload_command_can_be_pasted() -> None:
    """The reload command quotes a path for a shell."""
    assert reload_command("/w/my shop") == "omac reload '/w/my shop'"


def test_a_sidecar_that_gave_up_and_is_not_stubbed_yet(shop: Any, host: HostId) -> None:
    """A sidecar that gave up closes its route even before its stub is recorded."""
    shop.sidecar("ready", sidecar.ReportExit(Exit(1), 5, "it fell", RestartPolicy(limit=0)))
    with pytest.raises(Refusal) as caught:
        resolve_route(system_of(shop), host, LAUNCH, "ready")
    assert caught.value.reason == "sidecar-down"


def test_a_shared_skill_is_reached_with_the_token_of_a_directory(shop: Any, host: HostId) -> None:
    """Every directory reaches a shared skill below the reserved name. The route names that directory, and ends with its
    token."""
    spec = SidecarSpec("weather", "weather", "", "/g/weather", "/g", "sha256:1", True, ("run",))
    plan = directory.ActivationPlan(
        {"weather": Skill("weather", "agents", "/g/weather", "sha256:1", "weather")},
        {"weather": spec}, {"weather": 9}, {},
    )  # fmt: skip
    shop.directory(directory.RequestActivation("", "opencode", TokenDigest("")), directory.AdoptPlan(plan), path="")
    birth = sidecar.Birth(9, 7, "boot", 40_009, True, "/log/weather")
    started = (sidecar.RequestSpawn(spec, 1), sidecar.ReportStarted(birth), sidecar.ReportHealthy())
    shop.sidecar("weather", *started, path="")
    shop.directory(directory.Settle({"weather": shop.sidecar("weather", path="")}), path="")
    system = system_of(shop)
    way = resolve_route(system, host, S1, "__global__/weather")
    streams = tuple(ids.directory_stream(host, scope) for scope in (ids.scope_of("/w/shop"), ids.GLOBAL))
    approval = ids.registration_stream(host, ids.GLOBAL, "agents", "weather")
    assert way == ResolvedRoute(
        "/w/shop", "weather", "__global__/weather", "s1", 40_009, 9, S1, streams, approval=approval, generation=1
    )
    for digest, mount in ((S1, "weather"), (DEAD, "__global__/weather"), (TokenDigest(""), "__global__/weather")):
        with pytest.raises(Refusal) as caught:
            resolve_route(system, host, digest, mount)
        assert caught.value.reason == "unknown-mount"
    shop.directory(directory.RequestDeactivation("x"), path="")
    with pytest.raises(Refusal):
        resolve_route(system_of(shop), host, S1, "__global__/weather")


def test_within_what_the_owner_allows() -> None:
    """The stricter of each limit holds, with its origin. How long a call may be silent is left to the facade, which
    waits less for an answer to begin."""
    own = CallLimits(idle_s=600, total_s=50, concurrent=4)
    way = ResolvedRoute("/w", "slack", "slack", None, 1, 1_000, S1, limits=own)
    assert way.within(SkillBounds()) == way
    bounds = SkillBounds(max_body_bytes=500, idle_s=60, total_s=90, concurrent=2, per_second=7)
    held = way.within(bounds)
    assert (held.max_body_bytes, held.limits, held.bounds) == (500, CallLimits(600, 50, 2, 7), bounds)
    whose = {"max_body_bytes": 500, "total_s": 50, "concurrent": 2, "per_second": 7}
    origins = {field: held.limit(field, value) for field, value in whose.items()}
    assert origins["total_s"] == (
        "the limit of its omac.yaml",
        "omac show slack --workdir /w  # sidecar.limits.total_timeout_secs of its omac.yaml",
    )
    for field, setting in OF_A_SKILL.items():
        if field in ("max_body_bytes", "concurrent", "per_second"):
            words, fix = origins[field]
            assert words == "the limit of your settings"
            assert fix.startswith(f"omac settings set {setting} NUMBER")
    assert way.within(SkillBounds(max_body_bytes=2_000)).max_body_bytes == 1_000
    unlimited = ResolvedRoute("/w", "slack", "__global__/slack", None, 1, MAX_BODY_BYTES, S1)
    for field, value in (("max_body_bytes", MAX_BODY_BYTES), ("idle_s", 30)):
        whose_default, fix = unlimited.limit(field, value)
        assert whose_default == "the default limit"
        assert fix == f"omac show slack --global  # sidecar.{OF_A_SKILL[field]} of its omac.yaml"
