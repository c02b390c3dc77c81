"""domain/directories/directory.py: the numbered rules, for every state, command and history."""

import itertools
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tables import failing
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
    return Sidecar("gave_up", spec(name), generation, failures=3, detail="it fell")


ACTIVATING = fold(Directory(), [EVENTS[0]])
ACTIVE = fold(
    ACTIVATING, [*directory.decide(AdoptPlan(plan_of("a")), ACTIVATING), RouteMounted("a", "a", 5), Activated()]
)


def state_of(status: Status) -> Directory:
    return Directory("/w", "opencode", status, 1)


def test_the_table_is_the_whole_truth() -> None:
    """What is in it leads to the status it says; what is not cannot follow."""

    def check(status: Status, event: Event) -> None:
        if (status, type(event)) in TABLE:
            assert directory.evolve(state_of(status), event).status == TABLE[status, type(event)]
        else:
            with pytest.raises(KeyError):
                directory.evolve(state_of(status), event)

    assert failing(check, itertools.product(get_args(Status), EVENTS)) == []


def test_the_table_leads_everywhere_and_back() -> None:
    """Every status can be reached from offline, and from each there is a way back."""
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
    """Given a status, when a command comes, then these events."""
    assert directory.decide(command, state_of(status)) == events


@pytest.mark.parametrize("status", ["offline", "deactivating"])
@pytest.mark.parametrize("command", [AdmitSession("s1", T2), RequestReload()])
def test_what_needs_an_active_directory_is_refused(status: Status, command: Command) -> None:
    """The refusal names the directory and what to do."""
    with pytest.raises(Refusal, match="/w is not active; activate it first") as caught:
        directory.decide(command, state_of(status))
    assert caught.value.reason == "directory-offline"


def test_an_activation_begins_afresh() -> None:
    """One launch token, the next generation, and nothing of the life before."""
    old = fold(ACTIVATING, [ActivationFailed("it was gone"), Deactivated()])
    assert (old.status, old.failure, old.tokens) == ("offline", "it was gone", {})
    new = fold(old, [ActivationRequested("/w", "opencode", T2)])
    assert new == Directory("/w", "opencode", "activating", 2, {T2: None})


def test_a_session_has_one_token() -> None:
    """Asking again changes nothing; each session its own."""
    state = fold(ACTIVE, directory.decide(AdmitSession("s1", T2), ACTIVE))
    assert directory.decide(AdmitSession("s1", T3), state) == []
    state = fold(state, directory.decide(AdmitSession("s2", T3), state))
    assert directory.decide(EndSession("s1"), state) == [SessionEnded("s1", T2)]
    assert state.tokens == {T1: None, T2: "s1", T3: "s2"}


@pytest.mark.parametrize("end", [ActivationFailed("x"), DeactivationRequested("x")])
def test_tokens_are_dead_from_the_request_of_the_end(end: Event) -> None:
    """Also while something of it still runs."""
    state = fold(ACTIVATING, [SessionAdmitted("s1", T2), end])
    assert (state.status, state.tokens, state.reachable) == ("deactivating", {}, False)


def test_a_reload_keeps_tokens_and_is_a_new_generation() -> None:
    """So that sidecars that gave up are tried again."""
    state = fold(ACTIVE, [ReloadRequested()])
    assert (state.tokens, state.generation, state.routes) == (ACTIVE.tokens, 2, ACTIVE.routes)


def test_a_plan_is_adopted_by_its_differences() -> None:
    """What is gone is unmounted before it vanishes, what is new or changed appears; what shall run is always said."""
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
                RouteStubbed("b", "b", "skill-broken", "it fell", (), ("omac reload /w",)),
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
    """Each route as its sidecar settles, the end when all have: in full, or in part."""
    plan = plan_of("ab")
    state = fold(ACTIVATING, directory.decide(AdoptPlan(plan), ACTIVATING))
    found = directory.decide(Settle(sidecars), state)
    assert found == events
    again = fold(state, found)
    if again.status != "activating":
        assert directory.decide(Settle(sidecars), again) == []


def test_stubs_make_an_activation_partial() -> None:
    """Every skill ready, or it is partial."""
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
            [RouteStubbed("a", "a", "skill-broken", "it fell", (), ("omac reload /w",)), ActivatedPartially()],
        ),
        ("active_partial", healthy("a"), [Activated()]),
        ("active_partial", replace(healthy("a"), status="started"), []),
    ],
)
def test_an_active_directory_follows_its_sidecars(status: Status, current: Sidecar, events: list[Event]) -> None:
    """It becomes partial when one gives up, and whole when the last is healthy; a pause changes nothing."""
    assert directory.decide(Settle({"a": current}), replace(ACTIVE, status=status)) == events


def test_a_reload_is_not_ended_by_an_earlier_plan() -> None:
    """Only what is planned after it was requested says what shall run."""
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
    """It runs as wanted, or has failed at least once in this generation."""
    assert settled(spec("a"), current, ACTIVATING) is expected


def test_the_way_to_mend_can_be_pasted() -> None:
    """Whatever the path is made of."""
    state = replace(ACTIVE, path="/home/u/it's mine")
    (stubbed, _) = directory.decide(Settle({"a": gave_up("a")}), state)
    assert isinstance(stubbed, RouteStubbed)
    assert stubbed.fix == ("omac reload '/home/u/it'\"'\"'s mine'",)


def test_a_stub_is_a_route_with_a_reason() -> None:
    """And a mounted route has its own limit."""
    state = fold(ACTIVATING, [stub("a"), RouteMounted("b", "b", 7)])
    assert state.routes == {
        "a": Route("a", MAX_BODY_BYTES, "skill-broken", "its code is not approved", (), ("omac approve",)),
        "b": Route("b", 7),
    }


def test_a_token_is_taken_from_nobody() -> None:
    """Neither the launch nor another session loses its own to a session that comes with the same."""
    state = fold(ACTIVE, directory.decide(AdmitSession("s1", T3), ACTIVE))
    for digest in state.tokens:
        assert directory.decide(AdmitSession("s2", digest), state) == []


def test_nothing_is_left_of_it_offline() -> None:
    """Its routes are unmounted before the end is recorded; path and generation stay known."""
    state = fold(ACTIVE, [DeactivationRequested("x")])
    events = directory.decide(FinishDeactivation(), state)
    assert events == [RouteUnmounted("a"), Deactivated()]
    assert fold(state, events) == Directory("/w", "opencode", "offline", 1)


def sidecars() -> st.SearchStrategy[Sidecar]:
    """Any sidecar that the skills `a` and `b` may have."""
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


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(COMMANDS, BOTH), max_size=30))
def test_the_rules_hold_in_every_history(steps: list[tuple[Command, dict[str, Sidecar]]]) -> None:
    """Rules 1 to 5, after any sequence of commands; nothing but the documented refusal is raised."""
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
    """Once every sidecar has settled, in whatever way, the activation is over."""
    adopted = directory.decide(AdoptPlan(plan), ACTIVATING)
    state = fold(ACTIVATING, adopted)
    done = {
        name: replace(one, spec=plan.specs.get(name), status="gave_up", generation=1)
        if one.failures == 0 and one.status != "healthy"
        else replace(one, spec=plan.specs.get(name), generation=1)
        for name, one in around.items()
    }
    events = [*adopted, *directory.decide(Settle(done), state)]
    assert isinstance(events[-1], Activated | ActivatedPartially)
    ready = all(done[name].status == "healthy" for name in plan.specs)
    assert isinstance(events[-1], Activated) == (ready and not plan.stubs)


def test_the_oldest_session_ends_for_one_too_many() -> None:
    """Rule 6: by an event, before the newest is admitted; the launch token stays, and a session that asks again after
    its end is admitted as any other."""
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
    """A journal from before rule 6 holds admissions without ends: its fold holds the latest sessions all the same."""
    state = fold(Directory(), [ActivationRequested("/w", "opencode", T1)])
    for number in range(3 * SESSIONS_MAX):
        state = directory.evolve(state, SessionAdmitted(f"s{number}", TokenDigest(f"d{number}")))
    wanted = [None, *(f"s{number}" for number in range(2 * SESSIONS_MAX, 3 * SESSIONS_MAX))]
    assert list(state.tokens.values()) == wanted
