"""domain/directories/directory.py: the numbered rules, for every state, command and history."""

from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tables import deviations
from tiers import examples

from omac.domain.directories import directory
from omac.domain.directories.directory import (
    SESSIONS_MAX,
    TABLE,
    ActivationPlan,
    AdmitSession,
    AdoptPlan,
    Command,
    Directory,
    EndSession,
    FailActivation,
    FinishDeactivation,
    RequestActivation,
    RequestDeactivation,
    RequestReload,
    Settle,
    Status,
    settled,
)
from omac.domain.directories.events import (
    MAX_BODY_BYTES,
    Activated,
    ActivatedPartially,
    ActivationFailed,
    ActivationRequested,
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
    SkillPlanned,
    SkillVanished,
)
from omac.domain.kernel.event import Event
from omac.domain.kernel.ids import TokenDigest
from omac.domain.kernel.refusal import Refusal
from omac.domain.sidecars import sidecar
from omac.domain.sidecars.sidecar import Sidecar, SidecarSpec

T1, T2, T3 = (TokenDigest(text) for text in ("t1", "t2", "t3"))
EVENTS: tuple[Event, ...] = (
    ActivationRequested("/w", "opencode", T1),
    SessionAdmitted("s1", T2),
    SessionEnded("s1", T2),
    SkillAppeared("echo", "agents", "/s", "sha256:1", "echo"),
    SkillPlanned("echo", problem="it has no sidecar"),
    SkillVanished("echo"),
    RouteMounted("echo", "echo"),
    RouteStubbed("echo", "echo", "skill-broken", "it fell"),
    RouteUnmounted("echo"),
    Activated(),
    ActivatedPartially(),
    ActivationFailed("no such folder"),
    ReloadRequested(),
    DeactivationRequested("asked for"),
    Deactivated(),
)


def fold(state: Directory, events: list[Event]) -> Directory:
    for event in events:
        state = directory.evolve(state, event)
    return state


def skill(name: str, code: str = "1") -> Skill:
    return Skill(name, "agents", f"/s/{name}", f"sha256:{code}", name)


def spec(name: str, code: str = "1") -> SidecarSpec:
    return SidecarSpec(name, name, "/w", f"/s/{name}", "/s", f"sha256:{code}", True, ("run",))


def stub(name: str, detail: str = "its code is not approved") -> RouteStubbed:
    return RouteStubbed(name, name, "skill-broken", detail, (), ("omac approve",))


def plan_of(runs: str = "", stubs: str = "", code: str = "1", limit: int = 5) -> ActivationPlan:
    return ActivationPlan(
        {name: skill(name, code) for name in runs + stubs},
        {name: spec(name, code) for name in runs},
        dict.fromkeys(runs, limit),
        {name: stub(name) for name in stubs},
    )


def healthy(name: str, generation: int = 1, code: str = "1") -> Sidecar:
    return Sidecar("healthy", spec(name, code), generation, sidecar.Birth(1, 1, "b", 1, True, ""))


def gave_up(name: str, generation: int = 1) -> Sidecar:
    return Sidecar("gave_up", spec(name), generation, failures=3, detail="it fell", has_run=True)


ACTIVATING = fold(Directory(), [EVENTS[0]])
ACTIVE = fold(
    ACTIVATING, [*directory.decide(AdoptPlan(plan_of("a")), ACTIVATING), RouteMounted("a", "a", 5), Activated()]
)


def state_of(status: Status) -> Directory:
    return Directory("/w", "opencode", status, 1)


def test_the_table_is_the_whole_truth() -> None:
    """An event in the table leads to the status named there; any other raises KeyError."""
    states = {status: state_of(status) for status in get_args(Status)}
    assert deviations(directory.evolve, TABLE, states, EVENTS) == []


def test_the_table_leads_everywhere_and_back() -> None:
    """Every status can be reached from offline, and offline from every status."""
    reached: set[Status] = {"offline"}
    back: set[Status] = {"offline"}
    for _ in TABLE:
        reached |= {to for (status, _), to in TABLE.items() if status in reached}
        back |= {status for (status, _), to in TABLE.items() if to in back}
    assert reached == back == set(get_args(Status))
    assert {event for _, event in TABLE} == {type(event) for event in EVENTS}


@pytest.mark.parametrize(
    ("status", "command", "events"),
    [
        ("offline", RequestActivation("/w", "pi", T1), [ActivationRequested("/w", "pi", T1)]),
        ("activating", RequestActivation("/w", "pi", T1), []),
        ("active", RequestActivation("/w", "pi", T1), []),
        ("deactivating", RequestActivation("/w", "pi", T1), []),
        ("active", AdmitSession("s1", T2), [SessionAdmitted("s1", T2)]),
        ("activating", AdmitSession("s1", T2), [SessionAdmitted("s1", T2)]),
        ("active", EndSession("s1"), []),
        ("offline", EndSession("s1"), []),
        ("active", RequestReload(), [ReloadRequested()]),
        ("active_partial", RequestReload(), [ReloadRequested()]),
        ("activating", RequestReload(), []),
        ("active", AdoptPlan(plan_of(stubs="a")), []),
        ("deactivating", AdoptPlan(plan_of(stubs="a")), []),
        ("activating", FailActivation("x"), [ActivationFailed("x")]),
        ("deactivating", FailActivation("x"), []),
        ("offline", RequestDeactivation("x"), []),
        ("deactivating", RequestDeactivation("x"), []),
        *((status, RequestDeactivation("x"), [DeactivationRequested("x")]) for status in ("activating", "active")),
        ("deactivating", FinishDeactivation(), [Deactivated()]),
        ("active", FinishDeactivation(), []),
        ("offline", FinishDeactivation(), []),
        ("deactivating", Settle({}), []),
        ("offline", Settle({}), []),
        ("activating", Settle({}), []),
        ("activating", AdoptPlan(plan_of()), [Activated()]),
        ("active", Settle({}), []),
    ],
)
def test_decisions(status: Status, command: Command, events: list[Event]) -> None:
    """Each command means these events in this status."""
    assert directory.decide(command, state_of(status)) == events


@pytest.mark.parametrize("status", ["offline", "deactivating"])
@pytest.mark.parametrize("command", [AdmitSession("s1", T2), RequestReload()])
def test_what_needs_an_active_directory_is_refused(status: Status, command: Command) -> None:
    """The refusal names the directory and asks to activate it first."""
    with pytest.raises(Refusal, match="/w is not active; activate it first") as caught:
        directory.decide(command, state_of(status))
    assert caught.value.reason == "directory-offline"


def test_an_activation_begins_afresh() -> None:
    """A new activation has one launch token and the next generation, and keeps nothing of the previous activation."""
    old = fold(ACTIVATING, [ActivationFailed("it was gone"), Deactivated()])
    assert (old.status, old.failure, old.tokens) == ("offline", "it was gone", {})
    new = fold(old, [ActivationRequested("/w", "opencode", T2)])
    assert new == Directory("/w", "opencode", "activating", 2, {T2: None})


def test_a_session_has_one_token() -> None:
    """A session that asks again keeps its token; each session has its own."""
    state = fold(ACTIVE, directory.decide(AdmitSession("s1", T2), ACTIVE))
    assert directory.decide(AdmitSession("s1", T3), state) == []
    state = fold(state, directory.decide(AdmitSession("s2", T3), state))
    assert directory.decide(EndSession("s1"), state) == [SessionEnded("s1", T2)]
    assert state.tokens == {T1: None, T2: "s1", T3: "s2"}


@pytest.mark.parametrize("end", [ActivationFailed("x"), DeactivationRequested("x")])
def test_tokens_are_dead_from_the_request_of_the_end(end: Event) -> None:
    """The tokens of a directory are dead from the request of its end, while it is still deactivating."""
    state = fold(ACTIVATING, [SessionAdmitted("s1", T2), end])
    assert (state.status, state.tokens, state.reachable) == ("deactivating", {}, False)


def test_a_reload_keeps_tokens_and_is_a_new_generation() -> None:
    """A reload keeps tokens and routes. It is a new generation, so that sidecars that gave up are tried again."""
    state = fold(ACTIVE, [ReloadRequested()])
    assert (state.tokens, state.generation, state.routes) == (ACTIVE.tokens, 2, ACTIVE.routes)


def test_a_plan_is_adopted_by_its_differences() -> None:
    """A skill that is gone is unmounted before it vanishes; a new or changed skill appears; each skill's plan is
    recorded."""
    reloading = fold(ACTIVE, [ReloadRequested()])
    assert directory.decide(AdoptPlan(plan_of("a")), reloading) == [SkillPlanned("a", spec("a"), 5)]
    assert directory.decide(AdoptPlan(plan_of(stubs="b")), reloading) == [
        RouteUnmounted("a"),
        SkillVanished("a"),
        SkillAppeared("b", "agents", "/s/b", "sha256:1", "b"),
        SkillPlanned("b", problem="its code is not approved"),
        stub("b"),
    ]
    assert directory.decide(AdoptPlan(plan_of("a", code="2")), reloading) == [
        SkillAppeared("a", "agents", "/s/a", "sha256:2", "a"),
        SkillPlanned("a", spec("a", "2"), 5),
    ]
    stubbed = fold(reloading, directory.decide(AdoptPlan(plan_of(stubs="a")), reloading))
    assert directory.decide(AdoptPlan(plan_of(stubs="a")), stubbed) == [
        SkillPlanned("a", problem="its code is not approved")
    ]
    assert stubbed.routes["a"].why == "skill-broken"


@pytest.mark.parametrize(
    ("sidecars", "events"),
    [
        ({"a": Sidecar(), "b": Sidecar()}, []),
        ({"a": healthy("a"), "b": Sidecar()}, [RouteMounted("a", "a", 5)]),
        (
            {"a": healthy("a"), "b": healthy("b")},
            [RouteMounted("a", "a", 5), RouteMounted("b", "b", 5), Activated()],
        ),
        (
            {"a": healthy("a"), "b": gave_up("b")},
            [
                RouteMounted("a", "a", 5),
                RouteStubbed("b", "b", "skill-broken", "it fell", (), ("omac logs b --workdir /w", "omac reload /w")),
                ActivatedPartially(),
            ],
        ),
        ({"a": healthy("a"), "b": gave_up("b", generation=0)}, [RouteMounted("a", "a", 5)]),
        ({"a": healthy("a"), "b": healthy("b", code="old")}, [RouteMounted("a", "a", 5)]),
        (
            {"a": healthy("a"), "b": replace(healthy("b"), status="backoff", failures=1)},
            [RouteMounted("a", "a", 5), RouteMounted("b", "b", 5), ActivatedPartially()],
        ),
        (
            {"a": healthy("a"), "b": replace(healthy("b"), status="started", failures=1)},
            [RouteMounted("a", "a", 5), RouteMounted("b", "b", 5), ActivatedPartially()],
        ),
        ({"a": healthy("a"), "b": replace(healthy("b"), status="stopping")}, [RouteMounted("a", "a", 5)]),
    ],
)
def test_an_activation_settles(sidecars: dict[str, Sidecar], events: list[Event]) -> None:
    """Each route follows its sidecar once that has settled. The activation ends when all have, in full or in part."""
    plan = plan_of("ab")
    state = fold(ACTIVATING, directory.decide(AdoptPlan(plan), ACTIVATING))
    decided = directory.decide(Settle(sidecars), state)
    assert decided == events
    again = fold(state, decided)
    if again.status != "activating":
        assert directory.decide(Settle(sidecars), again) == []


def test_stubs_make_an_activation_partial() -> None:
    """An activation with a stubbed skill ends as partial, even if all others are ready."""
    plan = plan_of("a", stubs="b")
    state = fold(ACTIVATING, directory.decide(AdoptPlan(plan), ACTIVATING))
    events = directory.decide(Settle({"a": healthy("a"), "b": Sidecar()}), state)
    assert events[-1] == ActivatedPartially()


@pytest.mark.parametrize(
    ("status", "current", "events"),
    [
        ("active", healthy("a"), []),
        ("active", replace(healthy("a"), status="backoff", failures=1), []),
        (
            "active",
            gave_up("a", generation=0),
            [
                RouteStubbed("a", "a", "skill-broken", "it fell", (), ("omac logs a --workdir /w", "omac reload /w")),
                ActivatedPartially(),
            ],
        ),
        ("active_partial", healthy("a"), [Activated()]),
        ("active_partial", replace(healthy("a"), status="started"), []),
    ],
)
def test_an_active_directory_follows_its_sidecars(status: Status, current: Sidecar, events: list[Event]) -> None:
    """An active directory becomes partial when a sidecar gives up, and whole when the last is healthy. A backoff
    changes nothing."""
    assert directory.decide(Settle({"a": current}), replace(ACTIVE, status=status)) == events


def test_a_reload_is_not_ended_by_an_earlier_plan() -> None:
    """A reload waits for the plan that is made after its request; an earlier plan does not end it."""
    reloading = fold(ACTIVE, [ReloadRequested()])
    assert directory.decide(Settle({"a": healthy("a")}), reloading) == []


@pytest.mark.parametrize(
    ("current", "expected"),
    [
        (Sidecar(), False),
        (healthy("a"), True),
        (healthy("a", code="old"), False),
        (gave_up("a"), True),
        (gave_up("a", generation=0), False),
        (replace(healthy("a"), status="requested"), False),
        (replace(healthy("a"), status="requested", failures=1), True),
    ],
)
def test_settled(current: Sidecar, expected: bool) -> None:
    """A sidecar is settled when it runs as wanted or has failed at least once in this generation."""
    assert settled(spec("a"), current, ACTIVATING) is expected


def test_the_fix_can_be_pasted() -> None:
    """The fix of a stub is quoted for a shell, even for a path with spaces and quotes."""
    state = replace(ACTIVE, path="/home/u/it's mine")
    (stubbed, _) = directory.decide(Settle({"a": gave_up("a")}), state)
    assert isinstance(stubbed, RouteStubbed)
    path = "'/home/u/it'\"'\"'s mine'"
    assert stubbed.fix == (f"omac logs a --workdir {path}", f"omac reload {path}")


def test_a_stub_is_a_route_with_a_reason() -> None:
    """A stub is a route with its reason, and a mounted route has its own limit."""
    state = fold(ACTIVATING, [stub("a"), RouteMounted("b", "b", 7)])
    assert state.routes == {
        "a": Route("a", MAX_BODY_BYTES, "skill-broken", "its code is not approved", (), ("omac approve",)),
        "b": Route("b", 7),
    }


def test_a_token_in_use_stays_with_its_session() -> None:
    """An admission with a token in use records nothing, so the launch or the other session keeps that token."""
    state = fold(ACTIVE, directory.decide(AdmitSession("s1", T3), ACTIVE))
    for digest in state.tokens:
        assert directory.decide(AdmitSession("s2", digest), state) == []


def test_nothing_is_left_of_it_offline() -> None:
    """A deactivation unmounts the routes before it records the end; path and generation stay known."""
    state = fold(ACTIVE, [DeactivationRequested("x")])
    events = directory.decide(FinishDeactivation(), state)
    assert events == [RouteUnmounted("a"), Deactivated()]
    assert fold(state, events) == Directory("/w", "opencode", "offline", 1)


def sidecars() -> st.SearchStrategy[Sidecar]:
    """Return a strategy for any sidecar of the skills `a` and `b`."""
    return st.builds(
        lambda name, status, generation, code, failures: Sidecar(status, spec(name, code), generation, None, failures),
        st.sampled_from("ab"),
        st.sampled_from(get_args(sidecar.Status)),
        st.integers(0, 4),
        st.sampled_from("12"),
        st.integers(0, 2),
    )


PLANS = st.builds(plan_of, st.sampled_from(["", "a", "ab"]), st.sampled_from(["", "c", "cd"]), st.sampled_from("12"))
BOTH = st.fixed_dictionaries({name: sidecars() for name in "abcd"})
COMMANDS: st.SearchStrategy[Command] = st.one_of(
    st.builds(RequestActivation, st.just("/w"), st.just("opencode"), st.sampled_from([T1, T2])),
    st.builds(EndSession, st.sampled_from(["s1", "s2"])),
    st.builds(AdmitSession, st.sampled_from(["s1", "s2"]), st.sampled_from([T2, T3])),
    st.just(RequestReload()),
    st.builds(AdoptPlan, PLANS),
    st.builds(Settle, BOTH),
    st.builds(RequestDeactivation, st.just("x")),
    st.just(FailActivation("x")),
    st.just(FinishDeactivation()),
)


@pytest.mark.full
@settings(max_examples=examples(200))
@given(st.lists(st.tuples(COMMANDS, BOTH), max_size=30))
def test_the_rules_hold_in_every_history(steps: list[tuple[Command, dict[str, Sidecar]]]) -> None:
    """Rules 1 to 5 hold after any sequence of commands, and only the documented refusal is raised."""
    state = Directory()
    refused: set[tuple[str, bool]] = set()
    for command, around in steps:
        commands: list[Command] = [command]
        if isinstance(command, AdoptPlan):  # as its owner does it: settle by the plan just adopted
            commands.append(Settle(around))
        for each in commands:
            try:
                events = directory.decide(each, state)
            except Refusal as refusal:
                refused.add((refusal.reason, state.reachable))
                continue
            before, state = state, fold(state, events)
            assert bool(state.tokens) == state.reachable
            assert state.generation >= before.generation
            if isinstance(each, RequestReload):
                assert state.tokens == before.tokens
            if isinstance(each, RequestDeactivation | FailActivation) and before.status == "activating":
                assert state.status == "deactivating"
            if state.status == "active":
                assert all(route.why is None for route in state.routes.values())
            assert state.routes.keys() <= state.skills.keys()
            assert state.status != "offline" or not state.skills
    assert refused <= {("directory-offline", False)}


@given(PLANS, BOTH)
def test_every_activation_can_end(plan: ActivationPlan, around: dict[str, Sidecar]) -> None:
    """An activation ends once every sidecar has settled, in whatever way."""
    adopted = directory.decide(AdoptPlan(plan), ACTIVATING)
    state = fold(ACTIVATING, adopted)
    done = {
        name: replace(current, spec=plan.specs.get(name), status="gave_up", generation=1)
        if current.failures == 0 and current.status != "healthy"
        else replace(current, spec=plan.specs.get(name), generation=1)
        for name, current in around.items()
    }
    events = [*adopted, *directory.decide(Settle(done), state)]
    assert isinstance(events[-1], Activated | ActivatedPartially)
    ready = all(done[name].status == "healthy" for name in plan.specs)
    assert isinstance(events[-1], Activated) == (ready and not plan.stubs)


def test_the_oldest_session_ends_for_one_too_many() -> None:
    """Rule 6: an event ends the oldest session before the newest is admitted, and the launch token stays. A session
    that asks again after its end is admitted like any other."""
    state = fold(Directory(), [ActivationRequested("/w", "opencode", T1)])
    for number in range(SESSIONS_MAX):
        (event,) = directory.decide(AdmitSession(f"s{number}", TokenDigest(f"d{number}")), state)
        state = directory.evolve(state, event)
    assert directory.decide(AdmitSession("s0", T2), state) == []
    for ended, admitted in ((0, f"s{SESSIONS_MAX}"), (1, "s0")):
        events = directory.decide(AdmitSession(admitted, TokenDigest(f"new-{admitted}")), state)
        digest = TokenDigest(f"new-{admitted}")
        assert events == [SessionEnded(f"s{ended}", TokenDigest(f"d{ended}")), SessionAdmitted(admitted, digest)]
        state = fold(state, events)
    assert len(state.tokens) == SESSIONS_MAX + 1
    assert state.tokens[T1] is None
    assert (list(state.tokens.values())[1], list(state.tokens.values())[-1]) == ("s2", "s0")


def test_the_fold_keeps_to_the_bound_by_itself() -> None:
    """The fold of a journal from before rule 6, which holds admissions without ends, keeps only the latest sessions."""
    state = fold(Directory(), [ActivationRequested("/w", "opencode", T1)])
    for number in range(3 * SESSIONS_MAX):
        state = directory.evolve(state, SessionAdmitted(f"s{number}", TokenDigest(f"d{number}")))
    sessions = [None, *(f"s{number}" for number in range(2 * SESSIONS_MAX, 3 * SESSIONS_MAX))]
    assert list(state.tokens.values()) == sessions
